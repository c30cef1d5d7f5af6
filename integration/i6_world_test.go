package integration_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// cascadeWorld is a world in which cascades work.
type cascadeWorld struct {
	*storetest.World
	t        testing.TB
	followed sync.Map // the tombstones of sources that their owners make
	begins   sync.Map // where the readers of generations begin that walk, by resource
}

func newCascadeWorld(t testing.TB) *cascadeWorld {
	t.Helper()
	return &cascadeWorld{World: storetest.NewWorld(t), t: t}
}

// container declares a container and waits until its partitions have owners.
func (w *cascadeWorld) container(name string, spec store.ContainerSpec) *store.Container {
	w.t.Helper()
	return w.Container(w.t, name, spec)
}

// webstore declares the containers of the store's catalogue.
func (w *cascadeWorld) webstore() (meta, product *store.Container) {
	w.t.Helper()
	meta = w.container("productMeta", store.ContainerSpec{PartitionKey: []string{"/type"}, Partitions: 2})
	product = w.container("product", store.ContainerSpec{
		PartitionKey: []string{"/categoryId"}, Partitions: 3, Indexes: []string{"/tags/*/id"},
	})
	return meta, product
}

// settingsMade waits until a container's partitions have the settings that its record
// wishes. They are commits of the owner's own: one that is in flight when a test shuts
// the gate would hold up the commits that the test waits for.
func (w *cascadeWorld) settingsMade(c store.ContainerInfo) {
	w.t.Helper()
	info, err := w.Catalog.Get(w.t.Context(), c.Database, c.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range info.Partitions {
		id := feed.Partition{Container: info.ID, Number: p.Number}
		poll.Until(w.t, func() error {
			var is store.Settings
			for lsn := feed.LSN(1); lsn <= w.End(id); lsn++ {
				commit, err := w.Log(id).Read(w.t.Context(), lsn)
				if err != nil {
					return err
				}
				for _, tx := range commit.Transactions {
					if tx.Control == nil || tx.Control.Kind == store.ControlTakeover {
						continue
					}
					is = store.Settings{}
					if err := json.Unmarshal(tx.Control.Data, &is); err != nil {
						return err
					}
				}
			}
			_, wished := is.Wish(&info)
			past := slices.ContainsFunc(is.Tombstones, func(t store.TombstoneSetting) bool { return !t.Ready })
			return poll.Unless(!wished && !past, fmt.Sprintf("%s has settings %+v", id, is))
		})
	}
}

// walk makes cascades ones of a new generation that begins with the items of its target, as
// the registry does: it notes the ends of the source's logs, lets between happen, and
// notes the ends of the target's.
func (w *cascadeWorld) walk(configs []cascade.Config, between func()) []cascade.Config {
	w.t.Helper()
	configs = slices.Clone(configs)
	note := func(role processors.Role, of func(*cascade.Config) *store.Container) {
		for i := range configs {
			for _, p := range of(&configs[i]).Partitions() {
				resource := processors.Resource{Pipeline: configs[i].Pipeline, Generation: configs[i].Generation, Role: role, Partition: p}
				w.begins.Store(resource, feed.Position{LSN: w.End(p)})
			}
		}
	}
	for i := range configs {
		configs[i].Generation++
		configs[i].Backfill = processors.BackfillRequest{Number: 1}
	}
	note(processors.RoleSource, func(c *cascade.Config) *store.Container { return c.Source })
	if between != nil {
		between()
	}
	note(processors.RoleTarget, func(c *cascade.Config) *store.Container { return c.Target })
	return configs
}

// start takes the leases of all roles, or of those named, of some cascades. The
// cascades are compiled with the worker's client, whose requests its tap sees.
func (w *cascadeWorld) start(configs []cascade.Config, roles ...processors.Role) *storetest.Worker {
	w.t.Helper()
	if len(roles) == 0 {
		roles = []processors.Role{processors.RoleSource, processors.RoleTarget}
	}
	k := w.Worker()
	w.startOn(k, configs, roles...)
	return k
}

// startOn is start on a worker that runs nothing yet.
func (w *cascadeWorld) startOn(k *storetest.Worker, configs []cascade.Config, roles ...processors.Role) {
	w.t.Helper()
	for _, cfg := range configs {
		cfg.Source, cfg.Target = k.Own(cfg.Source), k.Own(cfg.Target)
		cas, err := cascade.Compile(cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		source := cas.Source().Info()
		if err := w.Catalog.WantTombstones(w.t.Context(), source.Database, source.Name, cas.Tombstones()); err != nil {
			w.t.Fatal(err)
		}
		if _, before := w.followed.LoadOrStore(fmt.Sprint(source.Name, cas.Tombstones()), true); !before {
			w.settingsMade(source)
		}
		for _, role := range roles {
			c, processor := cas.Source(), cas.FanOut
			if role == processors.RoleTarget {
				c, processor = cas.Target(), cas.Check
			}
			for _, p := range c.Partitions() {
				resource := processors.Resource{Pipeline: cfg.Pipeline, Generation: cfg.Generation, Role: role, Partition: p}
				task := processors.Task{Resource: resource, Processor: processor(p)}
				if begin, walks := w.begins.Load(resource); walks {
					task.Start = begin.(feed.Position)
				}
				k.Run(task)
			}
		}
	}
}
