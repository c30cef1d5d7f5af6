package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

const loadBuffer = 8 * tableTarget

// numbered returns a partition of another container for each number.
func numbered(t testing.TB, db *engine.DB, n int) *engine.Partition {
	t.Helper()
	return openPartition(t, db, feed.Partition{Container: "eeeeeeee", Number: uint32(n)})
}

// sizeOf is how much keys and values have together.
func sizeOf(entries []engine.DumpEntry) (n int64) {
	for _, e := range entries {
		n += int64(len(e.Key) + len(e.Value))
	}
	return n
}

// stopAt lists entries and calls at when there were so many bytes that tables are made of them.
func stopAt(entries []engine.DumpEntry, at func()) func(yield func(engine.DumpEntry, error) bool) {
	return func(yield func(engine.DumpEntry, error) bool) {
		size, stopped := 0, false
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
			if size > loadBuffer && !stopped {
				stopped = true
				at()
			}
			size += len(e.Key) + len(e.Value)
		}
	}
}

// isEmpty fails unless a partition is as if it had never been written.
func isEmpty(t testing.TB, p *engine.Partition, dir string) {
	t.Helper()
	if got, err := p.State(); err != nil || got.Applied != 0 || digest(t, p) != digest(t, newPartition(t)) {
		t.Errorf("state %+v, %v", got, err)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// TestLoad_FourMakeTablesAtOnce has six loads of which two wait, tell it, and go on when others
// have ended, or end with their context.
func TestLoad_FourMakeTablesAtOnce(t *testing.T) {
	_, state, entries, want := aDump(t, 80)
	dir := t.TempDir()
	db := openDB(t, dir)
	engine.OnLoad(db, loadBuffer, time.Minute, func(string) {})
	making, waiting, release := make(chan int, 6), make(chan int, 1000), make(chan struct{})
	var wg sync.WaitGroup
	load := func(ctx context.Context, n int, want error) {
		p := numbered(t, db, n)
		wg.Go(func() {
			err := p.Load(ctx, state, stopAt(entries, func() {
				making <- n
				<-release
			}), engine.LoadOptions{Progress: func(waits bool) error {
				if waits {
					waiting <- n
				}
				return nil
			}})
			if !errors.Is(err, want) {
				t.Errorf("load %d: error %v, want %v", n, err, want)
			}
		})
	}
	for n := range 4 {
		load(t.Context(), n, nil)
	}
	for range 4 {
		select {
		case <-making:
		case n := <-waiting:
			t.Fatalf("load %d waits, and fewer than four make tables", n)
		}
	}
	ended := errors.New("the lease is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	load(ctx, 4, ended)
	load(t.Context(), 5, nil)
	for seen := map[int]bool{}; len(seen) < 2; {
		select {
		case n := <-making:
			t.Fatalf("load %d makes tables beside four others", n)
		case n := <-waiting:
			seen[n] = true
		}
	}
	cancel(ended)
	close(release)
	wg.Wait()
	isEmpty(t, numbered(t, db, 4), dir)
	for _, n := range []int{0, 1, 2, 3, 5} {
		if got := digest(t, numbered(t, db, n)); got != want {
			t.Errorf("load %d: digest %x, want %x", n, got, want)
		}
	}
}

// TestLoad_WithoutRoomLeavesNothing fills the disk at each moment at which a load asks for room: it
// ends with NoRoomError, Badger stays open, and later it succeeds.
func TestLoad_WithoutRoomLeavesNothing(t *testing.T) {
	m, state, entries, want := aDump(t, 81)
	for name, full := range map[string]func(asked int, step string) bool{
		"before the second table":  func(asked int, _ string) bool { return asked > 1 },
		"before the last tables":   func(asked int, _ string) bool { return asked > 4 },
		"before they are handed":   func(_ int, step string) bool { return step == "tables made" },
		"before the first of them": func(int, string) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db := openDB(t, dir)
			to, other := openPartition(t, db, partA), openPartition(t, db, partB)
			m.apply(t, other, 0, 30)
			before := digest(t, other)
			var step atomic.Value
			step.Store("")
			engine.OnLoad(db, loadBuffer, time.Minute, func(s string) {
				step.Store(s)
				if s == "closing" {
					t.Error("Badger is closed")
				}
			})
			asked := 0
			engine.OnRoom(db, func() int64 {
				if asked++; full(asked, step.Load().(string)) {
					return 999 << 20
				}
				return 2000 << 20
			})
			err := to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{Reserve: 1000 << 20})
			lacks, ok := errors.AsType[*engine.NoRoomError](err)
			if !ok || lacks.Need <= lacks.Free || !strings.Contains(err.Error(), "to load partition "+partA.String()+"; free some space") {
				t.Fatalf("error %v", err)
			}
			isEmpty(t, to, dir)
			must(t, db.Sound())
			engine.OnRoom(db, func() int64 { return 2000 << 20 })
			engine.OnLoad(db, loadBuffer, time.Minute, func(string) {})
			must(t, to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{Reserve: 1000 << 20, Bytes: sizeOf(entries)}))
			if digest(t, to) != want || digest(t, other) != before || engine.Claimed(db) != 0 {
				t.Errorf("digest %x, want %x, and %d bytes are claimed", digest(t, to), want, engine.Claimed(db))
			}
		})
	}
}

