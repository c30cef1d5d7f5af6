//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// acks notes when writes are acknowledged, by the name of their partition's lease. Times count from began.
type acks struct {
	began time.Time

	mu     sync.Mutex // guards what follows
	at     map[string][]time.Duration
	waits  []waited
	errors []failedWrite
}

// waited is how long a write took that was acknowledged.
type waited struct{ at, took time.Duration }

// failedWrite is a write of which the client said that it failed.
type failedWrite struct {
	at  time.Duration
	err error
}

func newAcks() *acks { return &acks{began: time.Now(), at: map[string][]time.Duration{}} }

// now reads the clock of the times.
func (a *acks) now() time.Duration { return time.Since(a.began) }

// clock names a moment by the clock of the stores' logs.
func (a *acks) clock(at time.Duration) string { return a.began.Add(at).UTC().Format("15:04:05.000") }

// note notes the outcome of a write to a partition that was begun at from.
func (a *acks) note(partition string, from time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.now() // under the lock, so that times are in order
	if err != nil {
		a.errors = append(a.errors, failedWrite{at, err})
		return
	}
	a.at[partition] = append(a.at[partition], at)
	a.waits = append(a.waits, waited{at, at - from})
}

// last returns when a write to a partition was acknowledged last; 0 if none was.
func (a *acks) last(partition string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if all := a.at[partition]; len(all) > 0 {
		return all[len(all)-1]
	}
	return 0
}

// gap is a time without an acknowledgement.
type gap struct {
	partition string
	from, to  time.Duration
}

func (g gap) length() time.Duration { return g.to - g.from }

// longest returns the longest gap of one of some partitions that was not over at from and began before to. One that
// still lasts ends now.
func (a *acks) longest(partitions []string, from, to time.Duration) (longest gap) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for _, partition := range partitions {
		all := a.at[partition]
		first, _ := slices.BinarySearch(all, from)
		last := from
		if first > 0 {
			last = all[first-1]
		}
		for _, at := range append(slices.Clone(all[first:]), now) {
			if last >= to {
				break
			}
			if at-last > longest.length() {
				longest = gap{partition, last, at}
			}
			last = at
		}
	}
	return longest
}

// latencies returns how long those writes took that were acknowledged between two moments.
func (a *acks) latencies(from, to time.Duration) (all measure.Latencies) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, _ := slices.BinarySearchFunc(a.waits, from, func(w waited, at time.Duration) int { return cmp.Compare(w.at, at) })
	for _, w := range a.waits[first:] {
		if w.at >= to {
			break
		}
		all = append(all, w.took)
	}
	return all
}

// spanColumns are those that noteSpan fills.
var spanColumns = []string{"s", "writes/s", "p50 ms", "p99 ms", "longest write ms", "no write ms"}

// noteSpan puts the writes to some partitions, which are all that are written, between two moments into a row, unless nothing is between them.
func (a *acks) noteSpan(t *measure.Table, row string, of []string, from, to time.Duration) {
	if from >= to {
		return
	}
	r, latencies := t.Row(row), a.latencies(from, to)
	r.Add("s", (to - from).Seconds())
	r.Add("writes/s", float64(len(latencies))/(to-from).Seconds())
	r.Add("p50 ms", measure.Milliseconds(latencies.Quantile(0.5)))
	r.Add("p99 ms", measure.Milliseconds(latencies.Quantile(0.99)))
	r.Add("longest write ms", measure.Milliseconds(latencies.Quantile(1)))
	r.Add("no write ms", measure.Milliseconds(a.longest(of, from, to).length()))
}

// failed returns the writes that failed between two moments.
func (a *acks) failed(from, to time.Duration) (some []failedWrite) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.errors {
		if f.at >= from && f.at < to {
			some = append(some, f)
		}
	}
	return some
}

// sayFailed prints each write that failed, by the clock of the stores' logs.
func (b *bench) sayFailed(a *acks) {
	for _, f := range a.failed(0, a.now()) {
		b.say("  a write failed at %s: %v", a.clock(f.at), f.err)
	}
}

// counts counts the acknowledgements of partitions in steps from a moment on; others counts those of all others.
func (a *acks) counts(partitions []string, from, step time.Duration, steps int) (of, others []int) {
	of, others = make([]int, steps), make([]int, steps)
	a.mu.Lock()
	defer a.mu.Unlock()
	for partition, all := range a.at {
		into := others
		if slices.Contains(partitions, partition) {
			into = of
		}
		first, _ := slices.BinarySearch(all, from)
		for _, at := range all[first:] {
			i := int((at - from) / step)
			if i >= steps {
				break
			}
			into[i]++
		}
	}
	return of, others
}

