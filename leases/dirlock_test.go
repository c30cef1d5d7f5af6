package leases_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/leases"
)

func TestLockDirExcludesOthersAndKeepsItsNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node")
	first, err := leases.LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = leases.LockDir(dir)
	locked, ok := errors.AsType[*leases.DirLockedError](err)
	if !ok || locked.PID != os.Getpid() || locked.Dir != dir {
		t.Fatalf("second lock: %v, want it refused naming process %d", err, os.Getpid())
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	second, err := leases.LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLock(t, second) })
	if second.Node() != first.Node() || first.Node() == "" {
		t.Errorf("node %q, then %q", first.Node(), second.Node())
	}
}

// TestLockDirMakesADirectoryForItsOwner makes one, and leaves the mode of one that is there.
func TestLockDirMakesADirectoryForItsOwner(t *testing.T) {
	for name, want := range map[string]os.FileMode{"new": 0o700, "shared": 0o750} {
		dir := filepath.Join(t.TempDir(), name)
		if name == "shared" {
			if err := os.Mkdir(dir, want); err != nil {
				t.Fatal(err)
			}
		}
		lock, err := leases.LockDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		closeLock(t, lock)
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, want %v (%v)", name, info.Mode().Perm(), want, err)
		}
	}
}

// TestLockDirEndsWithTheProcess locks in a child that is killed.
func TestLockDirEndsWithTheProcess(t *testing.T) {
	const variable = "LEASES_TEST_LOCK_DIR"
	if dir := os.Getenv(variable); dir != "" {
		if _, err := leases.LockDir(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stdout.WriteString("locked\n"); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLockDirEndsWithTheProcess$")
	child.Env = append(os.Environ(), variable+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 7)
	if _, err := out.Read(line); err != nil || !strings.HasPrefix(string(line), "locked") {
		t.Fatalf("child: %q, %v", line, err)
	}
	_, err = leases.LockDir(dir)
	if locked, ok := errors.AsType[*leases.DirLockedError](err); !ok || locked.PID != child.Process.Pid {
		t.Errorf("while the child lives: %v, want it refused naming process %d", err, child.Process.Pid)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // ends with the signal
	lock, err := leases.LockDir(dir)
	if err != nil {
		t.Fatalf("after the child was killed: %v", err)
	}
	closeLock(t, lock)
}

func closeLock(t *testing.T, lock *leases.DirLock) {
	t.Helper()
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
}

func TestLockDirRefusesABrokenNodeID(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "node-id"), []byte("a/b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := leases.LockDir(dir); err == nil || !strings.Contains(err.Error(), "node-id") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}
