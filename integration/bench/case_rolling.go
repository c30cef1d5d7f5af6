//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/judge"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/store/owner"
)

const (
	rollingServers    = 3
	rollingStores     = 3
	rollingWorkers    = 2
	rollingPartitions = 4
	rollingItems      = 4_000
	rollingWriters    = 2                     // of each partition
	rollingEvery      = 20 * time.Millisecond // of each writer
	rollingRenames    = 100 * time.Millisecond
	rollingGapBar     = 300 // ms

	rolledServer = "a NATS server"
	rolledStore  = "a store"
	rolledWorker = "a worker"
	rolledAll    = "the whole restart"
)

// rolling is the case of a restart of every process, one after the other.
func (b *bench) rolling(ctx context.Context) (err error) {
	times := cmp.Or(b.cfg.times, 1)
	t := b.table("rolling", "Rolling restart", fmt.Sprintf(
		"%d NATS servers, which each have all logs (durability: replicas) and sync every append, %d stores and %d workers, each a process, on one machine; a container with %d partitions and standbys: 1, up to %s items of 1 KiB and the "+
			"cascades of the sample. %d writers replace items drawn at random, each of one partition, every %s and each after its last write was answered, with an idempotency key, by the client of Go; a category is renamed every %s, with a key too; an item of each "+
			"partition is read every %s. Every process is ended by SIGTERM and started again: the NATS servers, then the stores, then the workers. The next one follows when millrace health --ready says of all stores and workers "+
			"that they are ready, and everything has an owner, a warm standby and all replicas that are up to date. No write is the longest time in which no write to any one partition was acknowledged, from the SIGTERM of a process to that of "+
			"the next. Errors are writes and reads that the client gave up, of all that were begun.",
		rollingServers, rollingStores, rollingWorkers, rollingPartitions, measure.Number(rollingItems), rollingPartitions*rollingWriters, rollingEvery, rollingRenames, readEvery))
	t.Columns = []string{"restarts", "s p50", "no write p50 ms", "no write max ms", "errors", "reads", "stale reads"}
	dir, err := b.scratch("rolling")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	set, err := dataset.New(dataset.Config{Seed: b.cfg.seed, Products: min(b.cfg.products, rollingItems)})
	if err != nil {
		return err
	}
	f, err := b.openFleet(ctx, dir, fleetConfig{servers: rollingServers, stores: rollingStores, workers: rollingWorkers})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	cat, err := loadCatalogue(ctx, f.session, set, fmt.Sprintf(copiedContainers, rollingPartitions))
	if err != nil {
		return err
	}
	r := &rollings{b: b, fleet: f, cat: cat, table: t, lengths: map[string]measure.Latencies{}, gaps: map[string]measure.Latencies{}}
	if r.writers, err = newSteadyWriters(cat.items, set, rollingEvery); err != nil {
		return err
	}
	f.judged = map[string]bool{} // not that of the dead letters, which has no standby
	for _, resource := range r.partitions() {
		f.judged[resource] = true
	}
	return r.run(ctx, times)
}

// rollings is one run of the case.
type rollings struct {
	b       *bench
	fleet   *fleet
	cat     *catalogue
	table   *measure.Table
	writers *steadyWriters

	lengths, gaps map[string]measure.Latencies // of steps, by row
}

// run restarts everything so many times, while clients are at work, and reports what they saw.
func (r *rollings) run(ctx context.Context, times int) error {
	reads := judge.NewGroup(ctx)
	defer reads.Stop()
	items, err := r.writers.judged(reads)
	if err != nil {
		return err
	}
	for _, item := range items {
		if err := item.readBy(ctx, reads, rolledAll, r.fleet.session.client); err != nil {
			return err
		}
	}
	r.writers.start(ctx, rollingWriters, r.b.cfg.seed)
	r.writers.group.Go(func() error { r.rename(ctx); return nil })
	for n := 0; n < times && err == nil; n++ {
		err = r.once(ctx)
	}
	reads.Stop()
	if err = errors.Join(err, r.writers.stop()); err != nil {
		return err
	}
	a := r.writers.acks
	r.b.sayFailed(a)
	v := reads.Verdict(rolledAll)
	for _, failed := range v.Errors {
		r.b.say("  a read failed %v", failed)
	}
	r.report(times, len(a.failed(0, a.now()))+v.Failed)
	r.b.reportReads(reads, r.table)
	return nil
}

