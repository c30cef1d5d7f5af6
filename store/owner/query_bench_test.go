package owner_test

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/store"
)

const benchCustomers = 4000

// benchShop is a container of customers, each with some orders beside it: about 20,000
// items in all.
func benchShop(b *testing.B, partitions int) *store.Container {
	b.Helper()
	c := newCluster(b)
	spec := store.ContainerSpec{PartitionKey: []string{"/customerId"}, Partitions: partitions, Indexes: []string{"/salesOrderCount"}}
	if _, err := c.catalog.Create(b.Context(), "default", "shop", spec); err != nil {
		b.Fatal(err)
	}
	ct := c.container(c.process("a", b.TempDir()).client, "shop")
	var g errgroup.Group
	g.SetLimit(64)
	for i := range benchCustomers {
		g.Go(func() error {
			id := fmt.Sprintf("customer-%05d", i)
			orders := i * 7919 % 9
			ops := []store.Operation{{Kind: store.OpCreate, Body: fmt.Appendf(nil,
				`{"id":%q,"type":"customer","customerId":%q,"title":"","firstName":"First%d","lastName":"Last","emailAddress":"%d@example.com",`+
					`"addresses":[{"addressLine1":"1 Street","city":"Town","state":"ST","country":"CA","zipCode":"V2W 1W2"}],"salesOrderCount":%d}`,
				id, id, i, i, orders)}}
			for o := range orders {
				ops = append(ops, store.Operation{Kind: store.OpCreate, Body: fmt.Appendf(nil,
					`{"id":"%s-%d","type":"salesOrder","customerId":%q,"orderDate":"2014-03-%02dT00:00:00","shipDate":"2014-04-06T00:00:00",`+
						`"details":[{"sku":"TI-R982","name":"HL Road Tire","price":32.6,"quantity":%d},{"sku":"BK-1","name":"A Bike","price":899,"quantity":1}]}`,
					id, o, id, o+1, o)})
			}
			_, err := ct.Batch(b.Context(), shopKey(b, id), ops, "")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	return ct
}

// BenchmarkQuery asks in process, as a gateway does.
func BenchmarkQuery(b *testing.B) {
	for _, partitions := range []int{1, 4} {
		ct := benchShop(b, partitions)
		one := shopKey(b, "customer-01208")
		for _, c := range []struct {
			name string
			r    store.QueryRequest
			rows int
		}{
			{"point", store.QueryRequest{Text: `SELECT * FROM c WHERE c.id = "customer-01208"`, Key: one}, 1},
			{"customer", store.QueryRequest{Text: `SELECT * FROM c WHERE c.customerId = @c`, Params: []store.QueryParam{{Name: "c", Value: []byte(`"customer-01208"`)}}}, 8},
			{"customer-system", store.QueryRequest{Text: `SELECT * FROM c`, Key: one, System: true}, 8},
			{"top10", store.QueryRequest{Text: `SELECT TOP 10 * FROM c WHERE c.type = "customer" ORDER BY c.salesOrderCount DESC`}, 10},
			{"filter", store.QueryRequest{Text: `SELECT c.id FROM c WHERE c.firstName = "First77"`}, 1},
			{"sort", store.QueryRequest{Text: `SELECT TOP 10 c.id FROM c WHERE c.type = "salesOrder" ORDER BY c.orderDate DESC`}, 10},
			{"group", store.QueryRequest{Text: `SELECT c.type, COUNT(1) AS n FROM c GROUP BY c.type`}, 2},
			{"count", store.QueryRequest{Text: `SELECT VALUE COUNT(1) FROM c`}, 1},
		} {
			b.Run(fmt.Sprintf("%s/partitions=%d", c.name, partitions), func(b *testing.B) {
				b.ReportAllocs()
				items := int64(0)
				for b.Loop() {
					page, err := ct.Query(b.Context(), c.r)
					if err != nil || len(page.Rows) != c.rows {
						b.Fatalf("%d rows, want %d, %v", len(page.Rows), c.rows, err)
					}
					items += page.Metrics.Items + page.Metrics.Entries
				}
				b.ReportMetric(float64(items)/b.Elapsed().Seconds(), "items/s")
			})
		}
	}
}
