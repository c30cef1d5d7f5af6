package leases

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// takenError says that a write was refused because the record is another's.
// Found is nil if it was deleted, cannot be read, or is from before the holder's.
type takenError struct {
	Key   string
	Found *leaseRecord
}

func (e *takenError) Error() string {
	switch {
	case e.Found == nil:
		return e.Key + " was removed, was put back or cannot be read"
	case e.Found.Owner == "":
		return fmt.Sprintf("%s was freed in epoch %d", e.Key, e.Found.Epoch)
	default:
		return fmt.Sprintf("%s is held by %s in epoch %d", e.Key, e.Found.Owner, e.Found.Epoch)
	}
}

// writer writes one lease's record for one holder in one epoch. Writes are conditional on the
// last known revision, so another's write is never overwritten. A write whose reply is lost
// is sent again. If that is refused, the record is read, and its write number tells which
// earlier try was stored, if any:
//
//	try 41   no reply
//	try 42   refused, the revision has changed
//	read     our epoch, write 41: try 41 was stored; put the change on it, or be done
//	read     another epoch: the lease was taken
//	read     a lower revision than the known one, twice: the bucket went back, and what it
//	         says of the lease is no longer what this holder wrote
//
// It is not safe for concurrent use.
type writer struct {
	store    bucket.Store
	clock    clock
	number   func() uint64 // numbers every try of the process
	tryMax   time.Duration // bounds one try
	holder   string
	key      string
	rec      leaseRecord // as last known to be stored, or to be stored first
	revision uint64      // of rec; 0: the key does not exist
	sent     []try       // the tries whose outcome is unknown
	lower    int         // refusals since the last write after which a lower revision was read

	// onStored, if set, is called when a try is known to be stored, with its beginning.
	onStored func(start time.Duration)
}

// lowerMax is the number of lower revisions that are read before they count. The leader says
// them, but it may have been succeeded without knowing it yet, and then the next is right.
const lowerMax = 2

type try struct {
	write uint64
	start time.Duration
}

// put stores rec after change. It returns the beginning of the try that is known to be stored
// with the change in it. It tries until ctx ends, or until the record turns out to be
// another's: a *takenError. If ctx ends, the outcome may be unknown; the next put finds out.
func (w *writer) put(ctx context.Context, change func(*leaseRecord)) (time.Duration, error) {
	pause := retryPause{first: w.tryMax / 16, most: w.tryMax / 2}
	var last error
	for {
		if ctx.Err() != nil {
			if last == nil {
				last = context.Cause(ctx)
			}
			return 0, fmt.Errorf("write %s: %w", w.key, last)
		}
		// The change is made on what is known to be stored, which an earlier try may have
		// become meanwhile.
		next := w.rec
		change(&next)
		next.Version, next.Write = recordVersion, w.number()
		t := try{write: next.Write, start: w.clock()}
		w.sent = append(w.sent, t)
		tryCtx, cancel := context.WithTimeout(ctx, w.tryMax)
		revision, err := w.store.Put(tryCtx, w.key, encode(&next), w.revision)
		cancel()
		if err == nil {
			w.stored(next, revision, t.start)
			return t.start, nil
		}
		if errors.Is(err, bucket.ErrMismatch) {
			var done bool
			if done, err = w.readBack(ctx, &next); done {
				return t.start, nil
			}
			if err == nil {
				continue // an earlier try was stored: make the change on top of it
			}
			if _, taken := errors.AsType[*takenError](err); taken {
				return 0, err
			}
		}
		last = err
		pause.wait(ctx)
	}
}

// stored records that a try is the stored state, so that no other try can be: each was
// conditional on the revision before.
func (w *writer) stored(rec leaseRecord, revision uint64, start time.Duration) {
	w.rec, w.revision, w.sent, w.lower = rec, revision, nil, 0
	if w.onStored != nil {
		w.onStored(start)
	}
}

// readBack reads the record after a refusal. It reports whether next is the stored record. A
// nil error says that the record is this holder's, and is now w.rec.
func (w *writer) readBack(ctx context.Context, next *leaseRecord) (bool, error) {
	tryCtx, cancel := context.WithTimeout(ctx, w.tryMax)
	defer cancel()
	found, err := w.store.Get(tryCtx, w.key)
	switch {
	case (errors.Is(err, bucket.ErrNotFound) || err == nil && found.Deleted) && w.revision != 0:
		return false, &takenError{Key: w.key}
	case err != nil:
		return false, err
	case found.Revision == w.revision:
		// A write is under way: the refusal says that there is a later one.
		return false, fmt.Errorf("read %s: revision %d is not the last", w.key, found.Revision)
	case found.Revision < w.revision:
		// Going on from the lower revision would not do, even where the record is this holder's in its
		// epoch: another may have taken the lease in the part that was lost.
		err := fmt.Errorf("read %s: revision %d is older than the stored one", w.key, found.Revision)
		if w.lower++; w.lower >= lowerMax {
			err = errors.Join(&takenError{Key: w.key}, err)
		}
		return false, err
	}
	rec, err := decodeLease(w.key, found.Value)
	if err != nil {
		return false, errors.Join(&takenError{Key: w.key}, err)
	}
	// A release of this holder that was stored clears the owner and names it as the last.
	freed := rec.Owner == "" && rec.Last == w.holder
	// A release may raise the epoch. Then a renewal before it, whose reply was lost, has the one of
	// this holding, and is the holder's all the same.
	epoch := rec.Epoch == next.Epoch || rec.Epoch == w.rec.Epoch && !freed
	if !epoch || rec.Owner != w.holder && !freed {
		return false, &takenError{Key: w.key, Found: rec}
	}
	// Released by a try whose reply was lost. To renew it now would take it again without a
	// new epoch.
	if freed && next.Owner != "" {
		return false, &takenError{Key: w.key, Found: rec}
	}
	for _, t := range w.sent {
		if t.write == rec.Write {
			w.stored(*rec, found.Revision, t.start)
			return rec.Write == next.Write || freed, nil
		}
	}
	// This holder's record, of an earlier put whose outcome stayed unknown. Later tries start
	// from its revision.
	w.rec, w.revision, w.sent = *rec, found.Revision, nil
	return freed, nil
}
