//go:build linux

// Package anchor is between the bench and the program that drives other stores: SQLite, Redis, Tarantool, and a file that
// is appended to and synced. That program is a module of its own (integration/bench/anchors), because its drivers are
// nothing that Millrace should depend on, one of them in C. The bench builds it, gives it a Task on standard input, and reads
// a Result a line from its standard output. Kafka Streams, which is measured at renames, is a program of Java beside it, that
// Maven fetches the libraries of; the bench gives it the items and commands, one a line.
package anchor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// The stores, as tables name them.
const (
	File            = "append and fdatasync, one writer"
	FileByCaller    = "append and fdatasync, by the first caller"
	SQLite          = "SQLite, one order a transaction"
	SQLiteGroup     = "SQLite, group commit"
	Redis           = "Redis, hash field"
	RedisJSON       = "Redis, JSON customer"
	Tarantool       = "Tarantool, a connection each"
	TarantoolShared = "Tarantool, one shared connection"
)

// Stores are all of them, in the order in which tables show them.
func Stores() []string {
	return []string{File, FileByCaller, SQLite, SQLiteGroup, Redis, RedisJSON, Tarantool, TarantoolShared}
}

// Task is the case of orders for one store: it is opened empty, filled with customers, and each workload is measured in turn.
// At the end all orders and counts are compared with what was acknowledged.
type Task struct {
	Store     string
	Dir       string // for its data, on the disk to be measured; it exists and is empty
	Seed      uint64
	Customers int
	Workloads []Workload
	Warmup    time.Duration
	Window    time.Duration
}

// Workload is a number of clients, each with one order on its way at a time.
type Workload struct {
	Name     string
	Clients  int
	Customer int // whose orders they are; -1: each of one that is drawn
}

// Result is what one workload came to.
type Result struct {
	Workload  string
	PerSecond float64
	P50, P99  time.Duration
	CPU       time.Duration // of the store, the client, and whatever else the program runs, for one order
	Others    float64       // % of the machine that others used meanwhile
	// Flushes is how often the disk was told to make durable what it has, for each order, warm-up included; negative where
	// the disk does not count them.
	Flushes float64
}

// SkippedError says why a store cannot be measured here.
type SkippedError struct{ Store, Reason string }

func (e *SkippedError) Error() string { return e.Store + ": " + e.Reason }

// skipped is the status that the program ends with where the store is not installed; the reason is on standard error.
const skipped = 3

// Program is the program, built.
type Program struct{ path string }

// Build builds the program into dir. Source is the directory of its module. Where there is no C compiler, or where the drivers
// cannot be had, the error says so.
func Build(ctx context.Context, source, dir string) (*Program, error) {
	path := filepath.Join(dir, "anchors")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the program of the other stores: %w: %s", err, bytes.TrimSpace(out))
	}
	return &Program{path}, nil
}

// Run measures one store. The error is a *SkippedError where it is not installed.
func (p *Program) Run(ctx context.Context, task *Task) ([]Result, error) {
	input, err := json.Marshal(task)
	if err != nil {
		return nil, fmt.Errorf("encode the task: %w", err)
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, p.path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // its servers end with it likewise
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == skipped {
		return nil, &SkippedError{task.Store, string(bytes.TrimSpace(said.Bytes()))}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", task.Store, err, bytes.TrimSpace(said.Bytes()))
	}
	var results []Result
	for d := json.NewDecoder(&out); ; {
		var r Result
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			return results, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: read a result: %w", task.Store, err)
		}
		results = append(results, r)
	}
}

// Main is the main function of the program: it reads a Task from in, has measure do it, and writes the results to out. It returns
// the status to exit with.
func Main(in io.Reader, out, said io.Writer, measure func(task *Task, report func(Result) error) error) int {
	var task Task
	if err := json.NewDecoder(in).Decode(&task); err != nil {
		fmt.Fprintln(said, "read the task:", err)
		return 2
	}
	report := json.NewEncoder(out)
	err := measure(&task, func(r Result) error { return report.Encode(r) })
	if skip, ok := errors.AsType[*SkippedError](err); ok {
		fmt.Fprintln(said, skip.Reason)
		return skipped
	}
	if err != nil {
		fmt.Fprintln(said, err)
		return 1
	}
	return 0
}
