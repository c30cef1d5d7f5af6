package right

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// SucceededError says that a key is another incarnation's than the one that was to be deposed, so the latter's right by its
// key is over: its process is dead, as the lock of its directory proves, or its successor has deposed it and waited.
//
// Its own right need not be waited for. Whoever takes something over from it may have to wait all the same, for who had
// it before: it may have died in its own wait (LockEndsWait in docs/model/Takeover.tla).
type SucceededError struct {
	Node, Incarnation string
	By                string // the incarnation that the key is of
}

// Error names the node and both incarnations.
func (e *SucceededError) Error() string {
	return fmt.Sprintf("right: the key of node %s is of incarnation %s, not %s", e.Node, e.By, e.Incarnation)
}

// unreadableError says that a key cannot be read, so nothing can be done with it.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string { return e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }

// Depose deposes one incarnation of a node in the name of by (node/incarnation), for a reason that people read, of which
// 512 bytes are kept. It returns nil when the bucket has acknowledged that, or if the key says already that this incarnation
// is deposed, whoever did it: its right is renewed no more, and runs out within [Sight.Wait]. Who takes over from it sends its
// takeover commit after that, and waits from when that was acknowledged.
//
// A node that renews its key faster than this process reaches the bucket is refused to it: each time there is another
// revision. Who stands still does not do that.
//
// A key that is missing is written as a deposed one: a first write of that incarnation may still be under way.
//
// The error is a *SucceededError if the key is another incarnation's, and a *VersionError if it is a later release's. It
// tries until ctx ends; the outcome is unknown then, and Depose may be called again. It waits until Sight has seen the
// keys once, for which Run must run.
func (s *Sight) Depose(ctx context.Context, node, incarnation, by, why string) error {
	if !validNode.MatchString(node) || incarnation == "" || by == "" {
		return fmt.Errorf("right: depose node %q, incarnation %q, by %q: all must be named", node, incarnation, by)
	}
	select {
	case <-s.seen:
	case <-ctx.Done():
		return fmt.Errorf("right: depose %s/%s, before any key was seen: %w", node, incarnation, context.Cause(ctx))
	}
	d := &deposer{
		store: s.store, cfg: s.cfg, node: node, incarnation: incarnation,
		say: deposed{By: by, Why: clip(why, whyBytesMax)},
	}
	f, err := d.run(ctx, s.guess(node))
	if err == nil {
		s.noteTrust(f.rec)
	}
	return err
}

// deposer deposes one incarnation. Every outcome that it reports was acknowledged by the bucket, or is final wherever it is
// read: an incarnation that is deposed stays so.
//
//	the key is                     then
//	missing                        written as a deposed one, if it is still missing
//	the incarnation's              deposed, if its revision is still the same
//	the incarnation's, deposed     done
//	another incarnation's          written once more as it is, if its revision is still the same
//
// The last is no ceremony. A leader that was succeeded without knowing it says what was: it may show the key of an earlier
// incarnation while the one to depose lives and renews. A write that is acknowledged proves that it does not.
type deposer struct {
	store             bucket.Store
	cfg               *Config
	node, incarnation string
	say               deposed
	tryMax            time.Duration // of the try under way
}

// run returns the key of the deposed incarnation. guess is what the key may be; nil: it is read.
func (d *deposer) run(ctx context.Context, guess *found) (*found, error) {
	pause, patience := d.cfg.retry(), d.cfg.patience()
	d.say.At = time.Now().UnixMilli()
	for {
		d.tryMax = patience.take()
		f, err := d.once(ctx, guess)
		guess = nil
		if err == nil {
			return f, nil
		}
		if _, succeeded := errors.AsType[*SucceededError](err); succeeded {
			return nil, err
		}
		if isFinal(err) || ctx.Err() != nil {
			return nil, fmt.Errorf("right: depose %s/%s: %w", d.node, d.incarnation, err)
		}
		pause.after(ctx, err)
	}
}

func (d *deposer) once(ctx context.Context, f *found) (*found, error) {
	key := keyOf(d.cfg.Group, d.node)
	if f == nil {
		var err error
		if f, err = lookFor(ctx, d.store, key, d.tryMax); err != nil {
			return nil, err
		}
	}
	next := record{
		Version: recordVersion, Node: d.node, Incarnation: d.incarnation, State: StateUp,
		Trust: d.cfg.Trust.Milliseconds(), // of a node that may have had another one: see Sight.Wait
	}
	last := f.Revision
	switch {
	case f.err != nil:
		return nil, &unreadableError{f.err}
	case f.missing():
		last = 0
	case f.rec.Incarnation != d.incarnation:
		if _, err := d.put(ctx, key, f.Value, f.Revision); err != nil {
			return nil, err
		}
		return nil, &SucceededError{Node: d.node, Incarnation: d.incarnation, By: f.rec.Incarnation}
	case f.rec.Deposed != nil:
		return f, nil
	default:
		next = *f.rec
	}
	next.Deposed = &d.say
	revision, err := d.put(ctx, key, encode(&next), last)
	if err != nil {
		return nil, err
	}
	return &found{Entry: bucket.Entry{Key: key, Revision: revision}, rec: &next}, nil
}

func (d *deposer) put(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, d.tryMax)
	defer cancel()
	return d.store.Put(ctx, key, value, last)
}

// lookFor is look in the time of one try.
func lookFor(ctx context.Context, s bucket.Store, key string, tryMax time.Duration) (*found, error) {
	ctx, cancel := context.WithTimeout(ctx, tryMax)
	defer cancel()
	return look(ctx, s, key)
}
