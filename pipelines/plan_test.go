package pipelines_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/plan"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// planShop is a small fixed shop: categories and tags, products that copy their names,
// customers with orders of some lines.
const planShop = `
apiVersion: millrace/v1
kind: Container
metadata: {name: productMeta}
spec: {partitionKey: [/type]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: product}
spec: {partitionKey: [/categoryId]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: customer}
spec: {partitionKey: [/customerId]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: line}
spec: {partitionKey: [/orderId]}
`

const planNames = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: category-names}
spec:
  source: {container: productMeta, where: type = "category"}
  cascade: {into: product, match: {categoryId: id}, set: {FIELD: name}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: tag-names}
spec:
  source: {container: productMeta, where: type = "tag"}
  cascade: {into: product, each: tags, match: {id: id}, set: {name: name}, onSourceDelete: clear}
`

const planTotals = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: customer-totals}
spec:
  source: {container: customer, where: type = "order"}
  aggregate:
    into: customer
    match: {customerId: customerId}
    where: type = "customer"
    set: {orderCount: {count: true}, newest: {latest: 2, by: at, fields: [id]}}
    consistency: transactional
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: category-sales}
spec:
  source: {container: customer, where: type = "order"}
  aggregate:
    into: productMeta
    each: lines
    match: {id: categoryId}
    where: type = "category"
    create: true
    set: {sales: {sum: price * quantity}}
`

const planRows = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: line-rows}
spec:
  source: {container: customer, where: type = "order"}
  project:
    sink: SINK
    tables:
      line:
        each: lines
        key: [orderId, number]
        columns:
          orderId: item.id
          number: {expr: index, type: int64}
          PRICE
