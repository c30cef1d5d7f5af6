package owner_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// Two containers with the same items, one of one partition and one of two, are a container before and behind a split.
func TestQuery_ContinuationsHoldThroughASplit(t *testing.T) {
	t.Parallel()
	s := newCluster(t)
	spec := store.ContainerSpec{PartitionKey: []string{"/k"}, Indexes: []string{"/n"}, Partitions: 1}
	for name, partitions := range map[string]int{"whole": 1, "halves": 2} {
		spec.Partitions = partitions
		if _, err := s.catalog.Create(t.Context(), "default", name, spec); err != nil {
			t.Fatal(err)
		}
	}
	asked := s.process("one", t.TempDir()).client
	whole, halves := s.container(asked, "whole"), s.container(asked, "halves")
	for i := range 40 {
		body := fmt.Appendf(nil, `{"id":"%d","k":"k%d","n":%d,"g":%d}`, i, i%9, (i*7)%40, i%3)
		for _, c := range []*store.Container{whole, halves} {
			if _, err := c.Upsert(t.Context(), body); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := store.ContainerInfo{Database: "default", Name: "halves", ID: "aaaaaaaa", State: store.ContainerReady, Spec: spec, Partitions: whole.Info().Partitions}
	behind := before
	behind.Former = []store.FormerPartition{{PartitionInfo: before.Partitions[0], Last: 1 << 10, First: 1 << 20, Children: []uint32{5, 6}}}
	behind.Partitions = slices.Clone(halves.Info().Partitions)
	behind.Partitions[0].Number, behind.Partitions[1].Number = 5, 6
	local := &store.Local{}
	for number, of := range map[uint32]feed.Partition{0: whole.Partitions()[0], 5: halves.Partitions()[0], 6: halves.Partitions()[1]} {
		local.Add(feed.Partition{Container: before.ID, Number: number}, storetest.Instead{Client: asked, Of: of})
	}
	client := store.NewClient(s.conn(), s.catalog, store.ClientConfig{Local: local})
	open := func(info store.ContainerInfo) *store.Container {
		c, err := client.Open(info)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	pages := func(text string, from func(page int) *store.Container) (rows []string) {
		r := store.QueryRequest{Text: text, RowsMax: 4}
		for page := 0; page == 0 || r.Continuation != ""; page++ {
			got, err := from(page).Query(t.Context(), r)
			if err != nil {
				t.Fatalf("%s, page %d: %v", text, page, err)
			}
			for _, row := range got.Rows {
				rows = append(rows, string(row))
			}
			r.Continuation = got.Continuation
		}
		return rows
	}
	for _, text := range []string{
		"SELECT VALUE c.id FROM c", "SELECT VALUE c.id FROM c ORDER BY c.n", "SELECT VALUE c.id FROM c WHERE c.n >= 5 AND c.n < 33",
		"SELECT VALUE c.id FROM c ORDER BY c.n DESC OFFSET 3 LIMIT 20", "SELECT DISTINCT VALUE c.g FROM c", "SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k",
	} {
		want := pages(text, func(int) *store.Container { return open(before) })
		for cut := range 11 {
			got := pages(text, func(page int) *store.Container {
				if page < cut {
					return open(before)
				}
				return open(behind)
			})
			if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
				t.Errorf("%s, split behind page %d (-want +got):\n%s", text, cut, diff)
			}
		}
	}
}

func sorted(rows []string) []string { return slices.Sorted(slices.Values(rows)) }

// Clients that opened a container before its partitions were split, twice, write, read and follow it as before: no write is
// refused, and each change comes once, those of a key in order.
func TestI4_ClientsGoOnThroughSplits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cfg.Snapshots = owner.SnapshotConfig{Store: owner.SnapshotsStream}
	p := c.process("a", t.TempDir())
	client := store.NewClient(c.conn(), c.catalog, patient(nil))
	writer := splitContainer(t, c, client)
	follower, latest, asleep := reopen(t, client), reopen(t, client), reopen(t, client)
	for n := range 300 {
		if _, err := writer.Create(t.Context(), splitItem(n)); err != nil {
			t.Fatal(err)
		}
	}
	begun, err := asleep.Changes(t.Context(), store.ChangesRequest{AllVersions: true, ItemsMax: 10})
	if err != nil {
		t.Fatal(err)
	}
	var versions sync.Map // of items, the last that was acknowledged
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for w := range 4 {
		clients.Go(func() {
			for n := w; ctx.Err() == nil; n = (n + 4) % 300 {
				item, err := writer.Upsert(t.Context(), splitItem(n))
				if err != nil {
					t.Errorf("write of item %d: %v", n, err)
					return
				}
				versions.Store(item.ID, item.ETag)
			}
		})
	}
	var followed []store.ItemChange
	at := ""
	follow := func(of *store.Container, all bool) (changes []store.ItemChange) {
		for {
			page, err := of.Changes(t.Context(), store.ChangesRequest{AllVersions: all, Continuation: at, ItemsMax: 50})
			if err != nil {
				t.Errorf("changes at %s: %v", at, err)
				return changes
			}
			if at, changes = page.Continuation, append(changes, page.Changes...); page.End {
				return changes
			}
		}
	}
	for range 2 {
		now := reopen(t, p.client)
		parent := now.Partitions()[0]
		if _, err := now.Split(t.Context(), parent, store.SplitPartition{}); err != nil {
			t.Fatal(err)
		}
		followed = append(followed, follow(follower, true)...)
		awaitSplit(t, p.client, parent.Number)
		followed = append(followed, follow(follower, true)...)
	}
	stop()
	clients.Wait()
	followed = append(followed, follow(follower, true)...)
	inOrder(t, followed)
	at = begun.Continuation
	slept := append(begun.Changes, follow(asleep, true)...)
	if inOrder(t, slept); len(slept) != len(followed) {
		t.Errorf("who slept saw %d changes, who followed %d", len(slept), len(followed))
	}
	last := map[string]store.ETag{}
	at = ""
	for _, change := range follow(latest, false) {
		last[change.Item.ID] = change.Item.ETag
	}
	versions.Range(func(id, etag any) bool {
		if last[id.(string)] != etag {
			t.Errorf("the last version of %s that came is %v, %v was acknowledged", id, last[id.(string)], etag)
		}
		return true
	})
	page, err := latest.Query(t.Context(), store.QueryRequest{Text: "SELECT VALUE COUNT(1) FROM c"})
	if err != nil || string(page.Rows[0]) != "300" || page.Partitions != 3 {
		t.Errorf("a query: %+v, %v; want 300 items of 3 partitions", page, err)
	}
}

// inOrder fails unless each change names the one before of its item, and none comes twice.
func inOrder(t *testing.T, changes []store.ItemChange) {
	t.Helper()
	last := map[string]store.ETag{}
	for _, change := range changes {
		if change.Previous != last[change.Item.ID] {
			t.Fatalf("the change of %s at %v follows %v, and %v came before", change.Item.ID, change.Item.ETag, change.Previous, last[change.Item.ID])
		}
		last[change.Item.ID] = change.Item.ETag
	}
}
