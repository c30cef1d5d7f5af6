//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/integration/bench/crowd"
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
	takeoverAfter      = 14 * time.Second      // of the picture
	takeoverLabel      = "Acknowledged writes in each 100 ms around a kill, a SIGSTOP and a planned stop"
	judgedTimes        = 10
	judgedKills        = 50

	hangs = 10 * time.Second // of a store that is stopped
	// goesOn is for how long the others must have had the partitions before a store that was killed starts again.
	goesOn = 2 * time.Second
	// settles is for how long stores are left alone before one at rest is measured. Before that they have work that the
	// writers have left: snapshots of what was written, the scrub of it, merges of the engine.
	settles = 2 * time.Minute
	rests   = 30 * time.Second // in which a store is measured that nobody asks for anything
	idles   = 10 * time.Second // in which nothing happens to stores that are written to

	storeIdleBar = 3.0 // % of a processor
)

// The events of the case, as rows name them.
const (
	eventKill = "kill -9"
	eventHang = "SIGSTOP"
	eventStop = "planned stop"
)

// takeover is the case of a store that owns partitions and goes away.
func (b *bench) takeover(ctx context.Context) error {
	t := b.table("takeover", "Take-over", fmt.Sprintf(
		"%d stores, each a process, over one NATS server that is another process, on one machine; a container with %d partitions and standbys: 1, and up to %s items of 1 KiB. "+
			"%d writers replace items drawn at random, each of one partition, every %s and each after its last write was answered, with an idempotency key, by the client of Go over loopback. "+
			"The store that owns most is killed, or stopped by SIGSTOP and let go on after %s, or told to end by SIGTERM. The gap is the longest time in which no write to any one "+
			"partition of that store was acknowledged. When it is back, it takes partitions again: that gap, of any partition, stands beside it. Without any event it is the longest of each partition in %s. Between two events everything has an owner "+
			"and a warm standby again, and every store owns something. Errors are writes that the client gave up, of all that were begun. Behind the writers is the busiest of them for %s, from when the last writer has ended and the copies are warm; a store at rest is that %s later, for as long. What a standby costs "+
			"is the case standby.",
		takeoverStores, takeoverPartitions, measure.Number(takeoverItems), takeoverPartitions*takeoverWriters, takeoverEvery, hangs, idles, rests, settles))
	t.Columns = append(slices.Clone(gapColumns), "CPU %")
	return b.withStores(ctx, t, func(o *takeovers) error {
		if err := o.declare(ctx, 1); err != nil {
			return err
		}
		if err := o.rest(ctx); err != nil {
			return err
		}
		return o.events(ctx)
	})
}

// withStores opens stores with products, and runs f, a case that is named as its table.
func (b *bench) withStores(ctx context.Context, t *measure.Table, f func(o *takeovers) error) (err error) {
	dir, err := b.scratch(t.ID)
	if err != nil {
		return err
	}
	defer b.remove(dir)
	set, err := dataset.New(dataset.Config{Seed: b.cfg.seed, Products: min(b.cfg.products, takeoverItems)})
	if err != nil {
		return err
	}
	fleet, err := b.openFleet(ctx, dir, fleetConfig{stores: takeoverStores})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close()) }()
	o := &takeovers{outages{b: b, fleet: fleet, table: t, partitions: takeoverPartitions, after: takeoverAfter}, set}
	if err := o.prepare(ctx); err != nil {
		return err
	}
	return f(o)
}

// takeovers is one run of the case.
type takeovers struct {
	outages
	set *dataset.Set
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
	storeBehind = "a store behind the writers"
	storeAtRest = "a store at rest"
)

// rest measures stores that have nothing to do, and before that stores that have what the writers have left.
func (o *takeovers) rest(ctx context.Context) error {
	if err := o.unasked(ctx, storeBehind); err != nil {
		return err
	}
	if err := wait(ctx, settles); err != nil {
		return err
	}
	return o.unasked(ctx, storeAtRest)
}

// unasked measures the stores for a while in which nobody asks them for anything.
func (o *takeovers) unasked(ctx context.Context, row string) error {
	before := make([]time.Duration, len(o.fleet.stores))
	began := time.Now()
	for i, s := range o.fleet.stores {
		before[i] = measure.CPUOf(s.pid())
	}
	if err := wait(ctx, rests); err != nil {
		return err
	}
	most := 0.0
	for i, s := range o.fleet.stores {
		most = max(most, 100*float64(measure.CPUOf(s.pid())-before[i])/float64(time.Since(began)))
	}
	o.b.say("  %s: %.2f %% of a processor", row, most)
	o.table.Row(row).Add("CPU %", most)
	return nil
}

// kinds are the events of the case.
func (o *takeovers) kinds() []outage {
	times := cmp.Or(o.b.cfg.times, takeoverTimes)
	again, most := o.fleet.start, func(s *share) *fleetMember { return busiest(o.fleet.stores, s) }
	return []outage{
		{event: eventKill, victim: most, leave: o.kill, back: again, times: cmp.Or(o.b.cfg.kills, times), p50: 1.5, longest: 3, judgedAt: judgedKills},
		{event: eventHang, victim: most, leave: hang, back: func(_ context.Context, s *fleetMember) error { return s.signal(syscall.SIGCONT) }, times: times, p50: 3, longest: 6, judgedAt: judgedTimes},
		{event: eventStop, victim: most, leave: func(_ context.Context, s *fleetMember, _ *share) error { return s.stop() }, back: again, times: times, longest: 0.3, judgedAt: judgedTimes},
	}
}

