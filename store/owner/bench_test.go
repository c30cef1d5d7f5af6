package owner

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// BenchmarkCreate measures acknowledged creates of 1 KiB items in one partition,
// every append synced.
func BenchmarkCreate(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d/sync=always", writers), func(b *testing.B) {
			w := newWorld(b, byA)
			n := w.start(b.TempDir())
			pad := strings.Repeat("p", 960)
			before := n.state.Load().lsn
			var next atomic.Int64
			var wg sync.WaitGroup
			b.SetBytes(1024)
			b.ReportAllocs()
			b.ResetTimer()
			for range writers {
				wg.Go(func() {
					for {
						i := next.Add(1)
						if i > int64(b.N) {
							return
						}
						a := fmt.Sprint("a", i%1000)
						k, _ := feed.NewPartitionKey(a)
						if _, err := n.one(k, create(fmt.Sprintf(`{"id":"item-%012d","a":"%s","pad":"%s"}`, i, a, pad))); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
			b.ReportMetric(float64(b.N)/float64(n.state.Load().lsn-before), "items/commit")
		})
	}
}

// BenchmarkFanOut measures a rename over all items of a logical partition, two
// pages asked for at once.
func BenchmarkFanOut(b *testing.B) {
	const items = 20_000
	for _, scoped := range []string{"key", "index"} {
		b.Run(fmt.Sprintf("scope=%s/items=%d/sync=always", scoped, items), func(b *testing.B) {
			w := newWorld(b, store.ContainerSpec{PartitionKey: []string{"/a"}, Indexes: []string{"/tags/*/id"}})
			n := w.start(b.TempDir())
			k := pk(b, "x")
			pad := strings.Repeat("p", 850)
			var wg sync.WaitGroup
			for g := range 20 {
				wg.Go(func() {
					for i := g; i < items; i += 20 {
						n.mustOne(k, create(fmt.Sprintf(`{"id":"item-%012d","a":"x","name":"old","tags":[{"id":"t","name":"old"}],"pad":"%s"}`, i, pad)))
					}
				})
			}
			wg.Wait()
			req := store.PatchMany{Producer: feed.Producer{Pipeline: "p", Generation: 1, Source: "s"}, Epoch: 1, Source: "c"}
			req.Scope = store.Scope{Key: k}
			if scoped == "index" {
				req.Scope = store.Scope{Index: "/tags/*/id", Value: []byte(`"t"`)}
			}
			b.ReportAllocs()
			b.ResetTimer()
			patched := atomic.Int64{}
			for i := range b.N {
				req.Position = feed.Position{LSN: feed.LSN(i + 1)}
				req.Copy = store.Copy{Action: store.CopySet, Set: []store.Field{{Path: "name", Value: fmt.Appendf(nil, `"name %d"`, i)}}}
				if scoped == "index" {
					req.Copy.Each, req.Copy.Match = "tags", []store.Field{{Path: "id", Value: []byte(`"t"`)}}
				}
				for range 2 {
					wg.Go(func() {
						for {
							r := req
							resp := n.ask(&store.Request{PatchMany: &r})
							if resp.Err != nil {
								b.Error(resp.Err)
								return
							}
							patched.Add(int64(resp.PatchMany.Patched))
							if resp.PatchMany.Done {
								return
							}
						}
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64(patched.Load())/b.Elapsed().Seconds(), "copies/s")
		})
	}
}

// BenchmarkRepair measures the decision of repairs of as many items as a request may
// have, which find nothing to repair: items that all copy one source, and items of
// which each copies another.
func BenchmarkRepair(b *testing.B) {
	for _, sources := range []int{1, store.ReadManyMax} {
		b.Run(fmt.Sprintf("items=%d/sources=%d", store.ReadManyMax, sources), func(b *testing.B) {
			w := newWorld(b, byA)
			n := w.start(b.TempDir())
			k := pk(b, "x")
			repair := &store.Repair{Producer: feed.Producer{Pipeline: "p", Generation: 1, Source: "s/0"}, Epoch: 1}
			for i := range store.ReadManyMax {
				s := i % sources
				item := n.mustOne(k, create(fmt.Sprintf(
					`{"id":"item-%d","a":"x","type":"order","lines":[{"sku":"s%d","name":"Name %d","price":%d.5},{"sku":"other"}],"pad":"%s"}`,
					i, s, s, s, strings.Repeat("p", 400))))
				repair.Items = append(repair.Items, store.RepairItem{
					Ref: store.ItemRef{Key: k, ID: fmt.Sprint("item-", i)}, IfMatch: item.ETag,
					Copies: []store.Copy{{
						Where: `type = "order"`, Each: "lines", Action: store.CopySet,
						Match: []store.Field{{Path: "sku", Value: fmt.Appendf(nil, `"s%d"`, s)}},
						Set:   []store.Field{{Path: "name", Value: fmt.Appendf(nil, `"Name %d"`, s)}, {Path: "price", Value: fmt.Appendf(nil, "%d.5", s)}},
					}},
				})
			}
			ask := func() {
				r := n.ask(&store.Request{Repair: repair})
				if r.Err != nil || slices.ContainsFunc(r.Repair.Statuses, func(s store.Status) bool { return s != store.StatusNotModified }) {
					b.Fatalf("%+v", r)
				}
			}
			ask() // it writes the epoch
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				ask()
			}
			b.ReportMetric(float64(b.N)*store.ReadManyMax/b.Elapsed().Seconds(), "items/s")
		})
	}
}

// BenchmarkOrder measures acknowledged creates of orders that a rule counts in their customer in the same commit, every
// append synced.
func BenchmarkOrder(b *testing.B) {
	for _, customers := range []int{1, 1000} {
		const writers = 64
		b.Run(fmt.Sprintf("customers=%d/writers=%d/sync=always", customers, writers), func(b *testing.B) {
			w := newWorld(b, byCustomer)
			n := w.start(b.TempDir())
			spec := accumulator.Spec{
				SourceWhere: `type = "salesOrder"`, TargetWhere: `type = "customer"`,
				Match: []accumulator.Pair{{Target: "customerId", Source: "customerId"}},
				Set:   []accumulator.Field{{Path: "salesOrderCount", Func: accumulator.Count}},
			}
			w.info.Rules = []store.RuleWish{ruled(spec, true, true)}
			if err := n.reconcileSettings(b.Context(), &w.info); err != nil {
				b.Fatal(err)
			}
			keys, names := make([]feed.PartitionKey, customers), make([]string, customers)
			for i := range customers {
				names[i] = fmt.Sprintf("customer-%08d", i)
				keys[i] = pk(b, names[i])
				n.mustOne(keys[i], create(fmt.Sprintf(`{"id":%q,"customerId":%q,"type":"customer","notes":%q}`, names[i], names[i], strings.Repeat("n", 900))))
			}
			details := strings.Repeat(`{"sku":"BK-R50R-62","name":"Road-500 Red, 62","price":1234.56,"quantity":2},`, 5)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range writers {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						c := int(i*7919) % customers
						body := fmt.Sprintf(`{"id":"order-%012d","customerId":%q,"type":"salesOrder","details":[%s{}]}`, i, names[c], details)
						if _, err := n.one(keys[c], create(body)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
		})
	}
}
