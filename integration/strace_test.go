//go:build linux

package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/millrace/millrace/integration/poll"
)

// injection makes system calls of a process fail, by strace.
type injection struct {
	t    testing.TB
	pid  int
	file string // what strace tells of calls
	// end lets system calls pass again.
	end func()
}

// inject makes calls of a process fail, as fault says in the words of strace's option
// inject: "fsync:error=EIO:when=1". Only those that are about the file of that path, if
// there is one. It skips the test where a process may not be traced.
func inject(t testing.TB, pid int, path, fault string) *injection {
	t.Helper()
	program, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("calls of a process cannot be made to fail here: no strace")
	}
	calls, _, _ := strings.Cut(fault, ":")
	file := filepath.Join(t.TempDir(), "strace")
	args := []string{"-f", "-p", strconv.Itoa(pid), "-o", file, "-e", "trace=" + calls, "-e", "inject=" + fault}
	if path != "" {
		args = append(args, "-P", path)
	}
	cmd := exec.Command(program, args...)
	var said output
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it ends by a signal, or with what it says
	}()
	i := &injection{t: t, pid: pid, file: file, end: sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it lets the process go
		<-ended
	})}
	t.Cleanup(i.end)
	poll.Until(t, func() error {
		select {
		case <-ended:
			t.Skipf("calls of a process cannot be made to fail here: %s", said.String())
		default:
		}
		return poll.Unless(strings.Contains(said.String(), " attached"), "strace says "+said.String())
	})
	return i
}

// injected counts the calls that failed until now.
func (i *injection) injected() int {
	i.t.Helper()
	told, err := os.ReadFile(i.file)
	if err != nil {
		i.t.Fatal(err)
	}
	return bytes.Count(told, []byte("(INJECTED)"))
}

// stopped waits until the process was stopped by the fault that came with a SIGSTOP, lets f
// do what the disk does meanwhile, and lets the process go on.
func (i *injection) stopped(f func()) {
	i.t.Helper()
	poll.Until(i.t, func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", i.pid))
		if err != nil {
			return err
		}
		for _, name := range threads {
			stat, err := os.ReadFile(name)
			if err != nil {
				continue // it has ended
			}
			// The name of the program, which comes before the state, is in parentheses.
			if state := stat[bytes.LastIndexByte(stat, ')')+2:]; state[0] != 'T' && state[0] != 't' {
				return fmt.Errorf("a thread is in state %c", state[0])
			}
		}
		return nil
	})
	f()
	i.end()
	if err := syscall.Kill(i.pid, syscall.SIGCONT); err != nil {
		i.t.Fatal(err)
	}
}

// output is what a process says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
