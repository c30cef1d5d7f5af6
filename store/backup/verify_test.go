package backup_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/backup"
	"github.com/millrace/millrace/store/snapshot"
)

// TestVerify_ALogWithoutItsBeginningIsFound: no state can be made of what such a
// backup holds.
func TestVerify_ALogWithoutItsBeginningIsFound(t *testing.T) {
	t.Parallel()
	s := storetest.Start(t)
	write(t, s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}}), 0, 100, 1)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	id := create(t, s, place).ID
	rewrite(t, dir, id, func(b *backup.Backup) {
		p := &b.Partitions[0]
		p.Segments = p.Segments[1:]
		p.First, p.Since = p.Segments[0].From, p.Segments[0].Since
	})
	report, err := backup.Verify(t.Context(), place, "", nil)
	if err != nil || len(report.Damaged) != 1 || !strings.Contains(report.Damaged[0].Reason, "no snapshot of what stood before") {
		t.Errorf("verify: %v, %+v", err, report)
	}
	_, err = backup.Choose(t.Context(), place, "", backup.Latest, nil)
	if _, ok := errors.AsType[*backup.NotWholeError](err); !ok {
		t.Errorf("to restore: %v", err)
	}
}

// rewrite changes the manifest of a backup, and computes its checksum anew.
func rewrite(t testing.TB, dir, id string, change func(*backup.Backup)) {
	t.Helper()
	name := filepath.Join(dir, "backups", id+".json")
	data, err := os.ReadFile(name)
	must(t, err)
	var file struct {
		Format   int            `json:"format"`
		Checksum snapshot.Sum   `json:"checksum"`
		Backup   *backup.Backup `json:"backup"`
	}
	must(t, json.Unmarshal(data, &file))
	change(file.Backup)
	inner, err := json.Marshal(file.Backup)
	must(t, err)
	file.Checksum = snapshot.Sum(xxhash.Sum64(inner))
	data, err = json.Marshal(file)
	must(t, err)
	must(t, os.WriteFile(name, data, 0o600))
}

// TestVerify_APartitionThatTheManifestLacksIsFound before a restore changes anything.
func TestVerify_APartitionThatTheManifestLacksIsFound(t *testing.T) {
	t.Parallel()
	s := storetest.Start(t)
	s.Container(t, "things", spec)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	id := create(t, s, place).ID
	rewrite(t, dir, id, func(b *backup.Backup) { b.Partitions = b.Partitions[:1] })
	report, err := backup.Verify(t.Context(), place, "", nil)
	if err != nil || len(report.Damaged) != 1 || !strings.Contains(report.Damaged[0].Reason, "default/things") {
		t.Errorf("verify: %v, %+v", err, report)
	}
	_, err = backup.Choose(t.Context(), place, "", backup.Latest, nil)
	if _, ok := errors.AsType[*backup.NotWholeError](err); !ok {
		t.Errorf("to restore: %v", err)
	}
}
