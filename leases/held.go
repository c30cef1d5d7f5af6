package leases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/leases/right"
)

// Held is a lease that this process holds. Its methods are safe for concurrent
// use.
type Held struct {
	cfg      *Config
	clock    clock
	resource string
	epoch    uint64
	weight   func(resource string) float64
	node     string      // this process's
	before   use         // who used the lease before it was taken
	seat     *seat       // on whose right it rests; nil: on its lifetime alone
	part     *right.Part // nil without a seat

	ctx         context.Context //nolint:containedctx // a Held is a scope
	cancel      context.CancelCauseFunc
	trust       context.Context //nolint:containedctx // a Held is a scope
	cancelTrust context.CancelCauseFunc

	until    atomic.Int64 // reading of clock from which the lease is not valid; 0: for good
	born     time.Time
	progress atomic.Int64 // time since born of the last Progress
	works    atomic.Bool  // Works was called

	// Owned by the manager's loop, which looks at the lease every tick.
	checkedAt    time.Duration // when it did last
	excusedUntil time.Duration // until when a renewal may come late, as the look did

	nudge      chan struct{} // holds a token: renew at once
	writeToken chan struct{} // holds one token: the right to use writer
	w          writer
	renewedAt  time.Duration // begin of the last renewal; for the holder of writeToken
	weighed    time.Duration // when the weight was published; for the holder of writeToken

	mu         sync.Mutex
	trustEnded bool // trust has ended for good
	taken      bool // the record is another's: nothing to release
	ending     bool // Context has ended, trust has not
	uses       int  // calls of Use that were not taken back
	named      bool // the record is known to name this node as who used the lease last, if uses are not 0
	bound      bool // see Bind
	settling   settling
	endingAt   time.Duration
	checkpoint []byte
}

// newHeld returns a lease whose record w stored, by a try that was begun at start.
func newHeld(ctx context.Context, m *Manager, s *seat, resource string, before use, w writer, start time.Duration) *Held {
	h := &Held{
		cfg: &m.cfg, clock: m.clock, weight: m.weightOf, node: m.cfg.Node, before: before,
		resource: resource, epoch: w.rec.Epoch, checkpoint: w.rec.Checkpoint,
		named: before.Node == m.cfg.Node, bound: w.rec.Bound,
		w: w, renewedAt: start, weighed: start, checkedAt: start, born: time.Now(),
		writeToken: make(chan struct{}, 1), nudge: make(chan struct{}, 1),
	}
	if s != nil {
		h.seat, h.part = s, s.right.Part()
	}
	h.w.onStored = h.extend
	// Context stands within Trust: it can end alone, so that work is finished and saved under a
	// trust that goes on, and never outlives it.
	h.trust, h.cancelTrust = context.WithCancelCause(ctx)
	h.ctx, h.cancel = context.WithCancelCause(h.trust)
	h.extend(start)
	h.Progress()
	h.writeToken <- struct{}{}
	return h
}

// Resource returns the name of the resource.
func (h *Held) Resource() string { return h.resource }

// Epoch returns the epoch of this holding. No other holding of the resource has
// it, and later ones have a greater one.
func (h *Held) Epoch() uint64 { return h.epoch }

// Checkpoint returns what was saved last, by this holder or an earlier one; nil
// if nothing was. The caller must not change it.
func (h *Held) Checkpoint() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checkpoint
}

// Context ends when the work should end: with ErrDraining, ErrMoved or
// ErrWithdrawn while the lease is still held, so that the work at hand can be
// finished and saved, or with ErrLost or ErrStalled together with Trust.
func (h *Held) Context() context.Context { return h.ctx }

// Trust ends when the lease must be taken for lost, before another can hold it, unless the
// group is fenced (Config.Fenced), or its members depose each other, where the former holder may not know it yet and what
// the next one does is kept back by Settle; or when Config.DrainTimeout has passed since Context ended. Work at hand is
// abandoned then.
//
// A process that was stopped, starved or suspended cannot end Trust in time. When it runs
// again the lease is in doubt: Valid is false, and Trust goes on for up to
// Config.RenewInterval more, until a renewal shows whether another has taken the lease.
// Code that must be exact asks Valid.
func (h *Held) Trust() context.Context { return h.trust }

// Valid reports whether the lease is held at this moment, and this process's right holds where it has one. It reads
// the clock and costs no I/O. It may become true again while Trust has not ended.
func (h *Held) Valid() bool { return h.Lasts() && (h.part == nil || h.part.Holds()) }

// Lasts reports whether the lease has not run out, whatever the process's right is. It is enough to try what is refused
// where another has taken the lease.
func (h *Held) Lasts() bool { return int64(h.clock()) < h.until.Load() }

