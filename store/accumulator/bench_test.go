package accumulator_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
)

// customerTotals is the aggregate of the WebStore's orders.
var customerTotals = accumulator.Spec{
	SourceWhere: `type = "salesOrder"`,
	Match:       []accumulator.Pair{{Target: "customerId", Source: "customerId"}},
	TargetWhere: `type = "customer"`,
	Set: []accumulator.Field{
		{Path: "lastOrderDate", Func: accumulator.Max, Expr: "orderDate"},
		{Path: "lifetimeValue", Func: accumulator.Sum, Expr: "price * quantity", Each: "details"},
		{Path: "recentOrders", Func: accumulator.Latest, N: 3, By: "orderDate", Fields: []string{"id", "orderDate"}},
		{Path: "salesOrderCount", Func: accumulator.Count},
	},
}

// countOnly is the cheapest of all.
var countOnly = accumulator.Spec{
	SourceWhere: `type = "salesOrder"`,
	Match:       []accumulator.Pair{{Target: "customerId", Source: "customerId"}},
	Set:         []accumulator.Field{{Path: "salesOrderCount", Func: accumulator.Count}},
}

// anOrder is an order of four lines, written as the WebStore's are.
func anOrder(customer, n int) []byte {
	body := fmt.Appendf(nil, `{"id":"%08d","type":"salesOrder","customerId":"%08d","orderDate":"2024-%02d-%02dT%02d:00:00","shipDate":"2024-12-31T00:00:00","details":[`,
		n, customer, 1+n/(24*28)%12, 1+n/24%28, n%24)
	for i := range 4 {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"sku":"FR-R92B-%d","name":"HL Road Frame - Black, 58","price":%d.%02d,"quantity":%d}`, i, 1431+i, n%100, 1+i)
	}
	return append(body, "]}"...)
}

func manyOrders(customers, n int) [][]byte {
	orders := make([][]byte, n)
	for i := range orders {
		orders[i] = anOrder(i%customers, i)
	}
	return orders
}

// BenchmarkFold folds the creation of an order.
func BenchmarkFold(b *testing.B) {
	for name, spec := range map[string]accumulator.Spec{"fields=4": customerTotals, "fields=1": countOnly} {
		b.Run(name, func(b *testing.B) {
			rule := mustCompile(b, spec)
			orders, key := manyOrders(1000, 1000), mustKey(b, "c")
			d := rule.NewDelta()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				d.Reset()
				rule.Fold(d, key, "o", nil, orders[i%len(orders)])
				i++
			}
		})
	}
}

// BenchmarkAdd folds the creation of an order, adds it to its group, and asks for
// the values, which is what a transactional aggregate adds to a write.
func BenchmarkAdd(b *testing.B) {
	for name, spec := range map[string]accumulator.Spec{"fields=4": customerTotals, "fields=1": countOnly} {
		for _, customers := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s/groups=%d", name, customers), func(b *testing.B) {
				rule := mustCompile(b, spec)
				orders, key := manyOrders(customers, 4000), mustKey(b, "c")
				m, d := accumulator.NewMemory(), rule.NewDelta()
				ids := make([]string, len(orders))
				for i := range ids {
					ids[i] = fmt.Sprintf("%08d", i)
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if i%len(orders) == 0 {
						m = accumulator.NewMemory()
					}
					must(b, one(rule, m, d, key, ids[i%len(ids)], orders[i%len(orders)]))
					i++
				}
			})
		}
	}
}

func one(rule *accumulator.Rule, m *accumulator.Memory, d *accumulator.Delta, key feed.PartitionKey, id string, order []byte) error {
	d.Reset()
	rule.Fold(d, key, id, nil, order)
	for _, g := range d.Groups() {
		state, err := rule.Add(m, g, d.Share(g))
		if err != nil {
			return err
		}
		if v := state.Values(); len(v) == 0 || v[0].Value == nil {
			return errors.New("no values")
		}
	}
	return nil
}

// BenchmarkParts takes the hot path apart.
func BenchmarkParts(b *testing.B) {
	rule := mustCompile(b, customerTotals)
	key := mustKey(b, "c")
	m := accumulator.NewMemory()
	for i := range 100 {
		must(b, one(rule, m, rule.NewDelta(), key, fmt.Sprintf("%08d", i), anOrder(1, i)))
	}
	d := rule.NewDelta()
	rule.Fold(d, key, "00000200", nil, anOrder(1, 200))
	g := d.Groups()[0]
	state, err := rule.Add(m, g, d.Share(g))
	must(b, err)
	encoded := d.Append(nil)
	customer := []byte(`{"id":"00000001","type":"customer","customerId":"00000001","name":"x"}`)
	paths := []document.Path{{{Name: "customerId"}}}
	b.Run("part=values", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			state.Values()
		}
	})
	b.Run("part=state", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = rule.State(m, g)
		}
	})
	b.Run("part=append", func(b *testing.B) {
		b.ReportAllocs()
		buf := encoded
		for b.Loop() {
			buf = d.Append(buf[:0])
		}
	})
	b.Run("part=decode", func(b *testing.B) {
		b.ReportAllocs()
		data := d.Append(nil)
		for b.Loop() {
			_, _ = rule.DecodeDelta(data)
		}
	})
	b.Run("part=targetGroup", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			rule.TargetGroup(customer)
		}
	})
	b.Run("part=targetKey", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			rule.TargetKey(g, paths)
		}
	})
}

// BenchmarkDelta folds the orders of many customers into one delta and adds all.
func BenchmarkDelta(b *testing.B) {
	for _, customers := range []int{1, 1000} {
		b.Run(fmt.Sprintf("items=1000/groups=%d", customers), func(b *testing.B) {
			rule := mustCompile(b, customerTotals)
			orders, key := manyOrders(customers, 1000), mustKey(b, "c")
			d := rule.NewDelta()
			b.ReportAllocs()
			for b.Loop() {
				d.Reset()
				for i, o := range orders {
					rule.Fold(d, key, string(orders[i][7:15]), nil, o)
				}
				if err := rule.Apply(accumulator.NewMemory(), d); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(orders))*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

// BenchmarkRemove takes away and brings back the newest member, so that each time
// the first ones are read anew.
func BenchmarkRemove(b *testing.B) {
	rule := mustCompile(b, customerTotals)
	key := mustKey(b, "c")
	m, d := accumulator.NewMemory(), rule.NewDelta()
	for i := range 1000 {
		must(b, one(rule, m, d, key, fmt.Sprintf("%08d", i), anOrder(1, i)))
	}
	newest := anOrder(1, 999)
	b.ReportAllocs()
	for b.Loop() {
		for _, back := range []bool{false, true} {
			d.Reset()
			if back {
				rule.Fold(d, key, "00000999", nil, newest)
			} else {
				rule.Fold(d, key, "00000999", newest, nil)
			}
			if err := rule.Apply(m, d); err != nil {
				b.Fatal(err)
			}
		}
	}
}
