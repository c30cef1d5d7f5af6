//go:build unix

package engine

import (
	"errors"
	"os"
	"syscall"
)

// lockDir locks dir as Badger does and returns what unlocks it, so that nobody
// judges the files of a DB that is in use. The error is a *LockedError if another
// process has it.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // only the lock matters
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &LockedError{Dir: dir, Err: err}
		}
		return nil, openError(dir, err)
	}
	return func() { _ = f.Close() }, nil
}
