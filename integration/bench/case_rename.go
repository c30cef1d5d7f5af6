//go:build linux

package main

import (
	"context"

	"github.com/millrace/millrace/integration/bench/measure"
)

// addRename adds the cost of a rename to its row.
func addRename(t *measure.Table, s subject, system string, c cost) {
	r := t.Row(s.what + ": " + system)
	n := float64(len(s.products))
	r.Add("copies/s", n/c.time.Seconds())
	r.Add("s", c.time.Seconds())
	r.Add("µs/copy", float64(c.time.Microseconds())/n)
	r.Add("CPU µs/copy", float64(c.cpu.Microseconds())/n)
}

// beside sets the ratios of copies per second into Millrace's row of a subject.
func beside(t *measure.Table, s subject) {
	t.Beside(s.what+": "+ofMillrace, s.what+": "+ofJSONB, "copies/s", "times jsonb")
	t.Beside(s.what+": "+ofMillrace, s.what+": "+ofPlain, "copies/s", "times plain")
}

// renameRound renames one subject in each system, and lets each come to rest
// before the next begins.
func (w *world) renameRound(ctx context.Context, t *measure.Table, s subject) error {
	systems := []struct {
		name string
		run  func() (cost, error)
	}{
		{ofMillrace, func() (cost, error) { return w.inMillrace(ctx, s) }},
		{ofJSONB, func() (cost, error) { return w.inPostgres(ctx, w.jsonb, s) }},
		{ofPlain, func() (cost, error) { return w.inPostgres(ctx, w.plain, s) }},
	}
	for _, system := range systems {
		if system.name != ofMillrace && w.b.pg == nil {
			continue
		}
		if err := w.measured(ctx, t, s, system.name, system.run); err != nil {
			return err
		}
	}
	return nil
}

// measured runs one measurement of a rename and reports it.
func (w *world) measured(ctx context.Context, t *measure.Table, s subject, system string, run func() (cost, error)) error {
	watch := w.b.watch()
	c, err := run()
	if err != nil {
		return err
	}
	t.Others = append(t.Others, watch.Others())
	addRename(t, s, system, c)
	w.b.say("  %s: %s %.3f s, %s copies/s", s.what, system, c.time.Seconds(), measure.Number(float64(len(s.products))/c.time.Seconds()))
	return w.b.quiet(ctx)
}

// rename is the case of categories of every size, of the hot tag and of the
// consumer.
func (b *bench) rename(ctx context.Context) error {
	return b.withMixed(ctx, func(w *world) error {
		t := b.table("rename", "Renames",
			"A category or tag is renamed; the time counts until the last copy can be read. Millrace answers the rename at once and "+
				"copies behind it, PostgreSQL's triggers copy in its transaction, the consumer replaces the products one by one. Kafka Streams joins products with their "+
				"category by a foreign key; a consumer reads all copies that were committed, and the last one counts. In the end all are verified.")
		var subjects []subject
		for i := range w.set.Sizes() {
			s, err := w.category(w.set.Sized(i))
			if err != nil {
				return err
			}
			subjects = append(subjects, s)
		}
		categories := subjects
		hot := subjects[len(subjects)-1]
		tag, err := w.hotTag()
		if err != nil {
			return err
		}
		slow := subjects[max(len(subjects)-2, 0)]
		subjects = append(subjects, tag)
		for round := range b.cfg.rounds {
			b.say("  round %d of %d", round+1, b.cfg.rounds)
			for _, s := range subjects {
				if err := w.renameRound(ctx, t, s); err != nil {
					return err
				}
			}
			if b.pg == nil {
				continue
			}
			err := w.measured(ctx, t, slow, ofConsumer, func() (cost, error) { return w.inConsumer(ctx, slow) })
			if err != nil {
				return err
			}
		}
		for _, s := range subjects {
			beside(t, s)
		}
		if err := w.joins(ctx, t, categories); err != nil {
			return err
		}
		judged := b.cfg.judged()
		rate := func(s subject, system string) measure.Series { return t.Series(s.what+": "+system, "copies/s") }
		against := func(s subject, peer string) measure.Series { return rate(s, ofMillrace).Over(rate(s, peer)) }
		t.AtLeast(hot.what+", beside jsonb", against(hot, ofJSONB), 4, "times", judged)
		t.AtLeast(hot.what+", beside plain columns", against(hot, ofPlain), 0.8, "times", judged)
		t.AtLeast(subjects[0].what+", beside jsonb", against(subjects[0], ofJSONB), 1.5, "times", judged)
		t.AtLeast(tag.what+", beside jsonb", against(tag, ofJSONB), 4, "times", judged)
		t.AtLeast(tag.what+", beside plain columns", against(tag, ofPlain), 1.5, "times", judged)
		t.AtLeast(hot.what+", beside one by one ("+slow.what+")", rate(hot, ofMillrace).Over(rate(slow, ofConsumer)), 20, "times", judged)
		return nil
	})
}

// renameAll is the case of a category that has all products.
func (b *bench) renameAll(ctx context.Context) error {
	if err := b.dropMixed(ctx); err != nil {
		return err
	}
	w, err := b.newWorld(ctx, true)
	if err != nil {
		return err
	}
	err = w.renameRounds(ctx)
	if closed := w.close(ctx); err == nil {
		err = closed
	}
	return err
}

func (w *world) renameRounds(ctx context.Context) error {
	t := w.b.table("all", "Rename of a category that has all products", "As above. All products are in one logical partition.")
	s, err := w.category(w.set.Sized(0))
	if err != nil {
		return err
	}
	for round := range w.b.cfg.rounds {
		w.b.say("  round %d of %d", round+1, w.b.cfg.rounds)
		if err := w.renameRound(ctx, t, s); err != nil {
			return err
		}
	}
	beside(t, s)
	judged := w.b.cfg.judged()
	t.AtLeast(s.what+", beside jsonb", t.Ratio(s.what+": "+ofMillrace, s.what+": "+ofJSONB, "copies/s"), 2.5, "times", judged)
	// The smallest category of the other data set, if it was measured in this run.
	for _, other := range w.b.report.Tables {
		if other.ID == "rename" && len(other.Rows) > 0 {
			growth := t.Series(s.what+": "+ofMillrace, "µs/copy").Over(other.Rows[0].Values["µs/copy"])
			t.AtMost("cost of a copy, beside that of "+other.Rows[0].Name, growth, flat, "times", judged)
		}
	}
	return nil
}

// flat is the growth of a cost, over three orders of magnitude of items, up to which it is
// called flat: the machine's own noise reaches nearly as far.
const flat = 1.5
