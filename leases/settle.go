package leases

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/leases/right"
)

// settling is what is left to wait for under a lease that was taken from who may still answer.
type settling struct {
	due      bool
	lifetime time.Duration // of the lease that was taken
}

// Settle waits until nobody answers any more who held the lease before. Work calls it before it answers, or does anything
// else that a holder who does not know yet that it was succeeded must not be seen beside; it needs Config.Deposes, and
// returns at once without it, or where the lease was free.
//
// fenced says that what the former holder might still do to extend its right (Extend) is refused since before the call,
// as by a takeover commit that was acknowledged. Where nothing fences it off, the whole lifetime of its lease is waited for.
//
// The error is the cause with which ctx ended.
func (h *Held) Settle(ctx context.Context, fenced bool) error {
	if !h.waits() {
		return nil
	}
	h.mu.Lock()
	d := h.settling.lifetime
	h.mu.Unlock()
	if fenced {
		d = right.Wait
		if h.seat != nil {
			d = max(d, h.seat.sight.Wait())
		}
	}
	for end := h.clock() + d; ; {
		left := end - h.clock() // the clock counts time that timers do not
		if left <= 0 {
			break
		}
		h.Progress()
		if sleep(ctx, min(left, time.Second)); ctx.Err() != nil {
			return fmt.Errorf("wait for the former holder of %s: %w", h.resource, context.Cause(ctx))
		}
	}
	h.mu.Lock()
	h.settling.due = false
	h.mu.Unlock()
	h.renewNow() // so that who takes the lease next need not wait for the one before
	return nil
}

// waits reports whether the former holder may still answer, so the record tells the next one to wait for it too.
func (h *Held) waits() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settling.due
}

// Now reads the clock by which leases are measured, for Extend.
func (h *Held) Now() time.Duration { return h.clock() }

// Extend extends the right to what the lease is of, while the process's own cannot be renewed: since was read (Now)
// before something was sent that is now known to have arrived, and that a successor's fence would have refused. Valid
// stays true for a moment from then, while the lease lasts. Without Config.Deposes it does nothing.
func (h *Held) Extend(since time.Duration) {
	if h.part != nil {
		h.part.Extend(since)
	}
}

// deposed reports whether the right on which the lease rests has ended for good.
func (h *Held) deposed() bool { return h.seat != nil && h.seat.right.Deposed().Err() != nil }
