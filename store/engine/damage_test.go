package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store/engine"
)

// stored makes a DB of several tables, and returns what is in it.
func stored(t *testing.T, dir string) map[string]string {
	t.Helper()
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	items := storeItems(t, openPartition(t, db, partA), 4000)
	must(t, db.Close())
	return items
}

// storeItems writes n items of 2 KB.
func storeItems(t *testing.T, p *engine.Partition, n int) map[string]string {
	t.Helper()
	items := map[string]string{}
	b := p.NewBatch(&engine.Schema{})
	for i := range n {
		it := item(key(t, i%50), fmt.Sprintf("item-%05d", i), fmt.Sprintf(`{"id":"item-%05d","fill":%q}`, i, strings.Repeat("x", 2000)))
		items[it.ID] = string(it.Body)
		must(t, b.Put(it, nil))
		if i%500 == 499 {
			must(t, b.Commit())
		}
	}
	b.SetState(engine.State{Log: feed.LogID{1}, Applied: 1, Sum: 1})
	must(t, b.Commit())
	return items
}

// TestNoWrongByteIsReadFromATable flips bits of tables, under a DB that is open and under
// one that is not: whatever is read is right, or the DB says that it is not to be
// believed. The bits are those of blocks and of what stands behind them.
func TestNoWrongByteIsReadFromATable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	items := stored(t, dir)
	original := files(t, dir)
	var tables []string
	for name := range original {
		if strings.HasSuffix(name, ".sst") {
			tables = append(tables, name)
		}
	}
	slices.Sort(tables) // a seed flips the same bit each time
	found := 0
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 7))
		copyOf := filepath.Join(t.TempDir(), "db")
		must(t, os.Mkdir(copyOf, 0o755))
		for name, data := range original {
			must(t, os.WriteFile(filepath.Join(copyOf, name), data, 0o644))
		}
		name := tables[r.IntN(len(tables))]
		blocks, err := engine.BlockBytes(filepath.Join(dir, name))
		must(t, err)
		at := r.IntN(blocks)
		flip := func() {
			f, err := os.OpenFile(filepath.Join(copyOf, name), os.O_RDWR, 0)
			must(t, err)
			_, err = f.WriteAt([]byte{original[name][at] ^ 1<<r.IntN(8)}, int64(at))
			must(t, err)
			must(t, f.Close())
		}
		if seed%2 == 0 {
			flip()
		}
		db, err := engine.Open(copyOf, small, quiet)
		if errors.Is(err, engine.ErrCorrupt) {
			found++
			continue
		}
		must(t, err)
		if seed%2 == 1 {
			flip()
		}
		if wrong := readAll(t, db, items); wrong != "" {
			t.Errorf("seed %d, %s at %d: %s", seed, name, at, wrong)
		}
		if db.Sound() != nil {
			found++
			again, aside, err := db.Renew(0)
			must(t, err)
			if aside == "" {
				t.Errorf("seed %d: the damaged files were not set aside", seed)
			}
			if state, err := openPartition(t, again, partA).State(); err != nil || state.Applied != 0 {
				t.Errorf("seed %d: the new DB has applied %d, %v", seed, state.Applied, err)
			}
			must(t, again.Close())
		}
		must(t, db.Close())
	}
	if found < 12 {
		t.Errorf("of 24 flipped bits %d were found", found)
	}
}

// TestAMismatchOfADBThatHasClosedIsNotAnothers has one of two DBs meet a damaged block and
// close: the other is not to blame, though it is alone when it is asked. For a block of its own
// it is.
func TestAMismatchOfADBThatHasClosedIsNotAnothers(t *testing.T) {
	var dbs []*engine.DB
	var items []map[string]string
	var flips []func()
	for range 2 {
		dir := filepath.Join(t.TempDir(), "db")
		items = append(items, stored(t, dir))
		db, err := engine.Open(dir, small, quiet)
		must(t, err)
		dbs = append(dbs, db)
		tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
		must(t, err)
		flips = append(flips, func() {
			for _, name := range tables {
				blocks, err := engine.BlockBytes(name)
				must(t, err)
				f, err := os.OpenFile(name, os.O_RDWR, 0)
				must(t, err)
				var b [1]byte
				_, err = f.ReadAt(b[:], int64(blocks/2))
				must(t, err)
				_, err = f.WriteAt([]byte{b[0] ^ 1}, int64(blocks/2))
				must(t, err)
				must(t, f.Close())
			}
		})
	}
	flips[0]()
	if wrong := readAll(t, dbs[0], items[0]); wrong != "" || dbs[0].Sound() == nil {
		t.Fatalf("the damaged block was not met: %s", wrong)
	}
	must(t, dbs[0].Close())
	if err := dbs[1].Sound(); err != nil {
		t.Fatalf("the other is blamed: %v", err)
	}
	flips[1]()
	if wrong := readAll(t, dbs[1], items[1]); wrong != "" || dbs[1].Sound() == nil {
		t.Errorf("its own damaged block was not met: %s", wrong)
	}
	must(t, dbs[1].Close())
}

