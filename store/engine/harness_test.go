package engine_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/engine"
)

var (
	quiet = slog.New(slog.DiscardHandler)
	small = engine.Config{MemTableBytes: 8 << 20}
	partA = feed.Partition{Container: "aaaaaaaa", Number: 0}
	partB = feed.Partition{Container: "aaaaaaaa", Number: 1}
)

// openDB opens the DB in dir and closes it when the test ends.
func openDB(t testing.TB, dir string) *engine.DB {
	t.Helper()
	db, err := engine.Open(dir, small, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func openPartition(t testing.TB, db *engine.DB, p feed.Partition) *engine.Partition {
	t.Helper()
	part, err := db.Partition(p)
	if err != nil {
		t.Fatal(err)
	}
	return part
}

// newPartition returns an empty partition in a DB of its own.
func newPartition(t testing.TB) *engine.Partition {
	t.Helper()
	return openPartition(t, openDB(t, t.TempDir()), partA)
}

func key(t testing.TB, components ...any) feed.PartitionKey {
	t.Helper()
	k, err := feed.NewPartitionKey(components...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func pointer(t testing.TB, s string) document.Path {
	t.Helper()
	p, err := document.ParsePointer(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// schemaOf returns a schema with an index for each path and no time to live.
func schemaOf(t testing.TB, paths ...string) *engine.Schema {
	t.Helper()
	s := &engine.Schema{}
	for i, p := range paths {
		s.Indexes = append(s.Indexes, engine.Index{Number: uint32(i + 1), Path: pointer(t, p)})
	}
	return s
}

func item(k feed.PartitionKey, id, body string) *engine.Item {
	return &engine.Item{Key: k, ID: id, Body: []byte(body), Position: feed.Position{LSN: 1}, Modified: 1000}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put commits new items.
func put(t testing.TB, p *engine.Partition, s *engine.Schema, items ...*engine.Item) {
	t.Helper()
	b := p.NewBatch(s)
	for _, it := range items {
		must(t, b.Put(it, nil))
	}
	must(t, b.Commit())
}

func digest(t testing.TB, p *engine.Partition) uint64 {
	t.Helper()
	d, err := p.Digest()
	must(t, err)
	return d
}

// indexed returns the ids of the items that have a value in an index.
func indexed(t testing.TB, s *engine.Snapshot, index uint32, value string) []string {
	t.Helper()
	ids := []string{}
	for v, err := range s.IndexItems(index, []byte(value), nil) {
		must(t, err)
		ids = append(ids, v.ID())
	}
	return ids
}

// kib returns an item of 1 KiB. Its indexed values are scattered over the order of
// items.
func kib(k feed.PartitionKey, n int) *engine.Item {
	scatter := uint32(n) * 2654435761 >> 8
	b := make([]byte, 0, 1024)
	b = fmt.Appendf(b, `{"id":"item-%08d","categoryId":"category-%02d","group":%d,"flag":%d,"tags":[{"id":"t%d"},{"id":"t%d"}],"text":"`,
		n, scatter%40, scatter%10, scatter%2, n%7, n%5)
	b = append(b, bytes.Repeat([]byte("x"), 1022-len(b))...)
	b = append(b, `"}`...)
	return &engine.Item{
		Key: k, ID: "item-" + fmt.Sprintf("%08d", n), Body: b,
		Position: feed.Position{LSN: 7, Index: uint32(n)}, Modified: 1_700_000_000_000, Written: 7,
	}
}

// keyOf spreads items over logical partitions.
func keyOf(t testing.TB, n int) feed.PartitionKey {
	t.Helper()
	return key(t, "category-"+strconv.Itoa(n))
}

func pathsOf(t testing.TB, pointers ...string) []document.Path {
	t.Helper()
	paths := make([]document.Path, len(pointers))
	for i, s := range pointers {
		paths[i] = pointer(t, s)
	}
	return paths
}
