//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
)

const (
	takeoverStores     = 3
	takeoverPartitions = 4
	takeoverItems      = 20_000
	takeoverWriters    = 4                     // of each partition
	takeoverEvery      = 16 * time.Millisecond // of each writer
	takeoverTimes      = 5                     // of each event, by default
	judgedTimes        = 10

	hangs = 10 * time.Second // of a store that is stopped
	// goesOn is for how long the others must have had the partitions before a store that was killed starts again.
	goesOn = 2 * time.Second
	// settles is for how long stores are left alone before that is measured; snapshots are taken meanwhile.
	settles = 20 * time.Second
	idles   = 10 * time.Second // in which a store at rest is measured

	standbyRounds = 3   // at most
	standbyBar    = 0.9 // times the writes without one
	storeIdleBar  = 3.0 // % of a processor
)

// The events of the case, as rows name them.
const (
	eventKill = "kill -9"
	eventHang = "SIGSTOP"
	eventStop = "planned stop"
)

// takeover is the case of a store that owns partitions and goes away.
func (b *bench) takeover(ctx context.Context) (err error) {
	times := cmp.Or(b.cfg.times, takeoverTimes)
	t := b.table("takeover", "Take-over", fmt.Sprintf(
		"%d stores, each a process, over one NATS server that is another process, on one machine; a container with %d partitions and standbys: 1, and up to %s items of 1 KiB. "+
			"%d writers replace items drawn at random, each of one partition, every %s and each after its last write was answered, with an idempotency key, by the client of Go over loopback. "+
			"The store that owns most is killed, or stopped by SIGSTOP and let go on after %s, or told to end by SIGTERM. The gap is the longest time in which no write to any one "+
			"partition of that store was acknowledged. When it is back, it takes partitions again: that gap, of any partition, stands beside it. Without any event it is the longest of each partition in %s. Between two events everything has an owner "+
			"and a warm standby again, and every store owns something. Errors are writes that the client gave up, of all that were begun. A store at rest is the busiest of them for %s. Writes with and "+
			"without a standby are those of as many writers, as fast as they are answered.",
		takeoverStores, takeoverPartitions, measure.Number(takeoverItems), takeoverPartitions*takeoverWriters, takeoverEvery, hangs, idles, idles))
	t.Columns = []string{"events", "gap p50 s", "gap p95 s", "gap max s", "gap on return max s", "errors", "CPU %", "writes/s", "times without"}
	dir, err := b.scratch("takeover")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	set, err := dataset.New(dataset.Config{Seed: b.cfg.seed, Products: min(b.cfg.products, takeoverItems)})
	if err != nil {
		return err
	}
	f, err := b.openFleet(ctx, dir, takeoverStores)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	o := &takeovers{b: b, fleet: f, set: set, table: t}
	if err := o.prepare(ctx); err != nil {
		return err
	}
	if err := o.beside(ctx); err != nil {
		return err
	}
	if err := o.rest(ctx); err != nil {
		return err
	}
	return o.events(ctx, times)
}

// takeovers is one run of the case.
type takeovers struct {
	b       *bench
	fleet   *fleet
	set     *dataset.Set
	table   *measure.Table
	writers *steadyWriters
	done    []happened
}

// happened is one event, and what clients saw of it.
type happened struct {
	event       string
	gap, back   gap
	of, others  []int // acknowledgements in each step of the picture, of the store's partitions and of the others
	failed      int
	returnAfter time.Duration // of the store, counted from the event
}

// declare declares the container with so many standbys, and waits until they are as they should be.
func (o *takeovers) declare(ctx context.Context, standbys int) error {
	return o.fleet.declare(ctx, takeoverPartitions, standbys)
}

// prepare stores the items.
func (o *takeovers) prepare(ctx context.Context) error {
	if err := o.declare(ctx, 0); err != nil {
		return err
	}
	into, err := o.fleet.load(ctx, o.set)
	if err != nil {
		return err
	}
	o.writers, err = newSteadyWriters(into, o.set, takeoverEvery)
	return err
}

const (
	besideStandby  = "writes, with a standby"
	withoutStandby = "writes, without"
)

