package snapshot_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/snapshot"
)

// TestWrite_APointerNeverGoesBack: one who was the owner until he was stopped for a while does
// not put his older snapshot in the place of what the log was trimmed by, nor sweep a newer one
// that somebody is about to name.
func TestWrite_APointerNeverGoesBack(t *testing.T) {
	dir := t.TempDir()
	s := snapshot.Directory(dir)
	now, late := newPartition(t), newPartition(t)
	fill(t, now, 10, 100, 1)
	fill(t, late, 10, 100, 1)
	fill(t, now, 10, 100, 2)
	write(t, s, now)
	coming := filepath.Join(dir, string(part.Container), fmt.Sprint(part.Number), "00000000000000000009-read back")
	must(t, os.MkdirAll(coming, 0o755))
	if _, err := tryWrite(t.Context(), s, late); err == nil || !strings.Contains(err.Error(), "newer one") {
		t.Errorf("an older one was named: %v", err)
	}
	// Nor where it cannot be learned whether what is named is newer: it may be.
	blind := blindStore{s, "/00000000000000000002-"}
	if _, err := tryWrite(t.Context(), blind, late); !errors.Is(err, errCrash) {
		t.Errorf("an older one was named, and nobody could know: %v", err)
	}
	all, damage, err := snapshot.Newest(t.Context(), s, part)
	must(t, errors.Join(append(damage, err)...))
	if len(all) != 1 || all[0].LSN != 2 {
		t.Errorf("%d are named, the newest of LSN %d", len(all), all[0].LSN)
	}
	if _, err := os.Stat(coming); err != nil {
		t.Errorf("what was to come was swept: %v", err)
	}
}
