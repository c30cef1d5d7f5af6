package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
// make: the first one, one in between, the last one, or all.
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

			for tries := 1; engine.Flatten(db) != nil; tries++ { // until the names behind are free
				if tries > made {
					t.Fatal("no merge succeeds")
				}
			}
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

// TestMergesKeepWhatAnybodySees writes, writes over and deletes, and merges as needed or all tables, while readers keep older
// versions. After each round everybody sees what he should; at times the DB is closed and opened, and at times a copy of what
// a kill would leave at a step of a merge. Where names of files are taken merges fail, and nothing is missing.
func TestMergesKeepWhatAnybodySees(t *testing.T) {
	for _, c := range []struct {
		name   string
		rounds int
		taken  int // names before each round
	}{{"nothing in the way", raced.Rounds(20, 60), 0}, {"names are taken", raced.Rounds(10, 30), 6}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := &tinyWorld{t: t, dir: t.TempDir(), r: rand.New(rand.NewPCG(uint64(c.taken), 17)), now: map[string]string{}, seen: map[uint64]map[string]string{}}
			var err error
			w.db, err = engine.OpenTiny(w.dir)
			must(t, err)
			defer func() { must(t, w.db.Close()) }()
			for round := range c.rounds {
				w.write(w.r.IntN(800))
				w.readers()
				w.take(c.taken)
				killed := w.killAtAStep()
				w.merge(c.taken > 0)
				w.check()
				if dir := killed(); dir != "" {
					w.opened(dir).check()
				}
				if round%20 == 19 {
					must(t, w.db.Close())
					w.db, err = engine.OpenTiny(w.dir)
					must(t, err)
					w.check()
				}
			}
			t.Logf("%d merges, %d failed, levels %v", w.merges, w.failed, w.db.Levels())
			if (w.failed > 0) != (c.taken > 0) || w.failed > w.took || w.merges < c.rounds {
				t.Errorf("%d merges, %d have failed, and %d names were taken", w.merges, w.failed, w.took)
			}
		})
	}
}

// tinyWorld is a Tiny and what it should have.
type tinyWorld struct {
	t                    *testing.T
	dir                  string
	db                   *engine.Tiny
	r                    *rand.Rand
	ts                   uint64
	now                  map[string]string
	seen                 map[uint64]map[string]string // by the timestamps at which somebody reads
	merges, failed, took int
}

// killAtAStep copies the files at some step of the next merges, and returns where to when they have ended; "" if they had
// fewer steps.
func (w *tinyWorld) killAtAStep() (dir func() string) {
	copied, left := "", 1+w.r.IntN(30)
	w.db.OnStep(func(string) {
		if left--; left == 0 {
			copied = copyOf(w.t, w.dir)
		}
	})
	return func() string {
		w.db.OnStep(func(string) {})
		return copied
	}
}

// opened is a world that has the files of dir.
func (w *tinyWorld) opened(dir string) *tinyWorld {
	w.t.Helper()
	db, err := engine.OpenTiny(dir)
	must(w.t, err)
	w.t.Cleanup(func() { _ = db.Close() }) // it was only read
	return &tinyWorld{t: w.t, dir: dir, db: db, r: w.r, ts: w.ts, now: w.now, seen: w.seen}
}

// write changes n keys at random, few of them again and again.
func (w *tinyWorld) write(n int) {
	w.t.Helper()
	for range n {
		w.ts++
		key := fmt.Sprintf("key-%04d", w.r.IntN(2000))
		if w.r.IntN(4) == 0 {
			key = fmt.Sprintf("hot-%d", w.r.IntN(3))
		}
		if w.r.IntN(4) == 0 {
			must(w.t, w.db.Write(w.ts, []byte(key), nil))
			delete(w.now, key)
		} else {
			value := fmt.Sprintf("%d-%s", w.ts, strings.Repeat("v", w.r.IntN(600)))
			must(w.t, w.db.Write(w.ts, []byte(key), []byte(value)))
			w.now[key] = value
		}
	}
}

// readers lets some go, and another one come.
func (w *tinyWorld) readers() {
	maps.DeleteFunc(w.seen, func(uint64, map[string]string) bool { return w.r.IntN(3) == 0 })
	if w.r.IntN(2) == 0 {
		w.seen[w.ts] = maps.Clone(w.now)
	}
	w.db.Reads(w.ts, slices.Collect(maps.Keys(w.seen))...)
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

// merge merges what is to be merged, or at times all tables; if it may fail, until it does not.
func (w *tinyWorld) merge(mayFail bool) {
	w.t.Helper()
	all := w.r.IntN(5) == 0
	for more := true; more; {
		var err error
		if all {
			more, err = false, w.db.Flatten()
		} else {
			more, err = w.db.Merge()
		}
		w.merges++
		if err == nil {
			continue
		}
		if !mayFail {
			w.t.Fatal(err)
		}
		w.failed++
		more = true
	}
}

// check compares what everybody sees with what he should see.
func (w *tinyWorld) check() {
	w.t.Helper()
	w.compare(w.ts, w.now)
	for ts, want := range w.seen {
		w.compare(ts, want)
	}
}

func (w *tinyWorld) compare(ts uint64, want map[string]string) {
	w.t.Helper()
	txn := w.db.NewTransactionAt(ts, false)
	defer txn.Discard()
	got := map[string]string{}
	it := txn.NewIterator(badger.DefaultIteratorOptions)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		value, err := it.Item().ValueCopy(nil)
		must(w.t, err)
		got[string(it.Item().Key())] = string(value)
	}
	if !maps.Equal(got, want) {
		w.t.Fatalf("after %d writes %d keys are seen at %d, want %d, or others", w.ts, len(got), ts, len(want))
	}
	for i := range 50 {
		key := fmt.Sprintf("key-%04d", w.r.IntN(2000))
		if i < 3 {
			key = fmt.Sprintf("hot-%d", i)
		}
		item, err := txn.Get([]byte(key))
		value, there := want[key]
		if errors.Is(err, badger.ErrKeyNotFound) != !there {
			w.t.Fatalf("at %d the key %s: %v, there %v", ts, key, err, there)
		}
		if there {
			got, err := item.ValueCopy(nil)
			must(w.t, err)
			if string(got) != value {
				w.t.Fatalf("at %d the key %s has another value", ts, key)
			}
		}
		if got, err := w.db.Get(ts, []byte(key)); err != nil || string(got) != value || (got != nil) != there {
			w.t.Fatalf("at %d the engine's get of %s: %d bytes, %v, want %d, there %v", ts, key, len(got), err, len(value), there)
		}
	}
}

// TestTheBadgerThatMergesWereWrittenFor fails when Badger changes: look whether what merger.go, flush.go and internal/memtable take from it by go:linkname, and
// they and levelsOf by reflection, still is and does the same, and whether internal/merge still chooses and drops as Badger would.
func TestTheBadgerThatMergesWereWrittenFor(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	must(t, err)
	if want := "github.com/dgraph-io/badger/v4 v4.9.6\n"; !strings.Contains(string(mod), want) {
		t.Errorf("go.mod does not have %q", want)
	}
}
