package engine_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// TestKept_OnlyInTheSameLifeOfTheMachine opens what a killed process has left: what it
// had written behind the last sync is relied on where the machine has gone on since,
// and nowhere else.
func TestKept_OnlyInTheSameLifeOfTheMachine(t *testing.T) {
	if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this system does not tell the life of the machine")
	}
	m, left := killed(t, true)
	if _, ok := left["BOOT"]; !ok {
		t.Fatal("the life of the machine is not noted")
	}
	for name, c := range map[string]struct {
		boot []byte // nil: there is none
		kept bool
	}{
		"the process was killed":                  {left["BOOT"], true},
		"the machine lost its power":              {[]byte("c56c6bb7-0c39-4b39-8f4b-0e7d3d3a4b1c\n"), false},
		"a sync had failed":                       {nil, false},
		"the note was cut off":                    {left["BOOT"][:8], false},
		"the note was lost with what was written": {[]byte{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			left := maps.Clone(left)
			if left["BOOT"] = c.boot; c.boot == nil {
				delete(left, "BOOT")
			}
			dir := place(t, left)
			again, err := engine.Open(dir, small, quiet)
			must(t, err)
			p := openPartition(t, again, partA)
			state, err := p.State()
			must(t, err)
			if p.Kept() != c.kept || state.Applied != 10 || p.Found().Applied != 20 {
				t.Errorf("kept %v, goes on from %d, found %d; want %v, 10 and 20", p.Kept(), state.Applied, p.Found().Applied, c.kept)
			}
			must(t, p.Clear())
			if p.Kept() {
				t.Error("what was found is kept after a clear")
			}
			must(t, again.Close())
			// From now on this life counts, whatever was before.
			again, err = engine.Open(dir, small, quiet)
			must(t, err)
			if p := openPartition(t, again, partA); p.Kept() || p.Found().Applied != 20 {
				t.Errorf("of what was cleared is kept %v, found %d", p.Kept(), p.Found().Applied)
			} else {
				m.apply(t, p, 0, 20)
			}
			must(t, again.Close())
			again, err = engine.Open(dir, small, quiet)
			must(t, err)
			if !openPartition(t, again, partA).Kept() {
				t.Error("what was closed in order is not kept")
			}
			must(t, again.Close())
		})
	}
}

// killed returns the files that a process leaves which is killed after it has applied 20
// commits, of which the first 10 were synced, or none, and the model that made them.
func killed(t *testing.T, synced bool) (*model, map[string][]byte) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "db")
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	m := newModel(t, 7)
	for range 20 {
		m.next()
	}
	p := openPartition(t, db, partA)
	m.apply(t, p, 0, 10)
	if synced {
		must(t, db.SyncPartitions())
	}
	m.apply(t, p, 10, 20)
	left := files(t, dir)
	must(t, db.Close())
	return m, left
}

// place writes files into a new directory.
func place(t *testing.T, left map[string][]byte) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "db")
	must(t, os.Mkdir(dir, 0o750))
	for file, data := range left {
		must(t, os.WriteFile(filepath.Join(dir, file), data, 0o600))
	}
	return dir
}

// TestFound_IsKnownUntilItIsReached: how far a killed process had come is the proof that a log
// has lost its end. Every process that follows has it, until what it applied is as far.
func TestFound_IsKnownUntilItIsReached(t *testing.T) {
	for name, synced := range map[string]bool{"half was synced": true, "nothing was synced": false} {
		t.Run(name, func(t *testing.T) {
			m, left := killed(t, synced)
			dir := place(t, left)
			from := 0
			if synced {
				from = 10
			}
			for i, to := range []int{from, from, 15, 15, 20} { // what the log had when that process ran
				db, err := engine.Open(dir, small, quiet)
				must(t, err)
				p := openPartition(t, db, partA)
				state, err := p.State()
				must(t, err)
				if state.Applied != feed.LSN(from) || p.Found().Applied != 20 {
					t.Fatalf("process %d goes on from %d, found %d; want %d and 20", i, state.Applied, p.Found().Applied, from)
				}
				m.apply(t, p, from, to)
				from = to
				must(t, db.Close())
			}
			m.next() // one more, which nothing of before is ahead of
			db, err := engine.Open(dir, small, quiet)
			must(t, err)
			p := openPartition(t, db, partA)
			m.apply(t, p, 20, 21)
			must(t, db.Close())
			db, err = engine.Open(dir, small, quiet)
			must(t, err)
			if p := openPartition(t, db, partA); p.Found().Applied != 21 || !p.Kept() {
				t.Errorf("found %d, kept %v", p.Found().Applied, p.Kept())
			}
			must(t, db.Close())
		})
	}
}