// beside measures what a standby costs who writes, on a machine that has both.
func (o *takeovers) beside(ctx context.Context) error {
	writers := crowd{takeoverPartitions * takeoverWriters, func(ctx context.Context, writer, n int) error {
		p := int(uint64(writer*1_000_003+n*7919) % uint64(o.set.Products()))
		_, err := o.writers.into.Upsert(ctx, o.set.AppendProduct(nil, p))
		return err
	}}
	for round := range min(o.b.cfg.rounds, standbyRounds) {
		pair := []int{0, 1}
		if round%2 == 1 {
			slices.Reverse(pair)
		}
		for _, standbys := range pair {
			if err := o.declare(ctx, standbys); err != nil {
				return err
			}
			if err := o.b.quiet(ctx); err != nil {
				return err
			}
			d, err := o.b.drive(ctx, writers, o.b.cfg.warmup, o.b.cfg.writeTime)
			if err != nil {
				return err
			}
			row := []string{withoutStandby, besideStandby}[standbys]
			o.table.Row(row).Add("writes/s", d.perSecond)
			o.table.Others = append(o.table.Others, d.others)
			o.b.say("  %s: %s/s", row, measure.Number(d.perSecond))
		}
	}
	o.table.Beside(besideStandby, withoutStandby, "writes/s", "times without")
	return o.declare(ctx, 1)
}

// rest measures stores that have nothing to do.
func (o *takeovers) rest(ctx context.Context) error {
	if err := wait(ctx, settles); err != nil {
		return err
	}
	before := make([]time.Duration, len(o.fleet.stores))
	began := time.Now()
	for i, s := range o.fleet.stores {
		before[i] = measure.CPUOf(s.pid())
	}
	if err := wait(ctx, idles); err != nil {
		return err
	}
	most := 0.0
	for i, s := range o.fleet.stores {
		most = max(most, 100*float64(measure.CPUOf(s.pid())-before[i])/float64(time.Since(began)))
	}
	o.b.say("  a store at rest: %.2f %% of a processor", most)
	o.table.Row("a store at rest").Add("CPU %", most)
	return nil
}

// events lets each event happen so many times, in turns, while writers are at work, and reports them.
func (o *takeovers) events(ctx context.Context, times int) error {
	o.writers.start(ctx, takeoverWriters, o.b.cfg.seed)
	err := o.happen(ctx, times)
	if err = errors.Join(err, o.writers.stop()); err != nil {
		return err
	}
	for _, of := range []struct {
		event       string
		p50, longer float64 // s
	}{{eventKill, 1.5, 3}, {eventHang, 3, 6}, {eventStop, 0, 0.3}} {
		o.report(of.event, of.p50, of.longer, times >= judgedTimes)
	}
	o.b.sayFailed(o.writers.acks)
	t, judged := o.table, times >= judgedTimes
	t.AtMost("planned stop, errors", t.Series(eventStop, "errors"), 0, "", judged)
	t.AtMost("a store at rest", t.Series("a store at rest", "CPU %"), storeIdleBar, "% of a processor", judged)
	t.AtLeast("writes with a standby, beside none", t.Ratio(besideStandby, withoutStandby, "writes/s"), standbyBar, "times", judged)
	return o.b.draw("takeover.svg", o.picture())
}

func (o *takeovers) happen(ctx context.Context, times int) error {
	if err := o.nothing(ctx); err != nil {
		return err
	}
	for n := range times {
		for _, event := range []string{eventKill, eventHang, eventStop} {
			if err := o.once(ctx, event, n+1); err != nil {
				return fmt.Errorf("%s %d: %w", event, n+1, err)
			}
		}
	}
	return nil
}

// nothing measures the gaps that there are without any event: they are part of the others.
func (o *takeovers) nothing(ctx context.Context) error {
	s, err := o.fleet.awaitWhole(ctx, takeoverPartitions, true)
	if err != nil {
		return err
	}
	from := o.writers.acks.now()
	if err := wait(ctx, idles); err != nil {
		return err
	}
	var gaps measure.Latencies
	for resource := range s.leases {
		g := o.writers.acks.longest([]string{resource}, from, o.writers.acks.now())
		gaps = append(gaps, g.length())
	}
	r := o.table.Row(fmt.Sprintf("nothing, %s", idles))
	r.Add("gap p50 s", gaps.Quantile(0.5).Seconds())
	r.Add("gap max s", gaps.Quantile(1).Seconds())
	return nil
}

