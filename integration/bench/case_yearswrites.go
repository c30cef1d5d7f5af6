//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/store"
)

const (
	snapshotsTaken = "millrace_snapshots_taken_total"
	trimsMade      = "millrace_trims_total"

	// replaceRounds bounds the rounds of replacements, each of which takes minutes.
	replaceRounds = 2
	// createTimes and replaceTimes are for how many times the time of writes it is written: long
	// enough for some snapshots of a store that begins empty, and at most, for two of each partition among
	// all products.
	createTimes  = 4
	replaceTimes = 30

	replaceBar   = 0.8  // times the rate without snapshots and trims
	replaceLate  = 2.0  // times its p99
	createBar    = 0.95 // times the rate
	besideNone   = ", no snapshots, no trims"
	replacedWith = "replaced, snapshots and trims"
	replacedNone = "replaced" + besideNone
	createdWith  = "created, snapshots"
	createdNone  = "created" + besideNone
)

// yearsWrites is the case of what snapshots and trims cost those who write.
func (b *bench) yearsWrites(ctx context.Context) error {
	set, err := b.dataset(false)
	if err != nil {
		return err
	}
	t := b.table("years-writes", "Writes beside snapshots and trims", fmt.Sprintf(
		"%d writers over loopback, and millrace up, in turns: as it is, and with store.snapshots.store: off and changeFeed.retention: forever. They replace items drawn at random among "+
			"%s, in %d partitions, with retention 0s, until there were two snapshots for each partition or %s have passed, and for as long without; a partition is copied when its log has grown by half of what it holds. "+
			"They create items of 1 KiB in a container with one partition that is empty at first, with the default configuration. CPU is of the writers too. Both stores of a pair are of one origin.",
		b.cfg.writers, measure.Number(float64(set.Products())), oldPartitions, replaceTimes*b.cfg.writeTime))
	w := &yearsWrites{b: b, set: set, table: t}
	err = errors.Join(w.create(ctx), w.replace(ctx))
	judged := b.cfg.judged() && b.cfg.writers == 64
	for _, pair := range [][2]string{{createdWith, createdNone}, {replacedWith, replacedNone}} {
		t.Beside(pair[0], pair[1], "writes/s", "times without")
	}
	t.AtLeast("creates, beside none", t.Ratio(createdWith, createdNone, "writes/s"), createBar, "times", judged)
	t.AtLeast("replacements, beside none", t.Ratio(replacedWith, replacedNone, "writes/s"), replaceBar, "times", judged)
	t.AtMost("p99 of replacements, beside none", t.Ratio(replacedWith, replacedNone, "p99 ms"), replaceLate, "times", judged)
	return err
}

// yearsWrites is one run of the case.
type yearsWrites struct {
	b     *bench
	set   *dataset.Set
	table *measure.Table
}

// turn is one measurement.
type turn struct {
	row        string
	dir        string
	args       []string // of up
	partitions int
	retention  string
	write      func(into *store.Container) func(ctx context.Context, writer, n int) error
	// time is how long at most is measured; snapshots of each partition end it sooner, unless they are 0.
	time      time.Duration
	snapshots int
}

