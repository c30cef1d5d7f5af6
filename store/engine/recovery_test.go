package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// files returns the contents of the files of a directory at one moment: one at
// which no table and no log comes or goes.
func files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	manifest := func() string {
		data, err := os.ReadFile(filepath.Join(dir, "MANIFEST"))
		must(t, err)
		return string(data)
	}
	for {
		found, before := map[string][]byte{}, manifest()
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			must(t, err)
			found[e.Name()] = data
		}
		if len(found) == len(entries) && manifest() == before {
			return found
		}
	}
}

// watchSync returns a map that will hold what the files of db held when they were
// last synced.
func watchSync(t testing.TB, db *engine.DB) map[string][]byte {
	t.Helper()
	synced := map[string][]byte{}
	engine.OnSync(db, func(name string) {
		if data, err := os.ReadFile(name); err == nil {
			synced[filepath.Base(name)] = data
		}
	})
	return synced
}

// crash writes to a new directory what is left of a DB after a power loss: before
// is what its files held at the last sync, now what they hold in memory. Of each
// page that changed since, either content is on disk; of a log that is new, any
// page may be empty. Badger itself syncs tables and the manifest.
func crash(t testing.TB, r *rand.Rand, before, now map[string][]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "crashed")
	must(t, os.Mkdir(dir, 0o755))
	keep := r.Float64() // how likely a changed page reached the disk
	for name, data := range now {
		if strings.HasSuffix(name, ".mem") || strings.HasSuffix(name, ".vlog") {
			old := before[name]
			data = bytes.Clone(data)
			const page = 4096
			for at := 0; at < len(data); at += page {
				end := min(at+page, len(data))
				if r.Float64() < keep {
					continue
				}
				clear(data[at:end])
				if at < len(old) {
					copy(data[at:end], old[at:min(end, len(old))])
				}
			}
		}
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return dir
}

// TestI2_PowerLoss takes the power away at random moments: what a sync covered is
// there, and applying the log from State gives what an uninterrupted life gives.
func TestI2_PowerLoss(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			m := newModel(t, seed)
			commits := 60 + r.IntN(150)
			for range commits {
				m.next()
			}
			dir := filepath.Join(t.TempDir(), "db")
			db := openDB(t, dir)
			p := openPartition(t, db, partA)
			other := openPartition(t, db, partB)
			synced := r.IntN(commits)
			if r.IntN(4) == 0 {
				synced = 0
			}
			m.apply(t, p, 0, synced)
			before := watchSync(t, db)
			must(t, db.SyncPartitions())
			// Enough of another partition for memtables to change in between.
			for range r.IntN(4) {
				fill(t, other, r.IntN(8)<<20)
			}
			m.apply(t, p, synced, commits)
			want := digest(t, p)

			db2 := openDB(t, crash(t, r, before, files(t, dir)))
			p2 := openPartition(t, db2, partA)
			state, err := p2.State()
			must(t, err)
			if synced > 0 {
				if diff := cmp.Diff(m.state(synced), state); diff != "" {
					t.Fatalf("state after the crash (-want +got):\n%s", diff)
				}
			} else if state.Applied != 0 {
				t.Fatalf("nothing was synced, and the state is %v", state)
			}
			lsn, sum, err := p2.Synced()
			if err != nil || lsn != state.Applied || sum != state.Sum {
				t.Errorf("synced is %d %s %v, state %v", lsn, sum, err, state)
			}
			if found := p2.Found(); found.Applied < state.Applied || int(found.Applied) > commits {
				t.Errorf("found %d, state %d, last %d", found.Applied, state.Applied, commits)
			}
			m.apply(t, p2, synced, commits)
			m.check(t, p2)
			if digest(t, p2) != want {
				t.Error("the digest differs from that of an uninterrupted life")
			}
		})
	}
}

// fill writes about size bytes.
func fill(t testing.TB, p *engine.Partition, size int) {
	t.Helper()
	b := p.NewBatch(&engine.Schema{})
	k := key(t, "fill")
	for n := range size >> 17 {
		must(t, b.PutBody(item(k, fmt.Sprint(n), `{"f":"`+strings.Repeat("f", 1<<17)+`"}`)))
	}
	must(t, b.Commit())
}

// TestSync_memtablesThatWait writes faster than Badger flushes: every log of a
// memtable that is there before and after a sync must have been synced, not only
// that of the newest.
func TestSync_memtablesThatWait(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	db := openDB(t, dir)
	p := openPartition(t, db, partA)
	logs := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
		must(t, err)
		return names
	}
	waited := 0
	for range 20 {
		fill(t, p, 6<<20)
		synced := map[string]bool{}
		engine.OnSync(db, func(name string) { synced[name] = true })
		before := logs()
		must(t, db.Sync())
		after := logs()
		for _, name := range before {
			if slices.Contains(after, name) && !synced[name] {
				t.Errorf("%s was not synced", name)
			}
		}
		waited = max(waited, len(after)-1)
		if !synced[dir] {
			t.Error("the directory was not synced")
		}
	}
	t.Logf("up to %d memtables waited", waited)
}

func TestClose_isClean(t *testing.T) {
	dir := t.TempDir()
	m := newModel(t, 3)
	for range 50 {
		m.next()
	}
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	m.apply(t, openPartition(t, db, partA), 0, 50)
	must(t, db.Close())
	p := openPartition(t, openDB(t, dir), partA)
	m.check(t, p)
	state, err := p.State()
	must(t, err)
	synced, err := p.SyncedState()
	must(t, err)
	for name, s := range map[string]engine.State{"state": state, "synced": synced, "found": p.Found()} {
		if diff := cmp.Diff(m.state(50), s); diff != "" {
			t.Errorf("%s after Close (-want +got):\n%s", name, diff)
		}
	}
}