// Progress says that the holder's work is alive. Work must call it at least once in
// Config.StallTimeout, also when it has nothing to do.
func (h *Held) Progress() { h.progress.Store(int64(time.Since(h.born))) }

// Works says that the work has come to do what it is for, as when what it serves is open: a
// failure from now on is the first of a new row. The next renewal clears Lease.LastError and
// Lease.Attempts. Work that fails before that renewal, each time it begins, still fails in one
// row, so its pauses grow. Work that saves checkpoints need not call it: Save clears both.
func (h *Held) Works() { h.works.Store(true) }

// progressed returns when Progress was called last.
func (h *Held) progressed() time.Time { return h.born.Add(time.Duration(h.progress.Load())) }

// Save stores a checkpoint of at most CheckpointBytesMax bytes. It also renews
// the lease and clears Lease.LastError. It keeps trying until ctx ends, and can
// be called while Context has ended and Trust has not.
//
// The error is ErrLost if the lease is not held any more; nothing was stored
// unless an earlier call with an unknown outcome did. After any other error the
// outcome is unknown and Save may be called again.
func (h *Held) Save(ctx context.Context, checkpoint []byte) error {
	if len(checkpoint) > CheckpointBytesMax {
		return ErrCheckpointTooLarge
	}
	return h.write(ctx, func(r *leaseRecord) {
		r.Checkpoint, r.LastError, r.Attempts = checkpoint, "", 0
	})
}

// write stores a change and extends trust.
func (h *Held) write(ctx context.Context, change func(*leaseRecord)) error {
	// The write ends with the caller's context or with Trust, whichever ends first.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(h.trust, func() { cancel(ErrLost) }) //nolint:contextcheck // two scopes meet here
	defer stop()
	select {
	case <-h.writeToken:
		defer func() { h.writeToken <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("save checkpoint of %s: %w", h.resource, context.Cause(ctx))
	}
	if h.trust.Err() != nil {
		return ErrLost
	}
	// Valid is not asked: a lease in doubt is renewed too, and the write is refused if another
	// has taken it.
	begun := h.clock()
	start, err := h.w.put(ctx, func(r *leaseRecord) {
		h.refresh(r)
		change(r)
	})
	meters.renewed(ctx, h.cfg.Group, h.clock()-begun, err)
	if _, taken := errors.AsType[*takenError](err); taken {
		h.loseToOther()
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if err != nil {
		if h.trust.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrLost, err)
		}
		return err
	}
	h.renewedAt = start
	h.mu.Lock()
	h.checkpoint = h.w.rec.Checkpoint
	h.mu.Unlock()
	return nil
}

// refresh sets the fields that every write of the holder carries.
func (h *Held) refresh(r *leaseRecord) {
	r.TTL = h.cfg.TTL.Milliseconds()
	r.Progress = h.progressed().UnixMilli()
	h.noteUse(r)
	r.Waits = h.waits()
	if h.works.Load() {
		r.LastError, r.Attempts = "", 0
	}
	now := h.clock()
	if w := h.weight(h.resource); now-h.weighed >= h.cfg.WeightInterval && weightChanged(r.weight(), w) {
		r.Weight = roundWeight(w)
		h.weighed = now
	}
}

// weightChanged reports whether a weight has left the published one far enough. Published
// weights are powers of two, and rounding turns at a factor of 1.41. A weight that swings
// around that edge would be published again and again, so a change needs 1.75:
//
//	published 2, weight 3.0   rounds to 4, no change yet
//	published 2, weight 3.5   4 is published
//	published 4, weight 3.0   no change back
func weightChanged(published, w float64) bool {
	w = min(max(w, weightMin), weightMax)
	return w >= published*1.75 || w <= published/1.75
}

// renewLoop renews the lease until ctx ends or the lease is lost.
func (h *Held) renewLoop(ctx context.Context) {
	for {
		due := h.lastRenewal(ctx) + h.cfg.RenewInterval - h.clock()
		ok, nudged := h.waitDue(ctx, spread(max(due, time.Millisecond)))
		if !ok {
			return
		}
		if !nudged && h.lastRenewal(ctx)+h.cfg.RenewInterval*3/4 > h.clock() {
			continue // a checkpoint was saved meanwhile, which renews too
		}
		if err := h.write(ctx, func(*leaseRecord) {}); err != nil && h.trust.Err() != nil {
			if ctx.Err() == nil {
				h.cfg.Log.Warn("lease not renewed", "resource", h.resource, "epoch", h.epoch, "error", err)
			}
			return
		}
	}
}

// waitDue waits for d, or for a nudge to renew at once. It reports false if ctx has ended.
func (h *Held) waitDue(ctx context.Context, d time.Duration) (due, nudged bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.nudge:
		nudged = true
	case <-ctx.Done():
	}
	return ctx.Err() == nil, nudged
}

