package engine_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/store/engine"
)

// TestKept_OnlyInTheSameLifeOfTheMachine opens what a killed process has left: what it
// had written behind the last sync is relied on where the machine has gone on since,
// and nowhere else.
func TestKept_OnlyInTheSameLifeOfTheMachine(t *testing.T) {
	if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this system does not tell the life of the machine")
	}
	dir := filepath.Join(t.TempDir(), "db")
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	m := newModel(t, 7)
	for range 20 {
		m.next()
	}
	p := openPartition(t, db, partA)
	m.apply(t, p, 0, 10)
	must(t, db.SyncPartitions())
	m.apply(t, p, 10, 20)
	left := files(t, dir)
	if _, ok := left["BOOT"]; !ok {
		t.Fatal("the life of the machine is not noted")
	}
	must(t, db.Close())
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
			dir := filepath.Join(t.TempDir(), "db")
			must(t, os.Mkdir(dir, 0o750))
			for file, data := range left {
				if file == "BOOT" {
					if data = c.boot; data == nil {
						continue
					}
				}
				must(t, os.WriteFile(filepath.Join(dir, file), data, 0o600))
			}
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
			if !openPartition(t, again, partA).Kept() {
				t.Error("what was closed in order is not kept")
			}
			must(t, again.Close())
		})
	}
}
