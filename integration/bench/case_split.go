//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/bench/chart"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

const (
	splitWriters = 16
	splitEvery   = 16 * time.Millisecond // of each writer
	splitTimes   = 3                     // by default, and at least for the bars
	splitGapBar  = 200                   // ms

	splitWarmup  = 5 * time.Second
	splitCompare = 10 * time.Second // of writes before a split, and behind it
	// splitNear is how long before the split commit, and after the children serve, still belongs to the change itself.
	splitNear = time.Second
	// splitPoll is the time between two looks into the catalog.
	splitPoll = 20 * time.Millisecond
	splitMax  = 30 * time.Minute

	splitAround = 4 * time.Second // of the picture, on each side
)

// The times of a split, as rows name them.
const (
	splitBefore  = "before"
	splitMaking  = "the children are made"
	splitChanges = "the children take over"
	splitAfter   = "after"
	splitWhole   = "the whole split"
)

// split is the case of a partition that is split while it is written.
func (b *bench) split(ctx context.Context) error {
	times := cmp.Or(b.cfg.times, splitTimes)
	set, err := dataset.New(dataset.Config{Seed: b.cfg.seed, Products: min(b.cfg.products, full)})
	if err != nil {
		return err
	}
	t := b.table("split", "Split of a partition", fmt.Sprintf(
		"A store process over a NATS server that is another process, on one machine; a container with one partition and %s items of 1 KiB. %d writers replace items drawn at random "+
			"from all categories, every %s and each after its last write was answered, with an idempotency key, by the client of Go over loopback. %s after they began the partition is "+
			"asked to split in its middle, and they go on, with the container that they have opened before. Each split is of a new store with as many items. "+
			"The children are made, from seeds and then from the log, beside the writes, from the request to %s before the split commit, which is the last of the parent's log. They take over from there to %s after both "+
			"serve; that row has the writes that waited for them. Before and after are %s each. No write is the longest time in which none at all was acknowledged, "+
			"and the longest write the one whose answer took most, each counted where it was answered. "+
			"The whole split takes from the request until the catalog names the children and both answer; its longest time without a write is of all rows but the first. Errors are writes that the client gave up, of all that were begun. "+
			"All items are counted when the writers have ended.",
		measure.Number(float64(set.Products())), splitWriters, splitEvery, splitWarmup+splitCompare, splitNear, splitNear, splitCompare))
	t.Columns = slices.Concat([]string{"splits"}, spanColumns, []string{"errors"})
	s := &splits{b: b, set: set, table: t}
	for n := range times {
		b.say("  split %d of %d", n+1, times)
		if err := s.once(ctx); err != nil {
			return fmt.Errorf("split %d: %w", n+1, err)
		}
	}
	s.report(b.cfg.judged() && times >= splitTimes)
	return b.draw("split.svg", s.picture())
}

// splits is one run of the case.
type splits struct {
	b     *bench
	set   *dataset.Set
	table *measure.Table
	done  []splitSeen
}

// splitSeen is what clients saw of a split.
type splitSeen struct {
	gap    gap   // the longest, from the request on
	counts []int // acknowledgements in each step of the picture
	failed int
}

// moments are those of a split, by the clock of the acknowledgements.
type moments struct{ asked, committed, served time.Duration }

// once splits the partition of a new store.
func (s *splits) once(ctx context.Context) error {
	_, err := s.b.onePartition(ctx, "split", s.set, steady{splitWriters, splitEvery}, func(ctx context.Context, f *fleet, w *steadyWriters) error {
		return s.under(ctx, f, w, w.into.Partitions()[0])
	})
	return err
}

// under splits a partition under its writers, and notes what they saw.
func (s *splits) under(ctx context.Context, f *fleet, w *steadyWriters, parent feed.Partition) error {
	if err := wait(ctx, splitWarmup+splitCompare); err != nil {
		return err
	}
	watch := s.b.watch()
	m, err := splitNow(ctx, &f.session, w, parent)
	if err != nil {
		return err
	}
	if err := wait(ctx, m.served+splitNear+splitCompare-w.acks.now()); err != nil {
		return err
	}
	s.table.Others = append(s.table.Others, watch.Others())
	s.note(w.acks, owner.LeaseResource(parent), m)
	return nil
}

