package leases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Held is a lease that this process holds. Its methods are safe for concurrent
// use.
type Held struct {
	cfg      *Config
	clock    clock
	resource string
	epoch    uint64
	weight   func(resource string) float64

	ctx         context.Context //nolint:containedctx // a Held is a scope
	cancel      context.CancelCauseFunc
	trust       context.Context //nolint:containedctx // a Held is a scope
	cancelTrust context.CancelCauseFunc

	until    atomic.Int64 // clock reading at which the lease is valid no more; 0: never again
	born     time.Time
	progress atomic.Int64 // time since born of the last Progress

	// Owned by the manager's loop, which looks at the lease every tick.
	looked  time.Duration // when it did last
	excused time.Duration // until when a renewal may come late, as the look did

	nudge   chan struct{} // holds a token: renew at once
	turn    chan struct{} // holds one token: the right to use writer
	w       writer
	last    time.Duration // begin of the last renewal; guarded by turn
	weighed time.Duration // when the weight was published; guarded by turn

	mu         sync.Mutex
	over       bool // trust has ended for good
	taken      bool // the record is another's: nothing to release
	ending     bool // Context has ended, trust has not
	endingAt   time.Duration
	checkpoint []byte
}

// newHeld returns a lease whose record was stored by w in a try begun at start.
func newHeld(ctx context.Context, m *Manager, resource string, w writer, start time.Duration) *Held {
	h := &Held{
		cfg: &m.cfg, clock: m.clock, weight: m.weightOf,
		resource: resource, epoch: w.rec.Epoch, checkpoint: w.rec.Checkpoint,
		w: w, last: start, weighed: start, looked: start, born: time.Now(),
		turn: make(chan struct{}, 1), nudge: make(chan struct{}, 1),
	}
	h.w.landed = h.extend
	h.trust, h.cancelTrust = context.WithCancelCause(ctx)
	h.ctx, h.cancel = context.WithCancelCause(h.trust)
	h.extend(start)
	h.Progress()
	h.turn <- struct{}{}
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

// Trust ends when the lease must be taken for lost, before another can hold it; or
// when Config.DrainTimeout has passed since Context ended. Work at hand is
// abandoned then.
//
// A process that was stopped, starved or suspended cannot end anything in time.
// When it runs again the lease is in doubt: Valid is false, and Trust goes on for
// up to Config.RenewInterval more, until a renewal shows whether another has taken
// the lease. What must be exact asks Valid.
func (h *Held) Trust() context.Context { return h.trust }

// Valid reports whether the lease is held at this moment. It reads the clock and
// costs no I/O. It may become true again while Trust has not ended.
func (h *Held) Valid() bool { return int64(h.clock()) < h.until.Load() }

// Progress says that the holder's work turned. Work must call it at least once
// in Config.StallTimeout, also when there is nothing to do.
func (h *Held) Progress() { h.progress.Store(int64(time.Since(h.born))) }

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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(h.trust, func() { cancel(ErrLost) }) //nolint:contextcheck // two scopes meet here
	defer stop()
	select {
	case <-h.turn:
		defer func() { h.turn <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("save checkpoint of %s: %w", h.resource, context.Cause(ctx))
	}
	if h.trust.Err() != nil {
		return ErrLost
	}
	// A lease in doubt is renewed too: the write is refused if another has taken it.
	begun := h.clock()
	start, err := h.w.put(ctx, func(r *leaseRecord) {
		h.refresh(r)
		change(r)
	})
	meters.renewed(ctx, h.cfg.Group, h.clock()-begun, err)
	if _, taken := errors.AsType[*takenError](err); taken {
		h.lose()
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if err != nil {
		if h.trust.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrLost, err)
		}
		return err
	}
	h.last = start
	h.mu.Lock()
	h.checkpoint = h.w.rec.Checkpoint
	h.mu.Unlock()
	return nil
}

// refresh sets what every write carries.
func (h *Held) refresh(r *leaseRecord) {
	r.TTL = h.cfg.TTL.Milliseconds()
	r.Progress = h.progressed().UnixMilli()
	now := h.clock()
	if w := h.weight(h.resource); now-h.weighed >= h.cfg.WeightInterval && weightChanged(r.weight(), w) {
		r.Weight = roundWeight(w)
		h.weighed = now
	}
}

// weightChanged tells a change from a swing around the rounding's edge.
func weightChanged(published, w float64) bool {
	w = min(max(w, weightMin), weightMax)
	return w >= published*1.75 || w <= published/1.75
}

