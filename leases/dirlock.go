package leases

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// Files of a node directory.
const (
	lockFile = "millrace.lock"
	nodeFile = "node-id"
)

// DirLock is the exclusive right of this process to a node directory. The operating system
// ends it when the process ends, also after kill -9.
type DirLock struct {
	dir   string
	node  string
	flock *flock.Flock
}

// DirLockedError says that another process uses a node directory.
type DirLockedError struct {
	Dir string
	PID int // 0: not known
}

// Error names the directory and the process, and says what to do.
func (e *DirLockedError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = "process " + strconv.Itoa(e.PID)
	}
	return fmt.Sprintf("directory %s is in use by %s; stop it or choose another directory", e.Dir, who)
}

// LockDir creates dir for its owner alone if it is missing, locks it, and gives it a node id if
// it has none. The error is a *DirLockedError if another process has the lock.
func LockDir(dir string) (*DirLock, error) {
	// One that is there keeps its mode: a group may be meant to read files in it.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make node directory: %w", err)
	}
	path := filepath.Join(dir, lockFile)
	lock := flock.New(path)
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock node directory %s: %w", dir, err)
	}
	if !locked {
		return nil, &DirLockedError{Dir: dir, PID: lockPID(path)}
	}
	d := &DirLock{dir: dir, flock: lock}
	if err := d.prepare(path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

func (d *DirLock) prepare(path string) error {
	// Written in place, not renamed: the lock is on the file and not on its name, so a process
	// that opened the old file could lock it too.
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
		return fmt.Errorf("write process id: %w", err)
	}
	var err error
	d.node, err = nodeID(filepath.Join(d.dir, nodeFile))
	return err
}

// lockPID returns the id of the process that has the lock, 0 if it cannot be read.
func lockPID(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}

// nodeID reads the id in the file at path, which it writes first if it is
// missing.
func nodeID(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err == nil {
		id := strings.TrimSpace(string(data))
		if !validNode.MatchString(id) {
			return "", fmt.Errorf("%s: %q is not a node id of 1 to 128 letters, digits, - or _", path, id)
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read node id: %w", err)
	}
	// Written whole, because leases are taken in its name: half of an id after a crash would
	// be another node.
	id := newID(10)
	temporary := path + ".new"
	if err := writeSynced(temporary, id+"\n"); err != nil {
		return "", fmt.Errorf("write node id: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return "", fmt.Errorf("write node id: %w", err)
	}
	return id, nil
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// Node returns the id of the directory, for Config.Node. It never changes.
func (d *DirLock) Node() string { return d.node }

// Close releases the lock. Managers that rely on it must have returned from Run.
func (d *DirLock) Close() error {
	if err := d.flock.Close(); err != nil {
		return fmt.Errorf("unlock %s: %w", d.dir, err)
	}
	return nil
}
