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

// writeRefusal writes the dead letter of a target, or makes the one that is there tell of the newer refusal.
func (d *DeadLetters) writeRefusal(ctx context.Context, l *DeadLetter) error {
	c, key, err := d.containerAndKey(ctx, l.Pipeline)
	if err != nil {
		return err
	}
	// Not in place of the one that is there: somebody may have asked for a retry that nobody has tried
	// yet. Most targets refuse once, so the create comes first.
	if _, err = c.Create(ctx, l.encode()); errors.Is(err, store.ErrConflict) {
		_, err = c.Patch(ctx, key, l.ID, l.refusedAgain())
	}
	if errors.Is(err, store.ErrNotFound) { // it went between the two, and with it what was asked for
		return d.put(ctx, l)
	}
	if err != nil {
		return fmt.Errorf("write the dead letter of %s, which %s refused: %w", l.Item, l.Target, err)
	}
	return nil
}

// refusedAgain is the patch that makes a dead letter tell of l.
func (l *DeadLetter) refusedAgain() []document.Op {
	ops := make([]document.Op, 0, 6)
	for _, f := range []struct {
		path  string
		value any
	}{
		{"/time", l.Time}, {"/item", l.Item}, {"/position", l.Position.String()}, {"/status", l.Status}, {"/reason", l.Reason}, {"/trace", l.Trace},
	} {
		value, err := json.Marshal(f.value)
		if err != nil {
			panic(fmt.Sprintf("processors: dead letter %+v cannot be encoded: %v", l, err))
		}
		ops = append(ops, document.Op{Kind: document.OpSet, Path: f.path, Value: value})
	}
	return ops
}
