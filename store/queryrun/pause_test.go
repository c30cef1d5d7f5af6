package queryrun_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/queryrun"
)

// newPartition returns an empty partition of an engine that lives as long as the test.
func newPartition(t *testing.T) *engine.Partition {
	t.Helper()
	db, err := engine.Open(t.TempDir(), engine.Config{MemTableBytes: 8 << 20}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	p, err := db.Partition(feed.Partition{Container: "aaaaaaaa"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A page that took its time ends wherever it is, also where a scan skips one item after the other:
// in the order of an index those without a value are looked for among all items, and expired ones are
// passed over. Each row is in one page.
func TestPage_EndsWhereNoItemHasRows(t *testing.T) {
	t.Parallel()
	const items, looked = 4000, 300 // the clock is looked at every 256 items
	path := func(pointer string) document.Path {
		p, err := document.ParsePointer(pointer)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := newPartition(t)
	never := int64(-1)
	schema := &engine.Schema{Indexes: []engine.Index{{Number: 1, Path: path("/price"), Ordered: true, Ready: true}}, DefaultTTL: &never}
	key, err := feed.NewPartitionKey("s1")
	if err != nil {
		t.Fatal(err)
	}
	b := p.NewBatch(schema)
	var priced, free []string
	for i := range items {
		id, body := fmt.Sprintf("i%04d", i), ""
		switch {
		case i%1000 == 500: // no price
			body = fmt.Sprintf(`{"id":%q}`, id)
			free = append(free, id)
		case i < 2000: // expired
			body = fmt.Sprintf(`{"id":%q,"price":%d,"ttl":1}`, id, i)
		default:
			body = fmt.Sprintf(`{"id":%q,"price":%d}`, id, i)
			priced = append(priced, id)
		}
		if err := b.Put(&engine.Item{Key: key, ID: id, Body: []byte(body), Position: feed.Position{LSN: 1}, Modified: 1000}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	snapshot := p.Snapshot()
	defer snapshot.Close()
	source := &queryrun.Source{
		Snapshot: snapshot, Key: []document.Path{path("/shop")}, Schema: schema, Now: time.Now().UnixMilli(),
		Indexes: []store.IndexSetting{{Number: 1, Path: "/price", Ordered: true, Ready: true}},
	}
	ascending := slices.Concat(free, priced)
	descending := slices.Clone(ascending)
	slices.Reverse(descending)
	for text, want := range map[string][]string{
		`SELECT VALUE c.id FROM c ORDER BY c.price`:      ascending,
		`SELECT VALUE c.id FROM c ORDER BY c.price DESC`: descending,
		`SELECT VALUE c.id FROM c WHERE c.price >= 0`:    priced,
		`SELECT VALUE c.id FROM c`:                       slices.Sorted(slices.Values(ascending)),
	} {
		var got []string
		r := &store.Query{Text: text, Now: time.Now()}
		for pages := 0; ; pages++ {
			result, err := queryrun.Page(t.Context(), source, queryrun.Limits{PageTime: 1, Time: time.Hour}, r)
			if err != nil {
				t.Fatalf("%s: page %d: %v", text, pages, err)
			}
			if result.Metrics.Items > looked || pages > items {
				t.Errorf("%s: page %d looked at %d items", text, pages, result.Metrics.Items)
				break
			}
			for _, row := range result.Rows {
				got = append(got, string(row.Body[1:len(row.Body)-1]))
			}
			if r.After, r.Via = result.Reached, result.Via; !result.More {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d rows, want %d", text, len(got), len(want))
		}
	}
}
