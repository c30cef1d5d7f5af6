package right

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// DeposedError is the cause with which [Right.Deposed] ends: the key is not this incarnation's any more, so others may
// take over what it had. The process drops all of that, and goes on as a new incarnation by another [Open].
type DeposedError struct {
	Node, Incarnation string // who was deposed
	By                string // node/incarnation of who did it, itself where the key was gone; empty: the key cannot be read
	Why               string
	At                time.Time // by the clock of who did it, for people; zero: not known
}

// Error names both and the reason.
func (e *DeposedError) Error() string {
	if e.By == "" {
		return fmt.Sprintf("right: %s/%s has lost its key: %s", e.Node, e.Incarnation, e.Why)
	}
	return fmt.Sprintf("right: %s/%s was deposed by %s: %s", e.Node, e.Incarnation, e.By, e.Why)
}

// ownKey writes the key of one incarnation. Writes are conditional on the last known revision, so a deposing is never
// overwritten, however late a write arrives. A try whose outcome is unknown stays in sent until the key tells:
//
//	try 41   no reply
//	try 42   refused, the revision has changed
//	read     our incarnation, write 41: try 41 was stored, and the right counts from its sending
//	read     deposed, or another incarnation: the right is over
//	read     a lower revision than the known one, or none: see giveUp
//
// The refused try proves nothing beyond that: the key may be read where it is old, and be deposed meanwhile.
//
// It is not safe for concurrent use.
type ownKey struct {
	store    bucket.Store
	cfg      *Config
	name     string
	rec      record        // as last known to be stored, or to be stored first
	revision uint64        // that the next try is conditional on; 0: the key does not exist
	writes   uint64        // tries so far
	tryMax   time.Duration // bounds the next try
	sent     []try         // those whose outcome is unknown, and which would extend the right

	onSent   func(t try)
	onStored func(t try) // t is known to be stored
}

// try is one write of the key.
type try struct {
	write uint64
	start time.Duration // when it was sent, by Config.Now
}

// errRewritten says that the key is this incarnation's by a write that extends nothing, such as one that somebody stored
// again to see whether it is still there. The next try starts from its revision.
var errRewritten = errors.New("the key stands by an earlier write")

// put makes one try to store state. A nil error says that the try, or an earlier one, is known to be stored: rec tells. The
// error is a *DeposedError if the key is not this incarnation's any more. After any other the outcome is unknown, and the
// next put finds out.
func (k *ownKey) put(ctx context.Context, state State) error {
	err := k.send(ctx, state)
	if errors.Is(err, bucket.ErrMismatch) {
		return k.readBack(ctx)
	}
	return err
}

// send makes one try. The error is bucket.ErrMismatch if it was refused.
func (k *ownKey) send(ctx context.Context, state State) error {
	next := k.rec
	k.writes++
	next.State, next.Write = state, k.writes
	value := encode(&next)
	// Read before the try leaves. What comes between is taken from the right, and nothing is added to it.
	t := try{write: next.Write, start: k.cfg.Now()}
	k.sent = append(slices.DeleteFunc(k.sent, func(old try) bool { return t.start-old.start >= k.cfg.Trust }), t)
	k.onSent(t)
	ctx, cancel := context.WithTimeout(ctx, k.tryMax)
	defer cancel()
	revision, err := k.store.Put(ctx, k.name, value, k.revision)
	if err == nil {
		k.stored(next, revision, t)
	}
	return err
}

// stored records that a try is the stored state, so that no other one can be: each was conditional on the revision before.
func (k *ownKey) stored(rec record, revision uint64, t try) {
	k.rec, k.revision, k.sent = rec, revision, nil
	k.onStored(t)
}

// readBack reads the key after a refusal.
func (k *ownKey) readBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.tryMax)
	defer cancel()
	f, err := look(ctx, k.store, k.name)
	switch {
	case err != nil:
		return err
	case f.err != nil:
		return k.lost("", f.err.Error())
	case f.missing() || f.Revision < k.revision:
		return k.giveUp(ctx, f)
	case f.Revision == k.revision:
		// A write is under way: the refusal says that there is a later one.
		return fmt.Errorf("key %s: revision %d is not the last", k.name, f.Revision)
	}
	return k.adopt(f)
}

// giveUp ends the right if the key is at an earlier state than the known one, or gone: the bucket went back, and it is not
// known whether the incarnation was deposed in the part that was lost. That it was read so is no proof, because a leader that was
// succeeded says what was. So the incarnation deposes itself where the key was found, which is refused if it is not there.
func (k *ownKey) giveUp(ctx context.Context, f *found) error {
	if f.rec != nil && f.rec.Incarnation == k.rec.Incarnation && f.rec.Deposed != nil {
		return k.adopt(f) // for good, wherever it is read: so it ended an earlier giveUp
	}
	why := "its key was gone, or the bucket went back to an earlier state"
	next := k.rec
	next.Deposed = &deposed{By: next.holder(), Why: why, At: time.Now().UnixMilli()}
	last := f.Revision
	if f.missing() {
		last = 0
	}
	if _, err := k.store.Put(ctx, k.name, encode(&next), last); err != nil {
		return fmt.Errorf("key %s was read at revision %d, and %d is stored: %w", k.name, f.Revision, k.revision, err)
	}
	return k.lost(next.holder(), why)
}

// adopt takes a key that was read, and stands behind the known revision, for what it says.
func (k *ownKey) adopt(f *found) error {
	switch {
	case f.rec.Incarnation != k.rec.Incarnation:
		return k.lost(f.rec.holder(), "the node has begun anew")
	case f.rec.Deposed != nil:
		d := f.rec.Deposed
		err := k.lost(d.By, d.Why)
		err.At = time.UnixMilli(d.At)
		return err
	}
	for _, t := range k.sent {
		if t.write == f.rec.Write {
			k.stored(*f.rec, f.Revision, t)
			return nil
		}
	}
	// None of those that were sent was stored, nor can be any more.
	k.rec, k.revision, k.sent = *f.rec, f.Revision, nil
	return errRewritten
}

// base makes the next try conditional on another revision.
func (k *ownKey) base(revision uint64) {
	if revision != k.revision {
		k.revision, k.sent = revision, nil
	}
}

func (k *ownKey) lost(by, why string) *DeposedError {
	return &DeposedError{Node: k.rec.Node, Incarnation: k.rec.Incarnation, By: by, Why: why}
}
