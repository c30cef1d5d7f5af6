package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// Categories and tags copied into products, as in the store's own pipelines.

func categoryNames(meta, product *store.Container) cascade.Config {
	return cascade.Config{
		Pipeline: "category-names", Generation: 1, Source: meta, SourceWhere: `type = "category"`, Target: product,
		Match: []cascade.Pair{{Target: "categoryId", Source: "id"}}, Set: []cascade.Pair{{Target: "categoryName", Source: "name"}},
	}
}

func tagNames(meta, product *store.Container) cascade.Config {
	return cascade.Config{
		Pipeline: "tag-names", Generation: 1, Source: meta, SourceWhere: `type = "tag"`, Target: product, Each: "tags",
		Match: []cascade.Pair{{Target: "id", Source: "id"}}, Set: []cascade.Pair{{Target: "name", Source: "name"}},
		OnSourceDelete: cascade.Clear,
	}
}

type tagItem struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

type metaItem struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Name string `json:"name"`
}

type productItem struct {
	ID           string    `json:"id"`
	CategoryID   string    `json:"categoryId"`
	CategoryName string    `json:"categoryName,omitempty"`
	Tags         []tagItem `json:"tags,omitempty"`
	N            int       `json:"n,omitempty"`
}

func (w *cascadeWorld) put(c *store.Container, item any) {
	w.t.Helper()
	if err := put(w.t.Context(), c, item); err != nil {
		w.t.Fatal(err)
	}
}

func put(ctx context.Context, c *store.Container, item any) error {
	body, err := json.Marshal(item)
	if err != nil {
		return err
	}
	_, err = c.Upsert(ctx, body)
	return err
}

func (w *cascadeWorld) category(meta *store.Container, id, name string) {
	w.t.Helper()
	w.put(meta, metaItem{id, "category", name})
}

func (w *cascadeWorld) tag(meta *store.Container, id, name string) {
	w.t.Helper()
	w.put(meta, metaItem{id, "tag", name})
}

func keyOf(t testing.TB, components ...any) feed.PartitionKey {
	t.Helper()
	k, err := feed.NewPartitionKey(components...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (w *cascadeWorld) product(c *store.Container, category, id string) productItem {
	w.t.Helper()
	item, err := c.Read(w.t.Context(), keyOf(w.t, category), id)
	if err != nil {
		w.t.Fatal(err)
	}
	var p productItem
	if err := json.Unmarshal(item.Body, &p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// meanwhile runs f in the background; the returned function waits for it.
func (w *cascadeWorld) meanwhile(f func() error) (wait func()) {
	w.t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() {
		w.t.Helper()
		if err := <-done; err != nil {
			w.t.Fatal(err)
		}
	}
}

// grown waits until a partition's log is longer than it was.
func (w *cascadeWorld) grown(p feed.Partition, was feed.LSN) {
	w.t.Helper()
	poll.Until(w.t, func() error { return poll.Unless(w.End(p) > was, p.String()+" does not grow") })
}

func partitionOf(t testing.TB, c *store.Container, components ...any) feed.Partition {
	t.Helper()
	return c.PartitionFor(keyOf(t, components...))
}

func equalProducts(a, b productItem) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// changesOf counts the changes in a container's logs behind some LSNs.
func (w *cascadeWorld) changesOf(c *store.Container, after map[feed.Partition]feed.LSN) (n int) {
	w.t.Helper()
	for _, p := range c.Partitions() {
		end := w.End(p)
		for lsn := after[p] + 1; lsn <= end; lsn++ {
			commit, err := w.Log(p).Read(w.t.Context(), lsn)
			if err != nil {
				w.t.Fatal(err)
			}
			n += commit.ChangeCount()
		}
	}
	return n
}

func (w *cascadeWorld) ends(c *store.Container) map[feed.Partition]feed.LSN {
	w.t.Helper()
	ends := map[feed.Partition]feed.LSN{}
	for _, p := range c.Partitions() {
		ends[p] = w.End(p)
	}
	return ends
}
