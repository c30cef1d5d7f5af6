package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
)

// Status is the outcome of a request or of one operation: an HTTP status as the
// Azure Cosmos DB REST protocol gives it for the same outcome. Zero means none.
type Status uint16

// The statuses that a store answers.
const (
	StatusOK                 Status = 200
	StatusCreated            Status = 201
	StatusNoContent          Status = 204
	StatusNotModified        Status = 304 // a read whose If-None-Match is the item's ETag
	StatusBadRequest         Status = 400 // input that can never succeed
	StatusForbidden          Status = 403 // a write by somebody who may only read
	StatusNotFound           Status = 404
	StatusConflict           Status = 409 // id or unique key taken
	StatusGone               Status = 410 // another process owns the partition; nothing happened here
	StatusPreconditionFailed Status = 412 // If-Match or a patch's condition does not hold
	StatusTooLarge           Status = 413
	StatusDamaged            Status = 422 // what was kept is not what was written
	StatusFailedDependency   Status = 424 // another operation of the batch failed
	StatusTooManyRequests    Status = 429 // the owner's queue is full; nothing happened
	StatusFenced             Status = 449 // a pipeline's write from an older lease epoch
	StatusInternal           Status = 500
	StatusUnavailable        Status = 503 // the log cannot be written now; nothing happened
	StatusUnknown            Status = 504 // the owner stopped before it learned the outcome
	StatusInsufficientDisk   Status = 507 // below DiskReserve; nothing happened
)

// TellsLSN says whether refusals with the status have an LSN, if they rest on what the items of the partition are. Asking
// again helps with none of them, so none has a RetryAfter.
func (s Status) TellsLSN() bool {
	switch s {
	case StatusBadRequest, StatusNotFound, StatusConflict, StatusPreconditionFailed, StatusTooLarge:
		return true
	default:
		return false
	}
}

// Error is a refusal: nothing was changed. Status tells callers what to do,
// Message tells people, with the place and a way out.
type Error struct {
	Status  Status
	Message string
	// RetryAfter is how long to wait before asking again; zero when asking
	// again cannot help. With StatusGone it says more: the process held the lease of the
	// partition when it had the request, so that no other has got it; see Client.
	RetryAfter time.Duration
	// Epoch is, with StatusFenced, the greatest lease epoch that the partition has seen of the
	// producer; 0 if the owner is of a release that does not tell.
	Epoch uint64
	// LSN is, with a status that TellsLSN, the state on which the refusal rests: in which the item was not there, say, or had
	// another ETag. It is 0 if the refusal rests on no item, and if the owner is of a release that does not tell.
	LSN feed.LSN
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Status) }

// Is makes errors.Is match on the status, so that errors.Is(err, ErrNotFound)
// holds for every error with status 404.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Status == e.Status
}

// Refuse returns an *Error with a formatted message.
func Refuse(status Status, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

// Sentinels for errors.Is, one for each status on which callers choose.
var (
	ErrNotFound           = &Error{Status: StatusNotFound, Message: "not found"}
	ErrConflict           = &Error{Status: StatusConflict, Message: "conflict"}
	ErrPreconditionFailed = &Error{Status: StatusPreconditionFailed, Message: "precondition failed"}
	ErrTooLarge           = &Error{Status: StatusTooLarge, Message: "too large"}
	ErrBadRequest         = &Error{Status: StatusBadRequest, Message: "bad request"}
	ErrNotOwner           = &Error{Status: StatusGone, Message: "not the owner of the partition"}
	ErrForbidden          = &Error{Status: StatusForbidden, Message: "may only read"}
	ErrNotModified        = &Error{Status: StatusNotModified, Message: "not modified"}
	ErrUnavailable        = &Error{Status: StatusUnavailable, Message: "unavailable"}
	ErrDiskFull           = &Error{Status: StatusInsufficientDisk, Message: "disk nearly full"}

	// ErrFenced refuses a pipeline's write because the target partition has seen
	// a newer lease epoch of the same producer: the writer lost its lease.
	ErrFenced = &Error{Status: StatusFenced, Message: "written under an older lease epoch"}
)

// ErrUnknown says that the outcome of a write was not learned: it may have
// happened. Only a request with an idempotency key is sent again by the Client.
var ErrUnknown = errors.New("store: outcome unknown")

// NoContainerError says that a container is not in the catalog.
type NoContainerError struct{ Database, Name string }

func (e *NoContainerError) Error() string {
	return fmt.Sprintf("container %s/%s does not exist; declare it with millrace apply", e.Database, e.Name)
}

// Is matches ErrNotFound.
func (e *NoContainerError) Is(target error) bool { return target == error(ErrNotFound) }

// NoOwnerError says that nobody answered for a partition before the deadline.
type NoOwnerError struct {
	Partition feed.Partition
	Waited    time.Duration
	// Leaving is what a process answered that has the partition no more, or gives it
	// up; nil if none answered.
	Leaving error
	// Trouble is what the process that asked knows to be the cause; "" if it knows none.
	Trouble string
}

func (e *NoOwnerError) Error() string {
	if e.Trouble != "" {
		return fmt.Sprintf("partition %s has had no owner for %s: %s", e.Partition, e.Waited.Round(time.Millisecond), e.Trouble)
	}
	if e.Leaving != nil {
		return fmt.Sprintf("partition %s has been between two owners for %s: %v; its next owner takes it when that process has stopped, and the log there says what it waits for (millrace status)",
			e.Partition, e.Waited.Round(time.Millisecond), e.Leaving)
	}
	return fmt.Sprintf("partition %s has had no owner for %s; is a store process running? (millrace status)",
		e.Partition, e.Waited.Round(time.Millisecond))
}

// Is matches ErrUnavailable.
func (e *NoOwnerError) Is(target error) bool { return target == error(ErrUnavailable) }

// SplitError says that a partition was split, and that nothing happened: its items are in its children. Who asks for
// a key asks one of them, who asks for the partition asks both; Container.Refresh knows them.
type SplitError struct {
	Partition feed.Partition
	// Former is what the catalog says of it; zero if its log is deleted.
	Former FormerPartition
}

func (e *SplitError) Error() string {
	if len(e.Former.Children) < 2 {
		return fmt.Sprintf("partition %s was split", e.Partition)
	}
	return fmt.Sprintf("partition %s was split at LSN %d into %d and %d", e.Partition, e.Former.Last, e.Former.Children[0], e.Former.Children[1])
}

// Is matches ErrNotOwner.
func (e *SplitError) Is(target error) bool { return target == error(ErrNotOwner) }
