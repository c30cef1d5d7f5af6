// Package process builds the one binary and runs it as the processes that tests start,
// listen to and kill. Beside the tests of integration, modules of their own beneath it
// (browser, s3, sdk) import it by a replacement; so it imports the standard library
// alone.
package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Given names the binary in the environment, where it was built already.
const Given = "MILLRACE_TEST_BINARY"

// Build builds the binary of the repository in dir and returns its path. Where the
// environment names one, that is the path, and nothing is built.
func Build(repository, dir string) (string, error) {
	if path := os.Getenv(Given); path != "" {
		return path, nil
	}
	return build(repository, dir, "millrace", "./cmd/millrace")
}

// BuildNATS builds the plain NATS server of the repository's module in dir and returns its path.
func BuildNATS(repository, dir string) (string, error) {
	return build(repository, dir, "nats-server", "github.com/nats-io/nats-server/v2")
}

func build(repository, dir, name, source string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", path, source)
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// FreePorts finds n ports of the loopback that nobody listens on. They lie beneath those that
// systems give to whoever asks for any port, which begin at 32768 or later: a connection that
// somebody makes meanwhile takes none of them.
func FreePorts(n int) ([]string, error) {
	var ports []string
	var listen net.ListenConfig
	for port := 10_000 + rand.IntN(20_000); len(ports) < n; port++ {
		l, err := listen.Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		switch {
		case err == nil:
			defer l.Close() // together, so that they differ
			ports = append(ports, strconv.Itoa(port))
		case port > 32_000:
			return nil, err
		}
	}
	return ports, nil
}

// Log is what processes have said that ran one after the other. Its methods may be called
// concurrently.
type Log struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *Log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.WriteString(line + "\n")
}

// Reset forgets all lines.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.Reset()
}

// String returns all lines.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// Process is a program that runs. Its methods may be called concurrently.
type Process struct {
	Cmd   *exec.Cmd
	Ready chan struct{} // closed when it says that it is ready
	Ended chan struct{} // closed when it has ended and was waited for

	log *Log
}

// Start starts cmd and adds to log what it says on both of its outputs.
func Start(cmd *exec.Cmd, log *Log) (*Process, error) { return StartBy(cmd, cmd.Start, log) }

// StartBy is Start where start starts cmd.
func StartBy(cmd *exec.Cmd, start func() error, log *Log) (*Process, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := start(); err != nil {
		return nil, err
	}
	p := &Process{Cmd: cmd, Ready: make(chan struct{}), Ended: make(chan struct{}), log: log}
	go p.follow(bufio.NewReader(out))
	return p, nil
}

// follow reads the lines, however long, until the process has ended: one that nobody listens to
// would wait for ever to say more.
func (p *Process) follow(out *bufio.Reader) {
	defer close(p.Ended)
	ready := false
	for {
		line, err := out.ReadString('\n')
		if line != "" {
			p.log.add(strings.TrimSuffix(line, "\n"))
		}
		if !ready && strings.Contains(line, "is ready after") {
			ready = true
			close(p.Ready)
		}
		if err != nil {
			break // the process has ended
		}
	}
	_ = p.Cmd.Wait() // a killed process ends with an error
}

// AwaitReady waits until the process says that it is ready. The error of one that ends
// before, or is not ready within most, has what it said.
func (p *Process) AwaitReady(most time.Duration) error {
	select {
	case <-p.Ready:
		return nil
	case <-p.Ended:
		return fmt.Errorf("it ended at once:\n%s", p.log)
	case <-time.After(most):
		return fmt.Errorf("it is not ready after %s:\n%s", most, p.log)
	}
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Signal(syscall.SIGKILL) // it may have ended already
	<-p.Ended
}
