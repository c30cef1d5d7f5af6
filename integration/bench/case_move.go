//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store/owner"
)

const (
	moveWriters = 64
	moveEvery   = 64 * time.Millisecond // of each writer
	moveAsked   = float64(moveWriters) * float64(time.Second) / float64(moveEvery)
	moveRateBar = 0.9
	moveGapBar  = 300 // ms
	moveMax     = 30 * time.Minute

	moveMaking = "the copy is made"
	moveHands  = "the hand-over"
	moveWhole  = "the whole move"
)

// move is the case of a partition that goes to a store without a copy while it is written.
func (b *bench) move(ctx context.Context) error {
	times := cmp.Or(b.cfg.times, 1)
	set, err := dataset.New(dataset.Config{Seed: b.cfg.seed, Products: min(b.cfg.products, full)})
	if err != nil {
		return err
	}
	t := b.table("move", "Move of a partition to a store without a copy", fmt.Sprintf(
		"A store, a process, over a NATS server that is another process, on one machine; a container with one partition, standbys: 1, and %s items of 1 KiB. %d writers replace "+
			"items drawn at random, every %s and each after its last write was answered, %s a second together, with an idempotency key, by the client of Go over loopback. %s after they began a second store is started and the first one "+
			"is asked to drain: the second one makes a copy, beside the writes, and then takes the partition. The move takes from there until the lease has its new owner; the hand-over is from %s before that to %s after. Before and after are "+
			"%s each. No write is the longest time in which none at all was acknowledged, and the longest write the one whose answer took most, each counted where it was answered. Each move is of new stores. Errors are writes that the "+
			"client gave up, of all that were begun. All items are counted when the writers have ended.",
		measure.Number(float64(set.Products())), moveWriters, moveEvery, measure.Number(moveAsked), splitWarmup+splitCompare, splitNear, splitNear, splitCompare))
	t.Columns = slices.Concat([]string{"moves"}, spanColumns, []string{"times asked", "errors"})
	m := &moves{b: b, set: set, table: t}
	for n := range times {
		b.say("  move %d of %d", n+1, times)
		if err := m.once(ctx); err != nil {
			return fmt.Errorf("move %d: %w", n+1, err)
		}
	}
	m.report(times)
	return nil
}

// moves is one run of the case.
type moves struct {
	b      *bench
	set    *dataset.Set
	table  *measure.Table
	failed int
}

// once moves the partition of a new store to another one.
func (m *moves) once(ctx context.Context) error {
	a, err := m.b.onePartition(ctx, "move", m.set, steady{moveWriters, moveEvery}, m.under)
	if err == nil {
		m.failed += len(a.failed(0, a.now()))
	}
	return err
}

// under moves the partition under its writers, and notes what they saw.
func (m *moves) under(ctx context.Context, f *fleet, w *steadyWriters) error {
	// There is no other store for the copy yet, so nobody waits for one.
	if err := f.session.apply(ctx, fmt.Sprintf(fleetContainer, 1, 1)); err != nil {
		return err
	}
	if err := wait(ctx, splitWarmup+splitCompare); err != nil {
		return err
	}
	watch, a := m.b.watch(), w.acks
	resource := owner.LeaseResource(w.into.Partitions()[0])
	asked := a.now()
	second := &fleetMember{role: "store", name: "store-2"}
	if err := f.add(ctx, second); err != nil {
		return err
	}
	f.stores = append(f.stores, second)
	if _, err := leases.Drain(ctx, f.session.js, "", f.stores[0].node, "bench"); err != nil {
		return err
	}
	if err := f.awaitOwner(ctx, resource, second.node); err != nil {
		return err
	}
	moved := a.now()
	end := moved + splitNear + splitCompare
	if err := wait(ctx, end-a.now()); err != nil {
		return err
	}
	m.table.Others = append(m.table.Others, watch.Others())
	of, hands := []string{resource}, max(moved-splitNear, asked)
	a.noteSpan(m.table, splitBefore, of, asked-splitCompare, asked)
	a.noteSpan(m.table, moveMaking, of, asked, hands)
	a.noteSpan(m.table, moveHands, of, hands, moved+splitNear)
	a.noteSpan(m.table, splitAfter, of, moved+splitNear, end)
	r, latencies := m.table.Row(moveWhole), a.latencies(asked, moved+splitNear)
	r.Add("s", (moved - asked).Seconds())
	rate := float64(len(latencies)) / (moved + splitNear - asked).Seconds()
	r.Add("writes/s", rate)
	r.Add("times asked", rate/moveAsked)
	gap := a.longest(of, asked, end)
	r.Add("no write ms", measure.Milliseconds(gap.length()))
	m.b.say("    asked at %s, moved at %s: %.1f s; no write for %.3f s, until %s; %d errors", a.clock(asked), a.clock(moved), (moved - asked).Seconds(), gap.length().Seconds(), a.clock(gap.to), len(a.failed(0, a.now())))
	return nil
}

// awaitOwner waits until a node has a lease.
func (f *fleet) awaitOwner(ctx context.Context, resource, node string) error {
	for began := time.Now(); time.Since(began) < moveMax; {
		s, err := f.share(ctx)
		if err != nil {
			return err
		}
		if leases.NodeOf(s.leases[resource].Owner) == node {
			return nil
		}
		if err := wait(ctx, splitPoll); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s has not come to %s in %s", resource, node, moveMax)
}

// report adds what is known when all moves are over, and the bars.
func (m *moves) report(times int) {
	r, t := m.table.Row(moveWhole), m.table
	r.Add("moves", float64(times))
	r.Add("errors", float64(m.failed))
	judged := m.b.cfg.judged()
	for _, row := range []string{moveHands, moveWhole} {
		t.AtMost("no write, "+row+", the longest", measure.Series{t.Series(row, "no write ms").Max()}, moveGapBar, "ms", judged)
	}
	t.AtLeast("writes, "+moveWhole, t.Series(moveWhole, "times asked"), moveRateBar, "times what is asked", judged)
	t.AtMost("errors", t.Series(moveWhole, "errors"), 0, "", judged)
}