// TestLoad_AsksForAllRoomBeforeItEmptiesThePartition loads what is known to be too much, beside
// nothing, and beside another load that has claimed the room and not used it yet.
func TestLoad_AsksForAllRoomBeforeItEmptiesThePartition(t *testing.T) {
	m, state, entries, want := aDump(t, 82)
	dir := t.TempDir()
	db := openDB(t, dir)
	engine.OnLoad(db, loadBuffer, time.Minute, func(string) {})
	const reserve = 1 << 30
	to, other := openPartition(t, db, partA), openPartition(t, db, partB)
	m.apply(t, to, 0, 30)
	before := digest(t, to)
	opt := engine.LoadOptions{Reserve: reserve, Bytes: sizeOf(entries)}
	refused := func() {
		t.Helper()
		for _, err := range []error{to.LoadRoom(opt), to.Load(t.Context(), state, each(entries, nil), opt)} {
			if _, ok := errors.AsType[*engine.NoRoomError](err); !ok {
				t.Errorf("error %v", err)
			}
		}
		if got := digest(t, to); got != before {
			t.Errorf("digest %x, want %x", got, before)
		}
	}
	engine.OnRoom(db, func() int64 { return reserve + opt.Bytes })
	refused()
	// A load claims an eighth more than the bytes, for indexes: there is no room for two.
	engine.OnRoom(db, func() int64 {
		free := reserve + opt.Bytes*22/10
		for _, name := range leftovers(t, dir) {
			if info, err := os.Stat(name); err == nil { // it may have got another name
				free -= info.Size()
			}
		}
		return free
	})
	must(t, to.LoadRoom(opt))
	must(t, other.Load(t.Context(), state, stopAt(entries, refused), opt))
	must(t, to.Load(t.Context(), state, each(entries, nil), opt))
	if digest(t, to) != want || digest(t, other) != want || engine.Claimed(db) != 0 {
		t.Errorf("digests %x and %x, want %x, and %d bytes are claimed", digest(t, to), digest(t, other), want, engine.Claimed(db))
	}
}

// TestLoad_ThroughTransactionsAsksForRoomToo fills the disk when tables could not be handed over.
func TestLoad_ThroughTransactionsAsksForRoomToo(t *testing.T) {
	_, state, entries, want := aDump(t, 83)
	dir := t.TempDir()
	db := openDB(t, dir)
	to := openPartition(t, db, partA)
	held := openPartition(t, db, partB).Snapshot()
	defer held.Close()
	var made atomic.Bool
	engine.OnLoad(db, tableTarget, time.Millisecond, func(step string) { made.Store(made.Load() || step == "tables made") })
	engine.OnRoom(db, func() int64 {
		if made.Load() {
			return 1 << 20
		}
		return 1 << 40
	})
	opt := engine.LoadOptions{Bytes: sizeOf(entries)}
	if _, ok := errors.AsType[*engine.NoRoomError](to.Load(t.Context(), state, each(entries, nil), opt)); !ok {
		t.Error("it is loaded")
	}
	isEmpty(t, to, dir)
	engine.OnRoom(db, func() int64 { return 1 << 40 })
	must(t, to.Load(t.Context(), state, each(entries, nil), opt))
	if digest(t, to) != want || engine.Claimed(db) != 0 {
		t.Errorf("digest %x, want %x, and %d bytes are claimed", digest(t, to), want, engine.Claimed(db))
	}
}

