package script

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Config bounds scripts. Zero fields take their defaults.
type Config struct {
	// Enabled is whether scripts are run, and may be made. Default false.
	Enabled bool `yaml:"enabled"`

	// ProcessesMax is how many scripts run at once, each in a process of its own; others
	// wait. Default 4, at most 64.
	ProcessesMax int `yaml:"processesMax"`

	// Time is how long a script may take, what it waits for items included. Default 5s,
	// at most 1m.
	Time time.Duration `yaml:"time"`

	// MemoryBytes is what a script may hold in memory. It is looked at 500 times a
	// second, and may be passed in between. Default 67108864 (64 MiB), at least
	// 8388608 (8 MiB).
	MemoryBytes int64 `yaml:"memoryBytes"`

	// DepthMax is how deep the calls of a script may be. Default 1000, at most 10000.
	DepthMax int `yaml:"depthMax"`

	// ResultBytes bounds what a stored procedure answers, as JSON. Default 4194304
	// (4 MiB), at most 8388608 (8 MiB).
	ResultBytes int `yaml:"resultBytes"`

	// Command is the program that calls ServeIfAsked, with its arguments.
	Command []string `yaml:"-"`
}

// Most of what Config allows.
const (
	processesMost   = 64
	timeMost        = time.Minute
	memoryLeast     = 8 << 20
	depthMost       = 10000
	resultBytesMost = 8 << 20
)

// withDefaults fills in the defaults.
func (c Config) withDefaults() Config {
	c.ProcessesMax = cmp.Or(c.ProcessesMax, 4)
	c.Time = cmp.Or(c.Time, 5*time.Second)
	c.MemoryBytes = cmp.Or(c.MemoryBytes, 64<<20)
	c.DepthMax = cmp.Or(c.DepthMax, 1000)
	c.ResultBytes = cmp.Or(c.ResultBytes, 4<<20)
	return c
}

// Check returns all that is wrong with c, each error beginning with its key.
func (c Config) Check() (errs []error) {
	c = c.withDefaults()
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.ProcessesMax < 1 || c.ProcessesMax > processesMost, "processesMax is %d; 1 to %d are allowed", c.ProcessesMax, processesMost)
	bad(c.Time < time.Millisecond || c.Time > timeMost, "time is %s; 1ms to %s are allowed", c.Time, timeMost)
	bad(c.MemoryBytes < memoryLeast || c.MemoryBytes > 1<<32, "memoryBytes is %d; %d to %d are allowed", c.MemoryBytes, memoryLeast, int64(1)<<32)
	bad(c.DepthMax < 10 || c.DepthMax > depthMost, "depthMax is %d; 10 to %d are allowed", c.DepthMax, depthMost)
	bad(c.ResultBytes < 1024 || c.ResultBytes > resultBytesMost, "resultBytes is %d; 1024 to %d are allowed", c.ResultBytes, resultBytesMost)
	return errs
}

// Why a script did not end well.
var (
	// ErrTime says that it took longer than Config.Time.
	ErrTime = errors.New("the script took too long")
	// ErrMemory says that it held more than Config.MemoryBytes.
	ErrMemory = errors.New("the script needs too much memory")
	// ErrDepth says that its calls were deeper than Config.DepthMax, or nested so deep that the process had no stack for it.
	ErrDepth = errors.New("the script calls too deep")
	// ErrResult says that it made more than Config.ResultBytes.
	ErrResult = errors.New("the result of the script is too large")
	// ErrBusy says that no process was free in time.
	ErrBusy = errors.New("as many scripts run as may run at once")
	// ErrCrashed says that its process ended for no reason that is known: it broke the interpreter.
	ErrCrashed = errors.New("the process of the script has ended")
)

// ThrownError is what a script threw, or why it is none.
type ThrownError struct {
	Message string
	Status  int    // that the error has as its number; 0 if it has none
	Log     string // what was logged up to then
}

func (e *ThrownError) Error() string { return e.Message }

// Ask is a request of a script about items.
type Ask struct {
	Op        string          `json:"op"` // create, upsert, replace, delete, read or query
	Link      string          `json:"link"`
	Body      string          `json:"body"` // JSON
	ETag      string          `json:"etag"`
	NoneMatch string          `json:"noneMatch"`
	NoID      bool            `json:"noId"` // an item without an id is refused, not given one
	Query     *QuerySpec      `json:"query"`
	PageSize  json.RawMessage `json:"pageSize"`
	Continue  string          `json:"continuation"`
}

// QuerySpec is a query as clients send it.
type QuerySpec struct {
	Query      string       `json:"query"`
	Parameters []QueryParam `json:"parameters"`
}

// QueryParam is a parameter of a query.
type QueryParam struct {
	Name  string          `json:"name"` // with @
	Value json.RawMessage `json:"value"`
}

