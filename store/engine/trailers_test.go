package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store/engine"
)

// versions adds tables to a DB, each with all items of a partition, of which the latest one has
// the bodies that it returns. Who cannot read that one finds those of an earlier one.
func versions(t *testing.T, dir string, tables int) (bodies map[string]string) {
	t.Helper()
	const n = 40
	for version := range tables {
		bodies = map[string]string{}
		db, err := engine.Open(dir, small, quiet)
		must(t, err)
		p := openPartition(t, db, partA)
		b := p.NewBatch(&engine.Schema{})
		for i := range n {
			it := item(key(t, "k"), fmt.Sprintf("item-%03d", i), fmt.Sprintf(`{"version":%d,"fill":%q}`, version, strings.Repeat("x", 700)))
			bodies[it.ID] = string(it.Body)
			must(t, b.Put(it, nil))
		}
		b.SetState(engine.State{Log: feed.LogID{1}, Applied: feed.LSN(version + 1), Sum: 1})
		must(t, b.Commit())
		must(t, db.Close())
	}
	return bodies
}

// tablesIn returns the tables of dir, the oldest first.
func tablesIn(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	must(t, err)
	slices.Sort(names)
	return names
}

// flip flips a bit of a file.
func flip(t *testing.T, name string, at int64, bit int) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	defer f.Close() //nolint:errcheck // written below
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	must(t, err)
	b[0] ^= 1 << bit
	_, err = f.WriteAt(b[:], at)
	must(t, err)
}

// reads are the ways to read a partition, each with what is wrong with what it shows.
var reads = map[string]func(s *engine.Snapshot, k feed.PartitionKey, bodies map[string]string) string{
	"get": func(s *engine.Snapshot, k feed.PartitionKey, bodies map[string]string) string {
		for id, body := range bodies {
			if it, ok, err := s.Get(k, id); err == nil && (!ok || string(it.Body) != body) {
				return fmt.Sprintf("%s: there %v", id, ok)
			}
		}
		return ""
	},
	"find": func(s *engine.Snapshot, k feed.PartitionKey, bodies map[string]string) string {
		for id, body := range bodies {
			v, err := s.Find(engine.ItemKey(k, id))
			if err == nil && (v == nil || string(v.Body) != body) {
				return fmt.Sprintf("%s: there %v", id, v != nil)
			}
		}
		return ""
	},
	"finder": func(s *engine.Snapshot, k feed.PartitionKey, bodies map[string]string) string {
		f, err := s.NewFinder()
		if err != nil {
			return err.Error()
		}
		defer f.Close()
		for i := 0; i < len(bodies); i += 7 {
			id := fmt.Sprintf("item-%03d", i)
			v, err := f.Find(engine.ItemKey(k, id))
			if err == nil && (v == nil || string(v.Body) != bodies[id]) {
				return fmt.Sprintf("%s: there %v", id, v != nil)
			}
		}
		return ""
	},
	"scan": func(s *engine.Snapshot, _ feed.PartitionKey, bodies map[string]string) (wrong string) {
		seen := 0
		for v, err := range s.Items(nil, nil) {
			if err != nil {
				return ""
			}
			if seen++; string(v.Body) != bodies[v.ID()] {
				wrong = v.ID()
			}
		}
		if seen != len(bodies) {
			return fmt.Sprintf("%d of %d", seen, len(bodies))
		}
		return wrong
	},
	"scan backwards": func(s *engine.Snapshot, _ feed.PartitionKey, bodies map[string]string) (wrong string) {
		seen := 0
		for v, err := range s.ItemSpan(engine.Span{}, true) {
			if err != nil {
				return ""
			}
			if seen++; string(v.Body) != bodies[v.ID()] {
				wrong = v.ID()
			}
		}
		if seen != len(bodies) {
			return fmt.Sprintf("%d of %d", seen, len(bodies))
		}
		return wrong
	},
	"count": func(s *engine.Snapshot, _ feed.PartitionKey, bodies map[string]string) string {
		if n, err := s.Count(nil); err == nil && n != len(bodies) {
			return fmt.Sprintf("%d of %d", n, len(bodies))
		}
		return ""
	},
	"page backwards": func(s *engine.Snapshot, k feed.PartitionKey, bodies map[string]string) (wrong string) {
		for i := len(bodies); i > 0; i -= 5 {
			n := i
			for v, err := range s.ItemSpan(engine.Span{Max: engine.ItemKey(k, fmt.Sprintf("item-%03d", i))}, true) {
				n--
				id := fmt.Sprintf("item-%03d", n)
				if err == nil && (v.ID() != id || string(v.Body) != bodies[id]) {
					wrong = id
				}
				if n == max(i-5, 0) {
					break
				}
			}
			if n != max(i-5, 0) {
				wrong = fmt.Sprintf("%d of a page", i-n)
			}
		}
		return wrong
	},
	"page": func(s *engine.Snapshot, k feed.PartitionKey, bodies map[string]string) (wrong string) {
		for i := 0; i < len(bodies); i += 5 { // ends in the middle of blocks
			n := i
			from := engine.ItemKey(k, fmt.Sprintf("item-%03d", i))
			for v, err := range s.ItemSpan(engine.Span{Min: from}, false) {
				id := fmt.Sprintf("item-%03d", n)
				if err == nil && (v.ID() != id || string(v.Body) != bodies[id]) {
					wrong = id
				}
				if n++; n == i+5 || n == len(bodies) {
					break
				}
			}
			if n != min(i+5, len(bodies)) {
				wrong = fmt.Sprintf("%d of a page", n-i)
			}
		}
		return wrong
	},
}