// TestKept_NotWhenAPartWasAppliedAgain: behind a part of what is applied again, items are as they
// were then, and not as the last commit that was found had left them.
func TestKept_NotWhenAPartWasAppliedAgain(t *testing.T) {
	m, left := killed(t, true)
	dir := place(t, left)
	for i := range 2 { // the process that does it, and the next
		db, err := engine.Open(dir, small, quiet)
		must(t, err)
		p := openPartition(t, db, partA)
		if kept := p.Kept(); kept != (i == 0) {
			t.Errorf("process %d: kept %v", i, kept)
		}
		if i == 0 {
			m.apply(t, p, 10, 15)
		}
		if p.Kept() {
			t.Errorf("process %d: what was found is kept behind a part of it", i)
		}
		must(t, db.Close())
	}
}

// TestKept_NotAfterALossOfPowerThatNobodyLookedAt: a process that opened the directory in the new
// life of the machine, and not the partition, does not make what was written before it whole.
func TestKept_NotAfterALossOfPowerThatNobodyLookedAt(t *testing.T) {
	if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this system does not tell the life of the machine")
	}
	_, left := killed(t, true)
	left["BOOT"] = []byte("c56c6bb7-0c39-4b39-8f4b-0e7d3d3a4b1c\n")
	dir := place(t, left)
	for range 2 {
		db, err := engine.Open(dir, small, quiet)
		must(t, err)
		must(t, db.Close())
	}
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	if p := openPartition(t, db, partA); p.Kept() || p.Found().Applied != 20 {
		t.Errorf("kept %v, found %d", p.Kept(), p.Found().Applied)
	}
	must(t, db.Close())
}

// TestKept_NotAfterALossOfPowerBehindAKill: a process that was killed leaves all, one that opens it and
// is killed too leaves all of that, and then the machine loses its power.
func TestKept_NotAfterALossOfPowerBehindAKill(t *testing.T) {
	_, left := killed(t, true)
	dir := place(t, left)
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	openPartition(t, db, partA)
	left = files(t, dir)
	must(t, db.Close())
	left["BOOT"] = []byte("c56c6bb7-0c39-4b39-8f4b-0e7d3d3a4b1c\n")
	dir = place(t, left)
	for range 2 {
		db, err := engine.Open(dir, small, quiet)
		must(t, err)
		if p := openPartition(t, db, partA); p.Kept() || p.Found().Applied != 20 {
			t.Errorf("kept %v, found %d", p.Kept(), p.Found().Applied)
		}
		must(t, db.Close())
	}
}

// TestKept_NotBehindAnyWrite: what is written of a commit before its end, such as what comes before new
// settings, and expiries that are rebuilt, changes items too.
func TestKept_NotBehindAnyWrite(t *testing.T) {
	for name, write := range map[string]func(p *engine.Partition) error{
		"a part of a commit": func(p *engine.Partition) error {
			b := p.NewBatch(&engine.Schema{})
			return errors.Join(b.PutRecord('R', []byte("key"), []byte("value")), b.Commit())
		},
		"expiries": func(p *engine.Partition) error { return p.RebuildExpiries(&engine.Schema{}) },
	} {
		t.Run(name, func(t *testing.T) {
			_, left := killed(t, true)
			dir := place(t, left)
			for i := range 2 {
				db, err := engine.Open(dir, small, quiet)
				must(t, err)
				p := openPartition(t, db, partA)
				if i == 0 {
					must(t, write(p))
				}
				if p.Kept() || p.Found().Applied != 20 {
					t.Errorf("process %d: kept %v, found %d", i, p.Kept(), p.Found().Applied)
				}
				must(t, db.Close())
			}
		})
	}
}