// TestI3_ATableWithKeysOfAnotherPartitionIsRefused puts tables in the place of those that were made:
// Badger stays open as it is, and nothing of another partition is hidden.
func TestI3_ATableWithKeysOfAnotherPartitionIsRefused(t *testing.T) {
	m, state, entries, want := aDump(t, 84)
	for name, keys := range map[string][]string{
		"one":              {"\x00\x00\x00\x01i"},
		"before its own":   {"\x00\x00\x00\x01i", "\x00\x00\x00\x03z"},
		"behind its own":   {"\x00\x00\x00\x03z", "\x00\x00\x00\x04i"},
		"the engine's own": {"\x00\x00\x00\x00m"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db := openDB(t, dir)
			other, to := openPartition(t, db, partB), openPartition(t, db, partA)
			m.apply(t, other, 0, 30)
			before := digest(t, other)
			engine.OnLoad(db, loadBuffer, time.Minute, func(step string) {
				switch step {
				case "tables made":
					made := leftovers(t, dir)
					if base := filepath.Base(made[0]); !strings.HasPrefix(base, "00000003-") {
						t.Fatalf("the tables are %v", made)
					}
					must(t, engine.WriteTable(db, made[len(made)-1], keys...))
				case "closing":
					t.Error("Badger is closed")
				}
			})
			if to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}) == nil {
				t.Error("it is loaded")
			}
			isEmpty(t, to, dir)
			must(t, db.Sound())
			engine.OnLoad(db, loadBuffer, time.Minute, func(string) {})
			must(t, to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
			if digest(t, to) != want || digest(t, other) != before {
				t.Errorf("digest %x, want %x; the other's %x, want %x", digest(t, to), want, digest(t, other), before)
			}
		})
	}
}

// blocked is a log in which Badger waits when it begins to close.
type blocked struct {
	slog.Handler
	until <-chan struct{}
}

func (blocked) Enabled(context.Context, slog.Level) bool { return true }

func (b blocked) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if strings.Contains(a.Value.Resolve().String(), "Lifetime L0") {
			<-b.until
		}
		return true
	})
	return nil
}

// TestLoad_BadgerThatDoesNotCloseIsGivenUp has Badger hang when it is closed for a hand-over: the
// load ends, the DB says what is wrong, Renew and Close end too, and when Badger goes on it is renewed.
func TestLoad_BadgerThatDoesNotCloseIsGivenUp(t *testing.T) {
	m, state, entries, want := aDump(t, 85)
	for _, renewed := range []bool{true, false} {
		dir := t.TempDir()
		goOn := make(chan struct{})
		db, err := engine.Open(dir, small, slog.New(blocked{slog.DiscardHandler, goOn}))
		must(t, err)
		to, other := openPartition(t, db, partA), openPartition(t, db, partB)
		m.apply(t, other, 0, 30)
		must(t, db.SyncPartitions())
		before := digest(t, other)
		engine.OnLoad(db, loadBuffer, time.Minute, func(string) {})
		engine.CloseWithin(db, time.Millisecond)
		err = to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{})
		if wrong, ok := errors.AsType[*engine.DamagedError](err); !ok || !wrong.Unsynced {
			t.Errorf("error %v", err)
		}
		<-db.Damaged()
		if _, err := other.State(); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("error %v, want %v", err, engine.ErrClosed)
		}
		if renewed {
			if _, _, err := db.Renew(0); err == nil || db.Close() == nil {
				t.Errorf("while Badger hangs it is renewed with %v, or closed", err)
			}
			close(goOn)
			engine.CloseWithin(db, time.Minute)
			db, _, err = db.Renew(0)
			must(t, err)
		} else {
			if db.Close() == nil {
				t.Error("it is closed")
			}
			close(goOn)
			must(t, engine.AwaitBadger(db))
			db, err = engine.Open(dir, small, quiet)
			must(t, err)
		}
		to, other = openPartition(t, db, partA), openPartition(t, db, partB)
		isEmpty(t, to, dir)
		must(t, to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
		if digest(t, to) != want || digest(t, other) != before {
			t.Errorf("digest %x, want %x; the other's %x, want %x", digest(t, to), want, digest(t, other), before)
		}
		must(t, db.Close())
	}
}