// readAll reads each item, and all, and tells what is wrong with what the DB stands by.
func readAll(t *testing.T, db *engine.DB, items map[string]string) (wrong string) {
	t.Helper()
	defer func() {
		if db.Caught(recover()) != nil {
			wrong = ""
		}
	}()
	p, err := db.Partition(partA)
	if err != nil || db.Sound() != nil {
		return ""
	}
	s := p.Snapshot()
	defer s.Close()
	for i := range len(items) {
		id := fmt.Sprintf("item-%05d", i)
		it, ok, err := s.Get(key(t, i%50), id)
		if db.Fail(err); db.Sound() != nil {
			return ""
		}
		if err != nil || !ok || string(it.Body) != items[id] {
			return fmt.Sprintf("item %s: there %v, %v", id, ok, err)
		}
	}
	seen := 0
	for v, err := range s.Items(nil, nil) {
		if db.Fail(err); db.Sound() != nil {
			return ""
		}
		if err != nil || string(v.Body) != items[v.ID()] {
			return fmt.Sprintf("a scan shows %s, %v", v.ID(), err)
		}
		seen++
	}
	if seen != len(items) && db.Sound() == nil {
		return fmt.Sprintf("a scan shows %d of %d items", seen, len(items))
	}
	return ""
}

// TestTheScrubFindsEveryFlippedBit flips bits anywhere in tables, in what stands behind
// blocks and in indexes too.
func TestTheScrubFindsEveryFlippedBit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	stored(t, dir)
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	blocks, err := db.Scrub(nil)
	if err != nil || blocks < 100 {
		t.Fatalf("%d blocks, %v", blocks, err)
	}
	tables, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		name := tables[r.IntN(len(tables))]
		data, err := os.ReadFile(name)
		must(t, err)
		at := r.IntN(len(data))
		data[at] ^= 1 << r.IntN(8)
		if err := engine.ScrubBytes(filepath.Join(t.TempDir(), filepath.Base(name)), data); !errors.Is(err, engine.ErrCorrupt) {
			t.Errorf("%s, a bit at %d of %d: %v", name, at, len(data), err)
		}
	}
	data, err := os.ReadFile(tables[0])
	must(t, err)
	data[len(data)/3] ^= 1
	must(t, os.WriteFile(tables[0], data, 0o600))
	if err := db.Verify(); !errors.Is(err, engine.ErrCorrupt) || db.Sound() == nil {
		t.Errorf("Verify: %v", err)
	}
	must(t, db.Close())
}

// TestADamageThatWasFoundIsKnownToTheNextProcess ends a process between the finding and
// the making anew.
func TestADamageThatWasFoundIsKnownToTheNextProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	db.Fail(fmt.Errorf("a test: %w", engine.ErrCorrupt))
	select {
	case <-db.Damaged():
	default:
		t.Error("it is not told")
	}
	must(t, db.Close())
	db, aside, err := engine.OpenOrSetAside(dir, small, quiet)
	must(t, err)
	if aside == "" {
		t.Error("the damaged files were not set aside")
	}
	must(t, db.Close())
}

// TestAFailedSyncIsNotBelieved lets a sync fail once: what it was to cover is not taken
// for synced, though the next one would succeed, and the DB goes on from the last good
// one.
func TestAFailedSyncIsNotBelieved(t *testing.T) {
	m := newModel(t, 21)
	for range 20 {
		m.next()
	}
	dir := filepath.Join(t.TempDir(), "db")
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	p := openPartition(t, db, partA)
	m.apply(t, p, 0, 10)
	must(t, db.SyncPartitions())
	m.apply(t, p, 10, 20)
	want := digest(t, p)
	fail := true
	engine.FailSync(db, func(string) error {
		if fail {
			fail = false
			return errors.New("input/output error")
		}
		return nil
	})
	if err := db.SyncPartitions(); err == nil {
		t.Fatal("the sync did not fail")
	}
	if err := db.SyncPartitions(); err == nil {
		t.Error("a later sync is believed")
	}
	if db.Sound() == nil {
		t.Fatal("the DB is believed")
	}
	again, aside, err := db.Renew(0)
	must(t, err)
	if aside != "" {
		t.Errorf("set aside %s for a sync", aside)
	}
	q := openPartition(t, again, partA)
	state, err := q.State()
	must(t, err)
	if state.Applied != 10 || q.Kept() {
		t.Errorf("it goes on from %d, kept %v", state.Applied, q.Kept())
	}
	m.apply(t, q, 10, 20)
	if got := digest(t, q); got != want {
		t.Error("applying the log again gives another state")
	}
	must(t, again.Close())
}

