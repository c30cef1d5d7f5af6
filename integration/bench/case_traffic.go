//go:build linux

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
)

// actor is a system in the case of traffic.
type actor struct {
	name string
	// replace writes a product, as the writer with this number.
	replace func(ctx context.Context, writer, p int) error
	// rename renames and returns when that is acknowledged; await returns when the
	// last copy can be read.
	rename func(ctx context.Context, s dataset.Source) error
	await  func(ctx context.Context, s dataset.Source) error
	// touch changes a field of the renamed category that nobody copies.
	touch func(ctx context.Context, s dataset.Source) error
	// rest returns when the system has nothing left to do; close frees its connections.
	rest  func(ctx context.Context) error
	close func()
}

// traffic is the case of writers of other items while a fan-out runs.
func (b *bench) traffic(ctx context.Context) error {
	return b.withMixed(ctx, func(w *world) error {
		t := b.table("traffic", "Writers beside a fan-out",
			"Writers replace products of other categories, as fast as they are answered, first alone, then while a category is renamed "+
				"in a tenth of the products. The same category is written again, in a field that nobody copies, 5 ms after the rename was sent.")
		s, err := w.category(w.set.Sized(len(w.set.Sizes()) - 1))
		if err != nil {
			return err
		}
		for round := range b.cfg.rounds {
			b.say("  round %d of %d", round+1, b.cfg.rounds)
			actors, err := w.actors(ctx, s)
			if err != nil {
				return err
			}
			for _, a := range actors {
				measured := func() error { return w.trafficRound(ctx, t, s, a) }
				if a.name == ofMillrace {
					err = b.profiled("traffic", measured)
				} else {
					err = measured()
				}
				a.close()
				if err = errors.Join(err, a.rest(ctx), b.quiet(ctx)); err != nil {
					return err
				}
			}
		}
		w.trafficBars(t)
		return nil
	})
}

// The bars of writers beside a fan-out: of the median round, and of all.
const (
	trafficP99Bar   = 10.0 // ms
	trafficWorstBar = 25.0 // ms
)

func (w *world) trafficBars(t *measure.Table) {
	judged := w.b.cfg.judged()
	idle, busy := t.Series(ofMillrace, "idle p99 ms"), t.Series(ofMillrace, "p99 ms")
	t.AtMost("other writers' p99 during the fan-out", busy, trafficP99Bar, "ms", judged)
	t.AtMost("other writers' p99 during the fan-out, the longest of a round", measure.Series{busy.Max()}, trafficWorstBar, "ms", judged)
	t.AtMost("the renaming writer's own answer, beside twice the idle p99", t.Series(ofMillrace, "rename ms"), 2*idle.Median(), "ms", judged)
}

// trafficRound measures one system.
func (w *world) trafficRound(ctx context.Context, t *measure.Table, s subject, a *actor) error {
	random := make([]*rand.Rand, w.b.cfg.foreground)
	for i := range random {
		random[i] = rand.New(rand.NewPCG(w.b.cfg.seed, uint64(i)))
	}
	writers := crowd.Crowd{Writers: len(random), Write: func(ctx context.Context, writer, _ int) error {
		return a.replace(ctx, writer, w.set.Cold(random[writer]))
	}}
	idle, err := w.b.drive(ctx, writers, w.b.cfg.warmup, w.b.cfg.writeTime)
	if err != nil {
		return err
	}
	run := w.b.start(ctx, writers)
	if err := run.Wait(w.b.cfg.warmup); err != nil {
		return run.StopWith(err)
	}
	source := w.rename(s)
	run.Measure()
	start := time.Now()
	var touched time.Duration
	var touchErr error
	// A second write of the renamed item, while its fan-out has begun: it must not wait for the
	// end of the fan-out, as it would for the end of a transaction with all copies.
	var second sync.WaitGroup
	second.Go(func() {
		if touchErr = wait(ctx, 5*time.Millisecond); touchErr == nil {
			sent := time.Now()
			touchErr = a.touch(ctx, source)
			touched = time.Since(sent)
		}
	})
	err = a.rename(ctx, source)
	renamed := time.Since(start)
	if err == nil {
		err = a.await(ctx, source)
	}
	took := run.Pause()
	second.Wait()
	if err = errors.Join(err, touchErr); err != nil {
		return run.StopWith(err)
	}
	busy, err := run.Stop()
	if err != nil {
		return err
	}
	busy.PerSecond = float64(len(busy.Latencies)) / took.Seconds()
	r := t.Row(a.name)
	r.Add("idle writes/s", idle.PerSecond)
	r.Add("idle p50 ms", measure.Milliseconds(idle.Latencies.Quantile(0.5)))
	r.Add("idle p99 ms", measure.Milliseconds(idle.Latencies.Quantile(0.99)))
	r.Add("writes/s", busy.PerSecond)
	r.Add("p50 ms", measure.Milliseconds(busy.Latencies.Quantile(0.5)))
	r.Add("p99 ms", measure.Milliseconds(busy.Latencies.Quantile(0.99)))
	r.Add("rename ms", measure.Milliseconds(renamed))
	r.Add("same item ms", measure.Milliseconds(touched))
	r.Add("copies/s", float64(len(s.products))/took.Seconds())
	t.Others = append(t.Others, busy.Others)
	w.b.say("  %s: p99 %.2f ms idle, %.2f ms during a fan-out of %.2f s", a.name, measure.Milliseconds(idle.Latencies.Quantile(0.99)),
		measure.Milliseconds(busy.Latencies.Quantile(0.99)), took.Seconds())
	return nil
}

// actors returns the systems. Each writer of PostgreSQL has its own connection.
func (w *world) actors(ctx context.Context, s subject) ([]*actor, error) {
	actors := []*actor{{
		name:    ofMillrace,
		replace: func(ctx context.Context, _, p int) error { return w.cat.replace(ctx, p) },
		rename:  w.cat.rename,
		await: func(ctx context.Context, source dataset.Source) error {
			return w.cat.await(ctx, s.lasts, source.Name, false)
		},
		touch: func(ctx context.Context, source dataset.Source) error { return w.cat.touch(ctx, source, w.revision) },
		rest:  w.cat.awaitIdle,
		close: func() {},
	}}
	for _, t := range []*tables{w.jsonb, w.plain} {
		if t == nil {
			continue
		}
		a, err := w.tableActor(ctx, t)
		if err != nil {
			return nil, err
		}
		actors = append(actors, a)
	}
	return actors, nil
}

func (w *world) tableActor(ctx context.Context, t *tables) (*actor, error) {
	conns := make([]*pgx.Conn, 0, w.b.cfg.foreground+1)
	closeAll := func() {
		for _, conn := range conns {
			closeConn(ctx, conn)
		}
	}
	for range w.b.cfg.foreground + 1 {
		conn, err := t.pg.connect(ctx, t.schema)
		if err != nil {
			closeAll()
			return nil, err
		}
		conns = append(conns, conn)
	}
	last := conns[len(conns)-1]
	return &actor{
		name:    "PostgreSQL " + t.kind,
		replace: func(ctx context.Context, writer, p int) error { return t.replace(ctx, conns[writer], p) },
		rename:  func(ctx context.Context, s dataset.Source) error { return t.rename(ctx, t.conn, s) },
		await:   func(context.Context, dataset.Source) error { return nil }, // the rename's transaction made them
		touch:   func(ctx context.Context, s dataset.Source) error { return t.touch(ctx, last, s, w.revision) },
		rest:    t.settle,
		close:   closeAll,
	}, nil
}
