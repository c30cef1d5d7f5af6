package right

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// retryPause is a pause that doubles, with jitter.
type retryPause struct {
	first, most time.Duration
	next        time.Duration
	refused     bool // the last try was refused
}

func (p *retryPause) reset() { p.next = 0 }

// after waits as is fit after an error. Who was refused once reads the key at once: its node may be alive and renews it
// again soon. Who is refused again may be told what was, by a leader that was succeeded.
func (p *retryPause) after(ctx context.Context, err error) {
	first := !p.refused
	p.refused = errors.Is(err, bucket.ErrMismatch)
	if !p.refused || !first {
		p.wait(ctx)
	}
}

// wait waits for the next pause or the end of ctx.
func (p *retryPause) wait(ctx context.Context) {
	p.next = min(max(p.next*2, p.first), p.most)
	sleep(ctx, spread(p.next))
}

// patience is how long the outcome of one try is waited for by who cannot go on without one. It doubles: the server that
// had the try may be lost, so at first another one follows soon; or replies take longer than that.
type patience struct{ next, most time.Duration }

const patienceOfTry = 2 * time.Second

func (c *Config) patience() patience {
	return patience{next: c.tryMax(), most: max(patienceOfTry, c.tryMax())}
}

func (p *patience) take() time.Duration {
	d := p.next
	p.next = min(2*d, p.most)
	return d
}

// spread returns between nine tenths of d and d, so that what began at the same moment drifts apart.
func spread(d time.Duration) time.Duration {
	if d < 10 {
		return d
	}
	return d - rand.N(d/10)
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

// waitOut waits until d has passed by the clock now, which counts time that timers do not. The error is the cause with
// which ctx ended before.
func waitOut(ctx context.Context, now func() time.Duration, d time.Duration) error {
	end := now() + d
	for {
		left := end - now()
		if left <= 0 {
			return nil
		}
		sleep(ctx, left)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
