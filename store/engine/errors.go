package engine

import (
	"errors"
	"fmt"
)

// ErrClosed is returned by everything after DB.Close.
var ErrClosed = errors.New("engine: closed")

// ErrCorrupt is the cause of errors that say that stored bytes cannot be read.
// The state can be rebuilt from the log: see Partition.Clear and OpenOrSetAside.
var ErrCorrupt = errors.New("engine: corrupt")

// ErrItemKey says that bytes which should be an item key, such as a cursor, are not.
var ErrItemKey = errors.New("engine: not an item key")

// ErrNotCleared says that Clear failed. Nobody may go on with the partition before it was
// cleared, or the DB opened again.
var ErrNotCleared = errors.New("engine: the partition could not be emptied")

// FormatError says that the directory was written by a later version. It is left
// as it is.
type FormatError struct {
	Dir     string
	Version int // found in the directory
	Known   int // the latest that this program can read
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("engine: %s is in format %d and this program reads up to %d; use the program that wrote it, "+
		"or move the directory away to have it rebuilt from the log", e.Dir, e.Version, e.Known)
}

// LockedError says that another process has the directory open.
type LockedError struct {
	Dir string
	Err error
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("engine: %s is open in another process: %v", e.Dir, e.Err)
}

func (e *LockedError) Unwrap() error { return e.Err }

// corrupt returns an error with the cause ErrCorrupt.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
