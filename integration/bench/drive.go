//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/integration/bench/measure"
)

// driven is what writers did while they were measured.
type driven struct {
	latencies measure.Latencies
	perSecond float64
	cpu       time.Duration // of Millrace or the peer, and the writers, for one write
	others    float64       // per cent of the machine that others used
}

// addTo puts the figures into a row.
func (d *driven) addTo(r *measure.Row) {
	r.Add("writes/s", d.perSecond)
	d.addLatencies(r, "write")
}

// addLatencies adds to a row the latencies and the processors' time of a write, by its name.
func (d *driven) addLatencies(r *measure.Row, write string) {
	r.Add("p50 ms", measure.Milliseconds(d.latencies.Quantile(0.5)))
	r.Add("p99 ms", measure.Milliseconds(d.latencies.Quantile(0.99)))
	r.Add("CPU µs/"+write, float64(d.cpu)/float64(time.Microsecond))
}

// crowd is a number of writers that write as fast as they are answered.
type crowd struct {
	writers int
	// write does the nth write of a writer.
	write func(ctx context.Context, writer, n int) error
}

// paced is a crowd whose writers write so many times a second together. The nth write of a writer is due at a
// time, counted from began, that does not depend on how long the others took: who was held up makes up for it, and the rate
// stays what was asked.
func paced(began time.Time, perSecond float64, writers int, write func(ctx context.Context, writer, n int) error) crowd {
	return crowd{writers, func(ctx context.Context, writer, n int) error {
		due := began.Add(time.Duration(float64(n*writers) / perSecond * float64(time.Second)))
		if err := wait(ctx, time.Until(due)); err != nil {
			return err
		}
		return write(ctx, writer, n)
	}}
}

// drive runs the crowd and measures it for window, after warmup.
func (b *bench) drive(ctx context.Context, c crowd, warmup, window time.Duration) (*driven, error) {
	run := b.start(ctx, c)
	if err := run.wait(warmup); err != nil {
		return nil, run.stopWith(err)
	}
	run.measure()
	if err := run.wait(window); err != nil {
		return nil, run.stopWith(err)
	}
	return run.stop()
}

// running is a crowd at work. Its methods are called by the goroutine that started it, which alone
// reads and writes began and watch. The writers read the two flags, and lock mu to add to latencies.
type running struct {
	b     *bench
	ctx   context.Context //nolint:containedctx // ends when a writer fails; it is the scope of this run
	group *errgroup.Group

	stopped   atomic.Bool // writers finish the write at hand; it is not cancelled
	measuring atomic.Bool
	began     time.Time
	watch     *measure.Watch

	mu        sync.Mutex
	latencies measure.Latencies
}

// start sets the crowd to work.
func (b *bench) start(ctx context.Context, c crowd) *running {
	r := &running{b: b}
	r.group, r.ctx = errgroup.WithContext(ctx)
	for w := range c.writers {
		r.group.Go(func() error {
			latencies := make(measure.Latencies, 0, 1<<16) // of its own: writers do not wait for each other
			for n := 0; !r.stopped.Load(); n++ {
				counts := r.measuring.Load()
				start := time.Now()
				if err := c.write(r.ctx, w, n); err != nil {
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

// wait lets the crowd work for d, or until a writer fails.
func (r *running) wait(d time.Duration) error { return wait(r.ctx, d) }

// measure counts the writes that begin from now on.
func (r *running) measure() {
	r.began, r.watch = time.Now(), r.b.watch()
	r.measuring.Store(true)
}

// pause stops the counting while the writers go on. It returns the time since measure.
func (r *running) pause() time.Duration {
	r.measuring.Store(false)
	return time.Since(r.began)
}

// stop ends the crowd and returns what was counted.
func (r *running) stop() (*driven, error) {
	took := r.pause()
	d := &driven{others: r.watch.Others(), cpu: r.watch.Ours()}
	r.stopped.Store(true)
	if err := r.group.Wait(); err != nil {
		return nil, err
	}
	d.latencies = r.latencies
	d.perSecond = float64(len(d.latencies)) / took.Seconds()
	if n := len(d.latencies); n > 0 {
		d.cpu /= time.Duration(n)
	}
	return d, nil
}

// stopWith ends the crowd because of err. It returns the error of a writer if there is one: that
// is what has ended the wait.
func (r *running) stopWith(err error) error {
	r.stopped.Store(true)
	if failed := r.group.Wait(); failed != nil {
		return failed
	}
	return err
}
