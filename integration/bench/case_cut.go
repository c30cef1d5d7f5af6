//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/judge"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/integration/netns/hosts"
	"github.com/millrace/millrace/store"
)

const (
	cutServers    = 3
	cutStores     = 3
	cutPartitions = 4
	cutItems      = 4_000
	cutWriters    = 2                     // of each partition
	cutEvery      = 20 * time.Millisecond // of each writer
	cutTimes      = 5                     // of each event, by default

	// cutSettled is for how long after an event what was under way before may still be acknowledged.
	cutSettled = time.Second
	cutMax     = 30 * time.Second
	cutAfter   = 16 * time.Second // of the picture
	cutLabel   = "Acknowledged writes in each 100 ms around the cut and the SIGSTOP of a host"

	readEvery = 25 * time.Millisecond // of each reader
)

// cut is the case of a host that falls silent.
func (b *bench) cut(ctx context.Context) (err error) {
	network, err := hosts.Open(ctx)
	if err != nil {
		b.say("  skipped: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, network.Close(ctx)) }()
	t := b.table("cut", "A host that falls silent", fmt.Sprintf(
		"%d NATS servers, which each have all logs (durability: replicas) and sync every append, and %d stores, on one machine, in network namespaces as on hosts of their own: two stores share the host of a NATS "+
			"server, the third store and the clients have a host for themselves. A container with %d partitions and standbys: 1, and up to %s items of 1 KiB. %d writers replace items drawn at random, each of one partition, every "+
			"%s and each after its last write was answered, with an idempotency key, by the client of Go. All processes of a host are stopped by SIGSTOP, or the host is cut off at the switch: what it sends and what "+
			"is sent to it is lost, and nobody is told. %s after each partition has its first write again the host comes back, at the latest after %s. The gap is the longest time in which no write to any one partition of the "+
			"store on that host was acknowledged, others that of the partitions of the other stores. When it is back, it takes partitions again: that gap, of any partition, stands beside it. Between two events everything has an owner, a "+
			"warm standby and all replicas again. Errors are writes that the client gave up, of all that were begun. One item of each partition is written in versions by one writer and read every %s: by a client beside the others, "+
			"and by two on the hosts with a NATS server and a store, who know that server alone and go on to ask it when it is cut off with them. A read is stale if its version is older than the newest that was acknowledged, or returned by "+
			"another read, before it began.",
		cutServers, cutStores, cutPartitions, measure.Number(cutItems), cutPartitions*cutWriters, cutEvery, goesOn, cutMax, readEvery))
	t.Columns = append(slices.Clone(gapColumns), "reads", "stale reads")
	dir, err := b.scratch("cut")
	if err != nil {
		return err
	}
	defer b.remove(dir)
	set, err := dataset.New(dataset.Config{Seed: b.cfg.seed, Products: min(b.cfg.products, cutItems)})
	if err != nil {
		return err
	}
	f, err := b.openFleet(ctx, dir, fleetConfig{servers: cutServers, stores: cutStores, network: network})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	o := &cuts{outages: outages{b: b, fleet: f, table: t, partitions: cutPartitions, after: cutAfter}}
	if err := f.declare(ctx, cutPartitions, 1); err != nil {
		return err
	}
	into, err := f.load(ctx, set)
	if err != nil {
		return err
	}
	if o.writers, err = newSteadyWriters(into, set, cutEvery); err != nil {
		return err
	}
	return o.run(ctx)
}

// cuts is one run of the case.
type cuts struct{ outages }

// run lets each event happen while clients are at work, and reports them.
func (o *cuts) run(ctx context.Context) error {
	reads := judge.NewGroup(ctx)
	defer reads.Stop()
	items, err := o.writers.judged(reads)
	if err != nil {
		return err
	}
	readAt := func(name string, s *session) error {
		for _, item := range items {
			if err := item.readBy(ctx, reads, name, s.client); err != nil {
				return err
			}
		}
		return nil
	}
	if err := readAt("reads, from a host of its own", &o.fleet.session); err != nil {
		return err
	}
	for _, n := range o.fleet.servers[:cutStores-1] {
		s, err := dialFrom(ctx, n.host, "nats://"+n.client, cutServers)
		if err != nil {
			return err
		}
		defer s.close()
		if err := readAt("reads, beside a NATS server and a store", &s); err != nil {
			return err
		}
	}
	o.writers.start(ctx, cutWriters, o.b.cfg.seed)
	kinds := o.kinds()
	err = o.happen(ctx, kinds)
	reads.Stop()
	if err = errors.Join(err, o.writers.stop()); err != nil {
		return err
	}
	for i := range kinds {
		o.report(&kinds[i])
	}
	o.b.sayFailed(o.writers.acks)
	o.b.reportReads(reads, o.table)
	return o.b.draw("cut.svg", o.picture(cutLabel, kinds))
}

// kinds are the events of the case.
func (o *cuts) kinds() []outage {
	alone := func(*share) *fleetMember { return o.fleet.stores[cutStores-1] }
	beside := func(s *share) *fleetMember { return busiest(o.fleet.stores[:cutStores-1], s) }
	times := cmp.Or(o.b.cfg.times, cutTimes)
	var all []outage
	for _, at := range []struct {
		what         string
		victim       func(*share) *fleetMember
		p50, longest float64
	}{{"a store", alone, 3, 6}, {"a store and a NATS server", beside, 10, 15}} {
		all = append(
			all,
			outage{event: "SIGSTOP of " + at.what, victim: at.victim, leave: o.stop, back: o.resume, times: times, p50: at.p50, longest: at.longest, judgedAt: judgedTimes},
			outage{event: "cut of " + at.what, victim: at.victim, leave: o.pull, back: o.heal, times: times, p50: at.p50, longest: at.longest, judgedAt: judgedTimes},
		)
	}
	return all
}

// stop stops all processes of a store's host.
func (o *cuts) stop(ctx context.Context, victim *fleetMember, before *share) error {
	err := o.fleet.signalHost(victim.host, syscall.SIGSTOP)
	if err == nil {
		err = o.serves(ctx, before)
	}
	if err != nil { // they must go on, or they cannot be ended in good order
		return errors.Join(err, o.fleet.signalHost(victim.host, syscall.SIGCONT))
	}
	return nil
}

func (o *cuts) resume(_ context.Context, victim *fleetMember) error {
	return o.fleet.signalHost(victim.host, syscall.SIGCONT)
}

// pull cuts a store's host off.
func (o *cuts) pull(ctx context.Context, victim *fleetMember, before *share) error {
	err := victim.host.Cut(ctx)
	if err == nil {
		err = o.serves(ctx, before)
	}
	if err != nil {
		return errors.Join(err, o.heal(context.WithoutCancel(ctx), victim))
	}
	return nil
}

func (o *cuts) heal(ctx context.Context, victim *fleetMember) error { return victim.host.Heal(ctx) }

// serves waits until writes to all partitions are acknowledged again, and a while longer.
func (o *cuts) serves(ctx context.Context, before *share) error {
	a := o.writers.acks
	from := a.now()
	for resumed := false; !resumed && a.now() < from+cutMax; {
		if err := wait(ctx, wholePoll); err != nil {
			return err
		}
		resumed = true
		for _, resource := range before.all() {
			resumed = resumed && a.last(resource) > from+cutSettled
		}
	}
	return wait(ctx, goesOn)
}

// signalHost sends a signal to all processes of a host.
func (f *fleet) signalHost(host *hosts.Host, s syscall.Signal) error {
	var errs []error
	for _, m := range f.stores {
		if m.host == host {
			errs = append(errs, m.signal(s))
		}
	}
	for _, n := range f.servers {
		if n.host == host {
			errs = append(errs, n.signal(s))
		}
	}
	return errors.Join(errs...)
}

// judged sets to work, for one item of each partition, which the others leave alone from then on, a writer of versions and
// a reader.
func (w *steadyWriters) judged(g *judge.Group) (items []judgedItem, err error) {
	for _, p := range w.into.Partitions() {
		if len(w.items[p]) < 2 {
			return nil, fmt.Errorf("partition %s has one of %d products, and writers need another one: take more", p, w.set.Products())
		}
		item := judgedItem{w, w.items[p][0], &judge.Register{}}
		w.items[p] = w.items[p][1:]
		g.Write(item.register, w.every, item.write)
		items = append(items, item)
	}
	return items, nil
}

// judgedItem is a product that is written in versions.
type judgedItem struct {
	w        *steadyWriters
	product  int
	register *judge.Register
}

const versionField = "version"

func (i judgedItem) write(ctx context.Context, version uint64) error {
	body := i.w.set.AppendProduct(nil, i.product)
	body = fmt.Appendf(body[:len(body)-1], `,%q:%d}`, versionField, version)
	_, err := i.w.into.Upsert(ctx, body, store.WriteOptions{IdempotencyKey: fmt.Sprintf("%s-%d-%d", versionField, i.product, version)})
	return err
}

// readBy has a client read the item; its verdict counts for name.
func (i judgedItem) readBy(ctx context.Context, g *judge.Group, name string, client *store.Client) error {
	from, err := client.Container(ctx, database, "product")
	if err != nil {
		return err
	}
	key, err := from.KeyOf(i.w.set.AppendProduct(nil, i.product))
	if err != nil {
		return err
	}
	g.Read(name, i.register, readEvery, func(ctx context.Context) (uint64, error) {
		item, err := from.Read(ctx, key, i.w.set.ProductID(i.product))
		if err != nil {
			return 0, err
		}
		var body struct{ Version uint64 }
		return body.Version, json.Unmarshal(item.Body, &body)
	})
	return nil
}

// reportReads puts what readers found into their rows.
func (b *bench) reportReads(g *judge.Group, t *measure.Table) {
	for _, name := range g.Names() {
		v := g.Verdict(name)
		for _, w := range v.Wrong {
			b.say("  %s: %s", name, w)
		}
		b.say("  %s: %d answered, %d not, %d of them wrong", name, v.Reads, v.Failed, len(v.Wrong))
		r := t.Row(name)
		r.Add("reads", float64(v.Reads))
		r.Add("stale reads", float64(len(v.Wrong)))
		t.AtMost("stale, "+name, measure.Series{float64(len(v.Wrong))}, 0, "", true)
	}
}
