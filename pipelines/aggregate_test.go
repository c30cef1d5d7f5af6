package pipelines_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

func newStore(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.apply(t, decode(t, shopContainers))
	return n
}

// customers puts customers with orders of 10, 20, 30 ... each.
func (n *node) customers(t testing.TB, customers, orders int) {
	t.Helper()
	var items []string
	for c := range customers {
		items = append(items, fmt.Sprintf(`{"id":"c%d","customerId":"c%d","type":"customer"}`, c, c))
		for o := range orders {
			items = append(items, order(c, o))
		}
	}
	n.put(t, "customer", items...)
}

func order(customer, number int) string {
	return fmt.Sprintf(`{"id":"o%d-%d","customerId":"c%d","type":"order","total":%d}`, customer, number, customer, 10*(number+1))
}

// field waits until a field of a customer has a value.
func (n *node) field(t testing.TB, id, field, want string) {
	t.Helper()
	got := ""
	poll.Until(t, func() error {
		if got = n.read(t, "customer", id, id, field); got != want {
			return fmt.Errorf("%s of %s is %s, want %s", field, id, got, want)
		}
		return nil
	})
}

const countAndSum = "{orderCount: {count: true}, spent: {sum: total}}"

func TestAggregateIsComputedFromWhatIsThereAndFollows(t *testing.T) {
	t.Parallel()
	n := newStore(t)
	n.customers(t, 6, 3)
	n.apply(t, totals(t, countAndSum, "eventual"))
	n.idle(t)
	for c := range 6 {
		id := fmt.Sprintf("c%d", c)
		n.field(t, id, "orderCount", "3")
		n.field(t, id, "spent", "60")
	}
	if rec := n.record(t, "customer-totals"); !rec.Published || !rec.InForce {
		t.Errorf("idle, and not in force: %+v", rec)
	}
	n.put(t, "customer", order(2, 3))
	n.field(t, "c2", "spent", "100")
	n.field(t, "c2", "orderCount", "4")

	t.Run("another meaning leaves the fields until it is computed", func(t *testing.T) {
		n.apply(t, totals(t, "{orderCount: {count: true, where: total > 10}, spent: {sum: total}}", "eventual"), registry.ApplyOptions{Backfill: true})
		n.field(t, "c2", "orderCount", "3")
		n.idle(t)
		n.field(t, "c0", "orderCount", "2")
		n.field(t, "c0", "spent", "60")
	})
	t.Run("rewound, it counts nothing twice", func(t *testing.T) {
		rec, err := n.registry.Rewind(t.Context(), "default", "customer-totals", registry.RewindTo{}, "")
		if err != nil || rec.Generation != 2 || rec.Rewinds != 1 {
			t.Fatalf("%+v, %v", rec, err)
		}
		n.rewound(t, &rec)
		n.put(t, "customer", order(2, 4))
		n.field(t, "c2", "spent", "150")
		n.idle(t)
		n.field(t, "c0", "spent", "60")
		n.field(t, "c2", "orderCount", "4")
	})
	t.Run("deleted, its fields stay", func(t *testing.T) {
		if err := n.registry.Delete(t.Context(), "default", "customer-totals"); err != nil {
			t.Fatal(err)
		}
		n.field(t, "c2", "orderCount", "4")
	})
}

// rewound waits until every reader of a pipeline has been set back and has come to
// the end again.
func (n *node) rewound(t testing.TB, rec *registry.Record) {
	t.Helper()
	poll.Until(t, func() error {
		all, err := leases.List(t.Context(), n.js, "")
		if err != nil {
			return err
		}
		seen := 0
		for _, l := range all {
			r, err := processors.ParseResource(l.Resource)
			if err != nil || r.Pipeline != rec.ID || r.Generation != rec.Generation {
				continue
			}
			cp, err := processors.DecodeCheckpoint(l.Checkpoint)
			if err != nil {
				return err
			}
			at := slices.IndexFunc(rec.Heads, func(s registry.Start) bool { return s.Partition == r.Partition.Number })
			if cp.Rewinds != rec.Rewinds || cp.Position.LSN < rec.Heads[at].After.LSN {
				return fmt.Errorf("%s stands at %s, set back %d times", l.Resource, cp.Position, cp.Rewinds)
			}
			seen++
		}
		if seen != len(rec.Heads) {
			return fmt.Errorf("%d readers of %d", seen, len(rec.Heads))
		}
		return nil
	})
}

