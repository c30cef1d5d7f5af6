package aggregate

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// BehindError says that a partition of the target has folded less of a source
// partition than it had folded before: it was restored from an older state, or
// emptied. What lies between is missing in its accumulators, and nothing is folded
// until the pipeline reads it again.
type BehindError struct {
	Pipeline string
	// Source is the partition whose changes are folded, Target the one that is
	// behind.
	Source, Target feed.Partition
	// Position is what Target has recorded for Source, Before what it had.
	Position, Before feed.Position
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("partition %s has folded the changes of %s up to %s, and had folded them up to %s: it was restored older, or emptied; "+
		"set the pipeline back (millrace rewind %s --to beginning): what is missing there is folded again, and nothing twice",
		e.Target, e.Source, e.Position, e.Before, e.Pipeline)
}

// Is matches store.ErrUnavailable: it is no fault of the changes, which wait.
func (e *BehindError) Is(target error) bool { return target == error(store.ErrUnavailable) }

// unavailableError is a failure because of which no change may be given up, such as that
// of a write which may have happened.
type unavailableError struct{ error }

func (e unavailableError) Unwrap() error { return e.error }

// Is matches store.ErrUnavailable: it is tried again.
func (e unavailableError) Is(target error) bool { return target == error(store.ErrUnavailable) }

// isRefusal says whether a partition has refused a write for good, so that nothing
// has happened: it looks at the interval before it refuses anything.
func isRefusal(ctx context.Context, err error) bool {
	if _, ok := errors.AsType[*store.Error](err); !ok {
		return false
	}
	failure := processors.FailureOf(ctx, err)
	return failure == processors.Permanent || failure == processors.Transient
}

// unavailableUnlessRefused returns err so that it is tried again without end, unless it is a refusal.
func unavailableUnlessRefused(ctx context.Context, err error) error {
	if isRefusal(ctx, err) {
		return err
	}
	return unavailable(err)
}

// unavailable returns err so that it is tried again without end, unless the lease is
// lost: it is no fault of a change.
func unavailable(err error) error {
	if errors.Is(err, store.ErrFenced) {
		return err
	}
	return unavailableError{err}
}

// unavailableOrNil is unavailable, and nil for nil.
func unavailableOrNil(err error) error {
	if err == nil {
		return nil
	}
	return unavailable(err)
}

// refusalOf returns what an item has answered to its repair, if that would be answered again.
func refusalOf(ctx context.Context, err error) (*store.Error, bool) {
	refusal, ok := errors.AsType[*store.Error](err)
	return refusal, ok && processors.FailureOf(ctx, err) == processors.Permanent
}