// rename renames categories of one product, as a writer of their partition.
func (r *rollings) rename(ctx context.Context) {
	w := r.writers
	resource := owner.LeaseResource(r.cat.sources.Partitions()[0])
	for n := 1; !w.stopped.Load() && wait(ctx, rollingRenames) == nil; n++ {
		from := w.acks.now()
		w.acks.note(resource, from, r.cat.renameUnder(ctx, r.cat.set.Category(n%r.cat.set.Singles(), n), fmt.Sprintf("rename-%d", n)))
	}
}

// partitions are those that are written.
func (r *rollings) partitions() (resources []string) {
	for _, p := range slices.Concat(r.cat.items.Partitions(), r.cat.sources.Partitions()) {
		resources = append(resources, owner.LeaseResource(p))
	}
	return resources
}

// once restarts everything.
func (r *rollings) once(ctx context.Context) error {
	if err := r.healthy(ctx); err != nil {
		return err
	}
	for _, n := range r.fleet.servers {
		err := r.step(ctx, rolledServer, n.name, n.stop, func(ctx context.Context) error {
			return errors.Join(n.start(ctx), n.await(ctx, nil))
		})
		if err != nil {
			return err
		}
	}
	for _, m := range slices.Concat(r.fleet.stores, r.fleet.workers) {
		row := map[string]string{"store": rolledStore, "worker": rolledWorker}[m.role]
		// The method of the child that runs now, not of the next one.
		if err := r.step(ctx, row, m.name, m.stop, func(ctx context.Context) error { return r.fleet.start(ctx, m) }); err != nil {
			return err
		}
	}
	return nil
}

// step restarts one process and waits until all are healthy.
func (r *rollings) step(ctx context.Context, row, name string, stop func() error, start func(context.Context) error) error {
	a := r.writers.acks
	from := a.now()
	if err := stop(); err != nil {
		return err
	}
	ended := a.now()
	if err := start(ctx); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	ready := a.now()
	if err := r.healthy(ctx); err != nil {
		return fmt.Errorf("after %s: %w", name, err)
	}
	to := a.now()
	g := a.longest(r.partitions(), from, to)
	r.lengths[row], r.gaps[row] = append(r.lengths[row], to-from), append(r.gaps[row], g.length())
	r.lengths[rolledAll], r.gaps[rolledAll] = append(r.lengths[rolledAll], to-from), append(r.gaps[rolledAll], g.length())
	r.b.say("  %s told to end at %s, ended at %s, again at %s, all healthy at %s: no write to %s for %.3f s, until %s; %d errors", name, a.clock(from), a.clock(ended), a.clock(ready), a.clock(to),
		g.partition, g.length().Seconds(), a.clock(g.to), len(a.failed(from, to)))
	return nil
}

// healthy waits as an operator does before the next process.
func (r *rollings) healthy(ctx context.Context) error {
	for _, m := range slices.Concat(r.fleet.stores, r.fleet.workers) {
		if err := r.b.awaitHealth(ctx, m); err != nil {
			return err
		}
	}
	_, err := r.fleet.awaitWhole(ctx, len(r.partitions()), true)
	return err
}

// awaitHealth asks millrace health --ready until it says yes.
func (b *bench) awaitHealth(ctx context.Context, m *fleetMember) error {
	for deadline := time.Now().Add(wholeMax); ; {
		_, err := b.verb(ctx, "health", "--ready", "--listen", strings.TrimPrefix(m.home, "http://"))
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		if err := wait(ctx, wholePoll); err != nil {
			return err
		}
	}
}

// report puts the steps into their rows, and adds the bars.
func (r *rollings) report(times, failed int) {
	for _, row := range []string{rolledServer, rolledStore, rolledWorker, rolledAll} {
		to, restarts := r.table.Row(row), len(r.gaps[row])
		if row == rolledAll {
			restarts = times
		} else {
			to.Add("s p50", r.lengths[row].Quantile(0.5).Seconds())
			to.Add("no write p50 ms", measure.Milliseconds(r.gaps[row].Quantile(0.5)))
		}
		to.Add("restarts", float64(restarts))
		to.Add("no write max ms", measure.Milliseconds(r.gaps[row].Quantile(1)))
	}
	r.table.Row(rolledAll).Add("errors", float64(failed))
	judged := r.b.cfg.judged()
	for _, row := range []string{rolledServer, rolledStore, rolledWorker} {
		r.table.AtMost("no write, "+row+", the longest", r.table.Series(row, "no write max ms"), rollingGapBar, "ms", judged)
	}
	r.table.AtMost("errors", r.table.Series(rolledAll, "errors"), 0, "", judged)
}
