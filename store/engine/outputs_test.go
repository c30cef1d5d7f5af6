package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/integration/raced"
	"github.com/millrace/millrace/store/engine"
)

// lastTable is the highest number of a table in dir.
func lastTable(t *testing.T, dir string) (last uint64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	must(t, err)
	for _, name := range names {
		id, ok := table.ParseFileID(filepath.Base(name))
		if !ok {
			t.Fatalf("%s has no number", name)
		}
		last = max(last, id)
	}
	return last
}

// copyOf copies the files of dir as the next process would find them after a kill.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "db")
	must(t, os.Mkdir(copied, 0o700))
	for name, data := range files(t, dir) {
		must(t, os.WriteFile(filepath.Join(copied, name), data, 0o600))
	}
	return copied
}

// mergeable makes a DB that has tables in two levels, which Flatten merges, and returns what is
// in it, and how many tables the merge makes.
func mergeable(t *testing.T, dir string) (items map[string]string, made int) {
	t.Helper()
	_, state, entries, _ := aDump(t, 91)
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	engine.OnLoad(db, 1<<20, time.Minute, func(string) {})
	must(t, openPartition(t, db, partB).Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
	items = storeItems(t, openPartition(t, db, partA), 3000)
	must(t, db.Close())

	merged := openDB(t, copyOf(t, dir))
	before := engine.Levels(merged) // four of the first would be merged unasked
	must(t, engine.Flatten(merged))
	after := engine.Levels(merged)
	made = after[6] - before[6]
	if before[0] == 0 || before[0] > 3 || before[6] == 0 || after[0] != 0 || made < 5 {
		t.Fatalf("a merge makes %v of %v", after, before)
	}
	return items, made
}

// TestAMergeThatCannotMakeATableLosesNothing takes the names of files that a merge is about to
// make: the first one, one in between, the last one, or all. Badger tells nobody that it has no
// table then, and would go on without it.
func TestAMergeThatCannotMakeATableLosesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	items, made := mergeable(t, dir)
	all := make([]int, made)
	for i := range all {
		all[i] = i + 1
	}
	for name, taken := range map[string][]int{"the first": {1}, "one in between": {made / 2}, "the last": {made}, "all": all} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copyOf(t, dir)
			db := openDB(t, dir)
			before, last := engine.Levels(db), lastTable(t, dir)
			for _, n := range taken {
				must(t, os.WriteFile(table.NewFilename(last+uint64(n), dir), nil, 0o600))
			}
			if err := engine.Flatten(db); err == nil {
				t.Error("a merge that cannot make a table succeeds")
			}
			intact(t, db, items)
			if diff := cmp.Diff(before, engine.Levels(db)); diff != "" {
				t.Errorf("the tables of levels have changed: %s", diff)
			}
			killed := openDB(t, copyOf(t, dir))
			intact(t, killed, items)

			must(t, engine.Flatten(db)) // the names behind are free
			intact(t, db, items)
			if got, want := engine.Levels(db)[6], before[6]+made; got != want {
				t.Errorf("the merge has made %d tables, want %d", got, want)
			}
		})
	}
}

// intact compares what a DB has with items.
func intact(t *testing.T, db *engine.DB, items map[string]string) {
	t.Helper()
	if wrong := readAll(t, db, items); wrong != "" {
		t.Error(wrong)
	}
	must(t, db.Verify())
	must(t, db.Sound())
}

// TestAMergeThatFailedOtherwiseIsNotCounted fails merges after their parts have put together
// tables, before or when these are compared: what the same goroutine merges next has its own count.
func TestAMergeThatFailedOtherwiseIsNotCounted(t *testing.T) {
	openDB(t, t.TempDir()) // from now on merges are checked
	other := errors.New("the directory could not be synced")
	for i, c := range []struct {
		failed error
		made   int
		keys   []uint64
		ok     bool
	}{
		{nil, 3, []uint64{10, 20, 30}, true},
		{other, 0, []uint64{10, 20, 30}, false},
		{nil, 2, []uint64{10, 20}, true},
		{nil, 1, []uint64{10, 20}, false}, // one could not be made
		{nil, 1, []uint64{0, 10, 0}, true},
		{nil, 0, []uint64{0}, true},   // all was deleted
		{nil, 0, []uint64{1}, false},  // it was not
		{nil, 2, []uint64{10}, false}, // more than was put together
		{nil, 1, []uint64{10}, true},
	} {
		if err := engine.MergeOf(quiet, c.failed, c.made, c.keys...); (err == nil) != c.ok {
			t.Errorf("merge %d, of %d tables for %v keys: %v", i, c.made, c.keys, err)
		}
		if engine.CountLeft() {
			t.Errorf("merge %d, of %d tables for %v keys, left its count", i, c.made, c.keys)
		}
	}
}