// once lets one event happen to the store that owns most.
func (o *takeovers) once(ctx context.Context, event string, n int) error {
	before, err := o.fleet.awaitWhole(ctx, takeoverPartitions, true)
	if err != nil {
		return err
	}
	victim := slices.MaxFunc(o.fleet.stores, func(a, b *fleetStore) int { return cmp.Compare(len(before.of(a.node)), len(before.of(b.node))) })
	acks, its := o.writers.acks, before.of(victim.node)
	from := acks.now()
	if err := o.leave(ctx, event, victim, &before); err != nil {
		return err
	}
	back := acks.now()
	if event == eventHang {
		err = victim.cmd.Process.Signal(syscall.SIGCONT)
	} else {
		err = o.fleet.start(ctx, victim)
	}
	if err == nil {
		err = o.fleet.awaitTaken(ctx, &before, victim.node)
	}
	if err == nil {
		_, err = o.fleet.awaitWhole(ctx, takeoverPartitions, true)
	}
	if err != nil {
		return err
	}
	if err := wait(ctx, from+pictureAfter-acks.now()); err != nil { // the picture goes so far
		return err
	}
	until := acks.now()
	gap := acks.longest(its, from, back)
	h := happened{
		event: event, gap: gap, back: acks.longest(o.partitions(&before), max(back, gap.to+1), until),
		failed: len(acks.failed(from, until)), returnAfter: back - from,
	}
	h.of, h.others = acks.counts(its, from-pictureBefore, pictureStep, int((pictureBefore+pictureAfter)/pictureStep))
	o.done = append(o.done, h)
	o.b.say("  %s %d of %s at %s, back at %s; %d errors", event, n, victim.name, o.writers.acks.clock(from), o.writers.acks.clock(back), h.failed)
	for _, resource := range its {
		g := acks.longest([]string{resource}, from, back)
		o.b.say("    no write to %s for %.3f s, until %s", resource, g.length().Seconds(), o.writers.acks.clock(g.to))
	}
	o.b.say("    on return: no write to %s for %.3f s, until %s", h.back.partition, h.back.length().Seconds(), o.writers.acks.clock(h.back.to))
	return nil
}

func (o *takeovers) partitions(s *share) (all []string) {
	for resource := range s.leases {
		all = append(all, resource)
	}
	return all
}

// leave lets a store go away, and returns when it is to come back.
func (o *takeovers) leave(ctx context.Context, event string, victim *fleetStore, before *share) error {
	switch event {
	case eventKill:
		if err := victim.kill(); err != nil {
			return err
		}
		if err := o.fleet.awaitTaken(ctx, before, victim.node); err != nil {
			return err
		}
		return wait(ctx, goesOn)
	case eventHang:
		if err := victim.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return fmt.Errorf("stop a store: %w", err)
		}
		if err := wait(ctx, hangs); err != nil { // it must go on, or it cannot be ended in good order
			return errors.Join(err, victim.cmd.Process.Signal(syscall.SIGCONT))
		}
		return nil
	}
	return victim.stop()
}

// report puts the events of a kind into their row, and adds its bars. A bar of 0 is none.
func (o *takeovers) report(event string, p50, longest float64, judged bool) {
	var gaps, backs measure.Latencies
	failed := 0
	for i := range o.done {
		if h := &o.done[i]; h.event == event {
			gaps, backs, failed = append(gaps, h.gap.length()), append(backs, h.back.length()), failed+h.failed
		}
	}
	r := o.table.Row(event)
	r.Add("events", float64(len(gaps)))
	for _, q := range []struct {
		column string
		at     float64
	}{{"gap p50 s", 0.5}, {"gap p95 s", 0.95}, {"gap max s", 1}} {
		r.Add(q.column, gaps.Quantile(q.at).Seconds())
	}
	r.Add("gap on return max s", backs.Quantile(1).Seconds())
	r.Add("errors", float64(failed))
	if p50 > 0 {
		o.table.AtMost(event+", p50", o.table.Series(event, "gap p50 s"), p50, "s", judged)
	}
	o.table.AtMost(event+", the longest", o.table.Series(event, "gap max s"), longest, "s", judged)
}