// read reads in one way, and tells what is wrong unless the DB says that it is not to be believed.
func read(t *testing.T, db *engine.DB, p *engine.Partition, way string, bodies map[string]string) (wrong string) {
	t.Helper()
	defer func() {
		if db.Caught(recover()) != nil {
			wrong = ""
		}
	}()
	wrong = func() string {
		s := p.Snapshot()
		defer s.Close()
		return reads[way](s, key(t, "k"), bodies)
	}()
	if db.Sound() != nil {
		return ""
	}
	return wrong
}

// TestNoBitBehindABlockIsPassedOver flips each bit of what stands behind blocks, their checksums and the
// lengths of those: whatever is read, in whichever way, is right, or the DB says that it is not
// to be believed. Where Badger passes over a block of the later table, the earlier one has
// another version of all items.
func TestNoBitBehindABlockIsPassedOver(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	bodies := versions(t, dir, 2)
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	p := openPartition(t, db, partA)
	for way := range reads {
		if wrong := read(t, db, p, way, bodies); wrong != "" || db.Sound() != nil {
			t.Fatalf("%s: %s, %v", way, wrong, db.Sound())
		}
	}
	tables := tablesIn(t, dir)
	later := tables[len(tables)-1]
	behind, err := engine.BehindBlocks(later)
	must(t, err)
	if len(behind) < 5 {
		t.Fatalf("%d blocks", len(behind))
	}
	for _, block := range []int{0, len(behind) / 2, len(behind) - 1} {
		for _, at := range behind[block] {
			for bit := range 8 {
				flip(t, later, int64(at), bit)
				for way := range reads {
					if wrong := read(t, db, p, way, bodies); wrong != "" {
						t.Errorf("block %d of %d, bit %d of the byte at %d: %s shows %s", block, len(behind), bit, at, way, wrong)
					}
					engine.Forgive(db)
				}
				flip(t, later, int64(at), bit)
			}
		}
	}
}

// TestWhoComesUponADamagedIndexLetsGo flips a high bit of each byte of an open table's index, over which
// reads panic: none of them may keep its snapshot open, for which the engine that comes in place of
// this one would wait.
func TestWhoComesUponADamagedIndexLetsGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	bodies := versions(t, dir, 1)
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	p := openPartition(t, db, partA)
	name := tablesIn(t, dir)[0]
	behind, err := engine.BehindBlocks(name)
	must(t, err)
	data, err := os.ReadFile(name)
	must(t, err)
	end := behind[len(behind)-1]
	damaged := 0
	for at := end[len(end)-1] + 1; at < len(data); at++ {
		flip(t, name, int64(at), 7)
		for way := range reads {
			_ = read(t, db, p, way, bodies) // what it shows is another test's
			if db.Sound() != nil {
				damaged++
			}
			engine.Forgive(db)
			poll.Until(t, func() error { // the DB reads now and then, too
				n := engine.OpenReads(db)
				return poll.Unless(n == 0, fmt.Sprintf("byte %d of %d: %s has left %d snapshots open", at, len(data), way, n))
			})
		}
		flip(t, name, int64(at), 7)
	}
	if damaged == 0 {
		t.Error("no read came upon a damaged index")
	}
	must(t, db.Close())
}

// TestASyncThatComesUponADamagedBlockIsRefused flips a high bit of the number of entries of all blocks, which
// Badger uses before it looks at the block's checksum: the process goes on.
func TestASyncThatComesUponADamagedBlockIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	versions(t, dir, 1)
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	p := openPartition(t, db, partA)
	name := tablesIn(t, dir)[0]
	behind, err := engine.BehindBlocks(name)
	must(t, err)
	b := p.NewBatch(&engine.Schema{})
	b.SetState(engine.State{Log: feed.LogID{1}, Applied: 100, Sum: 1})
	must(t, b.Commit())
	flipAll := func() {
		for _, of := range behind {
			for k := range int64(4) {
				flip(t, name, int64(of[0]-4)+k, 6)
			}
		}
	}
	flipAll() // in one of them is what was synced before
	if err := db.SyncPartitions(p); err == nil {
		t.Error("a sync that comes upon a damaged block succeeds")
	}
	flipAll()
	engine.Forgive(db)
	must(t, db.SyncPartitions(p))
	must(t, db.Close())
}