// keep renews the lease until ctx ends or the lease is lost.
func (h *Held) keep(ctx context.Context) {
	for {
		due := h.lastRenewal(ctx) + h.cfg.RenewInterval - h.clock()
		if !h.rest(ctx, spread(max(due, time.Millisecond))) {
			return
		}
		if h.lastRenewal(ctx)+h.cfg.RenewInterval*3/4 > h.clock() {
			continue // saved meanwhile
		}
		if err := h.write(ctx, func(*leaseRecord) {}); err != nil && h.trust.Err() != nil {
			if ctx.Err() == nil {
				h.cfg.Log.Warn("lease not renewed", "resource", h.resource, "epoch", h.epoch, "error", err)
			}
			return
		}
	}
}

// rest waits for d, or until the lease is to be renewed at once. It reports false
// when ctx has ended.
func (h *Held) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.nudge:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// lastRenewal returns when the last renewal began; it waits for one in progress.
func (h *Held) lastRenewal(ctx context.Context) time.Duration {
	select {
	case <-h.turn:
		defer func() { h.turn <- struct{}{} }()
		return h.last
	case <-ctx.Done():
		return 0
	}
}

// extend trusts a renewal that was begun at start.
func (h *Held) extend(start time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	until := int64(start + h.cfg.TTL - h.cfg.margin())
	if !h.over && until > h.until.Load() {
		h.until.Store(until)
	}
}

// end asks the work to end while the lease is kept.
func (h *Held) end(cause error) {
	h.mu.Lock()
	if !h.ending {
		h.ending, h.endingAt = true, h.clock()
	}
	h.mu.Unlock()
	h.cancel(cause)
}

// finish ends trust for good.
func (h *Held) finish(cause error) {
	h.mu.Lock()
	h.over = true
	h.until.Store(0)
	h.mu.Unlock()
	h.cancelTrust(cause) // first, so that whoever sees Context end with ErrLost sees Trust ended
	h.cancel(cause)
}

// lose ends trust because the record is another's.
func (h *Held) lose() {
	h.mu.Lock()
	h.taken = true
	h.mu.Unlock()
	h.finish(ErrLost)
}

// check ends what has to end at this moment: trust that has run out, work that
// does not turn, work that does not end.
//
// A lease that runs out while this process looks on, tick by tick, was tried to be
// renewed in vain: the bucket is out of reach, and it is given up. If the look
// itself is late, the renewals were too, and nothing is known; so they are given
// the time of one before the lease is judged.
func (h *Held) check() {
	h.mu.Lock()
	over, ending, endingAt := h.over, h.ending, h.endingAt
	h.mu.Unlock()
	now := h.clock()
	if now-h.looked >= h.cfg.RenewInterval/2 {
		h.excused = now + h.cfg.RenewInterval
	}
	h.looked = now
	switch {
	case over:
	case !h.Valid() && now < h.excused:
		h.renewNow()
	case !h.Valid():
		h.finish(ErrLost)
	case ending:
		if h.clock()-endingAt >= h.cfg.DrainTimeout {
			h.finish(context.Cause(h.ctx))
		}
	case h.cfg.StallTimeout > 0 && time.Since(h.progressed()) >= h.cfg.StallTimeout:
		h.finish(ErrStalled)
	}
}

// renewNow has the lease renewed at once, unless that is under way.
func (h *Held) renewNow() {
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}

// release frees the lease after the work has returned with err and trust has
// ended. It tries until ctx ends. A lease that is another's is left alone. It
// returns the failures in a row.
func (h *Held) release(ctx context.Context, err error) (attempts int, _ error) {
	select {
	case <-h.turn:
		defer func() { h.turn <- struct{}{} }()
	case <-ctx.Done():
		return 1, context.Cause(ctx)
	}
	attempts = h.w.rec.Attempts
	if err != nil {
		attempts++
	}
	h.mu.Lock()
	taken := h.taken
	h.mu.Unlock()
	if taken {
		return attempts, nil
	}
	_, putErr := h.w.put(ctx, func(r *leaseRecord) {
		r.Owner, r.Last, r.Host = "", h.w.holder, ""
		r.Progress = h.progressed().UnixMilli()
		if err != nil {
			r.LastError, r.Attempts = clip(err.Error(), errorBytesMax), attempts
		}
		if behind, ok := errors.AsType[*EpochBehindError](err); ok {
			r.Epoch = max(r.Epoch, behind.Seen)
		}
	})
	if _, taken := errors.AsType[*takenError](putErr); taken {
		return attempts, nil
	}
	return attempts, putErr
}

// clip cuts s to at most n bytes, between characters, and leaves no mark: the text is
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