// An earlier release applies commits and does not keep what it does not know: a state
// that was this release's before is made again, and one that never was is taken as it is.
func TestI3_AnEarlierReleaseInBetween(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		releases string // which of them applied the commits, in turn: this one or an earlier
		applied  feed.LSN
	}{
		"this one":                     {"tt", 2},
		"an earlier one":               {"ee", 2},
		"upgraded":                     {"et", 2},
		"upgraded, back and forth":     {"ete", 0},
		"the earlier did nothing":      {"et-", 2},
		"made again, and used by us":   {"etet", 4},
		"the earlier, after a rebuild": {"etete", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for n, release := range c.releases {
				db, err := engine.Open(dir, small, quiet)
				must(t, err)
				p := openPartition(t, db, partA)
				if release != '-' {
					b := p.NewBatch(schemaOf(t))
					must(t, b.Put(item(key(t, "k"), fmt.Sprint(n), `{}`), nil))
					b.SetState(engine.State{Log: feed.LogID{1}, Applied: feed.LSN(n + 1), Sum: feed.Checksum(n + 1)})
					must(t, b.Commit())
				}
				if release == 'e' {
					must(t, engine.SyncAsEarlier(p))
				}
				must(t, db.Close())
			}
			p := openPartition(t, openDB(t, dir), partA)
			state, err := p.State()
			must(t, err)
			if state.Applied != c.applied {
				t.Errorf("the state is of LSN %d, want %d", state.Applied, c.applied)
			}
			if c.applied == 0 && p.Found().Applied != feed.LSN(len(c.releases)) {
				t.Errorf("found LSN %d, and the log went further", p.Found().Applied)
			}
		})
	}
}

// TestNothingSynced leaves keys of a history behind that the log may not have.
func TestNothingSynced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	db := openDB(t, dir)
	p := openPartition(t, db, partA)
	b := p.NewBatch(schemaOf(t))
	must(t, b.Put(item(key(t, 1), "1", `{}`), nil))
	b.SetState(engine.State{Applied: 5})
	must(t, b.Commit())
	now := files(t, dir)
	p2 := openPartition(t, openDB(t, crash(t, rand.New(rand.NewPCG(1, 1)), now, now)), partA)
	if p2.Found().Applied != 5 {
		t.Errorf("found %v", p2.Found())
	}
	if digest(t, p2) != digest(t, newPartition(t)) {
		t.Error("a partition of which nothing was synced is not empty")
	}
}

func TestOpen_refuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	openDB(t, dir)
	_, err := engine.Open(dir, small, quiet)
	if _, ok := errors.AsType[*engine.LockedError](err); !ok {
		t.Errorf("a directory that is in use: %v", err)
	}
	_, aside, err := engine.OpenOrSetAside(dir, small, quiet)
	if _, ok := errors.AsType[*engine.LockedError](err); !ok || aside != "" {
		t.Errorf("a directory that is in use: %q %v", aside, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o644))
	if _, aside, err := engine.OpenOrSetAside(file, small, quiet); err == nil || aside != "" {
		t.Errorf("a file: %q %v", aside, err)
	}
	for _, cfg := range []engine.Config{{MemTableBytes: 1}, {MemTables: 1}, {MemTableBytes: 1 << 40}} {
		if _, err := engine.Open(t.TempDir(), cfg, quiet); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// TestAMemtableThatCannotBeReplacedLeavesTheFilesWhole takes the name of the log that the next
// memtable would have. Nothing is wrong with the files.
func TestAMemtableThatCannotBeReplacedLeavesTheFilesWhole(t *testing.T) {
	m := newModel(t, 25)
	for range 20 {
		m.next()
	}
	dir := filepath.Join(t.TempDir(), "db")
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	p := openPartition(t, db, partA)
	m.apply(t, p, 0, 10)
	must(t, db.SyncPartitions())
	m.apply(t, p, 10, 15)
	logs, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	must(t, err)
	var last int
	_, err = fmt.Sscanf(filepath.Base(slices.Max(logs)), "%d.mem", &last)
	must(t, err)
	next := filepath.Join(dir, fmt.Sprintf("%05d.mem", last+1))
	must(t, os.Mkdir(next, 0o700))
	other := openPartition(t, db, partB)
	write := func(i int) error {
		b := other.NewBatch(&engine.Schema{})
		must(t, b.PutBody(item(key(t, "k"), fmt.Sprint(i), `{"f":"`+strings.Repeat("f", 1<<17)+`"}`)))
		return b.Commit()
	}
	var failed error
	for i := 0; failed == nil; i++ {
		failed = write(i)
	}
	unsynced := func(what string, err error) {
		t.Helper()
		if damage, ok := errors.AsType[*engine.DamagedError](err); !ok || !damage.Unsynced {
			t.Fatalf("%s says %v", what, err)
		}
	}
	s := p.Snapshot()
	_, _, err = s.Get(key(t, "k"), "a")
	must(t, err)
	s.Close()
	unsynced("the DB", db.Sound())
	unsynced("the commit", failed)
	unsynced("the next commit", write(0))
	must(t, os.Remove(next))
	again, aside, err := db.Renew(0)
	must(t, err)
	q := openPartition(t, again, partA)
	state, err := q.State()
	must(t, err)
	if aside != "" || state.Applied != 10 {
		t.Fatalf("it goes on from %d, aside %q; want 10", state.Applied, aside)
	}
	m.apply(t, q, 10, 20)
	m.check(t, q)
	must(t, again.Close())
}
