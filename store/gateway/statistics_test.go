package gateway_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/store/gateway"
)

// Who asks for it is told how many items each range holds.
func TestContainer_Statistics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", byPK)
	const items = 20
	for i := range items {
		w.ask("POST", docs, fmt.Sprintf(`{"id":"1","pk":"k%d"}`, i), keyHeader, fmt.Sprintf(`["k%d"]`, i)).is(201)
	}
	type body struct {
		Statistics []struct {
			ID            string
			DocumentCount int
		}
	}
	var got body
	a := w.ask("GET", "/dbs/shop/colls/things", "", "x-ms-documentdb-populatepartitionstatistics", "True").is(200).into(&got)
	total := 0
	for i, s := range got.Statistics {
		want := len(w.query("SELECT * FROM c", rangeHeader, s.ID))
		if s.ID != fmt.Sprint(i) || s.DocumentCount != want {
			t.Errorf("range %s is said to have %d items, and has %d", s.ID, s.DocumentCount, want)
		}
		total += s.DocumentCount
	}
	if total != items || len(got.Statistics) != 2 || a.header.Get("x-ms-resource-usage") != "documentsCount=20;" {
		t.Errorf("statistics %+v, usage %q", got, a.header.Get("x-ms-resource-usage"))
	}
	var plain body
	if a := w.ask("GET", "/dbs/shop/colls/things", "").is(200).into(&plain); plain.Statistics != nil || a.header.Get("x-ms-resource-usage") != "" {
		t.Errorf("nobody asked, and was told %+v", plain)
	}
}
