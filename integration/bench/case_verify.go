//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/integration/bench/measure"
)

const verifyBar = 500_000 // copies/s

// verify is the case of the comparison of all copies with their sources.
func (b *bench) verify(ctx context.Context) error {
	return b.withMixed(ctx, func(w *world) error {
		t := b.table("verify", "Verification", fmt.Sprintf(
			"The names of the category and of the tags in each of %s products are compared with their sources; nothing writes meanwhile. "+
				"PostgreSQL does it by two joins that count what differs.", measure.Number(float64(w.set.Products()))))
		for round := range b.cfg.rounds {
			b.say("  round %d of %d", round+1, b.cfg.rounds)
			if err := w.verifyRound(ctx, t, ofMillrace, w.verifyMillrace); err != nil {
				return err
			}
			if b.pg == nil {
				continue
			}
			if err := w.verifyRound(ctx, t, ofJSONB, w.verifyTables); err != nil {
				return err
			}
		}
		t.Beside(ofMillrace, ofJSONB, "copies/s", "times jsonb")
		t.AtLeast("copies verified", t.Series(ofMillrace, "copies/s"), verifyBar, "copies/s", b.cfg.judged())
		return nil
	})
}

// verifyRound measures one system. verify returns the number of copies that it
// has found equal.
func (w *world) verifyRound(ctx context.Context, t *measure.Table, system string, verify func(context.Context) (int64, error)) error {
	if err := w.b.quiet(ctx); err != nil {
		return err
	}
	watch := w.b.watch()
	var copies int64
	c, err := w.timed(func() (err error) {
		copies, err = verify(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", system, err)
	}
	t.Others = append(t.Others, watch.Others())
	r := t.Row(system)
	r.Add("copies/s", float64(copies)/c.time.Seconds())
	r.Add("s", c.time.Seconds())
	r.Add("CPU µs/copy", float64(c.cpu)/float64(time.Microsecond)/float64(copies))
	w.b.say("  %s: %s copies in %.3f s", system, measure.Number(float64(copies)), c.time.Seconds())
	return nil
}

func (w *world) verifyMillrace(ctx context.Context) (copies int64, err error) {
	err = w.b.profiled("verify", func() error {
		report, err := w.cat.verify(ctx)
		if err != nil {
			return err
		}
		for i := range report.Pipelines {
			copies += report.Pipelines[i].Copies
		}
		return nil
	})
	return copies, err
}

func (w *world) verifyTables(ctx context.Context) (int64, error) {
	var sum int64
	for _, statement := range []string{
		"select count(*), count(*) filter (where p.item -> 'categoryName' is distinct from s.item -> 'name') " +
			"from product p join source s on s.id = p.category_id",
		"select count(*), count(*) filter (where e.t -> 'name' is distinct from s.item -> 'name') " +
			"from product p cross join jsonb_array_elements(p.item -> 'tags') as e(t) join source s on s.id = e.t ->> 'id'",
	} {
		var copies, wrong int64
		if err := w.jsonb.conn.QueryRow(ctx, statement).Scan(&copies, &wrong); err != nil {
			return 0, fmt.Errorf("postgres: verify: %w", err)
		}
		if wrong > 0 {
			return 0, fmt.Errorf("postgres: %d copies differ", wrong)
		}
		sum += copies
	}
	return sum, nil
}