// splitNow splits a partition, waits until its children serve and returns when what was.
func splitNow(ctx context.Context, on *session, w *steadyWriters, parent feed.Partition) (m moments, err error) {
	m.asked = w.acks.now()
	if _, err := w.into.Split(ctx, parent, store.SplitPartition{}); err != nil {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, splitMax)
	defer cancel()
	var former *store.FormerPartition
	for {
		now, err := on.client.Container(ctx, database, "product")
		if err != nil {
			return m, err
		}
		info := now.Info()
		if former = info.FormerOf(parent.Number); former != nil {
			if err := on.readAll(ctx, now); err != nil {
				return m, err
			}
			break
		}
		if err := wait(ctx, splitPoll); err != nil {
			return m, fmt.Errorf("the children have not taken the place of %s in %s: %w", parent, splitMax, err)
		}
	}
	m.served = w.acks.now()
	log, err := feed.OpenLog(ctx, on.js, parent, feed.LogConfig{})
	if err != nil {
		return m, err
	}
	defer log.Close()
	last, err := log.Read(ctx, former.Last)
	if err != nil {
		return m, err
	}
	m.committed = time.UnixMilli(last.Time).Sub(w.acks.began)
	return m, nil
}

// note puts a split into the rows.
func (s *splits) note(a *acks, parent string, m moments) {
	of := []string{parent} // by which writers note their writes, whoever has the items
	from, to := max(m.committed-splitNear, m.asked), m.served+splitNear
	for _, row := range []struct {
		name     string
		from, to time.Duration
	}{
		{splitBefore, m.asked - splitCompare, m.asked},
		{splitMaking, m.asked, from},
		{splitChanges, from, to},
		{splitAfter, to, to + splitCompare},
	} {
		a.noteSpan(s.table, row.name, of, row.from, row.to)
	}
	seen := splitSeen{gap: a.longest(of, m.asked, to+splitCompare), failed: len(a.failed(0, a.now()))}
	seen.counts, _ = a.counts(of, m.committed-splitAround, chart.Step, int(2*splitAround/chart.Step))
	s.done = append(s.done, seen)
	r := s.table.Row(splitWhole)
	r.Add("s", (m.served - m.asked).Seconds())
	r.Add("no write ms", measure.Milliseconds(seen.gap.length()))
	s.b.say("    asked at %s, split at %s, served at %s: %.1f s; no write for %.3f s, until %s; %d errors", a.clock(m.asked), a.clock(m.committed),
		a.clock(m.served), (m.served - m.asked).Seconds(), seen.gap.length().Seconds(), a.clock(seen.gap.to), seen.failed)
}

// report adds what is known when all splits are over, and the bars.
func (s *splits) report(judged bool) {
	failed := 0
	for i := range s.done {
		failed += s.done[i].failed
	}
	r := s.table.Row(splitWhole)
	r.Add("splits", float64(len(s.done)))
	r.Add("errors", float64(failed))
	for _, row := range []string{splitChanges, splitWhole} {
		longest := s.table.Series(row, "no write ms").Max()
		s.table.AtMost("no write, "+row+", the longest", measure.Series{longest}, splitGapBar, "ms", judged)
	}
	s.table.AtMost("errors", s.table.Series(splitWhole, "errors"), 0, "", judged)
}

// picture draws the acknowledgements around the commit of the split whose gap is the median.
func (s *splits) picture() *chart.Chart {
	c := &chart.Chart{
		Label:  "Acknowledged writes in each 100 ms around the split of a partition",
		Legend: "seconds from the split commit; writes acknowledged in each 100 ms",
		Before: splitAround, After: splitAround,
	}
	if len(s.done) == 0 {
		return c
	}
	all := slices.SortedFunc(slices.Values(s.done), func(a, b splitSeen) int { return byLength(a.gap, b.gap) })
	seen := all[(len(all)-1)/2]
	c.Panels = []chart.Panel{{
		Title: fmt.Sprintf("%s items: no write for %.2f s", measure.Number(float64(s.set.Products())), seen.gap.length().Seconds()),
		Lines: []chart.Line{{Color: chart.ColorHit, Counts: seen.counts}},
		Marks: []chart.Mark{{}},
	}}
	return c
}