// TestASyncBesideOneThatFailedIsNotBelieved holds a sync at its first file while another one is
// told that the disk could not write: the system says so once, so the first finds all well.
func TestASyncBesideOneThatFailedIsNotBelieved(t *testing.T) {
	m := newModel(t, 24)
	for range 20 {
		m.next()
	}
	db, err := engine.Open(filepath.Join(t.TempDir(), "db"), small, quiet)
	must(t, err)
	p := openPartition(t, db, partA)
	m.apply(t, p, 0, 10)
	must(t, db.SyncPartitions())
	m.apply(t, p, 10, 20)
	var calls atomic.Int32
	held, release, synced := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	engine.FailSync(db, func(string) error {
		switch calls.Add(1) {
		case 1:
			close(held)
			<-release
		case 2:
			return errors.New("input/output error")
		}
		return nil
	})
	go func() { synced <- db.SyncPartitions() }()
	select {
	case <-held:
	case err := <-synced:
		t.Fatalf("the sync has come to no file: %v", err)
	}
	if err := db.Sync(); err == nil {
		t.Error("the sync did not fail")
	}
	close(release)
	if err := <-synced; err == nil {
		t.Error("the sync beside it is believed")
	}
	again, aside, err := db.Renew(0)
	must(t, err)
	state, err := openPartition(t, again, partA).State()
	must(t, err)
	if aside != "" || state.Applied != 10 {
		t.Errorf("it goes on from %d, aside %q; want 10", state.Applied, aside)
	}
	must(t, again.Close())
}

// TestASyncThatRenewOvertakes holds a sync at its first file, and goes on with it when the DB is
// being renewed: it does not touch the Badger that is closed, which would end the process.
func TestASyncThatRenewOvertakes(t *testing.T) {
	db, err := engine.Open(filepath.Join(t.TempDir(), "db"), small, quiet)
	must(t, err)
	put(t, openPartition(t, db, partA), &engine.Schema{}, item(key(t, "k"), "a", `{}`))
	engine.CloseWithin(db, poll.Most)
	var calls atomic.Int32
	held, release, synced := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	engine.OnSync(db, func(string) {
		if calls.Add(1) == 1 {
			close(held)
			<-release
		}
	})
	go func() { synced <- db.SyncPartitions() }()
	select {
	case <-held:
	case err := <-synced:
		t.Fatalf("the sync has come to no file: %v", err)
	}
	db.Fail(fmt.Errorf("a test: %w", engine.ErrCorrupt))
	var again *engine.DB
	var aside string
	renewed := make(chan error, 1)
	go func() {
		var err error
		again, aside, err = db.Renew(0)
		renewed <- err
	}()
	poll.Until(t, func() error {
		return poll.Unless(len(renewed) > 0 || engine.SyncsEnd(db), "Badger is not being closed")
	})
	close(release)
	if err := <-synced; err == nil {
		t.Error("the sync is believed")
	}
	must(t, <-renewed)
	if aside == "" {
		t.Error("the damaged files were not set aside")
	}
	must(t, again.Close())
}

// TestASyncAfterCloseIsRefused syncs a DB of which no partition is open.
func TestASyncAfterCloseIsRefused(t *testing.T) {
	db, err := engine.Open(filepath.Join(t.TempDir(), "db"), small, quiet)
	must(t, err)
	must(t, db.Close())
	if err := db.SyncPartitions(); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("it says %v", err)
	}
}

// TestAMergeOfADamagedBlockIsTold damages a block of a table that is merged when the DB is open. The merge cannot read it
// and is given up, and the table is still there.
func TestAMergeOfADamagedBlockIsTold(t *testing.T) {
	for name, alone := range map[string]bool{"alone": true, "beside another": false} {
		t.Run(name, func(t *testing.T) {
			if !alone {
				openDB(t, t.TempDir())
			}
			first := filepath.Join(t.TempDir(), "db")
			versions(t, first, engine.Level0Max-1)
			writing := openDB(t, first)
			put(t, openPartition(t, writing, partA), &engine.Schema{}, item(key(t, "k"), "later", `{}`))
			dir := copyOf(t, first) // a log becomes the table that has all be merged
			must(t, writing.Close())
			tables := tablesIn(t, dir)
			if len(tables) != engine.Level0Max-1 {
				t.Fatalf("%d tables, want %d", len(tables), engine.Level0Max-1)
			}
			behind, err := engine.BehindBlocks(tables[1])
			must(t, err)
			flip(t, tables[1], int64(behind[len(behind)/2][0]-1000), 3)

			db, err := engine.Open(dir, small, quiet)
			must(t, err)
			<-db.Damaged()
			if err := db.Sound(); !errors.Is(err, engine.ErrCorrupt) {
				t.Errorf("the DB says %v", err)
			}
			must(t, db.Close())
			if _, err := os.Stat(tables[1]); err != nil {
				t.Errorf("the table: %v", err)
			}
		})
	}
}
