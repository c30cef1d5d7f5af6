package parquetsink_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/processors/project"
)

// dying is a store that a process uses until it is killed at its nth exclusive creation,
// ahead of which something happens. The creation is tried, and it does not hear of it.
type dying struct {
	objects
	mu     sync.Mutex
	nth    int
	before func()
	dead   bool
}

func (d *dying) PutExclusive(ctx context.Context, name string, data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return errCrash
	}
	if d.nth--; d.nth != 0 {
		return d.objects.PutExclusive(ctx, name, data)
	}
	d.before()
	d.dead = true
	_ = d.objects.PutExclusive(ctx, name, data)
	return errCrash
}

// TestDelta_RowThatCameAndWent lets a process stand still between a manifest with a new
// file and the log. By the next manifest, of another process, the file goes: so that one
// changes nothing in the log. The file is removed, and then the first process wakes up.
func TestDelta_RowThatCameAndWent(t *testing.T) {
	storage := newMemory()
	stalled := &dying{objects: storage}
	cfg := quick()
	cfg.Grace = time.Nanosecond
	late := openWriter(t, open(t, stalled, quick()), 0, 1)
	other := openWriter(t, open(t, storage, cfg), 1, 1)
	writeRows(t, other, 1, orderRow("customer/[\"b\"]/k", "keep", 1))
	flush(t, other)
	row := orderRow("customer/[\"a\"]/x", "x", 1)
	writeRows(t, late, 1, row)
	stalled.nth, stalled.before = 2, func() { // the first is the manifest; this runs in a goroutine of the sink
		write(t, other, &project.Batch{After: at(1), UpTo: at(2), Drop: []project.Row{{Table: row.Table, Key: row.Key, Source: row.Source}}})
		flush(t, other)
	}
	if _, err := late.Flush(t.Context()); err == nil || !stalled.dead {
		t.Fatalf("the process did not stand still: %v", err)
	}
	for _, name := range replay(t, storage, "orders", -1).names() {
		if _, err := storage.Get(t.Context(), name); err != nil {
			t.Errorf("the log names a file that has been removed: %v", err)
		}
	}
}

// TestDelta_LogRemovedAndRemade removes a log, which another process then makes again, up
// to the version that the first process made.
func TestDelta_LogRemovedAndRemade(t *testing.T) {
	storage := newMemory()
	first := openWriter(t, open(t, storage, quick()), 0, 1) // makes version 0
	other := openWriter(t, open(t, storage, quick()), 1, 1)
	for n := 1; n <= 3; n++ {
		writeRows(t, other, n, orderRow(fmt.Sprintf("customer/[\"b\"]/k%d", n), fmt.Sprint("k", n), 1))
		flush(t, other)
	}
	must(t, storage.Delete(t.Context(), storage.names("orders/_delta_log/")...))
	writeRows(t, other, 4, orderRow("customer/[\"b\"]/k4", "k4", 1))
	flush(t, other) // makes version 0 again
	writeRows(t, first, 1, orderRow("customer/[\"b\"]/k1", "k1", 9))
	flush(t, first)
	if got := deltaIDs(t, storage); !slices.Equal(got, []string{"k1=0.09", "k2=0.01", "k3=0.01", "k4=0.01"}) {
		t.Errorf("rows %q", got)
	}
}

// TestCollect_AllThatIsDueGoes supersedes more files than are removed at once.
func TestCollect_AllThatIsDueGoes(t *testing.T) {
	storage := newMemory()
	s := open(t, storage, quick())
	w, _, err := s.Open(t.Context(), visits(), termOf(1, 0, 1))
	must(t, err)
	rows := make([]project.Row, 520)
	for n := 1; n <= 2; n++ {
		for i := range rows {
			rows[i] = visit(int64(i), fmt.Sprint("city ", i))
			rows[i].Values[2] = project.TextOf(fmt.Sprint("visit ", n))
		}
		writeRows(t, w, n, rows...)
		flush(t, w)
	}
	superseded := len(storage.names("visits_by_city/data/")) - len(replay(t, storage, "visits_by_city", -1).files)
	if superseded < len(rows) {
		t.Fatalf("%d files were superseded, want %d", superseded, len(rows))
	}
	cfg := quick()
	cfg.Grace = time.Nanosecond
	_, _, err = open(t, storage, cfg).Open(t.Context(), visits(), termOf(1, 0, 2))
	must(t, err)
	if got, want := storage.names("visits_by_city/data/"), replay(t, storage, "visits_by_city", -1).names(); !slices.Equal(got, want) {
		t.Errorf("%d files are there, %d are live", len(got), len(want))
	}
}
