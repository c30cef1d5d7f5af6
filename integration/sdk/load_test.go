package sdk_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// writer is a client that writes, round by round, a batch under each of its keys, a head and an item with the round's number, and
// reads the heads again.
type writer struct {
	name   string
	keys   []string
	rounds atomic.Int64 // whose writes were acknowledged and read
	stop   func()       // ends it behind its round
	ended  chan error   // why it has ended; nil: it was stopped
}

// writers are clients that write to a container at once.
type writers struct {
	t        *testing.T
	c        *azcosmos.ContainerClient
	database string
	unbroken bool // an error is a fault; else what did not come back is tried again
	all      []*writer

	containers int // c, and those of programs that write to one of their own
}

func newWriters(t *testing.T, db *azcosmos.DatabaseClient, c *azcosmos.ContainerClient, unbroken bool) *writers {
	return &writers{t: t, c: c, database: db.ID(), unbroken: unbroken, containers: 1}
}

// inGo adds a writer that is a goroutine.
func (w *writers) inGo(name string, c *azcosmos.ContainerClient, keys ...string) {
	var stop atomic.Bool
	one := &writer{name: name, keys: keys, stop: func() { stop.Store(true) }, ended: make(chan error, 1)}
	go func() {
		var failed error
		for n := int64(1); !stop.Load() && failed == nil; n++ {
			for _, key := range keys {
				failed = errors.Join(failed, w.insist(func() error { return w.writeAndRead(c, key, n) }))
			}
			if failed == nil {
				one.rounds.Store(n)
			}
		}
		one.ended <- failed
	}()
	w.all = append(w.all, one)
}

// insist repeats what did not come back, unless nothing may fail.
func (w *writers) insist(call func() error) error {
	for {
		err := call()
		_, answered := errors.AsType[*azcore.ResponseError](err)
		refused := answered && status(err) < 500 && !slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooManyRequests, 449}, status(err))
		if wrong, ok := errors.AsType[*lostError](err); ok {
			return wrong
		}
		if err == nil || w.unbroken || refused || w.t.Context().Err() != nil {
			return err
		}
	}
}

// lostError says what a client found instead of what it had written.
type lostError struct{ what string }

func (e *lostError) Error() string { return e.what }

func (w *writers) writeAndRead(c *azcosmos.ContainerClient, key string, n int64) error {
	b := c.NewTransactionalBatch(pk(key))
	b.UpsertItem(object{"id": "head", "pk": key, "n": n}.json(), nil)
	b.UpsertItem(object{"id": fmt.Sprint("item", n), "pk": key, "n": n}.json(), nil)
	resp, err := c.ExecuteTransactionalBatch(w.t.Context(), b, nil)
	if err != nil {
		return err
	}
	if !resp.Success { // an upsert is never refused
		return &lostError{fmt.Sprintf("batch %d of %s: %+v", n, key, resp.OperationResults)}
	}
	read, err := c.ReadItem(w.t.Context(), pk(key), "head", nil)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf(`"n":%d`, n); !bytes.Contains(read.Value, []byte(want)) {
		return &lostError{fmt.Sprintf("behind %s the head of %s is %s", want, key, read.Value)}
	}
	return nil
}

// inNode adds a writer by the JavaScript SDK, if it can be had.
func (w *writers) inNode(name string, s *server, keys ...string) {
	w.t.Helper()
	if err := packages(); err != nil {
		w.t.Logf("@azure/cosmos cannot be had, nothing is written with it: %v", err)
		return
	}
	cmd := exec.CommandContext(w.t.Context(), "node", "writer.js")
	cmd.Dir = "js"
	w.program(name, s, cmd, keys)
}

// inPython adds a writer by the Python SDK, if it can be had; client is sync or aio, one of the SDK's two.
func (w *writers) inPython(name string, s *server, client string, keys ...string) {
	w.t.Helper()
	path, err := interpreter()
	if err != nil {
		w.t.Logf("azure-cosmos cannot be had, nothing is written with it: %v", err)
		return
	}
	cmd := exec.CommandContext(w.t.Context(), path, "writer.py")
	cmd.Dir = "python"
	cmd.Env = []string{"MILLRACE_CLIENT=" + client, "PYTHONDONTWRITEBYTECODE=1"}
	w.program(name, s, cmd, keys)
}

