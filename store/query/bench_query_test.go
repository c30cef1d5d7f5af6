package query_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/query"
)

// BenchmarkQuery runs the first half of queries over 1,000 products of about 600
// bytes, of which one in ten is sought.
func BenchmarkQuery(b *testing.B) {
	const count = 1000
	var items, ranks [][]byte
	for i := range count {
		items = append(items, fmt.Appendf(nil, `{"id":"027D0B9A-F9D9-4C96-8213-%012d","categoryId":"26C74104-40BC-4541-8EF5-%012d",`+
			`"categoryName":"Components, Saddles","sku":"SE-R%03d","name":"LL Road Seat/Saddle","price":%d.12,"stock":%d,`+
			`"tags":[{"id":"0573D684-9140-4DEE-89AF-%012d","name":"Tag-%d"},{"id":"6C2F05C8-1E61-4912-BE1A-C67A378429BB","name":"Tag-5"}],`+
			`"description":"%s","type":"product"}`, i, i%10, i%100, i%50, i, i%10, i%10, strings.Repeat("x", 230)))
		ranks = append(ranks, fmt.Appendf(nil, "%08d", i))
	}
	for _, c := range []struct{ name, text string }{
		{"equal", `SELECT * FROM c WHERE c.categoryId = "26C74104-40BC-4541-8EF5-000000000003"`},
		{"filter", `SELECT c.id, c.price FROM c WHERE c.type = "product" AND c.price > 44 AND NOT c.sku LIKE "X%"`},
		{"contains", `SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.tags, {"id": "0573D684-9140-4DEE-89AF-000000000003"}, true)`},
		{"exists", `SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.name = "Tag-3")`},
		{"join", `SELECT c.id, t.name FROM c JOIN t IN c.tags WHERE t.name = "Tag-3"`},
		{"top", `SELECT TOP 10 c.id FROM c ORDER BY c.stock DESC`},
		{"distinct", `SELECT DISTINCT VALUE c.categoryId FROM c`},
		{"count", `SELECT VALUE COUNT(1) FROM c`},
		{"group", `SELECT c.categoryId, COUNT(1) AS n, SUM(c.price) AS sum FROM c GROUP BY c.categoryId`},
	} {
		b.Run("query="+c.name, func(b *testing.B) {
			q, err := query.ParseQuery(c.text)
			if err != nil {
				b.Fatal(err)
			}
			rows := int(min(q.Need(0), query.RowsMax))
			b.SetBytes(int64(len(items[0])))
			b.ReportAllocs()
			n := 0
			var run *query.Run
			for b.Loop() {
				if n%count == 0 {
					if run, err = q.Run(query.RunConfig{Rows: rows}); err != nil {
						b.Fatal(err)
					}
				}
				if err := run.Item(items[n%count], ranks[n%count]); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}

func BenchmarkParseQuery(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := query.ParseQuery(`SELECT TOP 10 c.id, t.name FROM c JOIN t IN c.tags WHERE c.type = "product" AND t.id = @id ORDER BY c.price`); err != nil {
			b.Fatal(err)
		}
	}
}