// Answer answers an Ask.
type Answer struct {
	Status  int             `json:"status"`
	Message string          `json:"message,omitempty"` // of a refusal
	Body    json.RawMessage `json:"body,omitempty"`
	// Continuation goes on with a query; "" if nothing follows.
	Continuation string `json:"continuation,omitempty"`
	// Refused says that the script has too little left of its bounds: it was not tried.
	Refused bool `json:"refused,omitempty"`
}

// Program is a script and what it is run with.
type Program struct {
	Body string
	Args json.RawMessage // an array; nil is none

	SelfLink, AltLink string // of the container
	Activity          string
	Logging           bool

	// Of a trigger.
	Trigger           bool
	Operation         string // Create, Replace, Upsert or Delete
	Status            int    // of the answer, for a post-trigger
	Request, Response json.RawMessage
}

// Result is what a script made.
type Result struct {
	Body    json.RawMessage // of the response; nil if the script set none
	Request json.RawMessage // of a trigger's request; nil if it set none
	Log     string          // percent-encoded
}

const (
	// logBytesMax bounds the log of a run: it travels in a header.
	logBytesMax = 4 << 10
	// grace is how long a process may take to notice that its script was interrupted, before it is killed.
	grace = 250 * time.Millisecond
	// helloTime bounds the start of a process.
	helloTime = 10 * time.Second
	// runsMax is after how many runs a process is replaced.
	runsMax = 1000
)

// Engine runs scripts. Safe for concurrent use.
type Engine struct {
	cfg   Config
	slots chan struct{} // a place for each process that runs

	// Guarded by mu.
	mu     sync.Mutex
	free   []*process
	closed bool
}

// NewEngine returns an engine. Processes begin when they are needed. The error says what is wrong with cfg.
func NewEngine(cfg Config) (*Engine, error) {
	if err := errors.Join(cfg.Check()...); err != nil {
		return nil, err
	}
	if len(cfg.Command) == 0 {
		return nil, errors.New("no program is named that runs scripts")
	}
	cfg = cfg.withDefaults()
	return &Engine{cfg: cfg, slots: make(chan struct{}, cfg.ProcessesMax)}, nil
}

// Close ends the processes that are free; those that run end with their runs. It may be called twice.
func (e *Engine) Close() {
	e.mu.Lock()
	free := e.free
	e.free, e.closed = nil, true
	e.mu.Unlock()
	for _, p := range free {
		p.kill()
	}
}

// Time is how long a script may take.
func (e *Engine) Time() time.Duration { return e.cfg.Time }

// Run runs a script; answer answers what it asks, on the goroutine of Run. The error is ErrTime, ErrMemory, ErrDepth,
// ErrResult, ErrBusy, ErrCrashed, *ThrownError, or that of ctx.
func (e *Engine) Run(ctx context.Context, prog *Program, answer func(context.Context, *Ask) *Answer) (*Result, error) {
	run := e.message()
	run.Body, run.Args = prog.Body, prog.Args
	run.Env = environment{
		SelfLink: prog.SelfLink, AltLink: prog.AltLink, Activity: prog.Activity, Logging: prog.Logging, LogMax: logBytesMax,
		Trigger: prog.Trigger, Operation: prog.Operation, Status: prog.Status, Request: prog.Request, Response: prog.Response,
	}
	p, err := e.take(ctx)
	if err != nil {
		return nil, err
	}
	defer e.giveBack(p) // where answer panics too
	done, err := p.talk(ctx, e.cfg.Time, &toProcess{Run: run}, answer)
	if err != nil {
		return nil, err
	}
	if err := done.err(); err != nil {
		return nil, err
	}
	return &Result{Body: done.Body, Request: done.Request, Log: done.Log}, nil
}

func (e *Engine) message() *runMessage {
	return &runMessage{
		TimeMillis: e.cfg.Time.Milliseconds(), MemoryBytes: e.cfg.MemoryBytes, DepthMax: e.cfg.DepthMax, ResultBytes: e.cfg.ResultBytes,
	}
}

// err returns why a run ended before its end; nil if it did not.
func (d *doneMessage) err() error {
	switch d.Failure {
	case "":
		return nil
	case failedTime:
		return ErrTime
	case failedMemory:
		return ErrMemory
	case failedDepth:
		return ErrDepth
	case failedResult:
		return ErrResult
	}
	return &ThrownError{Message: d.Message, Status: d.Status, Log: d.Log}
}

// take returns a process that is free, or a new one. It waits as long as a script may take.
func (e *Engine) take(ctx context.Context) (*process, error) {
	select {
	case e.slots <- struct{}{}:
	default:
		wait := time.NewTimer(e.cfg.Time)
		defer wait.Stop()
		select {
		case e.slots <- struct{}{}:
		case <-wait.C:
			return nil, ErrBusy
		case <-ctx.Done():
			return nil, ErrBusy
		}
	}
	e.mu.Lock()
	var p *process
	if n := len(e.free); n > 0 {
		p, e.free = e.free[n-1], e.free[:n-1]
	}
	e.mu.Unlock()
	if p != nil {
		return p, nil
	}
	p, err := startProcess(e.cfg.Command, e.cfg.MemoryBytes)
	if err != nil {
		<-e.slots
		return nil, fmt.Errorf("begin a process for scripts: %w", err)
	}
	return p, nil
}

