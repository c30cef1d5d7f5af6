package pipelines_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

const shopContainers = `
apiVersion: millrace/v1
kind: Container
metadata: {name: customer}
spec: {partitionKey: [/customerId], partitions: 2}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: orders}
spec: {partitionKey: [/customerId], partitions: 2}
`

const customerTotals = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: customer-totals}
spec:
  source: {container: customer, where: type = "order"}
  aggregate:
    into: customer
    match: {customerId: customerId}
    where: type = "customer"
    set: SET
    consistency: CONSISTENCY
`

func totals(t testing.TB, set, consistency string) *spec.Resources {
	t.Helper()
	return decode(t, strings.NewReplacer("SET", set, "CONSISTENCY", consistency).Replace(customerTotals))
}

const orderRows = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: order-rows}
spec:
  source: {container: customer}
  project:
    sink: SINK
    tables:
      orders:
        where: type = "order"
        key: [customerId, orderId]
        columns: COLUMNS
`

func rows(t testing.TB, sink, columns string) *spec.Resources {
	t.Helper()
	return decode(t, strings.NewReplacer("SINK", sink, "COLUMNS", columns).Replace(orderRows))
}

func (s *system) record(t testing.TB, name string) registry.Record {
	t.Helper()
	rec, err := s.registry.Get(t.Context(), "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// rules returns the rules that the catalog asks of a container.
func (s *system) rules(t testing.TB, container string) []store.RuleWish {
	t.Helper()
	info, err := s.client.Catalog().Get(t.Context(), "default", container)
	if err != nil {
		t.Fatal(err)
	}
	return info.Rules
}

// refused applies r, which must be refused, and returns why.
func (s *system) refused(t testing.TB, r *spec.Resources, opts ...registry.ApplyOptions) string {
	t.Helper()
	_, err := s.registry.Apply(t.Context(), r, opts...)
	refused, ok := errors.AsType[*registry.RefusedError](err)
	if !ok {
		t.Fatalf("it was not refused: %v", err)
	}
	return refused.Error()
}

func TestApplyAggregate(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.apply(t, decode(t, shopContainers))
	const count = "{orderCount: {count: true}}"
	s.apply(t, totals(t, count, "eventual"))
	first := s.record(t, "customer-totals")
	if len(first.Heads) != 2 || len(first.Starts) != 0 || len(first.From) != 0 || first.Published || first.InForce {
		t.Errorf("record: %+v", first)
	}
	wish := s.rules(t, "customer")
	if len(wish) != 1 || wish[0].Pipeline != first.ID || wish[0].Generation != 1 || wish[0].Source || wish[0].Published {
		t.Fatalf("rules: %+v", wish)
	}
	info, err := s.client.Catalog().Get(t.Context(), "default", "customer")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, totals(t, count, "eventual"))
	if again, err := s.client.Catalog().Get(t.Context(), "default", "customer"); err != nil || again.Revision != info.Revision {
		t.Errorf("to apply the same wrote to the catalog: %v", err)
	}

	t.Run("the consistency keeps the generation", func(t *testing.T) {
		got := s.apply(t, totals(t, count, "transactional"))
		if want := "pipeline default/customer-totals changed: it is transactional from a commit in each partition on; nothing is computed anew"; got[0] != want {
			t.Errorf("%s\nwant %s", got[0], want)
		}
		if rules := s.rules(t, "customer"); len(rules) != 1 || rules[0].Generation != 1 || !rules[0].Source {
			t.Errorf("rules: %+v", rules)
		}
	})
	t.Run("other words keep the rule's", func(t *testing.T) {
		s.apply(t, decode(t, strings.NewReplacer("SET", count, "CONSISTENCY", "transactional", `type = "order"`, `(type="order")`).Replace(customerTotals)))
		if diff := cmp.Diff(wish[0].Spec, s.rules(t, "customer")[0].Spec); diff != "" {
			t.Errorf("the rule has changed:\n%s", diff)
		}
	})
	t.Run("another meaning is asked for", func(t *testing.T) {
		other := totals(t, "{orderCount: {count: true, where: total > 10}}", "transactional")
		if got := s.refused(t, other); !strings.Contains(got, "apply it with --backfill to compute it anew") {
			t.Error(got)
		}
		if got := s.refused(t, other, registry.ApplyOptions{FromNow: true}); !strings.Contains(got, "an aggregate cannot begin now") {
			t.Error(got)
		}
		s.apply(t, other, registry.ApplyOptions{Backfill: true})
		if rules := s.rules(t, "customer"); len(rules) != 1 || rules[0].Generation != 2 || rules[0].Published {
			t.Errorf("rules: %+v", rules)
		}
	})
	t.Run("a late request of the former generation changes nothing", func(t *testing.T) {
		if err := s.client.Catalog().WantRule(t.Context(), "default", "customer", wish[0]); err != nil {
			t.Fatal(err)
		}
		if rules := s.rules(t, "customer"); len(rules) != 1 || rules[0].Generation != 2 {
			t.Errorf("rules: %+v", rules)
		}
	})
	t.Run("a delete drops the rule", func(t *testing.T) {
		if err := s.registry.Delete(t.Context(), "default", "customer-totals"); err != nil {
			t.Fatal(err)
		}
		if rules := s.rules(t, "customer"); len(rules) != 0 {
			t.Errorf("rules: %+v", rules)
		}
	})
	t.Run("a new one cannot begin now", func(t *testing.T) {
		if got := s.refused(t, totals(t, count, "eventual"), registry.ApplyOptions{FromNow: true}); !strings.Contains(got, "an aggregate cannot begin now") {
			t.Error(got)
		}
	})
}

func TestApplyFromNow(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.apply(t, load(t, "testdata/shop"))
	got := s.apply(t, tagNamesWith(t, `type = "tag"`, "{name: name, colour: colour}"), registry.ApplyOptions{FromNow: true})
	if want := "pipeline default/tag-names changed: generation 2: it begins with what changes from now on"; got[0] != want {
		t.Errorf("%s\nwant %s", got[0], want)
	}
	rec := s.record(t, "tag-names")
	if diff := cmp.Diff(rec.Heads, rec.From); diff != "" || rec.From[0].After != (feed.Position{LSN: 1}) {
		t.Errorf("it does not begin at the end: %+v", rec)
	}
	// It has read LSN 1 and needs 2, so a log that begins with 2 has lost nothing of it.
	holds, err := s.registry.Holds(t.Context(), leases.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	source := feed.Partition{Container: rec.Source, Number: rec.From[0].Partition}
	if !slices.Contains(holds[source], registry.Hold{Pipeline: "tag-names", After: 1}) {
		t.Errorf("holds: %+v", holds[source])
	}
	_, err = s.registry.Apply(t.Context(), tagNamesWith(t, "true", "{name: name}"), registry.ApplyOptions{FromNow: true, Backfill: true})
	if err == nil {
		t.Error("both at once were taken")
	}
}

// TestApplyProjection follows a projection whose sink is never asked.
func TestApplyProjection(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.apply(t, decode(t, shopContainers))
	const sink, columns = "{parquet: {path: ./a}}", "{customerId: customerId, orderId: id, total: {expr: total, type: double}}"
	s.apply(t, rows(t, sink, columns))
	if rec := s.record(t, "order-rows"); rec.Shadow || rec.Target != "" || len(rec.Tables) != 0 {
		t.Errorf("record: %+v", rec)
	}

	more := "{customerId: customerId, orderId: id, date: date, total: {expr: total, type: double}}"
	got := s.apply(t, rows(t, sink, more))
	if want := "pipeline default/order-rows changed: the new columns are filled in the rows that are there, beside what changes; see millrace status"; got[0] != want {
		t.Errorf("%s\nwant %s", got[0], want)
	}
	if rec := s.record(t, "order-rows"); rec.Generation != 1 || rec.Shadow {
		t.Errorf("a column more: %+v", rec)
	}

	other := rows(t, sink, strings.Replace(more, "double", "int64", 1))
	if got := s.refused(t, other); !strings.Contains(got, "(column orders.total has another type); apply it with --backfill to build its rows anew") {
		t.Error(got)
	}
	if got := s.refused(t, other, registry.ApplyOptions{FromNow: true}); !strings.Contains(got, "the rows that are there do not fit") {
		t.Error(got)
	}
	got = s.apply(t, other, registry.ApplyOptions{Backfill: true})
	if want := "pipeline default/order-rows changed: generation 2: its rows are built anew and then take the place of those that are there"; got[0] != want {
		t.Errorf("%s\nwant %s", got[0], want)
	}
	if rec := s.record(t, "order-rows"); !rec.Shadow || rec.Former == nil || rec.Former.Generation != 1 {
		t.Errorf("another type: %+v", rec)
	}

	// From now on it would go on with the rows that readers see, which are those of the first.
	now := strings.NewReplacer("SINK", sink, "COLUMNS", strings.Replace(more, "double", "int64", 1), `where: type = "order"`, `where: type = "order" AND total > 0`)
	if got := s.refused(t, decode(t, now.Replace(orderRows)), registry.ApplyOptions{FromNow: true}); !strings.Contains(got, "the rows that are there do not fit") {
		t.Error(got)
	}

	// A third generation, before the second has taken its place, follows the first.
	s.apply(t, rows(t, sink, columns), registry.ApplyOptions{Backfill: true})
	if rec := s.record(t, "order-rows"); rec.Generation != 3 || !rec.Shadow || rec.Former == nil || rec.Former.Generation != 1 {
		t.Errorf("a third generation: %+v", rec)
	}

	// Another place has nothing that goes on meanwhile. It may have rows of an earlier generation.
	s.apply(t, rows(t, "{parquet: {path: ./b}}", columns), registry.ApplyOptions{Backfill: true})
	if rec := s.record(t, "order-rows"); rec.Generation != 4 || !rec.Shadow || rec.Former != nil {
		t.Errorf("another sink: %+v", rec)
	}
}

func TestApplyProjectionIntoContainers(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.apply(t, decode(t, shopContainers))
	s.apply(t, rows(t, "{container: {}}", "{customerId: customerId, orderId: id}"))
	orders, err := s.client.Catalog().Get(t.Context(), "default", "orders")
	if err != nil {
		t.Fatal(err)
	}
	rec := s.record(t, "order-rows")
	if diff := cmp.Diff([]feed.ResourceID{orders.ID}, rec.Tables); diff != "" {
		t.Errorf("tables:\n%s", diff)
	}
	if users, err := s.registry.Users(t.Context(), "default", "orders"); err != nil || len(users) != 1 {
		t.Errorf("users of orders: %v, %v", users, err)
	}
	if err := s.client.Catalog().Delete(t.Context(), "default", "orders"); err != nil {
		t.Fatal(err)
	}
	s.apply(t, decode(t, shopContainers))
	s.apply(t, rows(t, "{container: {}}", "{customerId: customerId, orderId: id}"))
	if rec := s.record(t, "order-rows"); rec.Generation != 2 || rec.Shadow {
		t.Errorf("a table was made again: %+v", rec)
	}
}

func TestApplyPlan(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.apply(t, decode(t, shopContainers))
	declared := totals(t, "{orderCount: {count: true}}", "eventual")
	plan := func() string {
		t.Helper()
		w, err := s.registry.World(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return registry.PlanHash(declared, w)
	}
	old := plan()
	if err := s.client.Catalog().WantIndex(t.Context(), "default", "customer", "/sku"); err != nil {
		t.Fatal(err)
	}
	_, err := s.registry.Apply(t.Context(), declared, registry.ApplyOptions{Plan: old})
	if came, ok := errors.AsType[*registry.PlanError](err); !ok || came.Plan != old || came.Now != plan() {
		t.Fatalf("an index came between: %v", err)
	}
	if _, err := s.registry.Get(t.Context(), "default", "customer-totals"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("it was registered: %v", err)
	}
	s.apply(t, declared, registry.ApplyOptions{Plan: plan()})
	before := plan()
	if _, err := s.registry.Pause(t.Context(), "default", "customer-totals"); err != nil {
		t.Fatal(err)
	}
	if plan() != before {
		t.Error("a pause makes another plan")
	}
}