// TestAMergeTakesNothingAwayUnseen damages what stands behind the blocks of tables, and their
// indexes, while a DB is open, and merges them: the DB is not to be believed then, the next process
// knows it, though nothing was read, and the tables are still there.
func TestAMergeTakesNothingAwayUnseen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	versions(t, dir, engine.Level0Max+1) // more than the first level may have
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	must(t, engine.Flatten(db))
	must(t, db.Close())
	versions(t, dir, 1)
	original := files(t, dir)
	tables := tablesIn(t, dir)
	if len(tables) != 2 {
		t.Fatalf("%d tables, want one in each of two levels", len(tables))
	}
	length := func(table, block int) damagedByte { // the first byte of the length of a checksum
		behind, err := engine.BehindBlocks(tables[table])
		must(t, err)
		block %= len(behind)
		return damagedByte{table, int64(behind[block][len(behind[block])-4])}
	}
	index := func(table int) damagedByte {
		at, err := engine.BloomByte(tables[table])
		must(t, err)
		return damagedByte{table, at}
	}
	for name, bytes := range map[string][]damagedByte{
		"nothing":            nil,
		"first block":        {length(1, 0)},
		"block":              {length(1, 3)},
		"lower level":        {length(0, 3)},
		"first blocks":       {length(0, 0), length(1, 0)}, // nothing at all is read
		"index":              {index(1)},
		"index, lower level": {index(0)},
	} {
		t.Run(name, func(t *testing.T) {
			copyOf := filepath.Join(t.TempDir(), "db")
			must(t, os.Mkdir(copyOf, 0o755))
			for name, data := range original {
				must(t, os.WriteFile(filepath.Join(copyOf, name), data, 0o644))
			}
			db, err := engine.Open(copyOf, small, quiet)
			must(t, err)
			for _, b := range bytes {
				flip(t, filepath.Join(copyOf, filepath.Base(tables[b.table])), b.at, 6)
			}
			if err := engine.Flatten(db); errors.Is(err, engine.ErrCorrupt) != (bytes != nil) {
				t.Errorf("the merge says %v", err)
			}
			for _, name := range tables {
				if _, err := os.Stat(filepath.Join(copyOf, filepath.Base(name))); (err == nil) != (bytes != nil) {
					t.Errorf("%s after the merge: %v", name, err)
				}
			}
			if sound := db.Sound() == nil; sound != (bytes == nil) {
				t.Errorf("sound %v", sound)
			}
			must(t, db.Close())
			db, err = engine.Open(copyOf, small, quiet)
			if errors.Is(err, engine.ErrCorrupt) != (bytes != nil) {
				t.Errorf("the next process: %v", err)
			}
			if err == nil {
				must(t, db.Close())
			}
		})
	}
}

// damagedByte is a place in a table.
type damagedByte struct {
	table int
	at    int64
}

// TestWhatIsLoadedIsLookedAtToo damages a table after a load, for which Badger is closed and opened: a
// read finds it, and so does a merge.
func TestWhatIsLoadedIsLookedAtToo(t *testing.T) {
	for _, merged := range []bool{false, true} {
		t.Run(fmt.Sprintf("merged=%v", merged), func(t *testing.T) {
			m, state, entries, want := aDump(t, 76)
			dir := filepath.Join(t.TempDir(), "db")
			db, err := engine.Open(dir, small, quiet)
			must(t, err)
			defer func() { must(t, db.Close()) }()
			to := openPartition(t, db, partA)
			engine.OnLoad(db, tableTarget, time.Minute, func(string) {})
			must(t, to.Load(t.Context(), state, func(yield func(engine.DumpEntry, error) bool) {
				// Its keys lie behind, and the engine's own before: they are a table over those that
				// are loaded, so all are merged.
				m.apply(t, openPartition(t, db, partB), 0, 20)
				each(entries, nil)(yield)
			}, engine.LoadOptions{}))
			tables := tablesIn(t, dir)
			behind, err := engine.BehindBlocks(tables[len(tables)-1])
			must(t, err)
			flip(t, tables[len(tables)-1], int64(behind[0][len(behind[0])-4]), 5)
			if merged {
				if err := engine.Flatten(db); !errors.Is(err, engine.ErrCorrupt) {
					t.Errorf("the merge says %v", err)
				}
			} else if got, err := to.Digest(); err == nil && got == want {
				t.Error("nothing is damaged")
			}
			if db.Sound() == nil {
				t.Error("the DB is believed")
			}
		})
	}
}

// TestOpen_refusesEachBitOfAnIndex flips each bit of the end of a table, and some of its index.
func TestOpen_refusesEachBitOfAnIndex(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	versions(t, dir, 2)
	name := tablesIn(t, dir)[0]
	behind, err := engine.BehindBlocks(name)
	must(t, err)
	data, err := os.ReadFile(name)
	must(t, err)
	must(t, engine.CheckTable(name))
	end := behind[len(behind)-1]
	step := 7
	for at := end[len(end)-1] + 1; at < len(data); at += step {
		if at > len(data)-24 {
			step = 1
		}
		for bit := range 8 {
			flip(t, name, int64(at), bit)
			if err := engine.CheckTable(name); !errors.Is(err, engine.ErrCorrupt) {
				t.Errorf("bit %d of byte %d of %d: %v", bit, at, len(data), err)
			}
			flip(t, name, int64(at), bit)
		}
	}
	if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, data) {
		t.Fatal("a bit is left flipped")
	}
}
