package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

const tableTarget = 16 << 10 // of the entries in a table, and in what is too little for one

// aDump returns a partition's state, its entries, some of each kind, and their digest.
func aDump(t testing.TB, seed uint64) (*model, engine.State, []engine.DumpEntry, uint64) {
	t.Helper()
	const commits = 150
	m, from := newModel(t, seed), newPartition(t)
	for range commits {
		m.next()
	}
	m.apply(t, from, 0, commits)
	put(t, from, m.schema, item(key(t, "large"), "l", `{"id":"l","serial":-1,"text":"`+strings.Repeat("x", 1300<<10)+`"}`))
	state, entries := dumped(t, from)
	return m, state, entries, digest(t, from)
}

// leftovers are files of dir that only a load makes.
func leftovers(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.load"))
	must(t, err)
	return found
}

// tableCount is how many tables a DB has.
func tableCount(db *engine.DB) (n int) {
	for _, tables := range engine.Levels(db) {
		n += tables
	}
	return n
}

// TestI3_WhatIsLoadedAsTablesReadsLikeWhatWasWritten compares the digests of both ways, and
// goes on with each, also after the DB was closed, or ended otherwise.
func TestI3_WhatIsLoadedAsTablesReadsLikeWhatWasWritten(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			m, state, entries, want := aDump(t, seed+60)
			dir := t.TempDir()
			db, err := engine.Open(dir, small, quiet)
			must(t, err)
			to, other := openPartition(t, db, partA), openPartition(t, db, partB)
			put(t, to, m.schema, item(key(t, "k"), "older", `{"id":"older","serial":-2}`))
			m.apply(t, other, 0, 40)
			before := digest(t, other)
			engine.OnLoad(db, tableTarget, time.Minute, func(string) {})
			must(t, to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
			if n := tableCount(db); n < 6 {
				t.Fatalf("%d tables, want some that were loaded", n)
			}
			check := func(to, other *engine.Partition) {
				t.Helper()
				got, err := to.State()
				if err != nil || got.Applied != state.Applied || digest(t, to) != want || digest(t, other) != before {
					t.Fatalf("state %+v, %v, digest %x, want %x; the other %x, want %x", got, err, digest(t, to), want, digest(t, other), before)
				}
			}
			check(to, other)
			must(t, db.Verify())
			must(t, db.SyncPartitions())
			killed := filepath.Join(t.TempDir(), "killed")
			writeFiles(t, killed, files(t, dir))
			must(t, db.Close())
			for _, dir := range []string{dir, killed} {
				db = openDB(t, dir)
				to, other = openPartition(t, db, partA), openPartition(t, db, partB)
				check(to, other)
				must(t, engine.Flatten(db))
				check(to, other)
			}
			again := newPartition(t)
			must(t, again.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
			for range 40 {
				m.next()
			}
			m.apply(t, to, 150, 190)
			m.apply(t, again, 150, 190)
			if got, want := digest(t, to), digest(t, again); got != want {
				t.Errorf("digest %x after more commits, want %x", got, want)
			}
		})
	}
}