// create measures creates in stores that begin empty.
func (w *yearsWrites) create(ctx context.Context) error {
	all := newItems(w.set)
	create := func(into *store.Container) func(ctx context.Context, writer, n int) error {
		return func(ctx context.Context, writer, n int) error {
			_, body := all.next(writer, n)
			_, err := into.Create(ctx, body)
			return err
		}
	}
	for round := range w.b.cfg.rounds {
		pair := []turn{
			{row: createdWith, retention: weekKept},
			{row: createdNone, retention: everythingKept, args: []string{"--set", "store.snapshots.store=off"}},
		}
		if round%2 == 1 {
			slices.Reverse(pair)
		}
		for _, at := range pair {
			dir, err := w.b.scratch("years-writes")
			if err != nil {
				return err
			}
			at.dir, at.partitions, at.write, at.time = dir, 1, create, createTimes*w.b.cfg.writeTime
			_, err = w.measure(ctx, &at)
			w.b.remove(dir)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// replace measures replacements among all products, in two copies of a store.
func (w *yearsWrites) replace(ctx context.Context) error {
	old, err := w.b.oldStore(ctx, w.set)
	if err != nil {
		return err
	}
	replace := func(into *store.Container) func(ctx context.Context, writer, n int) error {
		random := make([]*rand.Rand, w.b.cfg.writers)
		for i := range random {
			random[i] = rand.New(rand.NewPCG(w.b.cfg.seed, uint64(i)))
		}
		return func(ctx context.Context, writer, _ int) error {
			_, err := into.Upsert(ctx, w.set.AppendProduct(nil, random[writer].IntN(w.set.Products())))
			return err
		}
	}
	// Less than half of what a partition holds, which then counts, and no more than that of a small run.
	small := min(16<<20, w.set.Products()*dataset.ItemBytes/oldPartitions/8)
	pair := []turn{
		{row: replacedWith, retention: nothingKept, snapshots: 2, time: replaceTimes * w.b.cfg.writeTime, args: []string{
			"--set", fmt.Sprintf("store.snapshots.logBytes=%d", small), "--set", fmt.Sprintf("store.trimBytes=%d", min(small, 4<<20)),
		}},
		{row: replacedNone, retention: everythingKept, args: []string{"--set", "store.snapshots.store=off"}},
	}
	for i := range pair {
		if pair[i].dir, err = w.b.scratch("years-writes"); err != nil {
			return err
		}
		defer w.b.remove(pair[i].dir)
		if _, err := copyTree(pair[i].dir, old); err != nil {
			return err
		}
		pair[i].partitions, pair[i].write = oldPartitions, replace
	}
	for round := range min(w.b.cfg.rounds, replaceRounds) {
		order := []int{0, 1}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			took, err := w.measure(ctx, &pair[i])
			if err != nil {
				return err
			}
			// The first one has told how long two snapshots take: all others take as long.
			for j := range pair {
				pair[j].time, pair[j].snapshots = took, 0
			}
		}
	}
	return nil
}

// measure takes one turn and returns for how long it was measured.
func (w *yearsWrites) measure(ctx context.Context, at *turn) (took time.Duration, err error) {
	m, err := w.b.serve(ctx, at.dir, at.args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.end()) }()
	into, err := m.products(ctx, at.partitions, at.retention)
	if err == nil {
		err = m.readAll(ctx, into)
	}
	if err == nil {
		err = w.b.quiet(ctx)
	}
	if err != nil {
		return 0, err
	}
	run := w.b.start(ctx, crowd.Crowd{Writers: w.b.cfg.writers, Write: at.write(into)})
	if err := run.Wait(w.b.cfg.warmup); err != nil {
		return 0, run.StopWith(err)
	}
	run.Measure()
	for {
		if err := run.Wait(min(time.Second, at.time-run.Since())); err != nil {
			return 0, run.StopWith(err)
		}
		snapshots, err := m.counter(ctx, snapshotsTaken)
		if err != nil {
			return 0, run.StopWith(err)
		}
		if run.Since() >= at.time || at.snapshots > 0 && int(snapshots) >= at.snapshots*at.partitions {
			break
		}
	}
	took = run.Since()
	d, err := run.Stop()
	if err != nil {
		return 0, err
	}
	return took, w.add(ctx, at, m, d)
}

// readAll waits until all partitions answer.
func (s *session) readAll(ctx context.Context, c *store.Container) error {
	for _, p := range c.Partitions() {
		if _, err := c.Status(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// add puts what was measured in a turn into its row.
func (w *yearsWrites) add(ctx context.Context, at *turn, m *served, d *crowd.Measured) error {
	snapshots, err := m.counter(ctx, snapshotsTaken)
	if err != nil {
		return err
	}
	trims, err := m.counter(ctx, trimsMade)
	if err != nil {
		return err
	}
	r := w.table.Row(at.row)
	d.AddTo(r)
	r.Add("snapshots", snapshots)
	r.Add("trims", trims)
	w.table.Others = append(w.table.Others, d.Others)
	w.b.say("  %s: %s writes/s, p99 %.3f ms, %.0f snapshots, %.0f trims", at.row, measure.Number(d.PerSecond),
		measure.Milliseconds(d.Latencies.Quantile(0.99)), snapshots, trims)
	return addPeak(r, m.child)
}
