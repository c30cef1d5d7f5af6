package aggregate_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// world is a world in which aggregates work.
type world struct {
	*storetest.World
	t testing.TB

	// wrap, if not nil, is put around each processor that start runs.
	wrap func(processors.Processor) processors.Processor
}

func newWorld(t testing.TB, tune ...func(*owner.Config)) *world {
	t.Helper()
	w := &world{World: storetest.NewWorld(t, tune...), t: t}
	w.ParkedRest = true // aggregates fold on beside what they have given up
	return w
}

// container declares a container and waits until its partitions have owners.
func (w *world) container(name string, spec store.ContainerSpec) *store.Container {
	w.t.Helper()
	return w.Container(w.t, name, spec)
}

// want puts the rule of an aggregate in force and waits until it is everywhere.
func (w *world) want(cfg aggregate.Config, source, published bool) {
	w.t.Helper()
	info := cfg.Target.Info()
	err := w.Catalog.WantRule(w.t.Context(), info.Database, info.Name, store.RuleWish{
		Pipeline: cfg.Pipeline, Generation: cfg.Generation, Spec: cfg.Spec, Source: source, Published: published,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range cfg.Target.Partitions() {
		poll.Until(w.t, func() error {
			status, err := cfg.Target.Status(w.t.Context(), p)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, r := range status.Rules {
				if r.Pipeline == cfg.Pipeline && r.Generation == cfg.Generation {
					return poll.Unless(r.Active && r.Folds == source && r.Published == published && r.Swept == published, fmt.Sprintf("%s: %+v", p, r))
				}
			}
			return fmt.Errorf("%s does not know the rule", p)
		})
	}
}

// start takes the leases of an aggregate on all partitions of its source. It is
// compiled with the worker's client, whose requests its tap sees.
func (w *world) start(cfg aggregate.Config) *storetest.Worker {
	w.t.Helper()
	return w.startOn(w.Worker(), cfg)
}

// startOn is start on a worker that runs nothing yet.
func (w *world) startOn(k *storetest.Worker, cfg aggregate.Config) *storetest.Worker {
	w.t.Helper()
	cfg.Source, cfg.Target = k.Own(cfg.Source), k.Own(cfg.Target)
	a, err := aggregate.Compile(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range a.Source().Partitions() {
		resource := processors.Resource{Pipeline: cfg.Pipeline, Generation: cfg.Generation, Role: processors.RoleSource, Partition: p}
		fold := a.Fold(p)
		if w.wrap != nil {
			fold = w.wrap(fold)
		}
		k.Run(processors.Task{Resource: resource, Processor: fold})
	}
	return k
}

// setBack lets the next holders begin at the beginning, as a redelivery does.
func (w *world) setBack() {
	back := w.Checkpoints()
	for r := range back {
		back[r] = nil
	}
	w.SetBack(back)
}

// checkpoint is the durable one of a resource.
func (w *world) checkpoint(r processors.Resource) *processors.Checkpoint {
	w.t.Helper()
	cp, err := processors.DecodeCheckpoint(w.Checkpoints()[r])
	if err != nil {
		w.t.Fatal(err)
	}
	return cp
}