// inJava adds a client by the Java SDK, if it can be had, which writes to a container of its own and checks that itself.
func (w *writers) inJava(name string, s *server) {
	w.t.Helper()
	if jars, err := javaProgram(); !w.lacks("azure-cosmos for Java", err) {
		w.containers++
		w.program(name, s, java(w.t, s, jars, "millrace.Run", "going"), nil)
	}
}

// inRust adds a client by the Rust SDK, if it can be had, which writes to a container of its own and checks that itself.
func (w *writers) inRust(name string, s *server) {
	w.t.Helper()
	if _, err := rustProgram(); !w.lacks("azure_data_cosmos", err) {
		w.containers++
		w.program(name, s, rust(w.t, s, "going"), nil)
	}
}

// lacks tells whether the machine lacks what a client is made with, and says so.
func (w *writers) lacks(what string, err error) bool {
	w.t.Helper()
	if absent, ok := errors.AsType[*absentError](err); ok {
		w.t.Logf("%s cannot be had, nothing is written with it: %v", what, absent)
		return true
	}
	must(w.t, err)
	return false
}

// program adds a writer that is a program, which prints the number of each round, by itself or in an object, and ends with its input.
func (w *writers) program(name string, s *server, cmd *exec.Cmd, keys []string) {
	w.t.Helper()
	cmd.Env = slices.Concat(os.Environ(), cmd.Env, s.trust(), []string{
		"MILLRACE_ENDPOINT=" + s.endpoint, "MILLRACE_KEY=" + masterKey, "MILLRACE_READ_ONLY_KEY=" + readOnlyKey, "MILLRACE_PARTITIONS=" + strconv.Itoa(partitions),
		"MILLRACE_DATABASE=" + w.database, "MILLRACE_KEYS=" + strings.Join(keys, ","),
	})
	if w.unbroken {
		cmd.Env = append(cmd.Env, "MILLRACE_UNBROKEN=1")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	must(w.t, err)
	stdout, err := cmd.StdoutPipe()
	must(w.t, err)
	must(w.t, cmd.Start())
	one := &writer{name: name, keys: keys, stop: func() { _ = stdin.Close() }, ended: make(chan error, 1)}
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var in struct{ Round int64 }
			n, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil && json.Unmarshal(lines.Bytes(), &in) == nil {
				n = in.Round
			}
			if n > 0 {
				one.rounds.Store(n)
			}
		}
		err := cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, stderr.String())
		}
		one.ended <- err
	}()
	w.all = append(w.all, one)
}

// goOn waits until each writer has begun and ended another round.
func (w *writers) goOn() {
	w.t.Helper()
	before := make([]int64, len(w.all))
	for i, one := range w.all {
		before[i] = one.rounds.Load()
	}
	eventually(w.t, func() (bool, string) {
		for i, one := range w.all {
			select {
			case err := <-one.ended:
				w.t.Fatalf("%s ended in round %d: %v", one.name, one.rounds.Load()+1, err)
			default:
			}
			if one.rounds.Load() < before[i]+2 {
				return false, one.name + " does not go on"
			}
		}
		return true, ""
	})
}

// end stops the writers. What they were told is written must be there, whole batches and no others, and in the change feed.
func (w *writers) end() {
	w.t.Helper()
	for _, one := range w.all {
		one.stop()
	}
	for _, one := range w.all {
		if err := <-one.ended; err != nil {
			w.t.Errorf("%s: %v", one.name, err)
		}
	}
	total := 0
	for _, one := range w.all {
		for _, key := range one.keys {
			read, err := w.c.ReadItem(w.t.Context(), pk(key), "head", nil)
			must(w.t, err)
			head := int(parse(w.t, read.Value)["n"].(float64))
			items := query(w.t, w.c, pk(key), "SELECT VALUE c.n FROM c WHERE c.id != 'head'", 0)
			if told := int(one.rounds.Load()); head < told || len(items) != head {
				w.t.Errorf("%s was told %d batches of %s, the head says %d and there are %d items", one.name, told, key, head, len(items))
			}
			total += head + 1
		}
		w.t.Logf("%s: %d rounds", one.name, one.rounds.Load())
	}
	// The feed shows each item once, in its latest version.
	if got := strings.Fields(follow(w.t, w.c, azcosmos.ChangeFeedOptions{}).rest()); len(got) != total {
		w.t.Errorf("the change feed shows %d items of %d", len(got), total)
	}
}

// keysOf are keys of a writer's own.
func keysOf(name string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%s-%d", name, i))
	}
	return keys
}
