package processors

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// A target that has no room for its copy refuses each change of its source. A retry brings it what
// the source says by then, whichever of the changes it is of. So it has one dead letter, of the change that it
// refused last, and there are no more of them than there are targets and what they copy:
//
//	what refuses                    what a retry brings it       one dead letter for each
//	an item, a cascade's fan-out    all its copies               source and item
//	an item, a cascade's check      all its copies               item
//	a target of an aggregate        the fields of its group      target
//	a target that is to be made     the target of its group      target and groups of the change
//	a row of a backfill             all rows of its item         item and row
//	the change itself               the change, see Additive     change
//
// An item has one for each source, though a retry brings it all copies. The dead letters of a generation
// go with it, and the next one begins at the first of them, so that all that they are about happens
// again. Of one source the last change is enough for that, of two sources it is not:
//
//	source 1 at 5, source 2 at 7, P refuses both   with one dead letter, of 7, the next generation
//	                                               would never bring P what source 1 says

// deadLetterID is the id of a dead letter.
func (l *DeadLetter) deadLetterID() string {
	if l.Target == "" {
		return l.idPrefix() + l.Position.String()
	}
	// Names may be longer than an id, so their hash stands for them. It is wide enough that no two of
	// them ever have the same: one would hide the other.
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %s%s", len(l.Target), l.Target, cmp.Or(l.Subject, l.Item)) // never fails
	return l.idPrefix() + "target-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// createOrPatch writes a dead letter, or patches the one that is there, of which all else stays: somebody may
// have asked for a retry that nobody has tried yet. Most are written once, so the create comes first.
//
// Whoever writes may be late, and its successor may have given the same change up already:
//
//	the successor's is there   it tells of the late refusal; what somebody asked for stays, and is tried
//	it is gone                 the late one makes it anew
//
// The second is not refused. Nothing is left by which a late writer could be told from the first one, and a first
// one that were refused in error would leave a parked change without the dead letter by which it can be tried.
// The one too many does no harm. If an operator dropped the other, it is true: the change is still undone. If a
// retry has succeeded, nothing is parked, because the late worker's checkpoint is refused; a crash between a dead
// letter and its checkpoint leaves the same. It stays until somebody drops it, or tries it again, which every
// Retrier takes after a success.
func (d *DeadLetters) createOrPatch(ctx context.Context, l *DeadLetter, patch []document.Op) error {
	c, key, err := d.containerAndKey(ctx, l.Pipeline)
	if err != nil {
		return err
	}
	for {
		if _, err = c.Create(ctx, l.encode()); errors.Is(err, store.ErrConflict) {
			if _, err = c.Patch(ctx, key, l.ID, patch); errors.Is(err, store.ErrNotFound) {
				continue // it went between the two, and with it what was asked for
			}
		}
		if err != nil {
			return fmt.Errorf("write the dead letter %s of %s: %w", l.ID, l.Item, err)
		}
		return nil
	}
}

// givenUpAgain is the patch that makes a dead letter tell of l.
func (l *DeadLetter) givenUpAgain() []document.Op {
	return []document.Op{
		setField("/time", l.Time), setField("/item", l.Item), setField("/position", l.Position.String()),
		setField("/status", l.Status), setField("/reason", l.Reason), setField("/trace", l.Trace),
	}
}

// setField sets a field of a dead letter.
func setField(path string, value any) document.Op {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("processors: %s of a dead letter cannot be %v: %v", path, value, err))
	}
	return document.Op{Kind: document.OpSet, Path: path, Value: data}
}
