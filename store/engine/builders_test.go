package engine_test

import (
	"testing"

	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/millrace/millrace/store/engine"
)

// TestBuilders_BadgersPoolIsFound fails where another version of Badger keeps its buffers
// elsewhere: then nothing gives them back, and builders.go has to follow.
func TestBuilders_BadgersPoolIsFound(t *testing.T) {
	db := openDB(t, t.TempDir())
	putKiB(t, openPartition(t, db, partA), 0, 12_000)
	pool := engine.BuilderPool(db)
	if pool == nil {
		t.Fatal("Badger has no pool of buffers where it had one")
	}
	// What merges and flushes leave behind, less what was given back meanwhile. Tables that
	// are built afterwards are right all the same.
	for range 3 {
		must(t, engine.Flatten(db))
		engine.GiveBack(pool)
	}
	s := openPartition(t, db, partA).Snapshot()
	defer s.Close()
	n := 0
	for _, err := range s.Items(nil, nil) {
		must(t, err)
		n++
	}
	if n != 12_000 {
		t.Errorf("%d items are read, 12000 were put", n)
	}
}

// TestBuilders_GiveBackWhatGrew lets two of a pool's buffers grow, as a flush does, while
// a third is in use: the two go, and the third stays whose it is.
func TestBuilders_GiveBackWhatGrew(t *testing.T) {
	pool := z.NewAllocatorPool(8)
	defer pool.Release()
	a, b, used := pool.Get(1<<20, ""), pool.Get(1<<20, ""), pool.Get(1<<20, "")
	for range 5 {
		a.Allocate(1 << 20) // 1 MiB, then one of 2, then one of 4
	}
	mine := used.Allocate(1 << 10)
	mine[0] = 7
	pool.Return(a)
	pool.Return(b)
	if got := engine.GiveBack(pool); got != 8<<20 {
		t.Errorf("%d bytes were given back, want 8 MiB", got)
	}
	if got := engine.GiveBack(pool); got != 0 {
		t.Errorf("%d bytes were given back by an empty pool", got)
	}
	if mine[0] != 7 || used.Allocated() != 1<<20 {
		t.Error("buffers that are in use were touched")
	}
	used.Release()
}