// TestAggregateSwitches goes from eventual to transactional and back while orders
// are written. In force, a customer that was read has as many orders as it says.
func TestAggregateSwitches(t *testing.T) {
	t.Parallel()
	n := newStore(t)
	n.customers(t, 4, 2)
	n.apply(t, totals(t, countAndSum, "eventual"))
	n.idle(t)
	next, sum := 2, 30
	for _, consistency := range []string{"transactional", "eventual", "transactional"} {
		var g errgroup.Group
		g.Go(func() error {
			for range 20 {
				for c := range 4 {
					n.put(t, "customer", order(c, next))
				}
				next, sum = next+1, sum+10*(next+1)
			}
			return nil
		})
		n.apply(t, totals(t, countAndSum, consistency))
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		n.idle(t)
		if rec := n.record(t, "customer-totals"); rec.Generation != 1 || !rec.InForce || !rec.Published {
			t.Fatalf("%s: %+v", consistency, rec)
		}
		for c := range 4 {
			id := fmt.Sprintf("c%d", c)
			n.field(t, id, "orderCount", fmt.Sprint(next))
			n.field(t, id, "spent", fmt.Sprint(sum))
		}
	}
	for range 5 {
		n.put(t, "customer", order(1, next))
		next++
		if got := n.read(t, "customer", "c1", "c1", "orderCount"); got != fmt.Sprint(next) {
			t.Errorf("right after order %d the count is %s", next, got)
		}
	}
}

// TestNewTransactionalAggregate shows that a new one is in force exactly.
func TestNewTransactionalAggregate(t *testing.T) {
	t.Parallel()
	n := newStore(t)
	n.customers(t, 3, 4)
	n.apply(t, totals(t, countAndSum, "transactional"))
	n.idle(t)
	n.put(t, "customer", order(0, 4))
	if got := n.read(t, "customer", "c0", "c0", "orderCount"); got != "5" {
		t.Errorf("right after the fifth order the count is %s", got)
	}
	n.field(t, "c1", "spent", "100")
}

func TestProjectionIntoContainers(t *testing.T) {
	t.Parallel()
	n := newStore(t)
	n.customers(t, 3, 2)
	const sink, columns = "{container: {}}", "{customerId: customerId, orderId: id, total: {expr: total, type: int64}}"
	n.apply(t, rows(t, sink, columns))
	n.idle(t)
	if got := n.read(t, "orders", "c1", "o1-1", "total"); got != "20" {
		t.Errorf("total is %s", got)
	}
	s, err := n.monitor.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Pipelines[0]; p.Kind != spec.ProjectKind || p.Sink == nil || p.Sink.Kind != "container" || p.Target != "orders" || p.Counts.Rows != 6 {
		t.Errorf("status: %+v", p)
	}

	n.apply(t, rows(t, sink, strings.Replace(columns, "}}", "}, kind: type}", 1)))
	// The processors take the column up by and by; orders from then on have it.
	for i, deadline := 2, time.Now().Add(time.Minute); ; i++ {
		n.put(t, "customer", order(1, i))
		n.idle(t)
		got := n.read(t, "orders", "c1", fmt.Sprint("o1-", i), "kind")
		if got == `"order"` {
			break
		}
		if got != "" || time.Now().After(deadline) {
			t.Fatalf("the kind of order %d is %q", i, got)
		}
	}

	if _, err := n.registry.Rewind(t.Context(), "default", "order-rows", registry.RewindTo{}, ""); err != nil {
		t.Fatal(err)
	}
	n.idle(t)
	if got := n.read(t, "orders", "c1", "o1-1", "kind"); got != `"order"` {
		t.Errorf("after a rewind the kind is %s", got)
	}
	if rec := n.record(t, "order-rows"); rec.Generation != 2 || rec.Shadow {
		t.Errorf("record: %+v", rec)
	}
}

