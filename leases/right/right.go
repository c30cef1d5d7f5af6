package right

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// ErrClosed is the cause with which [Right.Deposed] ends when the right was given up by [Right.Close].
var ErrClosed = errors.New("right: closed")

// Right is the read right of this process as one incarnation of its node. Its methods are safe for concurrent use.
type Right struct {
	cfg         Config
	incarnation string
	started     atomic.Bool
	nudged      chan struct{} // holds a token: renew at once

	scope  context.Context //nolint:containedctx // a Right is a scope
	cancel context.CancelCauseFunc
	until  atomic.Int64 // reading of the clock up to which the right holds, unless it is over; written under mu
	over   atomic.Bool  // it has ended for good

	watched atomic.Pointer[found] // the key as a watch has shown it last, while it is this incarnation's

	token  chan struct{} // holds one token: the right to use what follows
	key    ownKey
	closed bool

	mu    sync.Mutex     // guards what follows
	tries [triesKept]try // by write; what Sight may be shown
	last  try            // that is known to be stored, the newest
}

// triesKept is how many tries are remembered beside those of unknown outcome, for [Sight].
const triesKept = 32

// Open writes the key of a new incarnation of Config.Node into a bucket. The right holds when it returns, and for
// Config.Trust if Run does not renew it. From then on an earlier incarnation of the node is over.
//
// With Config.NodeLocked the key of an earlier incarnation is written over. Without it that one is deposed like any other,
// and Open returns when its right has run out.
//
// Open tries until ctx ends; the outcome is unknown then. The error is a *VersionError if a later release wrote the key,
// and a *DeposedError if the new incarnation was deposed while it was written: call Open again.
func Open(ctx context.Context, s bucket.Store, cfg Config) (*Right, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Right{
		cfg: cfg, incarnation: newID(8),
		nudged: make(chan struct{}, 1), token: make(chan struct{}, 1),
	}
	r.cfg.Log = cfg.Log.With("group", cfg.Group, "holder", r.Holder())
	r.scope, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	r.key = ownKey{
		store: s, cfg: &r.cfg, name: keyOf(cfg.Group, cfg.Node), onSent: r.sent, onStored: r.stored,
		rec: record{
			Version: recordVersion, Node: cfg.Node, Incarnation: r.incarnation, Host: cfg.Host,
			State: StateUp, Level: cfg.Level, Trust: cfg.Trust.Milliseconds(),
		},
	}
	if err := r.claim(ctx); err != nil {
		r.end(err)
		return nil, fmt.Errorf("right: claim the key of node %s in group %s: %w", cfg.Node, cfg.Group, err)
	}
	r.token <- struct{}{}
	return r, nil
}

