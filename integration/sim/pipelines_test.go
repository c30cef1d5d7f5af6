package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// catsMax is the number of categories.
const catsMax = 3

// declared are the pipelines: the name of a category goes into its things, and a category
// counts its things and adds up what they weigh.
const declared = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: names}
spec:
  source: {container: cats}
  cascade:
    into: things
    match: {cat: [id, a]}
    set: {catName: tag}
    onSourceDelete: keep
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: totals}
spec:
  source: {container: things}
  aggregate:
    into: cats
    match: {id: cat, a: cat}
    set:
      count: {count: true}
      sum: {sum: n}
    consistency: eventual
`

// registryConfig lets generations begin with items however short the log is.
var registryConfig = registry.Config{WalkLogBytes: 1}

// declare applies the pipelines when it is time, again and again until they are.
func (w *world) declare() {
	elapse(w.plan.Pipelines)
	// To apply takes a hundred requests, one after the other, of which each must be answered.
	h := w.server.host("operator2")
	h.safe = true
	nc, js := connect(h)
	defer nc.Close()
	resources := must(spec.Decode("sim.yaml", []byte(declared)))
	for tries := 0; ; tries++ {
		before := w.records()
		err := w.apply(js, resources)
		w.net.note("operator2", fmt.Sprintf("apply: %v", err))
		if err == nil {
			w.hold(before)
			return
		}
		if tries == 60 {
			w.failf("the pipelines cannot be declared: %v", err)
			return
		}
		elapse(time.Second)
	}
}

func (w *world) apply(js jetstream.JetStream, resources *spec.Resources) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	catalog, err := store.OpenCatalog(ctx, js, store.CatalogConfig{})
	if err != nil {
		return err
	}
	r, err := registry.Open(ctx, js, store.NewClient(js.Conn(), catalog, store.ClientConfig{}), registryConfig)
	if err != nil {
		return err
	}
	_, err = r.Apply(ctx, resources)
	return err
}

// work runs the roles of a worker beside those of a store.
func (w *world) work(ctx context.Context, name string, p *process, js jetstream.JetStream, r *registry.Registry, client *store.Client) error {
	deadLetters, err := processors.OpenDeadLetters(ctx, client)
	if err != nil {
		return err
	}
	manager, err := leases.Open(ctx, js, leases.Config{Group: "worker", Node: name, NodeLocked: true, TTL: leaseTTL, Log: w.log(name)})
	if err != nil {
		return err
	}
	hub := feed.NewHub(func(ctx context.Context, id feed.Partition) (*feed.Log, error) {
		return feed.OpenLog(ctx, js, id, logConfig)
	}, feed.HubConfig{})
	defer hub.Close()
	host, err := processors.NewHost(hub, deadLetters, processors.Config{Logger: w.log(name)})
	if err != nil {
		return err
	}
	s := pipelines.NewSupervisor(r, client, manager, host, pipelines.SupervisorConfig{
		Logger: w.log(name), Verify: verify.ContinuousConfig{Continuous: "off"},
	})
	if err := s.Announce(ctx); err != nil {
		return err
	}
	return s.Run(ctx)
}

// both runs a store and a worker until one of them ends.
func (w *world) both(ctx context.Context, name string, p *process, js jetstream.JetStream, catalog *store.Catalog, serve func(context.Context, owner.Holds) error) error {
	client := store.NewClient(p.nc, catalog, store.ClientConfig{})
	begin, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := registry.Open(begin, js, client, registryConfig)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := serve(ctx, func(ctx context.Context) (map[feed.Partition][]owner.Hold, string, error) { return w.holdsOf(ctx, r) })
		return errors.Join(err, errEnded)
	})
	g.Go(func() error {
		err := w.unlessAway(ctx, func(ctx context.Context) error { return w.work(ctx, name, p, js, r, client) })
		return errors.Join(err, errEnded)
	})
	return g.Wait()
}

// unlessAway lets a process work, but for the time in which none does.
func (w *world) unlessAway(ctx context.Context, work func(context.Context) error) error {
	leaves := w.began.Add(w.plan.AwayAt)
	comes := leaves.Add(w.plan.AwayFor)
	if w.plan.AwayFor == 0 {
		return work(ctx)
	}
	if time.Now().Before(leaves) {
		until, cancel := context.WithDeadline(ctx, leaves)
		defer cancel()
		if err := work(until); until.Err() == nil || ctx.Err() != nil {
			return err
		}
		w.net.note("workers", "away")
	}
	select {
	case <-time.After(time.Until(comes)):
	case <-ctx.Done():
		return ctx.Err()
	}
	return work(ctx)
}

var errEnded = errors.New("it ended")

// holdsOf tells who reads the logs, as the command does.
func (w *world) holdsOf(ctx context.Context, r *registry.Registry) (map[feed.Partition][]owner.Hold, string, error) {
	if w.plan.Mutation == asksNobody {
		return nil, "", nil
	}
	all, err := r.Holds(ctx, leases.DefaultBucket)
	if err != nil {
		return nil, "", err
	}
	holds := map[feed.Partition][]owner.Hold{}
	for p, some := range all {
		for _, h := range some {
			holds[p] = append(holds[p], owner.Hold{Reader: "pipeline " + h.Pipeline, After: h.After})
		}
	}
	return holds, "", nil
}

// settle waits until no log of a container has grown for a while.
func (w *world) settle() {
	elapse(time.Until(w.began.Add(w.plan.AwayAt + w.plan.AwayFor)))
	began := time.Now()
	var last uint64
	for still := 0; still < 12; still++ {
		elapse(time.Second)
		sum := uint64(0)
		for _, info := range w.containers {
			for _, p := range info.Partitions {
				w.net.mu.Lock()
				sum += w.server.streams[feed.Partition{Container: info.ID, Number: p.Number}.Stream()].last
				w.net.mu.Unlock()
			}
		}
		if sum != last {
			last, still = sum, 0
		}
		if time.Since(began) > 4*time.Minute {
			w.failf("I6: four minutes after the last write the logs still grow")
			return
		}
	}
}

// judgeCopies compares the copies with what they are made of (I6).
func (w *world) judgeCopies(things, cats *ledger) {
	names, counts, sums := map[string]string{}, map[string]int{}, map[string]int{}
	for id, all := range cats.versions {
		if is, _ := parseThing(all[len(all)-1].body); is.Tag != "" {
			names[id] = is.Tag
		}
	}
	for id, all := range things.versions {
		is, _ := parseThing(all[len(all)-1].body)
		if is.Tag == "" {
			continue
		}
		counts[is.Cat]++
		sums[is.Cat] += is.N
		if name, ok := names[is.Cat]; ok && (is.CatName == nil || *is.CatName != name) {
			w.failf("I6: thing %s of category %s has not its name %s: %s", id, is.Cat, name, all[len(all)-1].body)
		}
	}
	for id, all := range cats.versions {
		is, _ := parseThing(all[len(all)-1].body)
		if is.Tag != "" && (valueOf(is.Count) != counts[id] || valueOf(is.Sum) != sums[id]) {
			w.failf("I6: category %s has %d things that weigh %d: %s", id, counts[id], sums[id], all[len(all)-1].body)
		}
	}
}

func valueOf(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