`

func planRowsWith(t testing.TB, sink, price string) *spec.Resources {
	t.Helper()
	return decode(t, strings.NewReplacer("SINK", sink, "PRICE", price).Replace(planRows))
}

// newPlanShop returns a node with the items of the shop.
func newPlanShop(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.stock(t)
	return n
}

// stock puts the shop's items.
func (n *node) stock(t *testing.T) {
	t.Helper()
	n.apply(t, decode(t, planShop))
	n.put(
		t, "productMeta",
		`{"id":"c1","type":"category","name":"Bikes"}`, `{"id":"c2","type":"category","name":"Parts"}`,
		`{"id":"t1","type":"tag","name":"red"}`, `{"id":"t2","type":"tag","name":"blue"}`,
	)
	n.put(
		t, "product",
		`{"id":"p1","categoryId":"c1","categoryName":"Bikes","tags":[{"id":"t1","name":"red"},{"id":"t2","name":"bleu"}]}`,
		`{"id":"p2","categoryId":"c1","categoryName":"Cycles","tags":[{"id":"t1"},{"id":"t9","name":"gone"}]}`,
		`{"id":"p3","categoryId":"c2","tags":[]}`,
		`{"id":"p4","categoryId":"c7","categoryName":"Nothing","tags":[{"id":"t2","name":"blue"}]}`,
	)
	n.put(
		t, "customer",
		`{"id":"k1","customerId":"k1","type":"customer","orderCount":2}`,
		`{"id":"k2","customerId":"k2","type":"customer","orderCount":0,"newest":[]}`,
		`{"id":"o1","customerId":"k1","type":"order","at":"2026-01-02","lines":[{"categoryId":"c1","price":10.50,"quantity":2},{"categoryId":"c2","price":3,"quantity":1}]}`,
		`{"id":"o2","customerId":"k1","type":"order","at":"2026-01-03","lines":[{"categoryId":"c8","price":"four","quantity":1}]}`,
		`{"id":"o3","customerId":"k5","type":"order","at":"2026-01-04","lines":[{"categoryId":"c1","price":7,"quantity":1}]}`,
	)
}

// plan makes a plan and returns how it is printed.
func (n *node) plan(t testing.TB, r *spec.Resources, opts ...registry.ApplyOptions) (*plan.Plan, string) {
	t.Helper()
	p, err := plan.New(n.js, n.registry, n.client, plan.Config{}).Plan(t.Context(), r, opts...)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := p.Print(&b, plan.Style{}); err != nil {
		t.Fatal(err)
	}
	return p, commits.ReplaceAllString(b.String(), "N commits")
}

// commits are as many as the writes of a test happened to be grouped into.
var commits = regexp.MustCompile(`[\d,]+ commits?\b`)

// TestPlan shows what an operator reads: all that is new, then a change of each kind.
func TestPlan(t *testing.T) {
	t.Parallel()
	n := newPlanShop(t)
	dir := filepath.Join(t.TempDir(), "rows")
	names := func(field string) *spec.Resources {
		return decode(t, strings.Replace(planNames, "FIELD", field, 1))
	}
	show := func(name string, r *spec.Resources, opts ...registry.ApplyOptions) *plan.Plan {
		t.Helper()
		p, text := n.plan(t, r, opts...)
		storetest.Golden(t, "testdata/plan/"+name+".txt", strings.ReplaceAll(text, dir, "DIR"))
		return p
	}
	sink := "{parquet: {path: " + dir + ", commitInterval: 100ms}}"

	// What was deleted is cleared, what was never there is not.
	key, err := feed.NewPartitionKey("tag")
	if err != nil {
		t.Fatal(err)
	}
	n.put(t, "productMeta", `{"id":"t9","type":"tag","name":"gone"}`)
	if err := n.container(t, "productMeta").Delete(t.Context(), key, "t9"); err != nil {
		t.Fatal(err)
	}

	t.Run("cascades that are new", func(t *testing.T) {
		p := show("cascades-new", names("categoryName"))
		data, err := json.MarshalIndent(withoutTimes(p), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		storetest.Golden(t, "testdata/plan/cascades-new.json", commits.ReplaceAllString(string(data), "N commits")+"\n")
	})
	t.Run("aggregates that are new", func(t *testing.T) { show("aggregates-new", decode(t, planTotals)) })
	t.Run("a projection that is new", func(t *testing.T) {
		show("rows-new", planRowsWith(t, sink, "price: {expr: price, type: double}"))
	})
	t.Run("a plan touches nothing", func(t *testing.T) {
		if all, err := n.registry.List(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("pipelines %v, %v", all, err)
		}
		if files, err := filepath.Glob(dir); err != nil || len(files) != 0 {
			t.Errorf("the sink was made: %v, %v", files, err)
		}
		if got := n.read(t, "product", "c2", "p3", "categoryName"); got != "" {
			t.Errorf("a copy was written: %s", got)
		}
	})

	n.happens(t, names("categoryName"))
	n.happens(t, decode(t, planTotals))
	n.apply(t, planRowsWith(t, sink, "price: {expr: price, type: double}"))
	n.idle(t)
	t.Run("nothing is left to do", func(t *testing.T) {
		if p := show("unchanged", names("categoryName")); p.Changes() || p.Choice {
			t.Errorf("%+v", p)
		}
	})
	t.Run("a cascade of another field asks for a choice", func(t *testing.T) {
		if p := show("cascade-changed", names("category.name")); !p.Choice {
			t.Error("no choice is asked for")
		}
	})
	t.Run("chosen to begin now it changes nothing", func(t *testing.T) {
		p := show("cascade-from-now", names("category.name"), registry.ApplyOptions{FromNow: true})
		if p.Choice || p.Resources[0].Effect != nil {
			t.Errorf("%+v", p)
		}
	})
	t.Run("an aggregate of other members", func(t *testing.T) {
		show("aggregate-changed", decode(t, strings.Replace(planTotals, "{count: true}", `{count: true, where: at > "2026-01-02"}`, 1)),
			registry.ApplyOptions{Backfill: true})
	})
	t.Run("rows of another shape", func(t *testing.T) {
		show("rows-changed", planRowsWith(t, sink, "amount: {expr: price * quantity, type: \"decimal(12,2)\"}"), registry.ApplyOptions{Backfill: true})
	})
	t.Run("rows elsewhere", func(t *testing.T) {
		show("rows-elsewhere", planRowsWith(t, "{container: {}}", "price: {expr: price, type: double}"), registry.ApplyOptions{Backfill: true})
	})
	t.Run("a container", func(t *testing.T) {
		show("container-changed", decode(t, `
