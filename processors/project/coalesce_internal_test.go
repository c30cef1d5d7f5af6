package project

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// noSink is a sink that is never opened.
type noSink struct{ Sink }

// BenchmarkCoalesce takes changes of orders with three lines, which are new or of which one gets
// another price, in batches of so many.
func BenchmarkCoalesce(b *testing.B) {
	info := store.ContainerInfo{
		Database: "default", Name: "customer", ID: "c7k2x4ab", Spec: store.ContainerSpec{PartitionKey: []string{"/customerId"}, Partitions: 1},
		Partitions: []store.PartitionInfo{{Range: feed.EvenRanges(1)[0]}},
	}
	source, err := store.NewClient(nil, nil, store.ClientConfig{}).Open(info)
	if err != nil {
		b.Fatal(err)
	}
	p, err := Compile(Config{Pipeline: "analytics", Generation: 1, Source: source, Sink: noSink{}, Tables: []Table{
		{Name: "orders", Key: []string{"id"}, Columns: []Column{{Name: "id", Expr: "id"}, {Name: "customerId", Expr: "customerId"}, {Name: "orderDate", Expr: "orderDate"}}},
		{Name: "orderItems", Each: "details", Key: []string{"orderId", "line"}, Columns: []Column{
			{Name: "orderId", Expr: "item.id"}, {Name: "line", Expr: "index"}, {Name: "sku", Expr: "sku"}, {Name: "price", Expr: "price"}, {Name: "quantity", Expr: "quantity"},
		}},
	}})
	if err != nil {
		b.Fatal(err)
	}
	key, err := feed.NewPartitionKey("c1")
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 10, 100} {
		changes := make([]feed.Change, n)
		for i := range changes {
			id := fmt.Sprintf("o%d", i)
			after := fmt.Sprintf(`{"id":%q,"customerId":"c1","orderDate":"2014-08-16T00:00:00","details":[%s{"sku":"c","price":3,"quantity":1}]}`,
				id, strings.Repeat(`{"sku":"a","price":1,"quantity":2},`, 2))
			before := strings.Replace(after, `"price":3`, `"price":4`, 1)
			changes[i] = feed.Change{Op: feed.OpReplace, Key: key, ID: id, Before: []byte(before), After: []byte(after)}
		}
		run := func(what string, rows int) {
			b.Run(fmt.Sprintf("changes=%d/what=%s", n, what), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					g := newCoalescer(p, false)
					for i := range changes {
						if err := g.addChange(&changes[i]); err != nil {
							b.Fatal(err)
						}
					}
					if got := len(g.batch(feed.Position{}, feed.Position{}).Put); got != rows*n {
						b.Fatalf("%d rows of %d orders", got, n)
					}
				}
			})
		}
		run("price", 1)
		for i := range changes {
			changes[i].Op, changes[i].Before = feed.OpCreate, nil
		}
		run("new", 4)
	}
}
