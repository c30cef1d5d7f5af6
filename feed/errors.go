package feed

import (
	"cmp"
	"errors"
	"fmt"
)

// ErrFenced says that another process has appended to the partition. The
// caller no longer owns it: it stops serving it, and takes it over anew if its
// lease still says that it may.
var ErrFenced = errors.New("feed: partition has another owner")

// ErrUnknown says that an append was sent and its outcome was not learned
// before the context ended, or before the log was found to be gone or not what it
// was. Append the same bytes after the same LSN again
// before anyone is answered.
var ErrUnknown = errors.New("feed: outcome of the append is unknown")

// ErrStorage says that JetStream refused an append, for want of space or for
// another reason of its own. Nothing was appended.
var ErrStorage = errors.New("feed: log cannot store")

// ErrUnavailable says that the context ended before JetStream could be reached.
// Nothing was appended.
var ErrUnavailable = errors.New("feed: log cannot be reached")

// ErrTooLarge says that a commit is larger than the server's maximum payload.
// Nothing was appended.
var ErrTooLarge = errors.New("feed: commit is larger than the server takes")

// ErrNoLog says that a partition has no stream. Opening never makes one. Nothing
// was appended, unless the error is ErrUnknown too.
var ErrNoLog = errors.New("feed: no such log")

// ErrNotFound says that a log has no commit at an LSN.
var ErrNotFound = errors.New("feed: no such commit")

// ErrClosed is returned by what was closed.
var ErrClosed = errors.New("feed: closed")

// GapError says that commits are missing in the middle of a log or at its
// start, behind its trim point: its file is damaged. Nothing was skipped: whoever
// applies the log stops before Want.
type GapError struct {
	Partition Partition
	// Stream holds the log; "" if that is not known.
	Stream string
	// Want is the LSN that comes next, Got the first after it that is there; 0
	// if none is.
	Want, Got LSN
}

func (e *GapError) Error() string {
	missing := fmt.Sprintf("LSN %d is", e.Want)
	switch {
	case e.Got == 0:
		missing = fmt.Sprintf("LSN %d and all after it are", e.Want)
	case e.Got > e.Want+1:
		missing = fmt.Sprintf("LSN %d to %d are", e.Want, e.Got-1)
	}
	return fmt.Sprintf("feed: partition %s: %s missing from stream %s: restore the stream, or rebuild what reads it from a snapshot",
		e.Partition, missing, cmp.Or(e.Stream, e.Partition.AnyStream()))
}

// MismatchError says that a log is not the one, or not the whole of the one,
// that was read before: its stream was deleted and made anew, restored from an
// older copy, or written to by something else. Waiting does not heal it.
type MismatchError struct {
	Partition Partition
	// Stream holds the log; "" if that is not known.
	Stream string
	// LSN is where the difference showed.
	LSN LSN
	// What differs.
	What string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("feed: partition %s at LSN %d: %s: stream %s is not the log that was read before: restore it, or rebuild what reads it",
		e.Partition, e.LSN, e.What, cmp.Or(e.Stream, e.Partition.AnyStream()))
}

// RefusedError says that NATS lets this client have no consumer of a log's stream: readers have as
// many there as they may. It heals when others end.
type RefusedError struct {
	Partition Partition
	Stream    string
	// Reason is what NATS answered.
	Reason string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("feed: partition %s: NATS refuses a consumer of stream %s: %s: end another reader, or wait: the place of one that has died is free after a minute",
		e.Partition, e.Stream, e.Reason)
}