// steadyWriters replace items drawn at random. Each writes to what one partition has at the start, so that those whose
// partition has no owner keep nobody else waiting, and begins a write so often unless its last one is not answered yet.
type steadyWriters struct {
	into  *store.Container
	set   *dataset.Set
	items map[feed.Partition][]int
	acks  *acks
	every time.Duration // of one writer

	stopped atomic.Bool
	group   errgroup.Group
}

// newSteadyWriters returns writers of each partition that there is.
func newSteadyWriters(into *store.Container, set *dataset.Set, every time.Duration) (*steadyWriters, error) {
	items, err := byPartition(into, set)
	return &steadyWriters{into: into, set: set, items: items, acks: newAcks(), every: every}, err
}

// byPartition returns the products of each partition.
func byPartition(into *store.Container, set *dataset.Set) (map[feed.Partition][]int, error) {
	items := map[feed.Partition][]int{}
	for p := range set.Products() {
		key, err := feed.NewPartitionKey(set.Category(set.CategoryOf(p), 0).ID)
		if err != nil {
			return nil, err
		}
		at := into.PartitionFor(key)
		items[at] = append(items[at], p)
	}
	for _, p := range into.Partitions() {
		if len(items[p]) == 0 {
			return nil, fmt.Errorf("partition %s has none of %d products: take more", p, set.Products())
		}
	}
	return items, nil
}

// start sets so many writers of each partition to work.
func (w *steadyWriters) start(ctx context.Context, perPartition int, seed uint64) {
	for i, p := range w.into.Partitions() {
		for n := range perPartition {
			number := uint64(i*perPartition + n)
			w.group.Go(func() error {
				w.write(ctx, p, rand.New(rand.NewPCG(seed, number)))
				return nil
			})
		}
	}
}

func (w *steadyWriters) write(ctx context.Context, p feed.Partition, random *rand.Rand) {
	resource, items := owner.LeaseResource(p), w.items[p]
	due := w.acks.now() + rand.N(w.every)
	for !w.stopped.Load() && ctx.Err() == nil {
		if wait(ctx, due-w.acks.now()) != nil {
			return
		}
		// The key lets the client send the write again where it has no answer.
		key := fmt.Sprintf("%x%x", random.Uint64(), random.Uint64())
		from := w.acks.now()
		_, err := w.into.Upsert(ctx, w.set.AppendProduct(nil, items[random.IntN(len(items))]), store.WriteOptions{IdempotencyKey: key})
		w.acks.note(resource, from, err)
		due = max(due+w.every, w.acks.now()) // what was missed is not made up for
	}
}

// stop ends the writers when their writes at hand are answered.
func (w *steadyWriters) stop() error {
	w.stopped.Store(true)
	return w.group.Wait()
}

// byLength orders gaps, the shortest first.
func byLength(a, b gap) int { return cmp.Compare(a.length(), b.length()) }

// steady are so many writers, each of which begins a write every so often.
type steady struct {
	writers int
	every   time.Duration
}

// onePartition loads a container of one partition into a new store, lets something befall it under steady writers, and looks
// whether all items are there. It returns what was acknowledged.
func (b *bench) onePartition(ctx context.Context, name string, set *dataset.Set, pace steady, under func(context.Context, *fleet, *steadyWriters) error) (a *acks, err error) {
	dir, err := b.scratch(name)
	if err != nil {
		return nil, err
	}
	defer b.remove(dir)
	f, err := b.openFleet(ctx, dir, fleetConfig{stores: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.declare(ctx, 1, 0); err != nil {
		return nil, err
	}
	into, err := f.load(ctx, set)
	if err != nil {
		return nil, err
	}
	if err := b.quiet(ctx); err != nil {
		return nil, err
	}
	w, err := newSteadyWriters(into, set, pace.every)
	if err != nil {
		return nil, err
	}
	before := into.Partitions()[0]
	w.start(ctx, pace.writers, b.cfg.seed)
	err = under(ctx, f, w)
	if err = errors.Join(err, w.stop()); err != nil {
		return nil, err
	}
	b.sayFailed(w.acks)
	n, err := into.Count(ctx, before, store.Scope{})
	if err == nil && n != set.Products() {
		err = fmt.Errorf("%d items of %d are there", n, set.Products())
	}
	return w.acks, err
}
