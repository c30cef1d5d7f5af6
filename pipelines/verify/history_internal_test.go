package verify

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// TestHistory_ShowsWhatAPageDoesNotKnow gives a history a page that is newer than the
// LSN it was told with, as it may be, and the changes from that LSN on.
func TestHistory_ShowsWhatAPageDoesNotKnow(t *testing.T) {
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	item := func(id string, lsn feed.LSN) store.Item {
		return store.Item{Key: key, ID: id, ETag: store.ETag{LSN: lsn}}
	}
	cursor := func(id string) []byte { return store.AppendCursor(nil, key, id) }
	// The page was told with LSN 10, and is of 12.
	page := &store.ScanResult{Items: []store.Item{item("c", 3), item("d", 11)}, Cursor: cursor("e"), LSN: 10}
	for _, c := range []struct {
		name, id string
		ops      []feed.Op // at LSN 11, 12, 13 ...
		want     []bool
	}{
		{"an item of a page before", "a", []feed.Op{feed.OpReplace, feed.OpDelete}, []bool{true, true}},
		{"an item of a page to come", "f", []feed.Op{feed.OpReplace, feed.OpDelete}, []bool{false, false}},
		{"an item that did not change before the page", "c", []feed.Op{feed.OpReplace, feed.OpDelete, feed.OpCreate}, []bool{true, true, true}},
		{"an item whose change the page has", "d", []feed.Op{feed.OpReplace, feed.OpReplace}, []bool{false, true}},
		{"an item that is made behind the page", "cc", []feed.Op{feed.OpCreate, feed.OpReplace}, []bool{true, true}},
		{"an item that is made and gone again", "cc", []feed.Op{feed.OpCreate, feed.OpDelete}, []bool{true, true}},
		{"an item that was gone", "cc", []feed.Op{feed.OpDelete}, []bool{false}},
		{"an item that was gone, and comes again", "cc", []feed.Op{feed.OpReplace, feed.OpDelete, feed.OpCreate, feed.OpReplace}, []bool{false, false, true, true}},
		{"an item that had expired", "cc", []feed.Op{feed.OpExpire, feed.OpCreate}, []bool{false, true}},
	} {
		h := &history{to: cursor("b")}
		h.beginAfter(10)
		h.setPage(page)
		var got []bool
		for i, op := range c.ops {
			e := &event{Change: &feed.Change{Op: op, Key: key, ID: c.id}, at: feed.Position{LSN: 11 + feed.LSN(i)}}
			got = append(got, h.shows(e))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
