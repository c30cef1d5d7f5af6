package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/raced"
	"github.com/millrace/millrace/store/engine"
)

// TestAGetFindsWhatMovesDown: what is written goes from memtables into tables and from level to level, and at no moment a get at any
// timestamp passes by it, nor finds what is older or newer.
func TestAGetFindsWhatMovesDown(t *testing.T) {
	db, err := engine.OpenTiny(t.TempDir())
	must(t, err)
	defer func() { must(t, db.Close()) }()
	const keys = 40
	key := func(ts uint64) []byte { return fmt.Appendf(nil, "key-%02d", ts%keys) }
	value := func(ts uint64) string { return fmt.Sprintf("%d-%s", ts, strings.Repeat("v", int(ts%7)*200)) }

	var last atomic.Uint64 // that was written
	var wg sync.WaitGroup
	done, merges := make(chan struct{}), 0
	wg.Go(func() { // who moves it
		for {
			select {
			case <-done:
				return
			default:
			}
			more, err := db.Merge()
			if err != nil {
				t.Error(err)
				return
			}
			if more {
				merges++
			}
		}
	})
	for range 3 {
		wg.Go(func() {
			for n := uint64(0); ; n++ {
				select {
				case <-done:
					return
				default:
				}
				now := last.Load()
				if now < 2*keys {
					continue
				}
				at := now - n%(now-keys) // not below the first of each key
				of := at - n%keys        // is the newest of its key, up to that
				got, err := db.Get(at, key(of))
				if err != nil || string(got) != value(of) {
					t.Errorf("at %d, %s: %.20q %v, want %.20q", at, key(of), got, err, value(of))
					return
				}
			}
		})
	}
	for ts := uint64(1); ts <= uint64(raced.Rounds(3000, 20_000)); ts++ {
		must(t, db.Write(ts, key(ts), []byte(value(ts))))
		last.Store(ts)
	}
	close(done)
	wg.Wait()
	if merges < 5 {
		t.Errorf("%d merges", merges)
	}
}

// TestAGetGoesByVersions: a log whose memtable is a table already is found again after a kill, and Badger makes the newest table of the
// first level of it. What was written later is found all the same.
func TestAGetGoesByVersions(t *testing.T) {
	dir := t.TempDir()
	db, err := engine.OpenTiny(dir)
	must(t, err)
	must(t, db.Write(1, []byte("key"), []byte("old")))
	logs, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	must(t, err)
	if len(logs) != 1 {
		t.Fatalf("logs %v", logs)
	}
	old, err := os.ReadFile(logs[0])
	must(t, err)
	fillTiny(t, db, 2)
	must(t, db.Write(1000, []byte("key"), []byte("new")))
	must(t, db.Close())

	must(t, os.WriteFile(logs[0], old, 0o600))
	db, err = engine.OpenTiny(dir)
	must(t, err)
	poll.Until(t, func() error { // Badger writes it while others read
		got, err := db.Get(2000, []byte("key"))
		if err != nil || string(got) != "new" {
			t.Fatalf("%q, %v", got, err)
		}
		logs, err := filepath.Glob(filepath.Join(dir, "*.mem"))
		return errors.Join(err, poll.Unless(len(logs) == 1, "its log is still there"))
	})
	if got, err := db.Get(999, []byte("key")); err != nil || string(got) != "old" {
		t.Errorf("before it was written again: %q, %v", got, err)
	}
	must(t, db.Close())
}

// fillTiny writes so much from a timestamp on that some memtables become tables.
func fillTiny(t *testing.T, db *engine.Tiny, from uint64) {
	t.Helper()
	for ts := from; ts < from+400; ts++ {
		must(t, db.Write(ts, fmt.Appendf(nil, "fill-%d", ts), bytes.Repeat([]byte("f"), 900)))
	}
}

// TestAKillBringsNothingBack: an iterator keeps a memtable and its log when it is a table already. What was deleted since, and left out
// by a merge, is not in the log that the next process finds.
func TestAKillBringsNothingBack(t *testing.T) {
	dir := t.TempDir()
	db, err := engine.OpenTiny(dir)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	must(t, db.Write(1, []byte("key"), []byte("value")))
	txn := db.NewTransactionAt(1, false)
	defer txn.Discard()
	reads := txn.NewIterator(badger.DefaultIteratorOptions)
	defer reads.Close()

	fillTiny(t, db, 2)
	must(t, db.Write(1000, []byte("key"), nil)) // into another memtable
	fillTiny(t, db, 1001)
	db.Reads(2000)
	must(t, db.Flatten())
	killed, err := engine.OpenTiny(copyOf(t, dir))
	must(t, err)
	defer func() { must(t, killed.Close()) }()
	if got, err := killed.Get(3000, []byte("key")); err != nil || got != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestFinder_AtAnyDistance finds items close together, far apart, and first the one and then the other; some are not there.
func TestFinder_AtAnyDistance(t *testing.T) {
	db := openDB(t, t.TempDir())
	p := openPartition(t, db, partA)
	const n = 3000
	items := storeItems(t, p, n)
	var keys [][]byte // of those that are there, and of as many that are not, in their order
	for i := range n {
		keys = append(keys, engine.ItemKey(key(t, i%50), fmt.Sprintf("item-%05d", i)), engine.ItemKey(key(t, i%50), fmt.Sprintf("item-%05d-not", i)))
	}
	slices.SortFunc(keys, bytes.Compare)
	s := p.Snapshot()
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for _, apart := range [][]int{{1}, {2}, {7}, {40}, {1, 60}, {60, 1}, {3, 9, 1}} {
		f, err := s.NewFinder()
		must(t, err)
		found := 0
		for i := 0; i < len(keys); {
			v, err := f.Find(keys[i])
			must(t, err)
			there := !bytes.Contains(keys[i], []byte("-not"))
			if (v != nil) != there || there && (string(v.Body) != items[v.ID()] || !bytes.Contains(keys[i], []byte(v.ID()))) {
				t.Fatalf("%v apart, %q: found %v", apart, keys[i], v != nil)
			}
			if there {
				found++
			}
			i += 1 + r.IntN(2*apart[i*len(apart)/len(keys)])
		}
		f.Close()
		if found < 20 {
			t.Errorf("%v apart: %d found", apart, found)
		}
	}
}
