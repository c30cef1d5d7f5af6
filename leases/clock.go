package leases

import (
	"context"
	"math/rand/v2"
	"time"
)

// clock returns the time since an arbitrary moment. Leases are measured with a clock that
// counts the time during which the machine was suspended. The timers of Go do not count it,
// so code that waits on a timer reads the clock again when the timer has fired.
type clock func() time.Duration

// retryPause is a pause that doubles, with jitter.
type retryPause struct {
	first, most time.Duration
	next        time.Duration
}

func (p *retryPause) reset() { p.next = 0 }

// wait waits for the next pause or the end of ctx.
func (p *retryPause) wait(ctx context.Context) {
	p.next = min(max(p.next*2, p.first), p.most)
	sleep(ctx, jitter(p.next))
}

// jitter returns between three quarters of d and d.
func jitter(d time.Duration) time.Duration {
	if d < 4 {
		return d
	}
	return d - rand.N(d/4)
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// spread returns between nine tenths of d and d, so that renewals which began at the same
// moment drift apart.
func spread(d time.Duration) time.Duration {
	if d < 10 {
		return d
	}
	return d - rand.N(d/10)
}