// TestLoad_TwoThatEndAtOneMoment hands over two partitions for which a moment without snapshots comes
// at once, and after a sync: whoever waits for that moment must not keep anybody from syncing.
func TestLoad_TwoThatEndAtOneMoment(t *testing.T) {
	m, state, entries, want := aDump(t, 86)
	dir := t.TempDir()
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	busy := feed.Partition{Container: "bbbbbbbb"}
	third := openPartition(t, db, busy)
	m.apply(t, third, 0, 30)
	before := digest(t, third)
	held := third.Snapshot()
	var closed atomic.Int32
	engine.OnLoad(db, loadBuffer, time.Minute, func(step string) {
		if step == "closed" {
			closed.Add(1)
		}
	})
	var wg sync.WaitGroup
	for _, id := range []feed.Partition{partA, partB} {
		p := openPartition(t, db, id)
		wg.Go(func() {
			if err := p.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	for engine.Waiting(db) < 2 {
		select {
		case <-poll.C:
		case <-ended:
			t.Fatal("the loads ended beside a snapshot")
		}
	}
	must(t, db.Sync())
	held.Close()
	<-ended
	if n := closed.Load(); n != 2 {
		t.Errorf("tables were handed over %d times, want 2", n)
	}
	check := func() {
		t.Helper()
		for _, id := range []feed.Partition{partA, partB} {
			if got := digest(t, openPartition(t, db, id)); got != want {
				t.Errorf("%s: digest %x, want %x", id, got, want)
			}
		}
		if got := digest(t, openPartition(t, db, busy)); got != before {
			t.Errorf("the third: digest %x, want %x", got, before)
		}
	}
	check()
	must(t, engine.Flatten(db))
	check()
	must(t, db.Close())
	db = openDB(t, dir)
	check()
}

// TestLoad_AManifestThatIsLeftIsRemoved fails to sync the manifest of a load, and opens a DB
// beside whose manifest a crash has left one.
func TestLoad_AManifestThatIsLeftIsRemoved(t *testing.T) {
	m, state, entries, want := aDump(t, 87)
	dir := t.TempDir()
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	to, other := openPartition(t, db, partA), openPartition(t, db, partB)
	m.apply(t, other, 0, 30)
	before := digest(t, other)
	engine.OnLoad(db, loadBuffer, time.Minute, func(string) {})
	broken := errors.New("broken")
	engine.FailSync(db, func(name string) error {
		if filepath.Base(name) == "MANIFEST.load" {
			return broken
		}
		return nil
	})
	if err := to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	isEmpty(t, to, dir)
	must(t, db.Sound())
	must(t, db.Close())
	must(t, os.WriteFile(filepath.Join(dir, "MANIFEST.load"), []byte("half of"), 0o600))
	db = openDB(t, dir)
	to, other = openPartition(t, db, partA), openPartition(t, db, partB)
	isEmpty(t, to, dir)
	must(t, to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
	if digest(t, to) != want || digest(t, other) != before {
		t.Errorf("digest %x, want %x; the other's %x, want %x", digest(t, to), want, digest(t, other), before)
	}
}

// TestLoad_ANameThatCannotBeSyncedIsDamage fails to sync the directory when tables have their
// names: names of other files may be lost with theirs.
func TestLoad_ANameThatCannotBeSyncedIsDamage(t *testing.T) {
	_, state, entries, _ := aDump(t, 88)
	dir := t.TempDir()
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	to := openPartition(t, db, partA)
	var named atomic.Bool // the sweeper of what was dropped syncs too
	engine.OnLoad(db, loadBuffer, time.Minute, func(step string) {
		if step == "table named" {
			named.Store(true)
		}
	})
	engine.FailSync(db, func(name string) error {
		if named.Load() && name == dir {
			return errors.New("broken")
		}
		return nil
	})
	wrong, ok := errors.AsType[*engine.DamagedError](to.Load(t.Context(), state, each(entries, nil), engine.LoadOptions{}))
	if !ok || !wrong.Unsynced || db.Sound() == nil {
		t.Errorf("error %v, and the DB says %v", wrong, db.Sound())
	}
	db, aside, err := db.Renew(0)
	if err != nil || aside != "" {
		t.Fatalf("aside %q, %v", aside, err)
	}
	defer func() { must(t, db.Close()) }()
	isEmpty(t, openPartition(t, db, partA), dir)
}
