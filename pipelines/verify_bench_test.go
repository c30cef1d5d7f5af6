package pipelines_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
)

// BenchmarkVerify compares copies at rest: a category's name and three tags' names
// in each product; the totals of customers; flat lines of orders in Parquet files.
func BenchmarkVerify(b *testing.B) {
	for _, size := range []int{20_000} {
		b.Run(fmt.Sprintf("cascades/items=%d", size), func(b *testing.B) {
			n := newNode(b)
			n.apply(b, load(b, "../configs/webstore/product.yaml"))
			n.apply(b, load(b, "../configs/webstore/productMeta.yaml"))
			n.apply(b, load(b, "../configs/webstore/category-names.yaml"))
			n.apply(b, load(b, "../configs/webstore/tag-names.yaml"))
			var meta, products []string
			for i := range 40 {
				meta = append(meta, fmt.Sprintf(`{"id":"c%d","type":"category","name":"Category %d"}`, i, i))
			}
			for i := range 200 {
				meta = append(meta, fmt.Sprintf(`{"id":"t%d","type":"tag","name":"Tag-%d"}`, i, i))
			}
			for i := range size {
				var tags []string
				for k := range 3 {
					t := (i*7 + k*61) % 200
					tags = append(tags, fmt.Sprintf(`{"id":"t%d","name":"Tag-%d"}`, t, t))
				}
				products = append(products, fmt.Sprintf(`{"id":"p%d","categoryId":"c%d","categoryName":"Category %d","sku":"SKU-%d","name":"Product number %d",`+
					`"description":"The product called \"product number %d\"","price":%d.49,"tags":[%s]}`, i, i%40, i%40, i, i, i, i, strings.Join(tags, ",")))
			}
			n.put(b, "productMeta", meta...)
			n.put(b, "product", products...)
			n.idle(b)
			measure(b, n)
		})
	}
	const customers, orders = 2000, 10
	m := newMart(b)
	m.fill(b, customers, orders)
	for _, name := range []string{"totals", "days", "lines", "files"} {
		b.Run(fmt.Sprintf("%s/orders=%d", name, customers*orders), func(b *testing.B) { measure(b, m.node, name) })
	}
}

// measure verifies all pipelines, or those that are named. What takes the
// processor's time is counted beside the time that passes, which depends on what
// else runs.
func measure(b *testing.B, n *node, names ...string) {
	b.Helper()
	b.ReportAllocs()
	var all []spec.Metadata
	for _, name := range names {
		all = append(all, spec.Metadata{Name: name, Database: spec.DatabaseDefault})
	}
	v := verify.New(n.js, n.registry, n.client, verify.Config{})
	var copies, groups, items int64
	before := used(b)
	for b.Loop() {
		r, err := v.Verify(b.Context(), all...)
		if err != nil {
			b.Fatal(err)
		}
		if r.Verdict != verify.VerdictEqual {
			b.Fatal(text(r))
		}
		copies, groups, items = 0, 0, 0
		for _, p := range r.Pipelines {
			copies, groups, items = copies+p.Copies, groups+p.Groups, items+p.Items
		}
	}
	passed := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(copies)/passed, "copies/s")
	b.ReportMetric(float64(items)/passed, "items/s")
	b.ReportMetric(float64(used(b)-before)/float64(b.N)/float64(copies+groups), "cpu-ns/copy")
	if groups > 0 {
		b.ReportMetric(float64(groups)/passed, "groups/s")
	}
}