// lastRenewal returns when the last renewal began. It waits for a renewal in progress.
func (h *Held) lastRenewal(ctx context.Context) time.Duration {
	select {
	case <-h.writeToken:
		defer func() { h.writeToken <- struct{}{} }()
		return h.renewedAt
	case <-ctx.Done():
		return 0
	}
}

// extend extends trust because of a renewal that was begun at start. Trust counts from the
// beginning: others count from when they see the renewal, which is later.
func (h *Held) extend(start time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	until := int64(start + h.cfg.TTL - h.cfg.margin())
	if !h.trustEnded && until > h.until.Load() {
		h.until.Store(until)
	}
}

// endWork asks the work to end. The lease is still renewed.
func (h *Held) endWork(cause error) {
	h.mu.Lock()
	if !h.ending {
		h.ending, h.endingAt = true, h.clock()
	}
	h.mu.Unlock()
	h.cancel(cause)
}

// endTrust ends trust for good.
func (h *Held) endTrust(cause error) {
	h.mu.Lock()
	h.trustEnded = true
	h.until.Store(0)
	h.mu.Unlock()
	h.cancelTrust(cause) // first: code that sees Context end with ErrLost must see Trust ended
	h.cancel(cause)
}

// loseToOther ends trust because the record is another's.
func (h *Held) loseToOther() {
	h.mu.Lock()
	h.taken = true
	h.mu.Unlock()
	h.endTrust(ErrLost)
}

// checkDue ends what has to end at this moment: trust that has run out, work that makes no
// progress, work that does not end. The manager's loop calls it every tick.
//
// If a lease runs out while the ticks come in time, renewals were tried and failed: the
// bucket is out of reach, and the lease is given up. If the tick itself is late, this
// process did not run, and its renewals were late too, so nothing is known. Then they get
// the time of one renewal before the lease is given up:
//
//	ticks 1 2 3 4 5 6 7 8    runs out at 6: lost
//	ticks 1 2 - - - - - 8    has run out at 8: in doubt, until 8 + RenewInterval
func (h *Held) checkDue() {
	h.mu.Lock()
	over, ending, endingAt := h.trustEnded, h.ending, h.endingAt
	h.mu.Unlock()
	now := h.clock()
	if now-h.checkedAt >= h.cfg.RenewInterval/2 {
		h.excusedUntil = now + h.cfg.RenewInterval
	}
	h.checkedAt = now
	switch {
	case over:
	case !h.Lasts() && now < h.excusedUntil: // in doubt
		h.renewNow()
	case !h.Lasts():
		h.endTrust(ErrLost)
	case ending:
		if h.clock()-endingAt >= h.cfg.DrainTimeout {
			h.endTrust(context.Cause(h.ctx))
		}
	case h.cfg.StallTimeout > 0 && time.Since(h.progressed()) >= h.cfg.StallTimeout:
		h.endTrust(ErrStalled)
	}
}

// renewNow makes renewLoop renew the lease at once. A renewal under way is enough.
func (h *Held) renewNow() {
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}

// release frees the lease after the work has returned with err and trust has ended. It tries
// until ctx ends. It leaves a lease alone that another has taken. attempts is the number of
// failures in a row.
func (h *Held) release(ctx context.Context, err error) (attempts int, _ error) {
	select {
	case <-h.writeToken:
		defer func() { h.writeToken <- struct{}{} }()
	case <-ctx.Done():
		return 1, context.Cause(ctx)
	}
	attempts = h.w.rec.Attempts
	if err != nil {
		attempts++
	}
	if h.isTaken() {
		return attempts, nil
	}
	_, putErr := h.w.put(ctx, func(r *leaseRecord) {
		r.Owner, r.Last, r.Host, r.Right = "", h.w.holder, "", ""
		r.Waits = h.waits()
		h.noteUse(r)
		r.Progress = h.progressed().UnixMilli()
		if err != nil {
			r.LastError, r.Attempts = clip(err.Error(), errorBytesMax), attempts
		}
		// The next holding takes the epoch after this one, and so passes the fence that this
		// one met. A holder that was succeeded does not come here: its write is refused.
		if behind, ok := errors.AsType[*EpochBehindError](err); ok {
			r.Epoch = max(r.Epoch, behind.Seen)
			r.Used, r.Bound = new(use), false // the records of who used it in those epochs were lost
		}
	})
	if _, taken := errors.AsType[*takenError](putErr); taken {
		h.loseToOther()
		return attempts, nil
	}
	return attempts, putErr
}

// isTaken reports whether the record is known to be another's.
func (h *Held) isTaken() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.taken
}

// clip cuts s to at most n bytes, between characters. It adds no mark, because the text is
// stored.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
