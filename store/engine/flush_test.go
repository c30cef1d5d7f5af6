package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// TestBatch_WhatIsWrittenOverIsCounted writes small items, and then all of them over with large ones, in one batch, while a memtable is
// nearly full: it must not get more than it has room for, which would end the process.
func TestBatch_WhatIsWrittenOverIsCounted(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "db"))
	p := openPartition(t, db, partA)
	k, large := key(t, "k"), strings.Repeat("f", 900_000)
	for round := range 4 {
		fill(t, p, 1<<20)
		b := p.NewBatch(&engine.Schema{})
		body := func(i int) string { return fmt.Sprintf(`{"n":%d,"f":"`, i) + large + `"}` }
		for _, small := range []bool{true, false} {
			for i := range 7 {
				text := "{}"
				if !small {
					text = body(i + round)
				}
				must(t, b.PutBody(item(k, fmt.Sprint(i), text)))
			}
		}
		must(t, b.Commit())
		s := p.Snapshot()
		for i := range 7 {
			if it, ok, err := s.Get(k, fmt.Sprint(i)); err != nil || !ok || string(it.Body) != body(i+round) {
				t.Fatalf("item %d: there %v, %v", i, ok, err)
			}
		}
		s.Close()
	}
}

// stalled returns a DB whose first level has as many tables as keep memtables from being flushed, and which merges nothing, and how many
// commits were applied.
func stalled(t *testing.T, dir string) (db *engine.DB, applied int) {
	t.Helper()
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	engine.StopMerges(db)
	p := openPartition(t, db, partA)
	for waiting := 0; engine.Levels(db)[0] < 15 || waiting < 2; applied++ {
		b := p.NewBatch(&engine.Schema{})
		for i := range 8 {
			must(t, b.PutBody(item(key(t, "k"), fmt.Sprintf("%d-%d", applied, i), `{"f":"`+strings.Repeat("f", 1<<17)+`"}`)))
		}
		b.SetState(engine.State{Log: feed.LogID{1}, Applied: feed.LSN(applied + 1), Sum: 1})
		must(t, b.Commit())
		logs, err := filepath.Glob(filepath.Join(dir, "*.mem"))
		must(t, err)
		waiting = len(logs) - 1
	}
	return db, applied
}

// TestClose_DoesNotWaitForMergesThatDoNotCome closes a DB in which memtables wait for merges, and one that is damaged beside: both end, and all that
// was applied, or synced, is there.
func TestClose_DoesNotWaitForMergesThatDoNotCome(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		t.Run(fmt.Sprintf("damaged=%v", damaged), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "db")
			db, applied := stalled(t, dir)
			synced := 0
			var again *engine.DB
			if damaged {
				must(t, db.SyncPartitions())
				synced = applied
				engine.Unwritten(db, os.ErrPermission)
				renewed, aside, err := db.Renew(0)
				must(t, err)
				if aside != "" {
					t.Errorf("set aside %q", aside)
				}
				again = renewed
			} else {
				closed := make(chan error, 1)
				go func() { closed <- db.Close() }()
				select {
				case err := <-closed:
					must(t, err)
				case <-time.After(5 * time.Minute):
					t.Fatal("it is not closed")
				}
				var err error
				again, err = engine.Open(dir, small, quiet)
				must(t, err)
				synced = applied
			}
			p := openPartition(t, again, partA)
			state, err := p.State()
			must(t, err)
			if int(state.Applied) != synced {
				t.Errorf("it has applied %d, want %d", state.Applied, synced)
			}
			s := p.Snapshot()
			for n := range synced {
				if _, ok, err := s.Get(key(t, "k"), fmt.Sprintf("%d-7", n)); err != nil || !ok {
					t.Fatalf("an item of commit %d: there %v, %v", n, ok, err)
				}
			}
			s.Close()
			must(t, again.Close())
		})
	}
}

// TestOpen_ManyMemtablesOfAKill opens what is left by a process that was killed while memtables waited for merges, again and again.
func TestOpen_ManyMemtablesOfAKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	db, applied := stalled(t, dir)
	must(t, db.SyncPartitions())
	for range 3 {
		dir = copyOf(t, dir)
		must(t, db.Close())
		var err error
		db, err = engine.Open(dir, small, quiet)
		must(t, err)
		if state, err := openPartition(t, db, partA).State(); err != nil || int(state.Applied) != applied {
			t.Fatalf("it has applied %d, %v; want %d", state.Applied, err, applied)
		}
		fill(t, openPartition(t, db, partB), 20<<20)
	}
	must(t, db.Close())
}
