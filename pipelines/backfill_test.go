package pipelines_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

const tenantContainers = `
apiVersion: millrace/v1
kind: Container
metadata: {name: category}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: product}
spec: {partitionKey: [/tenant], partitions: 2}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: flat}
spec: {partitionKey: [/tenant]}
`

const tenantPipelines = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: names}
spec:
  source: {container: category}
  cascade:
    into: product
    match: {categoryId: id}
    set: {categoryName: name}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: flat-products}
spec:
  source: {container: product}
  project:
    sink: {container: {}}
    tables:
      flat:
        key: [tenant, id]
        columns: {tenant: tenant, id: id, size: {expr: size, type: int64}}
`

// TestBackfillOfAPart registers pipelines that leave out what is there, and then lets
// them go through parts of it and the rest, while items change: each part is right when
// it is done, and what is outside of it is as it was.
func TestBackfillOfAPart(t *testing.T) {
	t.Parallel()
	const tenants, products = 4, 300
	n := newNode(t)
	n.apply(t, decode(t, tenantContainers))
	n.put(t, "category", `{"id":"c","name":"new"}`)
	var items []string
	for i := range tenants * products {
		items = append(items, fmt.Sprintf(`{"id":"p%d","tenant":"t%d","categoryId":"c","categoryName":"old","size":%d}`, i, i%tenants, i/tenants))
	}
	n.put(t, "product", items...)
	n.apply(t, decode(t, tenantPipelines), registry.ApplyOptions{FromNow: true})
	n.idle(t)

	// counts returns the products of a tenant with the right name, and the rows: those
	// with a size under 100, and others.
	counts := func(tenant int) (copies, rows [2]int) {
		t.Helper()
		for container, count := range map[string]*[2]int{"product": &copies, "flat": &rows} {
			for _, body := range n.bodies(t, container) {
				var is struct {
					Tenant, CategoryName string
					Size                 int
				}
				if err := json.Unmarshal(body, &is); err != nil {
					t.Fatal(err)
				}
				if is.Tenant == fmt.Sprint("t", tenant) && (container == "flat" || is.CategoryName == "new") {
					count[min(is.Size/100, 1)]++
				}
			}
		}
		return copies, rows
	}
	fill := func(scope registry.BackfillScope) {
		t.Helper()
		var g errgroup.Group
		g.Go(func() error { // beside it
			c := n.container(t, "product")
			for i := range 50 {
				if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"other%d","tenant":"t9","categoryId":"c","size":5}`, i)); err != nil {
					return err
				}
			}
			return nil
		})
		for _, name := range []string{"names", "flat-products"} {
			poll.Until(t, func() error { // the one before may not be seen to be done by everybody
				_, err := n.registry.Backfill(t.Context(), "default", name, scope, leases.DefaultBucket)
				switch {
				case err == nil:
					return nil
				case !strings.Contains(err.Error(), "is under way"):
					t.Fatal(err)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		n.idle(t)
	}
	want := func(what string, tenant int, small, large int) {
		t.Helper()
		if copies, rows := counts(tenant); copies != [2]int{small, large} || rows != copies {
			t.Errorf("%s: tenant %d has %v copies and %v rows, want %d and %d", what, tenant, copies, rows, small, large)
		}
	}
	for tenant := range tenants {
		want("before", tenant, 0, 0)
	}
	fill(registry.BackfillScope{Key: `["t1"]`, Where: "c.size < 100"})
	want("a part of a key", 0, 0, 0)
	want("a part of a key", 1, 100, 0)
	fill(registry.BackfillScope{Key: `["t1"]`})
	want("a key", 0, 0, 0)
	want("a key", 1, 100, 200)
	fill(registry.BackfillScope{Where: "size >= 100"})
	for _, tenant := range []int{0, 2, 3} {
		want("an expression", tenant, 0, 200)
	}
	fill(registry.BackfillScope{})
	for tenant := range tenants {
		want("the rest", tenant, 100, 200)
	}
	if r, by := n.verify(t, verify.Config{PollInterval: 10 * time.Millisecond}); r.Verdict != verify.VerdictEqual || by["names"].Copies < tenants*products {
		t.Errorf("%d copies:\n%s", by["names"].Copies, text(r))
	}
}

func TestBackfillRefusals(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apply(t, decode(t, tenantContainers))
	n.apply(t, decode(t, tenantPipelines), registry.ApplyOptions{FromNow: true})
	n.apply(t, decode(t, shopContainers))
	n.apply(t, totals(t, "{orderCount: {count: true}}", "eventual"))
	n.idle(t)
	for _, c := range []struct {
		name  string
		scope registry.BackfillScope
		want  string
	}{
		{"nobody", registry.BackfillScope{}, "nobody"},
		{"customer-totals", registry.BackfillScope{}, "an aggregate knows all members"},
		{"names", registry.BackfillScope{Where: "size <"}, "where: "},
		{"names", registry.BackfillScope{Key: "t1"}, "key t1: "},
		{"names", registry.BackfillScope{Key: `["t1",2]`}, "2 components, and the partition key of container product has 1"},
	} {
		before := n.record(t, "names")
		_, err := n.registry.Backfill(t.Context(), "default", c.name, c.scope, leases.DefaultBucket)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %+v: %v, want %q in it", c.name, c.scope, err, c.want)
		}
		if after := n.record(t, "names"); after.Revision != before.Revision {
			t.Errorf("%s, %+v: the record has changed: %+v", c.name, c.scope, after)
		}
	}
	if _, err := n.registry.Pause(t.Context(), "default", "names"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.registry.Backfill(t.Context(), "default", "names", registry.BackfillScope{Key: `["t1"]`}, leases.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	_, err := n.registry.Backfill(t.Context(), "default", "names", registry.BackfillScope{}, leases.DefaultBucket)
	if want := `a backfill of the items under key ["t1"] is under way`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if r, by := n.verify(t, verify.Config{Timeout: -1}); by["names"].Verdict != verify.VerdictBehind {
		t.Errorf("while it is to be filled it is not behind:\n%s", text(r))
	}

	// A rewind takes over what is open, unless it brings all, and nothing that is done.
	rewind := func(to string, fills uint32, scope registry.BackfillScope) {
		t.Helper()
		place, err := registry.ParseRewindTo(to, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		rec, err := n.registry.Rewind(t.Context(), "default", "names", place, leases.DefaultBucket)
		if err != nil || rec.Backfills != fills || rec.BackfillScope != scope {
			t.Errorf("rewound to %s it is to backfill %d, %+v, want %d, %+v; %v", to, rec.Backfills, rec.BackfillScope, fills, scope, err)
		}
	}
	rewind("now", 1, registry.BackfillScope{Key: `["t1"]`})
	if _, err := n.registry.Resume(t.Context(), "default", "names"); err != nil {
		t.Fatal(err)
	}
	n.idle(t)
	rewind("now", 0, registry.BackfillScope{})
	if _, err := n.registry.Backfill(t.Context(), "default", "names", registry.BackfillScope{Key: `["t1"]`}, leases.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	rewind("beginning", 0, registry.BackfillScope{})
}

// bodies returns the items of a container.
func (n *node) bodies(t testing.TB, container string) [][]byte {
	t.Helper()
	var all [][]byte
	c := n.container(t, container)
	for _, partition := range c.Partitions() {
		for scan := (store.Scan{ItemsMax: 1000, Barrier: true}); ; {
			page, err := c.Scan(t.Context(), partition, scan)
			if err != nil {
				t.Fatal(err)
			}
			for i := range page.Items {
				all = append(all, page.Items[i].Body)
			}
			if scan.After = page.Cursor; scan.After == nil {
				break
			}
		}
	}
	return all
}