// writeFiles makes a directory that has the files.
func writeFiles(t testing.TB, dir string, all map[string][]byte) {
	t.Helper()
	must(t, os.Mkdir(dir, 0o755))
	for name, data := range all {
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
}

// TestI2_ALoadThatIsKilledAtAnyStepLeavesNothing opens what the files hold at each step of a
// load: the partition is empty and can be loaded again, and the other one has all that it had.
func TestI2_ALoadThatIsKilledAtAnyStepLeavesNothing(t *testing.T) {
	m, state, entries, want := aDump(t, 70)
	dir := filepath.Join(t.TempDir(), "db")
	db := openDB(t, dir)
	to, other := openPartition(t, db, partA), openPartition(t, db, partB)
	m.apply(t, other, 0, 60)
	must(t, db.SyncPartitions())
	before := digest(t, other)
	m.apply(t, other, 60, 90) // in memory, when Badger is closed
	later := digest(t, other)
	empty := digest(t, newPartition(t))

	var mu sync.Mutex
	seen := map[string]int{}
	engine.OnLoad(db, 8*tableTarget, time.Minute, func(step string) {
		mu.Lock()
		defer mu.Unlock()
		if seen[step]++; seen[step] > 2 {
			return // the others of its kind
		}
		killed := filepath.Join(t.TempDir(), "killed")
		writeFiles(t, killed, files(t, dir))
		db2, err := engine.Open(killed, small, quiet)
		must(t, err)
		defer func() { must(t, db2.Close()) }()
		to, other := openPartition(t, db2, partA), openPartition(t, db2, partB)
		if got, err := to.State(); err != nil || got.Applied != 0 || digest(t, to) != empty {
			t.Errorf("%s: state %+v, %v", step, got, err)
		}
		if left := leftovers(t, killed); len(left) > 0 {
			t.Errorf("%s: %v are left", step, left)
		}
		m.apply(t, other, 60, 90)
		if digest(t, other) != later {
			t.Errorf("%s: another partition has changed, its digest was %x, then %x", step, before, later)
		}
		engine.OnLoad(db2, 8*tableTarget, time.Minute, func(string) {})
		must(t, to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
		if digest(t, to) != want || digest(t, other) != later {
			t.Errorf("%s: loaded again: digest %x, want %x", step, digest(t, to), want)
		}
	})
	must(t, to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
	for _, step := range []string{"table written", "closing", "closed", "table named", "manifest written", "manifest named", "reopening"} {
		if seen[step] == 0 {
			t.Errorf("the step %q was not seen", step)
		}
	}
	if digest(t, to) != want || digest(t, other) != later {
		t.Errorf("digest %x, want %x", digest(t, to), want)
	}
}

// TestI2_TheManifestNamesNothingThatAPowerLossCouldTake compares what is synced with what the
// manifest is about to name.
func TestI2_TheManifestNamesNothingThatAPowerLossCouldTake(t *testing.T) {
	_, state, entries, _ := aDump(t, 71)
	dir := t.TempDir()
	db := openDB(t, dir)
	to := openPartition(t, db, partA)
	var mu sync.Mutex
	var done []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		done = append(done, what)
	}
	tables := 0
	engine.OnSync(db, func(name string) { note("sync " + filepath.Base(name)) })
	engine.OnLoad(db, 8*tableTarget, time.Minute, func(step string) {
		note(step)
		if step == "table written" {
			mu.Lock()
			tables++
			mu.Unlock()
		}
	})
	must(t, to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
	last := func(what string) int {
		for i, w := range slices.Backward(done) {
			if w == what {
				return i
			}
		}
		t.Fatalf("%q was not done: %v", what, done)
		return -1
	}
	named, manifest := last("table named"), last("manifest written")
	for n := range tables {
		if last(fmt.Sprintf("sync %08x-%06d.load", 2, n+1)) > named {
			t.Errorf("table %d was named before it was synced", n+1)
		}
	}
	if !slices.Contains(done[named:manifest], "sync "+filepath.Base(dir)) || done[manifest-1] != "sync MANIFEST.load" {
		t.Errorf("the manifest was written before the names of tables were synced: %v", done[named:])
	}
	reopened := last("reopening")
	if i := slices.Index(done[manifest:], "manifest named"); i < 0 || !slices.Contains(done[manifest+i:reopened], "sync "+filepath.Base(dir)) {
		t.Errorf("the name of the manifest was not synced before Badger goes on: %v", done[manifest:])
	}
}

// TestLoad_WhileOthersReadAndWrite loads two partitions at once, again and again, beside one
// that is written, read and synced all the time.
func TestLoad_WhileOthersReadAndWrite(t *testing.T) {
	m, state, entries, want := aDump(t, 72)
	db := openDB(t, t.TempDir())
	engine.OnLoad(db, 8*tableTarget, time.Minute, func(string) {})
	busy := openPartition(t, db, feed.Partition{Container: "bbbbbbbb"})
	stop := make(chan struct{})
	var wg, loads sync.WaitGroup
	until := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	applied := 0
	until(func() { // one writer, which loses nothing
		if applied < 150 {
			m.apply(t, busy, applied, applied+1)
			applied++
		}
	})
	until(func() {
		s := busy.Snapshot()
		for _, err := range s.Dump() {
			if err != nil {
				t.Error(err)
			}
		}
		s.Close()
	})
	until(func() {
		if err := errors.Join(db.SyncPartitions(), db.Trim()); err != nil {
			t.Error(err)
		}
	})
	for _, id := range []feed.Partition{partA, partB} {
		to := openPartition(t, db, id)
		loads.Go(func() {
			for range 3 {
				if err := to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}); err != nil {
					t.Error(err)
				}
				if got, err := to.Digest(); got != want || err != nil {
					t.Errorf("digest %x, %v, want %x", got, err, want)
				}
			}
		})
	}
	loads.Wait()
	close(stop)
	wg.Wait()
	m.apply(t, busy, applied, 150)
	m.check(t, busy)
	must(t, db.Sound())
}

// TestLoad_GoesOnThroughTransactions loads while somebody holds a snapshot of another
// partition, which sees what it saw.
func TestLoad_GoesOnThroughTransactions(t *testing.T) {
	m, state, entries, want := aDump(t, 73)
	dir := t.TempDir()
	db := openDB(t, dir)
	to, other := openPartition(t, db, partA), openPartition(t, db, partB)
	m.apply(t, other, 0, 30)
	held := other.Snapshot()
	defer held.Close()
	engine.OnLoad(db, tableTarget, time.Millisecond, func(step string) {
		if step == "closing" {
			t.Error("Badger is closed under a snapshot")
		}
	})
	must(t, to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
	if digest(t, to) != want {
		t.Errorf("digest %x, want %x", digest(t, to), want)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if got, err := held.State(); err != nil || got.Applied != 30 {
		t.Errorf("the snapshot has %+v, %v", got, err)
	}
}

// TestLoad_TablesOfALevelDoNotOverlap loads a partition while tables are merged that have keys
// of partitions before and behind it. Badger refuses to open levels whose tables overlap.
func TestLoad_TablesOfALevelDoNotOverlap(t *testing.T) {
	m, state, entries, want := aDump(t, 74)
	dir := t.TempDir()
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	engine.OnLoad(db, 8*tableTarget, time.Minute, func(string) {})
	before, to := openPartition(t, db, partB), openPartition(t, db, partA)
	m.apply(t, before, 0, 20)
	lowest := 0
	must(t, to.Load(t.Context(), state, func(yield func(engine.DumpEntry, error) bool) {
		behind := openPartition(t, db, feed.Partition{Container: "cccccccc"})
		m.apply(t, behind, 0, 20)
		// Its end writes what is in memory, keys before and behind, into one table.
		must(t, openPartition(t, db, feed.Partition{Container: "dddddddd"}).Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
		must(t, engine.Flatten(db))
		lowest = slices.Max(engine.Levels(db))
		each(entries, nil)(yield)
	}, engine.LoadOptions{}))
	levels := engine.Levels(db)
	if n := len(levels); levels[n-1] != lowest || levels[n-2] < 3 {
		t.Errorf("levels have %v tables, want those that were loaded above the %d that were there", levels, lowest)
	}
	must(t, db.Close())
	db = openDB(t, dir)
	if got := digest(t, openPartition(t, db, partA)); got != want {
		t.Errorf("digest %x, want %x", got, want)
	}
}

// TestLoad_BadgerThatCannotBeOpenedAgainIsRenewed takes the manifest away while Badger is closed.
func TestLoad_BadgerThatCannotBeOpenedAgainIsRenewed(t *testing.T) {
	m, state, entries, want := aDump(t, 75)
	dir := t.TempDir()
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	to, other := openPartition(t, db, partA), openPartition(t, db, partB)
	m.apply(t, other, 0, 30)
	must(t, db.SyncPartitions())
	before := digest(t, other)
	manifest := filepath.Join(dir, "MANIFEST")
	engine.OnLoad(db, tableTarget, time.Minute, func(step string) {
		if step == "reopening" {
			must(t, os.Rename(manifest, manifest+".away"))
			must(t, os.Mkdir(manifest, 0o700))
		}
	})
	if err := to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}); err == nil {
		t.Fatal("no error")
	}
	if _, err := other.State(); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("error %v, want %v", err, engine.ErrClosed)
	}
	<-db.Damaged()
	must(t, os.Remove(manifest))
	must(t, os.Rename(manifest+".away", manifest))
	db, aside, err := db.Renew(0)
	if err != nil || aside != "" {
		t.Fatalf("aside %q, %v", aside, err)
	}
	defer func() { must(t, db.Close()) }()
	to, other = openPartition(t, db, partA), openPartition(t, db, partB)
	if got, err := to.State(); err != nil || got.Applied != 0 || digest(t, other) != before {
		t.Errorf("state %+v, %v, the other's digest %x, want %x", got, err, digest(t, other), before)
	}
	must(t, to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
	if digest(t, to) != want {
		t.Errorf("digest %x, want %x", digest(t, to), want)
	}
}
