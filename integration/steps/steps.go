package steps

import (
	"os/exec"
	"testing"
)

// Call is a system call that is about to be made.
type Call struct {
	// Name is the call's, such as "renameat".
	Name string
	// Path is the file that it is about, absolute; of a rename the new name. It is empty
	// where the call names none that the test can see.
	Path string
}

// Verdict is what becomes of a process at a call.
type Verdict int

const (
	// Go lets the call be made.
	Go Verdict = iota
	// Kill kills the process, as kill -9 does. The call is not made.
	Kill
	// KillAfter lets the call be made and kills the process meanwhile, or at once after it.
	KillAfter
)

// Watcher sees the calls of the processes that were made by Command.
type Watcher struct {
	// Writes has each write be a step, those that follow a file's creation too. It makes a
	// process slow that writes much, to sockets as well. Set it before Command.
	Writes bool

	t   testing.TB
	see func(Call) Verdict
}

// New returns a watcher that asks see at each call, one at a time for each process. It skips
// the test where calls cannot be seen.
func New(t testing.TB, see func(Call) Verdict) *Watcher {
	t.Helper()
	if why := unsupported(); why != "" {
		t.Skip("steps of processes cannot be seen here: ", why)
	}
	return &Watcher{t: t, see: see}
}

// Command is a command whose process is watched from Start on.
func (w *Watcher) Command(path string, args ...string) *exec.Cmd {
	return w.command(path, args)
}

// Start starts a command of Command. The watching ends when the process does.
func (w *Watcher) Start(cmd *exec.Cmd) error { return w.start(cmd) }
