package integration_test

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/ports"
	"github.com/millrace/millrace/integration/netns"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/process"
	"github.com/millrace/millrace/integration/steps"
	"github.com/millrace/millrace/store"
)

// long runs the tests that take minutes and crash much.
var long = flag.Bool("long", false, "run the long tests of crashes and models too")

func onlyLong(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("it takes minutes: run it with -long")
	}
}

// natsUser is the environment of processes and commands that know each other.
var natsUser = map[string]string{
	"MILLRACE_NATS_USER": "tester", "MILLRACE_NATS_PASSWORD": "the secret of tests",
	"MILLRACE_CONNECT_USER": "tester", "MILLRACE_CONNECT_PASSWORD": "the secret of tests",
}

// natsEnviron is that environment, for nodes in this process.
func natsEnviron() (environ []string) {
	for name, value := range natsUser {
		environ = append(environ, name+"="+value)
	}
	return environ
}

// asTester connects as that user.
func asTester() nats.Option {
	return nats.UserInfo(natsUser["MILLRACE_CONNECT_USER"], natsUser["MILLRACE_CONNECT_PASSWORD"])
}

// binary builds the one binary, once for all tests of the package.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "millrace-test-")
	if err != nil {
		return "", err
	}
	return process.Build("..", dir)
})

func millrace(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// freePort is a port that nobody listens on.
func freePort(t testing.TB) int {
	t.Helper()
	return ports.Free(t)
}

// child is a process of the binary that a test kills when it likes.
type child struct {
	t       testing.TB
	name    string
	program string // "": the binary
	args    []string
	given   *exec.Cmd      // how it is started, once; nil: as the binary
	dir     string         // working directory, where pipelines put their files
	host    *netns.Host    // where it runs; nil: here
	watcher *steps.Watcher // of its steps; nil: nobody

	*process.Process // the one that runs; nil before the first
	log              process.Log
}

// spawn starts the binary and waits until it says that it is ready.
func spawn(t testing.TB, args ...string) *child {
	t.Helper()
	return spawnWatched(t, nil, args...)
}

// spawnWatched is spawn of a process whose steps a watcher sees.
func spawnWatched(t testing.TB, watcher *steps.Watcher, args ...string) *child {
	t.Helper()
	if args[0] == "up" && !slices.Contains(args, "--gateway") && os.Getenv("MILLRACE_GATEWAY_LISTEN") == "" {
		args = append(slices.Clone(args), "--gateway", "off") // its port is one, and many run at once
	}
	return spawnProgram(t, "", watcher, args...)
}

// spawnProgram is spawn of another program than the binary; "" is the binary.
func spawnProgram(t testing.TB, program string, watcher *steps.Watcher, args ...string) *child {
	t.Helper()
	c := &child{t: t, name: args[0], program: program, watcher: watcher, args: args, dir: t.TempDir()}
	c.begin()
	t.Cleanup(c.kill) // one that does not become ready too
	c.awaitReady()
	return c
}

func (c *child) start() {
	c.t.Helper()
	c.begin()
	c.awaitReady()
}

// begin starts the process and does not wait.
func (c *child) begin() {
	c.t.Helper()
	var cmd *exec.Cmd
	switch {
	case c.given != nil:
		cmd = c.given
	case c.host != nil:
		cmd = c.host.Command(context.Background(), millrace(c.t), c.args...)
	default:
		cmd = exec.Command(cmp.Or(c.program, millrace(c.t)), c.args...)
	}
	start := cmd.Start
	if c.watcher != nil {
		cmd = c.watcher.Command(cmd.Path, c.args...)
		start = func() error { return c.watcher.Start(cmd) }
	}
	cmd.Dir = cmp.Or(c.dir, cmd.Dir)
	p, err := process.StartBy(cmd, start, &c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	c.Process = p
}

// awaitReady waits until the process says that it is ready.
func (c *child) awaitReady() {
	c.t.Helper()
	if err := c.AwaitReady(poll.Most); err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
}

// kill ends the process as kill -9 does.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

// stop asks the process to end.
func (c *child) stop() { c.signal(syscall.SIGTERM) }

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	_ = c.Cmd.Process.Signal(s) // it may have ended already
	select {
	case <-c.Ended:
	case <-time.After(poll.Most):
		c.t.Errorf("%s does not end after signal %s", c.name, s)
	}
}

func (c *child) output() string { return c.log.String() }

// workDirs are the directories in which commands to a server run: what they
// register is relative to it.
var workDirs sync.Map

// workDir is the one directory for commands with these arguments, of which the
// last is the server.
func workDir(t testing.TB, args []string) string {
	t.Helper()
	server := ""
	if n := len(args); n > 1 && args[n-2] == "--server" {
		server = args[n-1]
	}
	if dir, ok := workDirs.Load(server); ok {
		return dir.(string)
	}
	dir, err := os.MkdirTemp(filepath.Dir(millrace(t)), "work-") //nolint:usetesting // it outlives the test that is first
	if err != nil {
		t.Fatal(err)
	}
	actual, _ := workDirs.LoadOrStore(server, dir)
	return actual.(string)
}

// invocation is a command of the binary in a directory of its server's own. Its
// arguments may be relative to this package.
func invocation(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if strings.HasPrefix(arg, "../") || strings.HasPrefix(arg, "testdata/") {
			args[i] = filepath.Join(here, arg)
		}
	}
	cmd := exec.CommandContext(t.Context(), millrace(t), args...)
	cmd.Dir = workDir(t, args)
	return cmd
}

// run runs a command of the binary to its end.
func run(t testing.TB, server string, args ...string) (output string, exit int) {
	t.Helper()
	cmd := invocation(t, append(args, "--server", server)...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// mustRun runs a command that must succeed, and returns what it prints. On standard error a
// command says what it waits for, as on a busy machine.
func mustRun(t testing.TB, server string, args ...string) string {
	t.Helper()
	cmd := invocation(t, append(args, "--server", server)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("millrace %s: %v\n%s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

// dial connects a client to the processes behind a NATS server, through its
// absences too.
func dial(t testing.TB, server string) *store.Client {
	t.Helper()
	nc, err := nats.Connect(server, asTester(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), poll.Most)
	defer cancel()
	catalog, err := store.OpenCatalog(ctx, js, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return store.NewClient(nc, catalog, store.ClientConfig{})
}

func open(t testing.TB, c *store.Client, name string) *store.Container {
	t.Helper()
	ct, err := c.Container(t.Context(), "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return ct
}