// TestReconcilerTidiesUp removes what nobody needs: leases, dead letters, an index, and a rule that
// whoever applied it did not live to register.
func TestReconcilerTidiesUp(t *testing.T) {
	t.Parallel()
	n := newShop(t)
	n.idle(t)
	rec := n.record(t, "tag-names")
	deadLetters, err := processors.OpenDeadLetters(t.Context(), n.client)
	if err != nil {
		t.Fatal(err)
	}
	deadLetter := processors.DeadLetter{
		Pipeline: rec.ID, Generation: rec.Generation, Role: processors.RoleSource, Partition: feed.Partition{Container: rec.Source}.String(), Item: `["a"]/a`,
	}
	if err := deadLetters.Write(t.Context(), &deadLetter); err != nil {
		t.Fatal(err)
	}
	if err := n.registry.Delete(t.Context(), "default", "tag-names"); err != nil {
		t.Fatal(err)
	}
	n.apply(t, totals(t, countAndSum, "eventual"))
	// Who reads product, and has no target there, keeps nothing of it.
	n.apply(t, decode(t, `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: product-rows}
spec: {source: {container: product}, project: {sink: {parquet: {path: `+t.TempDir()+`}}, tables: {rows: {key: [id], columns: {id: id}}}}}
`))
	kept := n.rules(t, "customer")[0]
	orphan := kept
	orphan.Pipeline = "orphan-k2x4c7ab"
	if err := n.client.Catalog().WantRule(t.Context(), "default", "customer", orphan); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		all, err := leases.List(t.Context(), n.js, "")
		if err != nil {
			return err
		}
		if at := slices.IndexFunc(all, func(l leases.Lease) bool { return strings.HasPrefix(l.Resource, "pipe/"+rec.ID+"/") }); at >= 0 {
			return errors.New(all[at].Resource + " is remembered")
		}
		if left, err := deadLetters.List(t.Context(), rec.ID, 10); err != nil || len(left) > 0 {
			return fmt.Errorf("dead letters %+v are kept, %w", left, err)
		}
		product, err := n.client.Catalog().Get(t.Context(), "default", "product")
		if err != nil {
			return err
		}
		if len(product.IndexesWanted) > 0 {
			return fmt.Errorf("indexes %v are wanted", product.IndexesWanted)
		}
		if rules := n.rules(t, "customer"); len(rules) != 1 || rules[0].Pipeline != kept.Pipeline {
			return fmt.Errorf("rules %+v are wanted", rules)
		}
		return nil
	})
	// What is lost is asked for again.
	if err := n.client.Catalog().DropRule(t.Context(), "default", "customer", kept.Pipeline); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		if len(n.rules(t, "customer")) != 1 {
			return errors.New("the rule is not wanted again")
		}
		return nil
	})
}