apiVersion: millrace/v1
kind: Container
metadata: {name: product}
spec: {partitionKey: [/categoryId], indexes: [/sku], ttl: 36h}
`))
	})
}

// happens applies declarations that were planned, and sees that as many items become
// other ones as the plan has said of all pipelines together, none of which changes what
// another one does.
func (n *node) happens(t testing.TB, r *spec.Resources) {
	t.Helper()
	var changes, creates int64
	p, _ := n.plan(t, r)
	touched := map[string]bool{}
	for _, p := range p.Resources {
		creates += p.Effect.Created
		for _, s := range p.Effect.Samples {
			if s.Action == plan.SampleChanged {
				touched[s.Item] = true
			}
		}
		changes += p.Effect.Changed
	}
	before := n.items(t)
	n.apply(t, r, registry.ApplyOptions{Plan: p.Hash})
	n.idle(t)
	after := n.items(t)
	var changed int64
	for name, body := range before {
		if after[name] != body {
			changed++
			if _, item, _ := strings.Cut(name, " "); !touched[item] {
				t.Errorf("%s has become %s, of which the plan says nothing", name, after[name])
			}
		}
	}
	if created := int64(len(after) - len(before)); created != creates || changed != int64(len(touched)) || changes < changed {
		t.Errorf("%d items have changed and %d were made; the plan said %d of %d copies and %d", changed, created, len(touched), changes, creates)
	}
}

// items returns all items, by container and reference.
func (n *node) items(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{"productMeta", "product", "customer"} {
		c := n.container(t, name)
		for _, partition := range c.Partitions() {
			page, err := c.Scan(t.Context(), partition, store.Scan{ItemsMax: 1000, Barrier: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range page.Items {
				all[name+" "+store.ItemRef{Key: item.Key, ID: item.ID}.String()] = string(item.Body)
			}
		}
	}
	return all
}

// withoutTimes returns the plan without what is another one each time.
func withoutTimes(p *plan.Plan) *plan.Plan {
	c := *p
	c.Hash, c.Duration, c.Seconds = "HASH", time.Duration(0), 0
	return &c
}

// TestPlanFirst plans a whole shop of which nothing is there yet.
func TestPlanFirst(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	_, text := n.plan(t, load(t, "../configs/webstore"))
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	storetest.Golden(t, "testdata/plan/webstore-first.txt", strings.ReplaceAll(text, here, "."))
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	s := &node{system: newSystem(t)}
	s.apply(t, decode(t, shopContainers))
	const count = "{orderCount: {count: true}}"
	planner := plan.New(s.js, s.registry, s.client, plan.Config{})

	_, err := planner.Plan(t.Context(), totals(t, count, "eventual"), registry.ApplyOptions{FromNow: true})
	if _, ok := errors.AsType[*registry.RefusedError](err); !ok {
		t.Errorf("an aggregate from now on: %v", err)
	}
	if _, err := planner.Plan(t.Context(), totals(t, count, "eventual"), registry.ApplyOptions{FromNow: true, Backfill: true}); err == nil {
		t.Error("both options at once")
	}
	p, err := planner.Plan(t.Context(), decode(t, `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: one}
spec:
  source: {container: customer}
  cascade: {into: orders, match: {customerId: customerId, orderId: id}, set: {name: name}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: two}
spec:
  source: {container: orders}
  cascade: {into: customer, match: {customerId: customerId, order: id}, set: {name: name}}
`))
	if _, ok := errors.AsType[spec.Findings](err); !ok || p == nil {
		t.Fatalf("a cycle: %v, %v", p, err)
	}
	var b strings.Builder
	if err := plan.PrintGraph(&b, &p.Graph, plan.Style{}); err != nil {
		t.Fatal(err)
	}
	storetest.Golden(t, "testdata/plan/cycle.txt", b.String())
}

// TestPlanHash holds the hash to what it is of.
func TestPlanHash(t *testing.T) {
	t.Parallel()
	n := newIdleNode(t) // a worker would remove the index that no pipeline needs
	n.stock(t)
	r := decode(t, strings.Replace(planNames, "FIELD", "categoryName", 1))
	hash := func(r *spec.Resources) string {
		t.Helper()
		p, _ := n.plan(t, r)
		return p.Hash
	}
	first := hash(r)
	if again := hash(r); again != first {
		t.Errorf("planned again: %s and %s", first, again)
	}
	n.put(t, "product", `{"id":"p9","categoryId":"c1","tags":[]}`)
	if again := hash(r); again != first {
		t.Error("an item makes another plan")
	}
	turned := &spec.Resources{Pipelines: []spec.Pipeline{r.Pipelines[1], r.Pipelines[0]}}
	if again := hash(turned); again != first {
		t.Error("another order of documents makes another plan")
	}
	if other := hash(decode(t, strings.Replace(planNames, "FIELD", "name", 1))); other == first {
		t.Error("another definition makes no other plan")
	}

	refused := func(why string) {
		t.Helper()
		_, err := n.registry.Apply(t.Context(), r, registry.ApplyOptions{Plan: first})
		if came, ok := errors.AsType[*registry.PlanError](err); !ok || came.Plan != first || came.Now != hash(r) {
			t.Errorf("%s came between: %v", why, err)
		}
	}
	if err := n.client.Catalog().WantIndex(t.Context(), "default", "product", "/sku"); err != nil {
		t.Fatal(err)
	}
	refused("an index")
	if err := n.client.Catalog().DropIndex(t.Context(), "default", "product", "/sku"); err != nil {
		t.Fatal(err)
	}
	if again := hash(r); again != first {
		t.Error("an index that came and went makes another plan")
	}
	n.apply(t, decode(t, planTotals))
	refused("another pipeline")
	if err := n.registry.Delete(t.Context(), "default", "customer-totals"); err != nil {
		t.Fatal(err)
	}
	if err := n.registry.Delete(t.Context(), "default", "category-sales"); err != nil {
		t.Fatal(err)
	}
	n.apply(t, r, registry.ApplyOptions{Plan: first})
	refused("a generation")
}