// events lets each event happen while writers are at work, and reports them.
func (o *takeovers) events(ctx context.Context) error {
	kinds := o.kinds()
	o.writers.start(ctx, takeoverWriters, o.b.cfg.seed)
	err := o.nothing(ctx)
	if err == nil {
		err = o.happen(ctx, kinds)
	}
	if err = errors.Join(err, o.writers.stop()); err != nil {
		return err
	}
	for i := range kinds {
		o.report(&kinds[i])
	}
	t, judged := o.table, cmp.Or(o.b.cfg.times, takeoverTimes) >= judgedTimes
	o.b.sayFailed(o.writers.acks)
	t.AtMost("planned stop, errors", t.Series(eventStop, "errors"), 0, "", judged)
	t.AtMost(storeAtRest, t.Series(storeAtRest, "CPU %"), storeIdleBar, "% of a processor", judged)
	return o.b.draw("takeover.svg", o.picture(takeoverLabel, kinds))
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

// busiest is the store among some that owns most.
func busiest(of []*fleetMember, s *share) *fleetMember {
	return slices.MaxFunc(of, func(a, b *fleetMember) int { return cmp.Compare(len(s.of(a.node)), len(s.of(b.node))) })
}

// kill kills a store, and returns when others have had its partitions for a while.
func (o *takeovers) kill(ctx context.Context, victim *fleetMember, before *share) error {
	if err := victim.kill(); err != nil {
		return err
	}
	if err := o.fleet.awaitTaken(ctx, before, victim.node); err != nil {
		return err
	}
	return wait(ctx, goesOn)
}

// hang stops a store for a while.
func hang(ctx context.Context, victim *fleetMember, _ *share) error {
	if err := victim.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := wait(ctx, hangs); err != nil { // it must go on, or it cannot be ended in good order
		return errors.Join(err, victim.signal(syscall.SIGCONT))
	}
	return nil
}

const (
	standbyBar = 0.9 // times the writes without one

	besideStandby  = "writes, with a standby"
	withoutStandby = "writes, without"
)

// standby is the case of what a standby costs who writes.
func (b *bench) standby(ctx context.Context) error {
	t := b.table("standby", "What a standby costs", fmt.Sprintf(
		"%d stores, each a process, over one NATS server that is another process, on one machine; a container with %d partitions, and up to %s items of 1 KiB. "+
			"%d writers replace items drawn at random, each after its last write was answered, by the client of Go over loopback, in turns with standbys: 1 and standbys: 0. "+
			"The times are those of processors, of all stores together, of the NATS server, and of the writers.",
		takeoverStores, takeoverPartitions, measure.Number(takeoverItems), takeoverPartitions*takeoverWriters))
	t.Columns = []string{"writes/s", "times without", "stores µs/write", "NATS µs/write", "clients µs/write"}
	return b.withStores(ctx, t, func(o *takeovers) error {
		if err := o.beside(ctx, b.cfg.rounds); err != nil {
			return err
		}
		t.AtLeast("writes with a standby, beside none", t.Ratio(besideStandby, withoutStandby, "writes/s"), standbyBar, "times", b.cfg.judged())
		return nil
	})
}

// beside measures what a standby costs who writes, on a machine that has both.
func (o *takeovers) beside(ctx context.Context, rounds int) error {
	writers := crowd.Crowd{Writers: takeoverPartitions * takeoverWriters, Write: func(ctx context.Context, writer, n int) error {
		p := int(uint64(writer*1_000_003+n*7919) % uint64(o.set.Products()))
		_, err := o.writers.into.Upsert(ctx, o.set.AppendProduct(nil, p))
		return err
	}}
	for round := range rounds {
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
			if err := o.besideOnce(ctx, writers, []string{withoutStandby, besideStandby}[standbys]); err != nil {
				return err
			}
		}
	}
	o.table.Beside(besideStandby, withoutStandby, "writes/s", "times without")
	return nil
}

// besideOnce measures writes, and what processors spend on them in each kind of process.
func (o *takeovers) besideOnce(ctx context.Context, writers crowd.Crowd, row string) error {
	run := o.b.start(ctx, writers)
	if err := run.Wait(o.b.cfg.warmup); err != nil {
		return run.StopWith(err)
	}
	run.Measure()
	before := o.fleet.spent()
	if err := run.Wait(o.b.cfg.writeTime); err != nil {
		return run.StopWith(err)
	}
	after := o.fleet.spent()
	d, err := run.Stop()
	if err != nil {
		return err
	}
	r := o.table.Row(row)
	r.Add("writes/s", d.PerSecond)
	var said strings.Builder
	for _, kind := range []string{"stores", "NATS", "clients"} {
		each := float64(after[kind]-before[kind]) / float64(time.Microsecond) / float64(max(len(d.Latencies), 1))
		r.Add(kind+" µs/write", each)
		fmt.Fprintf(&said, ", %s %.0f µs", kind, each)
	}
	o.table.Others = append(o.table.Others, d.Others)
	o.b.say("  %s: %s/s%s a write", row, measure.Number(d.PerSecond), said.String())
	return nil
}

// spent is the processors' time that each kind of process of a fleet has had.
func (f *fleet) spent() map[string]time.Duration {
	spent := map[string]time.Duration{"clients": measure.CPUOf(os.Getpid())}
	for _, s := range f.stores {
		spent["stores"] += measure.CPUOf(s.pid())
	}
	for _, n := range f.servers {
		spent["NATS"] += measure.CPUOf(n.cmd.Process.Pid)
	}
	return spent
}
