//go:build linux

// Package crowd lets many writers write as fast as they are answered, or at a rate, and measures them: how many writes a
// second, how long each took, and what processors spent.
package crowd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/integration/bench/measure"
)

// Measured is what writers did while they were measured.
type Measured struct {
	Latencies measure.Latencies
	PerSecond float64
	CPU       time.Duration // of the system and the writers, for one write
	Others    float64       // per cent of the machine that others used
}

// AddTo puts the figures into a row.
func (m *Measured) AddTo(r *measure.Row) {
	r.Add("writes/s", m.PerSecond)
	m.AddLatencies(r, "write")
}

// AddLatencies adds to a row the latencies and the processors' time of a write, by its name.
func (m *Measured) AddLatencies(r *measure.Row, write string) {
	r.Add("p50 ms", measure.Milliseconds(m.Latencies.Quantile(0.5)))
	r.Add("p99 ms", measure.Milliseconds(m.Latencies.Quantile(0.99)))
	r.Add("CPU µs/"+write, float64(m.CPU)/float64(time.Microsecond))
}

// Crowd is a number of writers that write as fast as they are answered.
type Crowd struct {
	Writers int
	// Write does the nth write of a writer.
	Write func(ctx context.Context, writer, n int) error
}

// Paced is a crowd whose writers write so many times a second together. The nth write of a writer is due at a
// time, counted from began, that does not depend on how long the others took: who was held up makes up for it, and the rate
// stays what was asked.
func Paced(began time.Time, perSecond float64, writers int, write func(ctx context.Context, writer, n int) error) Crowd {
	return Crowd{Writers: writers, Write: func(ctx context.Context, writer, n int) error {
		due := began.Add(time.Duration(float64(n*writers) / perSecond * float64(time.Second)))
		if err := Wait(ctx, time.Until(due)); err != nil {
			return err
		}
		return write(ctx, writer, n)
	}}
}

// Drive runs the crowd and measures it for window, after warmup. Roots are those of Start.
func Drive(ctx context.Context, c Crowd, warmup, window time.Duration, roots ...int) (*Measured, error) {
	run := Start(ctx, c, roots...)
	if err := run.Wait(warmup); err != nil {
		return nil, run.StopWith(err)
	}
	run.Measure()
	if err := run.Wait(window); err != nil {
		return nil, run.StopWith(err)
	}
	return run.Stop()
}

// Running is a crowd at work. Its methods are called by the goroutine that started it, which alone
// reads and writes began and watch. The writers read the two flags, and lock mu to add to latencies.
type Running struct {
	roots []int
	ctx   context.Context //nolint:containedctx // ends when a writer fails; it is the scope of this run
	group *errgroup.Group

	stopped   atomic.Bool // writers finish the write at hand; it is not cancelled
	measuring atomic.Bool
	began     time.Time
	watch     *measure.Watch

	mu        sync.Mutex
	latencies measure.Latencies
}

// Start sets the crowd to work. The processors' time of a write is that of this process, its children, and the processes
// under roots.
func Start(ctx context.Context, c Crowd, roots ...int) *Running {
	r := &Running{roots: roots}
	r.group, r.ctx = errgroup.WithContext(ctx)
	for w := range c.Writers {
		r.group.Go(func() error {
			latencies := measure.Latencies{} // of its own: writers do not wait for each other
			for n := 0; !r.stopped.Load(); n++ {
				counts := r.measuring.Load()
				start := time.Now()
				if err := c.Write(r.ctx, w, n); err != nil {
					return fmt.Errorf("writer %d: %w", w, err)
				}
				// A write counts if it began and ended while it was measured. One that was under
				// way before would bring what it waited for in the warm-up.
				if counts && r.measuring.Load() {
					latencies = append(latencies, time.Since(start))
				}
			}
			r.mu.Lock()
			r.latencies = append(r.latencies, latencies...)
			r.mu.Unlock()
			return nil
		})
	}
	return r
}

// Wait lets the crowd work for d, or until a writer fails.
func (r *Running) Wait(d time.Duration) error { return Wait(r.ctx, d) }

// Measure counts the writes that begin from now on.
func (r *Running) Measure() {
	r.began, r.watch = time.Now(), measure.StartWatch(r.roots...)
	r.measuring.Store(true)
}

// Since is the time since Measure.
func (r *Running) Since() time.Duration { return time.Since(r.began) }

// Pause stops the counting while the writers go on. It returns the time since Measure.
func (r *Running) Pause() time.Duration {
	r.measuring.Store(false)
	return r.Since()
}

// Stop ends the crowd and returns what was counted.
func (r *Running) Stop() (*Measured, error) {
	took := r.Pause()
	d := &Measured{Others: r.watch.Others(), CPU: r.watch.Ours()}
	r.stopped.Store(true)
	if err := r.group.Wait(); err != nil {
		return nil, err
	}
	d.Latencies = r.latencies
	d.PerSecond = float64(len(d.Latencies)) / took.Seconds()
	if n := len(d.Latencies); n > 0 {
		d.CPU /= time.Duration(n)
	}
	return d, nil
}

// StopWith ends the crowd because of err. It returns the error of a writer if there is one: that
// is what has ended the wait.
func (r *Running) StopWith(err error) error {
	r.stopped.Store(true)
	if failed := r.group.Wait(); failed != nil {
		return failed
	}
	return err
}

// Wait waits for d or until ctx ends.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
