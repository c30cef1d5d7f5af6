package queryrun_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/queryrun"
)

// A number or * in the path of an index is a member of an object or an element of an array, and in a query the
// name of a member alone. Such an index has another order than the query: rows came twice, and in wrong places.
func TestPage_NoOrderOfAnIndexOnElements(t *testing.T) {
	t.Parallel()
	bodies := []string{
		`{"id":"0","sizes":{"0":1},"tags":{"*":3}}`,
		`{"id":"1","sizes":[5],"tags":[1,7]}`,
		`{"id":"2","sizes":{"0":9},"tags":{"*":2}}`,
		`{"id":"3","sizes":[0,1],"tags":[2]}`,
		`{"id":"4","sizes":{"0":4},"tags":{"*":9}}`,
	}
	for _, c := range []struct{ text, index string }{
		{`SELECT VALUE c.id FROM c ORDER BY c.sizes["0"]`, "/sizes/0"},
		{`SELECT VALUE c.id FROM c ORDER BY c.sizes["0"] DESC`, "/sizes/0"},
		{`SELECT VALUE c.id FROM c WHERE c.sizes["0"] > 1 ORDER BY c.sizes["0"]`, "/sizes/0"},
		{`SELECT VALUE c.id FROM c ORDER BY c.tags["*"]`, "/tags/*"},
		{`SELECT VALUE c.id FROM c ORDER BY c.tags["*"] DESC`, "/tags/*"},
	} {
		want := rowsInPages(t, indexedSource(t, "", bodies), c.text, 2)
		if got := rowsInPages(t, indexedSource(t, c.index, bodies), c.text, 2); !slices.Equal(got, want) {
			t.Errorf("%s: rows %s with an index on %s, %s without", c.text, got, c.index, want)
		}
	}
}

// indexedSource has items of one logical partition, and an ordered index if its path is not empty.
func indexedSource(t *testing.T, index string, bodies []string) *queryrun.Source {
	t.Helper()
	shop, err := document.ParsePointer("/shop")
	if err != nil {
		t.Fatal(err)
	}
	source := &queryrun.Source{Key: []document.Path{shop}, Schema: &engine.Schema{}, Now: time.Now().UnixMilli()}
	if index != "" {
		path, err := document.ParsePointer(index)
		if err != nil {
			t.Fatal(err)
		}
		source.Schema.Indexes = []engine.Index{{Number: 1, Path: path, Ordered: true, Ready: true}}
		source.Indexes = []store.IndexSetting{{Number: 1, Path: index, Ordered: true, Ready: true}}
	}
	p := newPartition(t)
	key, err := feed.NewPartitionKey("s1")
	if err != nil {
		t.Fatal(err)
	}
	b := p.NewBatch(source.Schema)
	for i, body := range bodies {
		item := engine.Item{Key: key, ID: fmt.Sprint(i), Body: []byte(body), Position: feed.Position{LSN: 1}, Modified: 1000}
		if err := b.Put(&item, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	source.Snapshot = p.Snapshot()
	t.Cleanup(source.Snapshot.Close)
	return source
}

// rowsInPages returns the rows of all pages of a query.
func rowsInPages(t *testing.T, source *queryrun.Source, text string, rows int) []string {
	t.Helper()
	var got []string
	r := &store.Query{Text: text, RowsMax: rows, Now: time.Now()}
	for range 100 {
		result, err := queryrun.Page(t.Context(), source, queryrun.Limits{PageTime: time.Hour, Time: time.Hour}, r)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, row := range result.Rows {
			got = append(got, string(row.Body))
		}
		if r.After, r.Via = result.Reached, result.Via; !result.More {
			return got
		}
	}
	t.Fatalf("%s: no end after %d rows", text, len(got))
	return nil
}
