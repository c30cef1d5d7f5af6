package integration_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// mall is a store with customers beside their orders, and with what three
// aggregates say of them:
//
//   - customers count their orders, in the same logical partition, by turns
//     eventual and transactional;
//   - categories, in another container, sum up the lines of orders;
//   - regions, in a third one, sum up what customers say.
type mall struct {
	*cascadeWorld
	customer, category, region *store.Container
	configs                    []aggregate.Config
}

func newMall(t *testing.T) *mall {
	t.Helper()
	// Nobody pulls the plug here, so the disk need not be waited for.
	m := &mall{cascadeWorld: newCascadeWorld(t)}
	m.customer = m.container("customer", store.ContainerSpec{PartitionKey: []string{"/customerId"}, Partitions: 2, TTL: -1})
	m.category = m.container("category", store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 3})
	m.region = m.container("region", store.ContainerSpec{PartitionKey: []string{"/area", "/id"}})
	m.configs = []aggregate.Config{
		{Pipeline: "customer-totals", Generation: 1, Source: m.customer, Target: m.customer, Spec: customerTotals(), RecordInterval: 50 * time.Millisecond},
		{Pipeline: "category-sales", Generation: 1, Source: m.customer, Target: m.category, Spec: categorySales(), FoldBytesMax: 4000, RecordInterval: 50 * time.Millisecond},
		{Pipeline: "region-totals", Generation: 1, Source: m.customer, Target: m.region, Spec: regionTotals(), RecordInterval: 50 * time.Millisecond},
	}
	for _, cfg := range m.configs {
		m.wish(cfg, false, true)
	}
	for _, cfg := range m.configs {
		m.inForce(cfg, false, true)
	}
	return m
}

func customerTotals() accumulator.Spec {
	return accumulator.Spec{
		SourceWhere: `type = "order"`,
		Match:       []accumulator.Pair{{Target: "customerId", Source: "customerId"}},
		TargetWhere: `type = "customer"`,
		Set: []accumulator.Field{
			{Path: "totals.average", Func: accumulator.Avg, Expr: "price * quantity", Each: "details"},
			{Path: "totals.first", Func: accumulator.Min, Expr: "day"},
			{Path: "totals.last", Func: accumulator.Max, Expr: "day"},
			{Path: "totals.orders", Func: accumulator.Count},
			{Path: "totals.recent", Func: accumulator.Latest, N: 3, By: "day", Fields: []string{"id", "day"}},
			{Path: "totals.value", Func: accumulator.Sum, Expr: "price * quantity", Each: "details"},
		},
	}
}

func categorySales() accumulator.Spec {
	return accumulator.Spec{
		SourceWhere: `type = "order"`,
		Each:        "details",
		Match:       []accumulator.Pair{{Target: "id", Source: "category"}},
		Create:      true,
		Set: []accumulator.Field{
			{Path: "bulk", Func: accumulator.Count, Where: "quantity > 1"},
			{Path: "dearest", Func: accumulator.Max, Expr: "price"},
			{Path: "lines", Func: accumulator.Count},
			{Path: "recent", Func: accumulator.Latest, N: 2, By: "item.day * 100 + index", Fields: []string{"item.id", "price"}},
			{Path: "sales", Func: accumulator.Sum, Expr: "price * quantity"},
		},
	}
}

func regionTotals() accumulator.Spec {
	return accumulator.Spec{
		SourceWhere: `type = "customer"`,
		Match:       []accumulator.Pair{{Target: "id", Source: "region"}},
		TargetWhere: `area = "world"`,
		Create:      true,
		Set: []accumulator.Field{
			{Path: "customers", Func: accumulator.Count},
			{Path: "orders", Func: accumulator.Sum, Expr: "totals.orders"},
		},
	}
}

// wish asks for the rule of an aggregate.
func (m *mall) wish(cfg aggregate.Config, source, published bool) {
	m.t.Helper()
	info := cfg.Target.Info()
	err := m.Catalog.WantRule(m.t.Context(), info.Database, info.Name, store.RuleWish{
		Pipeline: cfg.Pipeline, Generation: cfg.Generation, Spec: cfg.Spec, Source: source, Published: published,
	})
	if err != nil {
		m.t.Error(err)
	}
}

// inForce waits until a rule is everywhere as it was wished.
func (m *mall) inForce(cfg aggregate.Config, source, published bool) {
	m.t.Helper()
	for _, p := range cfg.Target.Partitions() {
		poll.Until(m.t, func() error {
			status, err := cfg.Target.Status(m.t.Context(), p)
			if err != nil {
				return err
			}
			for _, r := range status.Rules {
				if r.Pipeline == cfg.Pipeline {
					return poll.Unless(r.Active && r.Folds == source && r.Published == published && r.Swept == published, fmt.Sprintf("%s: %+v", p, r))
				}
			}
			return errors.New(p.String() + " does not know the rule of " + cfg.Pipeline)
		})
	}
}

// work starts a worker that folds all aggregates. They are compiled with its own
// client, whose requests its tap sees.
func (m *mall) work() *storetest.Worker {
	m.t.Helper()
	k := m.Worker()
	for _, cfg := range m.configs {
		cfg.Source, cfg.Target = k.Own(cfg.Source), k.Own(cfg.Target)
		a, err := aggregate.Compile(cfg)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, p := range a.Source().Partitions() {
			resource := processors.Resource{Pipeline: cfg.Pipeline, Generation: cfg.Generation, Role: processors.RoleSource, Partition: p}
			k.Run(processors.Task{Resource: resource, Processor: a.Fold(p)})
		}
	}
	return k
}

// setBack gives some leases the checkpoint of an earlier time, or none: the feed
// comes again.
func (m *mall) setBack(rng *rand.Rand, earlier map[processors.Resource][]byte) {
	back := map[processors.Resource][]byte{}
	for r := range m.Checkpoints() {
		switch rng.IntN(3) {
		case 0:
			back[r] = nil
		case 1:
			back[r] = earlier[r]
		}
	}
	m.SetBack(back)
}
