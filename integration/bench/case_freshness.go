//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/integration/bench/measure"
)

// restBetween is the pause between two renames, so that each finds the pipeline
// waiting and not at work.
const restBetween = 2 * time.Millisecond

// freshness is the case of renames of categories that have one product each.
func (b *bench) freshness(ctx context.Context) error {
	return b.withMixed(ctx, func(w *world) error {
		t := b.table("freshness", "Freshness",
			"A category of one product is renamed, one rename after another. Freshness is the time from the acknowledgement of the "+
				"rename to the moment when its copy can be read; the rename's own latency stands beside it. A trigger copies before it "+
				"acknowledges.")
		for round := range b.cfg.rounds {
			b.say("  round %d of %d", round+1, b.cfg.rounds)
			if err := w.freshRound(ctx, t, ofMillrace, w.freshMillrace); err != nil {
				return err
			}
			if b.pg == nil {
				continue
			}
			if err := w.freshRound(ctx, t, ofJSONB, w.freshTrigger); err != nil {
				return err
			}
			if err := w.freshRound(ctx, t, ofConsumer, w.freshConsumer); err != nil {
				return err
			}
		}
		judged := b.cfg.judged()
		t.AtMost("freshness, p50", t.Series(ofMillrace, "fresh p50 ms"), 0.4, "ms", judged)
		t.AtMost("freshness, p99", t.Series(ofMillrace, "fresh p99 ms"), 3, "ms", judged)
		return nil
	})
}

// fresh holds the latencies of some renames and of their copies.
type fresh struct{ renamed, copied measure.Latencies }

func (w *world) freshRound(ctx context.Context, t *measure.Table, system string, run func(context.Context, []subject) (*fresh, error)) error {
	all, err := w.singles()
	if err != nil {
		return err
	}
	watch := w.b.watch()
	var f *fresh
	measured := func() error {
		f, err = run(ctx, all)
		return err
	}
	if system == ofMillrace {
		err = w.b.profiled("freshness", measured)
	} else {
		err = measured()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", system, err)
	}
	t.Others = append(t.Others, watch.Others())
	r := t.Row(system)
	r.Add("rename p50 ms", measure.Milliseconds(f.renamed.Quantile(0.5)))
	r.Add("rename p99 ms", measure.Milliseconds(f.renamed.Quantile(0.99)))
	r.Add("fresh p50 ms", measure.Milliseconds(f.copied.Quantile(0.5)))
	r.Add("fresh p99 ms", measure.Milliseconds(f.copied.Quantile(0.99)))
	w.b.say("  %s: p50 %.3f ms, p99 %.3f ms", system, measure.Milliseconds(f.copied.Quantile(0.5)), measure.Milliseconds(f.copied.Quantile(0.99)))
	return w.b.quiet(ctx)
}

// singles returns the categories of one product.
func (w *world) singles() ([]subject, error) {
	all := make([]subject, w.set.Singles())
	for c := range all {
		var err error
		if all[c], err = w.category(c); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (w *world) freshMillrace(ctx context.Context, all []subject) (*fresh, error) {
	f := &fresh{}
	for n := range w.b.cfg.renames {
		s := all[n%len(all)]
		source := w.rename(s)
		start := time.Now()
		if err := w.cat.rename(ctx, source); err != nil {
			return nil, err
		}
		acknowledged := time.Now()
		if err := w.cat.await(ctx, s.lasts, source.Name, true); err != nil {
			return nil, err
		}
		f.renamed = append(f.renamed, acknowledged.Sub(start))
		f.copied = append(f.copied, time.Since(acknowledged))
		if err := wait(ctx, restBetween); err != nil {
			return nil, err
		}
	}
	return f, w.cat.awaitIdle(ctx)
}

func (w *world) freshTrigger(ctx context.Context, all []subject) (*fresh, error) {
	f := &fresh{}
	for n := range w.b.cfg.renames {
		start := time.Now()
		if err := w.jsonb.rename(ctx, w.jsonb.conn, w.rename(all[n%len(all)])); err != nil {
			return nil, err
		}
		f.renamed = append(f.renamed, time.Since(start))
		f.copied = append(f.copied, 0) // the trigger's copy is in the transaction that was acknowledged
		if err := wait(ctx, restBetween); err != nil {
			return nil, err
		}
	}
	return f, w.jsonb.settle(ctx)
}

func (w *world) freshConsumer(ctx context.Context, all []subject) (f *fresh, err error) {
	c, err := startConsumer(ctx, w.jsonb)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop(ctx), w.jsonb.settle(ctx)) }()
	f = &fresh{}
	for n := range w.b.cfg.renames {
		start := time.Now()
		if err := w.jsonb.rename(ctx, w.jsonb.conn, w.rename(all[n%len(all)])); err != nil {
			return nil, err
		}
		acknowledged := time.Now()
		if _, err := c.await(ctx); err != nil {
			return nil, err
		}
		f.renamed = append(f.renamed, acknowledged.Sub(start))
		f.copied = append(f.copied, time.Since(acknowledged))
		if err := wait(ctx, restBetween); err != nil {
			return nil, err
		}
	}
	return f, nil
}
