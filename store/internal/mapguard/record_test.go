//go:build linux && (amd64 || arm64)

package mapguard_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/store/internal/mapguard"
)

func told(t *testing.T, name string) mapguard.Faults {
	t.Helper()
	f, err := mapguard.ReadRecord(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestARecordTellsTheNextProcess meets faults: all records that are open tell of them, and go on
// to do so until they are cleared.
func TestARecordTellsTheNextProcess(t *testing.T) {
	install(t)
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	if got := told(t, one); got != (mapguard.Faults{}) {
		t.Errorf("a record that is not there tells of %+v", got)
	}
	open := func(name string) *mapguard.Record {
		t.Helper()
		r, err := mapguard.OpenRecord(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		return r
	}
	a, b := open(one), open(two)
	data, _ := mapped(t, unix.MAP_SHARED, 4, 0)

	_ = data[0]
	sink += int(data[0])
	if got := told(t, one); got.Reads != 1 || got.Writes != 0 {
		t.Errorf("after a read the record tells of %+v", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	data[pageSize] = 1
	if got := told(t, one); got != (mapguard.Faults{Reads: 1, Writes: 1}) {
		t.Errorf("after a read and a write the record tells of %+v", got)
	}
	if got := told(t, two); got != (mapguard.Faults{Reads: 1}) {
		t.Errorf("a record that was closed before the write tells of %+v", got)
	}

	// Opened again it tells of what it knows, and cleared of what is new.
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = open(one)
	if got := told(t, one); got.Reads != 1 {
		t.Errorf("opened again the record tells of %+v", got)
	}
	if err := a.Clear(); err != nil {
		t.Fatal(err)
	}
	if got := told(t, one); got != (mapguard.Faults{}) {
		t.Errorf("cleared, the record tells of %+v", got)
	}
	data[2*pageSize] = 1
	if got := told(t, one); got != (mapguard.Faults{Writes: 1}) {
		t.Errorf("cleared, after a write, the record tells of %+v", got)
	}
	if err := a.Clear(); err != nil {
		t.Fatal(err)
	}
	data[3*pageSize] = 1
	if got := told(t, one); got != (mapguard.Faults{Writes: 1}) {
		t.Errorf("cleared again, after a write, the record tells of %+v", got)
	}
	if err := a.Tell(mapguard.Faults{Reads: 5}); err != nil {
		t.Fatal(err)
	}
	if got := told(t, one); got != (mapguard.Faults{Reads: 1, Writes: 1}) {
		t.Errorf("told, the record tells of %+v", got)
	}
}

// TestMoreRecordsThanHavePlaces opens very many: those that have a place tell by themselves.
func TestMoreRecordsThanHavePlaces(t *testing.T) {
	install(t)
	dir := t.TempDir()
	for range 100 {
		f, err := os.CreateTemp(dir, "record")
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		r, err := mapguard.OpenRecord(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
	}
	data, _ := mapped(t, unix.MAP_SHARED, 1, 0)
	sink += int(data[0])
	names, err := filepath.Glob(filepath.Join(dir, "record*"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		n += int(told(t, name).Reads)
	}
	if n != 64 {
		t.Errorf("%d records tell of a fault", n)
	}
}

var sink int