// claim writes the key over that of an earlier incarnation. It tries until ctx ends.
func (r *Right) claim(ctx context.Context) error {
	pause, patience := r.cfg.retry(), r.cfg.patience()
	defer func() { r.key.tryMax = r.cfg.tryMax() }()
	for {
		r.key.tryMax = patience.take()
		err := r.claimOnce(ctx)
		if err == nil || isFinal(err) {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		pause.after(ctx, err)
	}
}

// isFinal reports whether an error of a claim or a deposing stays, however often it is tried.
func isFinal(err error) bool {
	if _, ok := errors.AsType[*DeposedError](err); ok {
		return true
	}
	_, unreadable := errors.AsType[*unreadableError](err)
	return unreadable
}

func (r *Right) claimOnce(ctx context.Context) error {
	f, err := lookFor(ctx, r.key.store, r.key.name, r.key.tryMax)
	switch {
	case err != nil:
		return err
	case f.err != nil:
		return &unreadableError{f.err}
	case f.missing():
		r.key.base(0)
	case f.rec.Incarnation == r.incarnation:
		// An earlier try was stored, and its reply lost.
		if err := r.key.adopt(f); !errors.Is(err, errRewritten) {
			return err
		}
	case r.cfg.NodeLocked:
		r.key.base(f.Revision)
	default:
		if err := r.succeed(ctx, f); err != nil {
			return err
		}
	}
	// A refusal tells that the key was written since it was read: by who is alive after all, or by a deposer. It is
	// read again.
	return r.key.send(ctx, StateUp)
}

// succeed deposes the earlier incarnation whose key is f, waits until its right has run out, and makes the next try
// conditional on the deposing.
func (r *Right) succeed(ctx context.Context, f *found) error {
	d := &deposer{
		store: r.key.store, cfg: &r.cfg, node: r.cfg.Node, incarnation: f.rec.Incarnation,
		say: deposed{By: r.Holder(), Why: "the node begins anew"},
	}
	gone, err := d.run(ctx, f)
	if err != nil {
		return err
	}
	// Also where somebody else has deposed it: when that was is not known.
	if err := waitOut(ctx, r.cfg.Now, max(r.cfg.Wait, waitFor(gone.rec.trust()))); err != nil {
		return err
	}
	r.key.base(gone.Revision)
	return nil
}

// Forget deletes the key of a node that is not expected back. Its incarnation, should it live all the same, finds the key
// gone and deposes itself.
func Forget(ctx context.Context, s interface {
	Delete(ctx context.Context, key string, last uint64) error
}, group, node string,
) error {
	return s.Delete(ctx, keyOf(group, node), 0)
}

// Incarnation returns what tells this process from the earlier and the later ones of its node. It is new at every Open.
func (r *Right) Incarnation() string { return r.incarnation }

// Holder returns "node/incarnation".
func (r *Right) Holder() string { return r.cfg.Node + "/" + r.incarnation }

// Trust returns how long the right holds after the sending of a renewal.
func (r *Right) Trust() time.Duration { return r.cfg.Trust }

// Now reads the clock by which the right is measured, for [Part.Extend].
func (r *Right) Now() time.Duration { return r.cfg.Now() }

// Holds reports whether the right holds at this moment: no successor has come to the end of its wait. It reads the clock
// and costs no I/O. It is false when the right has not been renewed for Config.Trust, and may become true again by a renewal,
// until Deposed has ended.
//
// Who answers a read asks it behind the arrival of the request.
func (r *Right) Holds() bool { return r.holds(0) }

// holds reports whether the right holds, or what is extended to until.
func (r *Right) holds(until int64) bool {
	until = max(until, r.until.Load())
	// The clock is read last. A process that is stopped before that finds what the time is when it goes on.
	return !r.over.Load() && int64(r.cfg.Now()) < until
}

// Deposed returns a context that ends when the right has ended for good: with a *DeposedError or with ErrClosed. Holds is false before it ends. All that rests on the right is dropped then, what is about to be
// answered too.
func (r *Right) Deposed() context.Context { return r.scope }

// cause returns why the right has ended for good, nil if it has not.
func (r *Right) cause() error { return context.Cause(r.scope) }

// nudge has the key written at once, which finds out whether it still is this incarnation's.
func (r *Right) nudge() {
	select {
	case r.nudged <- struct{}{}:
	default:
	}
}

// Run renews the right every Config.RenewInterval. It returns nil when ctx ends; the right runs out by itself then. It
// returns the cause with which Deposed ends if that is first. A bucket that cannot be reached is waited for. Run can be
// called once.
func (r *Right) Run(ctx context.Context) error {
	if r.started.Swap(true) {
		return errors.New("right: Run called twice")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(r.scope, cancel) //nolint:contextcheck // two scopes meet here
	defer stop()
	pause := r.cfg.retry()
	held := true
	for r.waitDue(ctx) {
		err := r.renew(ctx)
		if err == nil {
			pause.reset()
		}
		if now := r.Holds(); now != held && ctx.Err() == nil {
			held = now
			r.logHeld(ctx, held, err)
		}
		if err != nil && !errors.Is(err, errRewritten) {
			pause.wait(ctx)
		}
	}
	return r.cause()
}

func (r *Right) logHeld(ctx context.Context, held bool, err error) {
	if held {
		r.cfg.Log.InfoContext(ctx, "read right holds again")
		return
	}
	r.cfg.Log.WarnContext(ctx, "read right has run out; reads wait for a renewal", "trust", r.cfg.Trust, "error", err)
}

// waitDue waits until the next renewal is due: an interval after the last one that was stored was sent. It reports
// false if ctx has ended.
func (r *Right) waitDue(ctx context.Context) bool {
	r.mu.Lock()
	due := r.last.start + spread(r.cfg.RenewInterval)
	r.mu.Unlock()
	// A timer that does not count suspended time fires late, at the latest an interval after the machine runs again.
	timer := time.NewTimer(max(due-r.cfg.Now(), 0))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.nudged:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// renew makes one try. Where an earlier one turns out to be stored, the next is due an interval after that was sent.
func (r *Right) renew(ctx context.Context) error {
	select {
	case <-r.token:
		defer func() { r.token <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.closed || r.over.Load() {
		return r.cause()
	}
	if f := r.watched.Swap(nil); f != nil && f.Revision > r.key.revision {
		_ = r.key.adopt(f) // it is this incarnation's, and only the next try begins from there
	}
	err := r.key.put(ctx, StateUp)
	if gone, ok := errors.AsType[*DeposedError](err); ok {
		r.end(gone)
	}
	return err
}

// Close gives the right up and then says so in the key: Deposed ends with ErrClosed, and the node's state is StateLeft. It
// tries until ctx ends. The key of who was deposed is left as it is. Close may be called twice, and while Run runs, which
// returns then.
func (r *Right) Close(ctx context.Context) error {
	r.end(ErrClosed) // before the key says it
	select {
	case <-r.token:
		defer func() { r.token <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("right: close %s: %w", r.Holder(), context.Cause(ctx))
	}
	if _, gone := errors.AsType[*DeposedError](r.cause()); gone {
		return nil
	}
	pause := r.cfg.retry()
	for !r.closed {
		err := r.key.put(ctx, StateLeft)
		_, gone := errors.AsType[*DeposedError](err)
		switch {
		case gone || err == nil && r.key.rec.State == StateLeft:
			r.closed = true
		case ctx.Err() != nil:
			return fmt.Errorf("right: say that %s has left; others find it silent: %w", r.Holder(), errors.Join(context.Cause(ctx), err))
		case err != nil:
			pause.wait(ctx)
		}
	}
	return nil
}

// end ends the right for good.
func (r *Right) end(cause error) {
	r.over.Store(true)
	r.cancel(cause) // last: who sees Deposed end must find that the right does not hold
}

// sent notes a try before it is sent.
func (r *Right) sent(t try) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries[t.write%triesKept] = t
}

// stored extends the right because a try is known to be stored. It counts from its sending: whoever deposes the node does
// so behind it, and waits from later.
func (r *Right) stored(t try) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.start > r.last.start || r.last.write == 0 {
		r.last = t
	}
	if until := int64(t.start + r.cfg.Trust); until > r.until.Load() {
		r.until.Store(until)
	}
}

// begun returns a write of this incarnation, and false if it is not remembered.
func (r *Right) begun(write uint64) (try, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tries[write%triesKept]
	return t, t.write == write && write != 0
}

// shown takes in a write of this incarnation that a watch has shown, so that it is known to be stored, whether its reply
// comes or not: where replies take longer than a try is waited for, nothing else tells it, and each try would be conditional on
// a revision that has passed.
func (r *Right) shown(f *found, t try) {
	r.stored(t)
	r.watched.Store(f)
}

// lastStored returns when the last try that is known to be stored was sent.
func (r *Right) lastStored() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last.start
}
