package engine_test

import (
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store/engine"
)

// overwritten makes a DB whose items were written again and again: most of what its tables hold is old. There is one table
// in the first level, so that none is merged unasked, though a memtable may be about to become another.
func overwritten(t *testing.T, dir string) (*engine.DB, *engine.Partition) {
	t.Helper()
	db := openDB(t, dir)
	p := openPartition(t, db, partA)
	for levels := engine.Levels(db); levels[0] != 1 || levels[6] == 0; levels = engine.Levels(db) {
		storeItems(t, p, 100) // in a commit of its own: what Badger need not keep it learns after some of them
	}
	return db, p
}

// rested has db do what it does at rest until nothing is left to do: a memtable may be about to become a table.
func rested(t *testing.T, db *engine.DB, dir string, most int) {
	t.Helper()
	poll.Until(t, func() error {
		engine.Rest(db)
		levels, bytes := engine.Levels(db), bytesOfTables(t, dir)
		return poll.Unless(levels[0] == 0 && bytes <= most, fmt.Sprintf("tables by level are %v, want none in the first, and take %d bytes", levels, bytes))
	})
}

// bytesOfTables is what the tables of a directory take.
func bytesOfTables(t *testing.T, dir string) (bytes int) {
	t.Helper()
	for name, data := range files(t, dir) {
		if filepath.Ext(name) == ".sst" {
			bytes += len(data)
		}
	}
	return bytes
}

// TestADBAtRestKeepsOneLevel has a small DB merge what was overwritten, beside somebody who reads and somebody who
// writes.
func TestADBAtRestKeepsOneLevel(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	db, p := overwritten(t, dir)
	want := digest(t, p)
	q := openPartition(t, db, partB)
	var others sync.WaitGroup
	others.Go(func() { storeItems(t, q, 500) })
	others.Go(func() {
		if got := digest(t, p); got != want {
			t.Errorf("beside the merge the digest is %x, want %x", got, want)
		}
	})
	engine.Rest(db)
	others.Wait()
	rested(t, db, dir, 8<<20) // the items take about 1 MB, and one table of the first level has a memtable of 8 MiB
	if got := digest(t, p); got != want {
		t.Errorf("the digest is %x, want %x", got, want)
	}
	must(t, db.Close())
	if got := digest(t, openPartition(t, openDB(t, dir), partA)); got != want {
		t.Errorf("opened again the digest is %x, want %x", got, want)
	}
}

// TestADBAtRestKeepsWhatASnapshotNeeds keeps a snapshot open, which needs the old versions.
func TestADBAtRestKeepsWhatASnapshotNeeds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	db, p := overwritten(t, dir)
	want := digest(t, p)
	s := p.Snapshot()
	defer s.Close()
	storeItems(t, p, 500)
	rested(t, db, dir, math.MaxInt)
	got, err := s.Digest()
	must(t, err)
	if got != want {
		t.Errorf("the snapshot's digest is %x, want %x", got, want)
	}
}

// TestADBAtRestLeavesAFullDiskAlone: what a merge writes without room damages the DB.
func TestADBAtRestLeavesAFullDiskAlone(t *testing.T) {
	// Badger merges by itself when memtables that waited have made more tables: that is told from a merge at rest by
	// another try.
	for range 5 {
		db, _ := overwritten(t, filepath.Join(t.TempDir(), "db"))
		engine.OnRoom(db, func() int64 { return small.Headroom() })
		engine.Rest(db)
		must(t, db.Sound())
		if levels := engine.Levels(db); levels[0] > 0 {
			return
		}
	}
	t.Error("the tables were merged")
}
