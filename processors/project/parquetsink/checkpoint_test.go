package parquetsink_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/processors/project/parquetsink"
)

// TestDeltaCheckpoint_LogsStayShort commits many times: the log has no more than what a
// checkpoint leaves over, and a process that begins with it goes on.
func TestDeltaCheckpoint_LogsStayShort(t *testing.T) {
	storage := newMemory()
	cfg := quick()
	cfg.Grace = time.Nanosecond
	for life := range 3 {
		s := open(t, storage, cfg)
		parquetsink.CheckpointEvery(s, 7)
		w := openWriter(t, s, 0, uint64(life+1))
		for n := 30*life + 1; n <= 30*life+30; n++ {
			writeRows(t, w, n, orderRow("customer/[\"a\"]/o", fmt.Sprint("o", n%50), int64(n)))
			flush(t, w)
			if got, want := deltaIDs(t, storage), ids(t, s); !slices.Equal(got, want) {
				t.Fatalf("after commit %d the log has %q, want %q", n, got, want)
			}
		}
	}
	names := storage.names("orders/_delta_log/")
	if log := replay(t, storage, "orders", -1); log.version < 80 || len(names) > 14 {
		t.Errorf("version %d has a log of %q", log.version, names)
	}
	data, err := storage.Get(t.Context(), "orders/_delta_log/_last_checkpoint")
	must(t, err)
	var hint struct{ Version, Size int64 }
	must(t, json.Unmarshal(data, &hint))
	if name := fmt.Sprintf("orders/_delta_log/%020d.checkpoint.parquet", hint.Version); !slices.Contains(names, name) || hint.Size < 4 {
		t.Errorf("the hint is %s, there is %q", data, names)
	}
}

// TestDeltaCheckpoint_VersionsStayForTheGrace sees to it that a checkpoint removes no
// commit that a reader of a moment ago needs.
func TestDeltaCheckpoint_VersionsStayForTheGrace(t *testing.T) {
	storage := newMemory()
	s := open(t, storage, quick())
	parquetsink.CheckpointEvery(s, 5)
	w := openWriter(t, s, 0, 1)
	for n := 1; n <= 20; n++ {
		writeRows(t, w, n, orderRow("customer/[\"a\"]/o", "o", int64(n)))
		flush(t, w)
	}
	checkpoints := 0
	for _, name := range storage.names("orders/_delta_log/") {
		if strings.HasSuffix(name, ".checkpoint.parquet") {
			checkpoints++
			must(t, storage.Delete(t.Context(), name))
		}
	}
	if checkpoints < 3 {
		t.Errorf("%d checkpoints of 21 versions", checkpoints)
	}
	for version := range int64(20) {
		if log := replay(t, storage, "orders", version); len(log.files) != 1 || log.version != version {
			t.Errorf("version %d has the files %q", version, log.names())
		}
	}
}

// TestDeltaCheckpoint_OneThatStoodStill lets a process stand still before a commit in a log,
// until its number has been used, a checkpoint made and the commit removed.
func TestDeltaCheckpoint_OneThatStoodStill(t *testing.T) {
	storage := newMemory()
	cfg := quick()
	cfg.Grace = time.Nanosecond
	paused := &pausing{objects: storage}
	late := openWriter(t, open(t, paused, quick()), 0, 1)
	writeRows(t, late, 1, orderRow("customer/[\"a\"]/o", "late", 1))
	flush(t, late)
	writeRows(t, late, 2, orderRow("customer/[\"a\"]/o", "late", 2))
	const stray = "orders/_delta_log/00000000000000000002.json"
	stood := false
	paused.nth, paused.before = 2, func() { // the first is the manifest
		s := open(t, storage, cfg)
		parquetsink.CheckpointEvery(s, 4)
		w := openWriter(t, s, 1, 1)
		for n := 1; n <= 20; n++ {
			writeRows(t, w, n, orderRow("customer/[\"b\"]/o", fmt.Sprint("o", n), 1))
			flush(t, w)
		}
		if names := storage.names("orders/_delta_log/"); slices.Contains(names, stray) {
			t.Fatalf("%q: the number is still there", names)
		}
		stood = true
	}
	flush(t, late)
	if !stood {
		t.Error("the process did not stand still")
	}
	if got := deltaIDs(t, storage); len(got) != 21 || !slices.Contains(got, "late=0.02") {
		t.Errorf("rows %q", got)
	}
	// It goes on with what the others have left.
	writeRows(t, late, 3, orderRow("customer/[\"a\"]/o", "late", 3))
	flush(t, late)
	if got := deltaIDs(t, storage); len(got) != 21 || !slices.Contains(got, "late=0.03") {
		t.Errorf("rows %q", got)
	}
}