// giveBack frees a process, or ends it where it is of no more use.
func (e *Engine) giveBack(p *process) {
	p.runs++
	e.mu.Lock()
	keep := !p.spent && p.runs < runsMax && !e.closed
	if keep {
		e.free = append(e.free, p)
	}
	e.mu.Unlock()
	if !keep {
		p.kill()
	}
	<-e.slots
}

// process is a process for scripts. The goroutine that took it owns it.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	errors *head
	runs   int
	spent  bool // it was interrupted or has ended, and is not used again
	reaped sync.Once
	state  error // of its end
}

// startProcess begins a process and waits until it says what it is.
func startProcess(command []string, memoryBytes int64) (*process, error) {
	p := &process{errors: &head{}}
	p.cmd = exec.Command(command[0], command[1:]...) //nolint:noctx // it outlives the request that needs it first
	p.cmd.Env = []string{processVariable + "=" + strconv.FormatInt(memoryBytes, 10)}
	p.cmd.Dir = "/"
	p.cmd.Stderr = p.errors
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(helloTime, p.end)
	said := make([]byte, len(hello))
	_, err = io.ReadFull(p.out, said)
	late.Stop()
	if err != nil || string(said) != hello {
		p.kill()
		return nil, fmt.Errorf("%s did not say that it runs scripts: %q %w", command[0], p.errors.text(), cmp.Or(err, p.state))
	}
	return p, nil
}

// end has the process end at once. Its end is waited for by kill.
func (p *process) end() { _ = p.cmd.Process.Kill() }

// kill ends the process and frees what it had. It may be called twice.
func (p *process) kill() {
	p.reaped.Do(func() {
		p.end()
		_ = p.in.Close()
		p.state = p.cmd.Wait()
	})
}

// talk sends a message and answers what the process asks until it is done. It is killed where that takes longer than
// limit and grace, or ctx ends.
func (p *process) talk(ctx context.Context, limit time.Duration, message *toProcess, answer func(context.Context, *Ask) *Answer) (*doneMessage, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, limit+grace, ErrTime)
	defer cancel()
	unhook := context.AfterFunc(bounded, p.end)
	spent := p.spent
	p.spent = true // should answer panic, in the middle of what they say to each other
	done, err := p.exchange(bounded, message, answer)
	if unhook() && err == nil {
		// What was interrupted may hold memory until it is collected, and goes.
		p.spent = spent || done.Failure == failedTime || done.Failure == failedMemory
	}
	if err == nil {
		return done, nil
	}
	if bounded.Err() != nil {
		return nil, context.Cause(bounded)
	}
	p.kill()
	return nil, p.reason(err)
}

func (p *process) exchange(ctx context.Context, message *toProcess, answer func(context.Context, *Ask) *Answer) (*doneMessage, error) {
	if err := writeFrame(p.in, message); err != nil {
		return nil, err
	}
	for {
		var said fromProcess
		if err := readFrame(p.out, &said); err != nil {
			return nil, err
		}
		if said.Done != nil {
			return said.Done, nil
		}
		var ask Ask
		reply := &Answer{Status: 400, Message: "the request cannot be read"}
		if err := json.Unmarshal(said.Ask, &ask); err == nil && answer != nil {
			reply = answer(ctx, &ask)
		}
		if err := writeFrame(p.in, &toProcess{Answer: reply}); err != nil {
			return nil, err
		}
	}
}

// reason returns why a process ended by itself.
func (p *process) reason(err error) error {
	said := p.errors.text()
	says := func(text string) bool { return bytes.Contains(said, []byte(text)) }
	if exit, ok := errors.AsType[*exec.ExitError](p.state); ok {
		status, ok := exit.Sys().(syscall.WaitStatus)
		switch {
		// Go's collector does not stand that it is refused memory: it may end by a segmentation violation, or by a thread
		// for which there is no stack.
		case exit.ExitCode() == exitMemory, says("out of memory"), says("cannot allocate memory"), says("failed to allocate"),
			says("SIGSEGV: segmentation violation"), says("pthread_create failed"), says("failed to create new OS thread"):
			return ErrMemory
		case says("stack exceeds"), says("stack overflow"):
			return ErrDepth
		case ok && status.Signaled() && status.Signal() == syscall.SIGKILL:
			return ErrMemory // nobody else kills it but the system, where it has no more
		}
	}
	return fmt.Errorf("%w: %w: %q", ErrCrashed, err, said)
}

// head keeps the first bytes that are written to it.
type head struct {
	mu   sync.Mutex
	kept []byte
}

const headBytesMax = 1 << 10

func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = append(h.kept, b[:min(len(b), headBytesMax-len(h.kept))]...)
	return len(b), nil
}

func (h *head) text() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Clone(h.kept)
}