// TestEveryMergeHandsOverWhatItPutTogether writes, writes over, deletes and lets expire, and
// merges all the time, several merges at once and each in parts. Of those in whose way nothing is
// none fails; where names of files are taken merges fail, and nothing is missing.
func TestEveryMergeHandsOverWhatItPutTogether(t *testing.T) {
	for _, c := range []struct {
		name  string
		merge int // how many merges at least
		taken int // names before each round
	}{{"nothing in the way", raced.Rounds(200, 1000), 0}, {"names are taken", raced.Rounds(40, 200), 6}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := &tinyWorld{t: t, dir: t.TempDir(), r: rand.New(rand.NewPCG(uint64(c.taken), 17)), want: map[string]string{}}
			var err error
			w.db, err = engine.OpenTiny(w.dir)
			must(t, err)
			defer func() { must(t, w.db.Close()) }()
			for w.db.Done.Load() < int64(c.merge) {
				w.write(400)
				w.take(c.taken)
				w.merge(c.taken > 0)
				w.check()
			}
			t.Logf("%d merges of %d tables, %d failed", w.db.Done.Load(), w.db.Tables.Load(), w.db.Failed.Load())
			if failed := w.db.Failed.Load(); (failed > 0) != (c.taken > 0) || failed > w.took {
				t.Errorf("%d merges have failed, and %d names were taken", failed, w.took)
			}
		})
	}
}

// tinyWorld is a Tiny and what it should have.
type tinyWorld struct {
	t    *testing.T
	dir  string
	db   *engine.Tiny
	r    *rand.Rand
	ts   uint64
	want map[string]string
	took int64
}

// write changes n keys at random.
func (w *tinyWorld) write(n int) {
	w.t.Helper()
	for range n {
		w.ts++
		txn := w.db.NewTransactionAt(w.ts, true)
		key := fmt.Sprintf("key-%04d", w.r.IntN(2000))
		switch w.r.IntN(6) {
		case 0:
			must(w.t, txn.Delete([]byte(key)))
			delete(w.want, key)
		case 1:
			e := badger.NewEntry([]byte(key), []byte("expired"))
			e.ExpiresAt = 1
			must(w.t, txn.SetEntry(e))
			delete(w.want, key)
		default:
			value := fmt.Sprintf("%d-%s", w.ts, strings.Repeat("v", w.r.IntN(600)))
			must(w.t, txn.Set([]byte(key), []byte(value)))
			w.want[key] = value
		}
		must(w.t, txn.CommitAt(w.ts, nil))
	}
	w.db.SetDiscardTs(w.ts - uint64(w.r.IntN(300))) // what is above it stays in many versions
}

// take takes names of files that are made next.
func (w *tinyWorld) take(n int) {
	w.t.Helper()
	last := lastTable(w.t, w.dir)
	for range n {
		f, err := os.OpenFile(table.NewFilename(last+10+uint64(w.r.IntN(60)), w.dir), os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			w.took++
			must(w.t, f.Close())
		}
	}
}

// merge merges all tables; if it may fail, until it does not.
func (w *tinyWorld) merge(mayFail bool) {
	w.t.Helper()
	for {
		err := w.db.Flatten(4)
		if err == nil {
			return
		}
		if !mayFail {
			w.t.Fatal(err)
		}
	}
}

// check compares what there is with what should be.
func (w *tinyWorld) check() {
	w.t.Helper()
	txn := w.db.NewTransactionAt(w.ts, false)
	defer txn.Discard()
	got := map[string]string{}
	it := txn.NewIterator(badger.DefaultIteratorOptions)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		value, err := it.Item().ValueCopy(nil)
		must(w.t, err)
		got[string(it.Item().Key())] = string(value)
	}
	if len(got) != len(w.want) || !maps.Equal(got, w.want) {
		w.t.Fatalf("after %d writes it has %d keys, want %d, or others", w.ts, len(got), len(w.want))
	}
}
