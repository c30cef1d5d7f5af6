package owner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/tombstone"
)

// TestReadMany_MoreThanAMessageHolds reads items of one partition whose answer is larger than NATS takes, as a cascade does
// that checks a page of items with large sources. Within a process nothing bounds an answer.
func TestReadMany_MoreThanAMessageHolds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	newThings(t, c)
	near := c.container(c.process("a", t.TempDir()).client, "things")
	far := c.container(store.NewClient(c.conn(), c.catalog, patient(nil)), "things")
	key, err := feed.NewPartitionKey("x")
	if err != nil {
		t.Fatal(err)
	}
	var refs []store.ItemRef
	for i := range 9 {
		id := fmt.Sprint(i)
		if _, err := near.Create(t.Context(), fmt.Appendf(nil, `{"id":%q,"a":"x","fill":%q}`, id, strings.Repeat("x", 1<<20))); err != nil {
			t.Fatal(err)
		}
		refs = append(refs, store.ItemRef{Key: key, ID: id})
	}
	items, err := far.ReadMany(t.Context(), refs, false)
	if err != nil {
		t.Fatal(err)
	}
	sources, err := far.ReadSources(t.Context(), refs, tombstone.Wish{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range refs {
		if items[i].ID != refs[i].ID || sources[i].ID != refs[i].ID || len(sources[i].Body) < 1<<20 {
			t.Errorf("item %d is %q and %q", i, items[i].ID, sources[i].ID)
		}
	}
}