func TestRewindCascade(t *testing.T) {
	t.Parallel()
	n := newShop(t)
	n.idle(t)
	for _, to := range []string{"beginning", "1h", "now"} {
		place, err := registry.ParseRewindTo(to, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		before := n.record(t, "category-names")
		rec, err := n.registry.Rewind(t.Context(), "default", "category-names", place, "")
		if err != nil || rec.Generation != before.Generation+1 || rec.ID != before.ID {
			t.Fatalf("to %s: %+v, %v", to, rec, err)
		}
		n.idle(t)
		if r, by := n.verify(t, verify.Config{}); by["category-names"].Verdict != verify.VerdictEqual {
			t.Errorf("rewound to %s:\n%s", to, text(r))
		}
	}
}

// The dead letters of a generation go with it. What items have refused before the place is done again, and refused again.
func TestI6_ARewindForgetsNoRefusal(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apply(t, decode(t, tenantContainers))
	n.put(t, "category", `{"id":"c","name":"A"}`)
	full := `{"id":"full","tenant":"t","categoryId":"c","categoryName":"A","pad":""}`
	n.put(t, "product", strings.Replace(full, `"pad":"`, `"pad":"`+strings.Repeat("x", store.ItemBytesMax-len(full)), 1))
	n.apply(t, decode(t, cascadesOverALongLog))
	n.idle(t)
	n.put(t, "category", `{"id":"c","name":"a longer name"}`)
	letters, err := processors.OpenDeadLetters(t.Context(), n.client)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(generation uint32) {
		t.Helper()
		poll.Until(t, func() error {
			rec := n.record(t, "names")
			all, err := letters.List(t.Context(), rec.ID, 10)
			if err != nil {
				return err
			}
			is := func(l processors.DeadLetter) bool { return l.Generation == generation && l.Target == `["t"]/full` }
			return poll.Unless(slices.ContainsFunc(all, is), fmt.Sprintf("generation %d has no dead letter of the item: %+v", generation, all))
		})
	}
	refused(1)
	n.idle(t)
	n.put(t, "product", `{"id":"later","tenant":"t"}`)
	place, err := registry.ParseRewindTo(time.Now().UTC().Format(time.RFC3339Nano), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for generation := uint32(2); generation < 4; generation++ {
		if rec, err := n.registry.Rewind(t.Context(), "default", "names", place, ""); err != nil || rec.Generation != generation {
			t.Fatalf("%+v, %v", rec, err)
		}
		refused(generation)
	}
}

func TestRewindRefuses(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.apply(t, decode(t, shopContainers))
	s.apply(t, totals(t, countAndSum, "eventual"))
	s.apply(t, rows(t, "{parquet: {path: ./a}}", "{customerId: customerId, orderId: id}"))
	for _, c := range []struct{ pipeline, to, want string }{
		{"customer-totals", "now", "an aggregate cannot leave out what it has not folded"},
		{"order-rows", "3", "the source has 2 physical partitions"},
		{"order-row", "beginning", "did you mean order-rows?"},
	} {
		place, err := registry.ParseRewindTo(c.to, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.registry.Rewind(t.Context(), "default", c.pipeline, place, "")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %s: %v", c.pipeline, c.to, err)
		}
	}
	for _, text := range []string{"", "yesterday", "-2h", "0", "12.3"} {
		if place, err := registry.ParseRewindTo(text, time.Now()); err == nil {
			t.Errorf("%q was taken for %s", text, place)
		}
	}
	rec, err := s.registry.Get(t.Context(), "default", "order-rows")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.registry.Rewind(t.Context(), "default", "order-rows", registry.RewindTo{Revision: rec.Revision + 1}, ""); !errors.Is(err, registry.ErrRecordChanged) {
		t.Errorf("a record that nobody looked at is rewound: %v", err)
	}
	rec, err = s.registry.Rewind(t.Context(), "default", "order-rows", registry.RewindTo{Revision: rec.Revision}, "")
	if err != nil || !rec.Shadow || rec.Former == nil || registry.PositionOf(rec.From, 0) != (feed.Position{}) {
		t.Fatalf("%+v, %v", rec, err)
	}
	place, err := registry.ParseRewindTo("1h", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.registry.Rewind(t.Context(), "default", "order-rows", place, ""); err == nil || !strings.Contains(err.Error(), "its rows are being built anew") {
		t.Errorf("a shadow was rewound among rows that are not there: %v", err)
	}
}

// TestI7_ARewindLeavesOutNothingThatWasNotFolded: a pipeline that no worker has begun is set back to a place behind
// what is there. All of it is folded all the same.
func TestI7_ARewindLeavesOutNothingThatWasNotFolded(t *testing.T) {
	t.Parallel()
	n := newIdleNode(t)
	n.apply(t, decode(t, shopContainers))
	n.customers(t, 3, 2)
	n.apply(t, totals(t, countAndSum, "eventual"))
	place, err := registry.ParseRewindTo(time.Now().UTC().Format(time.RFC3339Nano), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := n.registry.Rewind(t.Context(), "default", "customer-totals", place, ""); err != nil || rec.Rewinds != 1 {
		t.Fatalf("%+v, %v", rec, err)
	}
	n.put(t, "customer", order(1, 2))
	n.work(t, n.client, compile.SinkLimits{})
	n.idle(t)
	for c, want := range []string{"30", "60", "30"} {
		n.field(t, fmt.Sprint("c", c), "spent", want)
	}
	if r, _ := n.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Error(text(r))
	}
}
