package engine_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/millrace/millrace/store/engine"
)

// overwritten makes a DB whose items were written again and again: most of what its tables hold is old.
func overwritten(t *testing.T, dir string) (*engine.DB, *engine.Partition) {
	t.Helper()
	db := openDB(t, dir)
	p := openPartition(t, db, partA)
	for levels := engine.Levels(db); levels[0] == 0 || levels[6] == 0; levels = engine.Levels(db) {
		storeItems(t, p, 1000)
	}
	return db, p
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
	want, before := digest(t, p), bytesOfTables(t, dir)
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
	if levels := engine.Levels(db); levels[0] != 0 {
		t.Errorf("tables by level are %v, want none in the first", levels)
	}
	if after := bytesOfTables(t, dir); after > before/2 {
		t.Errorf("tables take %d bytes, %d before", after, before)
	}
	if got := digest(t, p); got != want {
		t.Errorf("the digest is %x, want %x", got, want)
	}
	must(t, db.Close())
	if got := digest(t, openPartition(t, openDB(t, dir), partA)); got != want {
		t.Errorf("opened again the digest is %x, want %x", got, want)
	}
}

// TestADBThatIsReadAtRestStillMerges keeps a snapshot open, which needs the old versions, and lets it go.
func TestADBThatIsReadAtRestStillMerges(t *testing.T) {
	db, p := overwritten(t, filepath.Join(t.TempDir(), "db"))
	want := digest(t, p)
	s := p.Snapshot()
	defer s.Close()
	storeItems(t, p, 2000)
	engine.Rest(db)
	if levels := engine.Levels(db); levels[0] != 0 {
		t.Errorf("tables by level are %v, want none in the first", levels)
	}
	got, err := s.Digest()
	must(t, err)
	if got != want {
		t.Errorf("the snapshot's digest is %x, want %x", got, want)
	}
}
