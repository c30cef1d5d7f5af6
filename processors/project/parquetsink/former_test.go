package parquetsink_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/processors/project/parquetsink"
)

// leaveFormer leaves in a directory what a release before Delta logs kept for readers, and
// what looks like it and is not.
func leaveFormer(t *testing.T, dir string) {
	t.Helper()
	data, err := filepath.Glob(filepath.Join(dir, "orders", "data", "*", "*.parquet"))
	must(t, err)
	view := filepath.Join(dir, "_views", "00000000000000000001-ABCDEF", "orders", "00000000000000000001-ABCDEF")
	must(t, os.MkdirAll(view, 0o750))
	must(t, os.Link(data[0], filepath.Join(view, filepath.Base(data[0]))))
	must(t, os.Symlink("_views/00000000000000000001-ABCDEF", filepath.Join(dir, "current")))
	for _, name := range []string{"orders/_files.json", "lines/_files.json", "mine/_files.json", "_files.json"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o750))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("[]\n"), 0o600))
	}
}

// TestFormer_ListsAndLinksGo opens a directory that an earlier release has left, and one
// whose removal was cut off.
func TestFormer_ListsAndLinksGo(t *testing.T) {
	dir := t.TempDir()
	w := openWriter(t, open(t, parquetsink.NewDir(dir), quick()), 0, 1)
	writeRows(t, w, 1, orderRow("customer/[\"a\"]/o", "o", 1))
	flush(t, w)
	there := func(name string) bool {
		t.Helper()
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	for epoch, left := range []string{"all", "half", "nothing"} {
		switch left {
		case "all":
			leaveFormer(t, dir)
		case "half":
			must(t, os.MkdirAll(filepath.Join(dir, "_views"), 0o750))
		}
		var log bytes.Buffer
		cfg := quick()
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s, err := parquetsink.New(parquetsink.NewDir(dir), cfg)
		must(t, err)
		openWriter(t, s, 0, uint64(epoch+2))
		must(t, s.Close())
		for _, name := range []string{"_views", "current", "orders/_files.json", "lines/_files.json"} {
			if there(name) {
				t.Errorf("%s was left: %s is there", left, name)
			}
		}
		if !there("mine/_files.json") || !there("_files.json") {
			t.Error("a file of somebody else has been removed")
		}
		if said := strings.Contains(log.String(), "earlier release"); said != (left != "nothing") {
			t.Errorf("%s was left, and the log says: %s", left, log.String())
		}
	}
	if got := deltaIDs(t, parquetsink.NewDir(dir)); len(got) != 1 {
		t.Errorf("rows %q", got)
	}
}

// stuck is a store that cannot remove what an earlier release has left, and that counts the
// lists of all that it has.
type stuck struct {
	*memory
	asked, lists int
}

func (s *stuck) Tidy(context.Context, time.Duration) error { return nil }

func (s *stuck) RemoveViews(context.Context) (bool, error) {
	s.asked++
	return false, errors.New("permission denied")
}

func (s *stuck) List(ctx context.Context, prefix, after string) iter.Seq2[parquetsink.Object, error] {
	if prefix == "" {
		s.lists++
	}
	return s.memory.List(ctx, prefix, after)
}

// TestFormer_WhatStaysKeepsNothingElse has something of an earlier release that cannot be
// removed: abandoned files go, and later commits do not look for them again.
func TestFormer_WhatStaysKeepsNothingElse(t *testing.T) {
	const orphan = "orders/data/g1/00000000000000000000-abcdefgh-1.parquet"
	storage := &stuck{memory: newMemory()}
	storage.objects[orphan] = object{modified: time.Now().Add(-time.Hour)}
	w := openWriter(t, open(t, storage, quick()), 0, 1)
	if names := storage.names(orphan); len(names) > 0 || storage.asked == 0 {
		t.Errorf("there is %q; asked to remove links %d times", names, storage.asked)
	}
	_, _, before, err := parquetsink.Newest(t.Context(), storage)
	must(t, err)
	const commits = 3
	for n := 1; n <= commits; n++ {
		writeRows(t, w, n, orderRow("customer/[\"a\"]/o", "o", int64(n)))
		flush(t, w)
	}
	_, _, after, err := parquetsink.Newest(t.Context(), storage)
	must(t, err)
	if before != 2 || after != before+commits || storage.lists != 1 {
		t.Errorf("manifest %d after the first term, %d after %d commits, want one for the term, one for the abandoned file and one for each commit; %d lists of all",
			before, after, commits, storage.lists)
	}
}

// TestFormer_CurrentOfSomebodyElse keeps what bears the name and is no link of ours.
func TestFormer_CurrentOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "current"), 0o750))
	must(t, os.MkdirAll(filepath.Join(dir, "_views"), 0o750))
	removed, err := parquetsink.NewDir(dir).RemoveViews(t.Context())
	if _, there := os.Stat(filepath.Join(dir, "current")); err != nil || !removed || there != nil {
		t.Errorf("%t, %v; current: %v", removed, err, there)
	}
}

// TestDir_TemporaryFilesGo sees to it that files that were begun are removed after the
// grace.
func TestDir_TemporaryFilesGo(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "_tmp"), 0o750))
	must(t, os.WriteFile(filepath.Join(dir, "_tmp", "x"), nil, 0o600))
	cfg := quick()
	cfg.Grace = time.Nanosecond
	openWriter(t, open(t, parquetsink.NewDir(dir), cfg), 0, 1)
	temps, err := os.ReadDir(filepath.Join(dir, "_tmp"))
	must(t, err)
	if len(temps) > 0 {
		t.Errorf("%d temporary files are left", len(temps))
	}
}
