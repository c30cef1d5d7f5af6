package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/backup"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/snapshot"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var spec = store.ContainerSpec{PartitionKey: []string{"/k"}, Partitions: 2, Indexes: []string{"/n"}, UniqueKeys: [][]string{{"/u"}}}

// write writes items from to until that do not compress, and replaces those that are there.
func write(t testing.TB, c *store.Container, from, to, round int) {
	t.Helper()
	dice := rand.NewChaCha8([32]byte{byte(round)})
	text := make([]byte, 100)
	for i := from; i < to; i++ {
		_, _ = dice.Read(text) // never fails
		_, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","k":"k%d","n":%d,"u":%d,"text":"%x"}`, i, i%7, i%3, i, text))
		must(t, err)
	}
}

// largeBytes is what large writes.
const largeBytes = 100 << 10

// large writes an item by which alone a snapshot becomes due where its log must grow by largeBytes.
func large(t testing.TB, c *store.Container, round int) {
	t.Helper()
	text := make([]byte, largeBytes/2)
	_, _ = rand.NewChaCha8([32]byte{byte(round)}).Read(text) // never fails
	_, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"large","k":"k0","u":-1,"text":"%x"}`, text))
	must(t, err)
}

// atLarge takes a snapshot when large has written, and not for the few small items around it.
func atLarge(t testing.TB) owner.Config {
	t.Helper()
	cfg := eager(t)
	cfg.Snapshots.LogBytes = largeBytes
	return cfg
}

func source(s *storetest.Store) *backup.Source {
	return &backup.Source{JetStream: s.JS, Client: s.Client, Pipelines: "millrace_pipelines", PipelineKeys: "pipeline.>", Program: "test"}
}

func create(t testing.TB, s *storetest.Store, place snapshot.Store) *backup.Result {
	t.Helper()
	r, err := backup.Create(t.Context(), place, source(s))
	must(t, err)
	return r
}

// eager takes a snapshot whenever something was written.
func eager(t testing.TB) owner.Config {
	t.Helper()
	return owner.Config{Snapshots: owner.SnapshotConfig{Directory: t.TempDir(), LogBytes: 1, SharePercent: 100}}
}

// snapshotted waits until each partition of a container has a snapshot.
func snapshotted(t testing.TB, c *store.Container) {
	t.Helper()
	for _, p := range c.Partitions() {
		poll.Until(t, func() error {
			st, err := c.Status(t.Context(), p)
			if err == nil && (st.Snapshot == nil || st.Snapshot.LSN < 3) {
				err = fmt.Errorf("of LSN %d there is no snapshot", st.Applied)
			}
			return err
		})
	}
}

func objects(t testing.TB, dir string) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	}))
	return names
}

// whole verifies all backups.
func whole(t testing.TB, place snapshot.Store) *backup.Report {
	t.Helper()
	report, err := backup.Verify(t.Context(), place, "", nil)
	must(t, err)
	if len(report.Damaged) > 0 {
		t.Fatalf("damaged: %+v", report.Damaged)
	}
	return report
}

// TestCreate_TheNextOneSendsWhatIsNew for logs that begin with their first commit, and
// behind snapshots.
func TestCreate_TheNextOneSendsWhatIsNew(t *testing.T) {
	t.Parallel()
	for _, based := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshots=%v", based), func(t *testing.T) {
			t.Parallel()
			cfg := owner.Config{}
			if based {
				cfg = eager(t)
			}
			s := storetest.StartWith(t, cfg)
			c := s.Container(t, "things", spec)
			write(t, c, 0, 400, 1)
			if based {
				snapshotted(t, c)
			}
			place := snapshot.Directory(filepath.Join(t.TempDir(), "a", "b"))
			first := create(t, s, place)
			again := create(t, s, place)
			write(t, c, 0, 4, 2)
			third := create(t, s, place)
			if again.Sent != 0 || third.Sent == 0 || third.Sent > first.Sent/10 {
				t.Errorf("sent %d, then %d, then %d bytes", first.Sent, again.Sent, third.Sent)
			}
			for i := range third.Partitions {
				if p := &third.Partitions[i]; (p.Base != nil) != based || len(p.Segments) == 0 && !based {
					t.Errorf("partition %s has the base %v and %d segments", p.Partition, p.Base, len(p.Segments))
				}
			}
			all, damage, err := backup.List(t.Context(), place)
			if err != nil || len(damage) > 0 || len(all) != 3 {
				t.Errorf("%d backups, %v, %v", len(all), damage, err)
			}
			if r := whole(t, place); len(r.Backups) != 3 || r.Bytes == 0 {
				t.Errorf("verified %+v", r)
			}
		})
	}
}

// faulty fails the nth call that changes something, and all after it, as a crash does, or a
// disk that is full.
type faulty struct {
	snapshot.Store
	calls, fail int
}

func (f *faulty) Put(ctx context.Context, name string, data []byte) error {
	if f.calls++; f.fail > 0 && f.calls >= f.fail {
		return &fs.PathError{Op: "write", Path: name, Err: syscall.ENOSPC}
	}
	return f.Store.Put(ctx, name, data)
}

// TestCreate_AnEndAtAnyStepCountsForNothing ends a backup before each of its writes: it is
// not listed, and the next one goes on and sends only what is missing.
func TestCreate_AnEndAtAnyStepCountsForNothing(t *testing.T) {
	t.Parallel()
	s := storetest.StartWith(t, atLarge(t))
	c := s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	write(t, c, 0, 20, 1)
	large(t, c, 1)
	snapshotted(t, c)
	write(t, c, 0, 80, 2)
	full := create(t, s, snapshot.Directory(t.TempDir())).Sent
	for fail := 1; ; fail++ {
		place := &faulty{Store: snapshot.Directory(t.TempDir()), fail: fail}
		_, err := backup.Create(t.Context(), place, source(s))
		if err == nil {
			if fail < 6 {
				t.Fatalf("a backup has %d steps: that tests little", fail-1)
			}
			return
		}
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), place.String()) {
			t.Fatalf("step %d: %v", fail, err)
		}
		place.fail = 0
		all, _, err := backup.List(t.Context(), place)
		if _, none := errors.AsType[*backup.NoBackupsError](err); len(all) > 0 || err != nil && !none {
			t.Fatalf("step %d: %d backups, %v", fail, len(all), err)
		}
		r := create(t, s, place)
		// The mark, and all but what the step that failed was about, is there already.
		if fail > 3 && r.Sent >= full {
			t.Errorf("step %d: %d bytes were sent again, of %d", fail, r.Sent, full)
		}
		if report := whole(t, place); len(report.Backups) != 1 {
			t.Errorf("step %d: verified %+v", fail, report)
		}
	}
}

// TestVerify_EveryFlippedByteIsFound changes one byte of each object, in several places, and
// cuts it, and takes it away.
func TestVerify_EveryFlippedByteIsFound(t *testing.T) {
	t.Parallel()
	s := storetest.StartWith(t, eager(t))
	c := s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	write(t, c, 0, 20, 1)
	snapshotted(t, c)
	write(t, c, 0, 20, 2)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	create(t, s, place)
	finds := func(name, what string) {
		report, err := backup.Verify(t.Context(), place, "", nil)
		_, newer := errors.AsType[*backup.NewerError](err)
		_, none := errors.AsType[*backup.NoBackupsError](err)
		if !newer && !none && (err != nil || len(report.Damaged) == 0) {
			t.Errorf("%s, %s: %v, %+v", strings.TrimPrefix(name, dir), what, err, report)
		}
	}
	for _, name := range objects(t, dir) {
		data, err := os.ReadFile(name)
		must(t, err)
		damages := map[string][]byte{"cut": data[:len(data)-1], "empty": {}, "longer": append(slices.Clip(data), 'x')}
		for _, at := range []int{0, len(data) / 3, len(data) / 2, len(data) - 1} {
			flipped := append([]byte{}, data...)
			flipped[at] ^= 1
			damages[fmt.Sprint("byte ", at)] = flipped
		}
		if strings.HasSuffix(name, "millrace-backup.json") {
			damages = map[string][]byte{"cut": damages["cut"], "empty": {}}
		}
		for what, bad := range damages {
			must(t, os.WriteFile(name, bad, 0o600))
			finds(name, what)
		}
		must(t, os.Remove(name))
		if !strings.Contains(name, "/backups/") { // a backup whose manifest is gone is none
			finds(name, "gone")
		}
		must(t, os.WriteFile(name, data, 0o600))
	}
	whole(t, place)
}

// TestCreate_DamagedObjectsAreSentAgain when they were removed, as verify says.
func TestCreate_DamagedObjectsAreSentAgain(t *testing.T) {
	t.Parallel()
	s := storetest.Start(t)
	c := s.Container(t, "things", spec)
	write(t, c, 0, 100, 1)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	create(t, s, place)
	for _, name := range objects(t, dir) {
		if strings.Contains(name, "/log/") {
			must(t, os.Remove(name))
			break
		}
	}
	r := create(t, s, place)
	report, err := backup.Verify(t.Context(), place, r.ID, nil)
	if err != nil || len(report.Damaged) > 0 || r.Sent == 0 {
		t.Errorf("sent %d, %v, %+v", r.Sent, err, report)
	}
}

// TestCreate_AnotherSnapshotTakesThePlaceOfADamagedOne: the owner's store of snapshots gives
// back other bytes than were written. A longer log takes its place, and that is said.
func TestCreate_ALongerLogTakesThePlaceOfADamagedSnapshot(t *testing.T) {
	t.Parallel()
	cfg := atLarge(t)
	s := storetest.StartWith(t, cfg)
	c := s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	write(t, c, 0, 20, 1)
	large(t, c, 1)
	snapshotted(t, c)
	for _, name := range objects(t, cfg.Snapshots.Directory) {
		if !strings.HasSuffix(name, ".json") {
			data, err := os.ReadFile(name)
			must(t, err)
			data[len(data)/2] ^= 1
			must(t, os.WriteFile(name, data, 0o600))
		}
	}
	place := snapshot.Directory(t.TempDir())
	r := create(t, s, place)
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "has checksum") || !strings.Contains(notes, "is taken") {
		t.Errorf("it is not said: %q", notes)
	}
	if whole := whole(t, place); len(whole.Backups) != 1 {
		t.Errorf("%+v", whole)
	}
}

// TestCreate_WaitsForAnotherSnapshot where the log was trimmed and no snapshot of the owner can
// be read: the question for them tells it, and it takes a new one.
func TestCreate_WaitsForAnotherSnapshot(t *testing.T) {
	t.Parallel()
	cfg := eager(t)
	s, _ := trimmedBetween(t, cfg)
	for _, name := range objects(t, cfg.Snapshots.Directory) {
		if !strings.HasSuffix(name, ".json") {
			must(t, os.Truncate(name, 10))
		}
	}
	place := snapshot.Directory(t.TempDir())
	r := create(t, s, place)
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "a new snapshot is waited for") {
		t.Errorf("it is not said: %q", notes)
	}
	if p := r.Partitions[0]; p.Base == nil {
		t.Errorf("%+v", p)
	}
	whole(t, place)
}

// TestBadInput_ABackupOfAnotherStore is not written over, and neither is a place that a later
// program has written.
func TestBadInput_ABackupOfAnotherStore(t *testing.T) {
	t.Parallel()
	one, two := storetest.Start(t), storetest.Start(t)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	create(t, one, place)
	before := objects(t, dir)
	_, err := backup.Create(t.Context(), place, source(two))
	if other, ok := errors.AsType[*backup.AnotherStoreError](err); !ok || !strings.Contains(other.Error(), dir) {
		t.Errorf("backup of another store: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "millrace-backup.json"), []byte(`{"format":2,"more":true}`), 0o600))
	_, err = backup.Create(t.Context(), place, source(one))
	if newer, ok := errors.AsType[*backup.NewerError](err); !ok || newer.Format != 2 {
		t.Errorf("backup to a later format: %v", err)
	}
	if after := objects(t, dir); len(after) != len(before) {
		t.Errorf("objects %v, then %v", before, after)
	}
}

// TestCreate_AContainerThatIsDeletedMeanwhile is left out, and the others are whole.
func TestCreate_AContainerThatIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	s := storetest.Start(t)
	stays, goes := s.Container(t, "stays", spec), s.Container(t, "goes", spec)
	write(t, stays, 0, 50, 1)
	write(t, goes, 0, 50, 1)
	place := &hooked{Store: snapshot.Directory(t.TempDir()), before: func() {
		if err := s.Client.Catalog().Delete(t.Context(), "default", "goes"); err != nil {
			t.Error(err)
		}
	}}
	r := create(t, s, place)
	containers, err := r.Containers()
	if err != nil || len(containers) != 1 || containers[0].Name != "stays" || len(r.Partitions) != 2 {
		t.Errorf("containers %+v, %v, %d partitions", containers, err, len(r.Partitions))
	}
	whole(t, place)
}

// hooked calls before ahead of the first segment.
type hooked struct {
	snapshot.Store
	before func()
	once   sync.Once
}

func (h *hooked) Put(ctx context.Context, name string, data []byte) error {
	if strings.HasPrefix(name, "log/") {
		h.once.Do(h.before)
	}
	return h.Store.Put(ctx, name, data)
}

// TestCreate_TheLogIsTrimmedAfterABackup that has no base: the next one has the snapshot, and
// what is restored of it is what the owner held.
func TestCreate_TheLogIsTrimmedAfterABackup(t *testing.T) {
	t.Parallel()
	s, place := trimmedBetween(t, eager(t))
	second := create(t, s, place)
	if p := second.Partitions[0]; p.Base == nil || p.First == 1 {
		t.Errorf("the log was trimmed, and the backup has partition %+v", p)
	}
	whole(t, place)
	to := storetest.System(t)
	r := restore(t, place, to, backup.Latest)
	if p := r.Partitions[0]; p.Digest != digest(t, s, p.From) {
		t.Errorf("restored %+v, the owner holds %016x", p, digest(t, s, p.From))
	}
}

// trimmedBetween makes a backup of a log from its first commit on, and has the log trimmed
// then by an owner with snapshots.
func trimmedBetween(t testing.TB, cfg owner.Config) (*storetest.Store, snapshot.Store) {
	t.Helper()
	s := storetest.Start(t)
	keep := store.ChangeFeedSpec{Retention: new(store.Retention(0))}
	write(t, s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}, ChangeFeed: keep}), 0, 800, 1) // more than a trim at rest must free
	place := snapshot.Directory(t.TempDir())
	if p := create(t, s, place).Partitions[0]; p.Base != nil || p.First != 1 {
		t.Fatalf("a backup from LSN 1 on without a snapshot is needed: %+v", p)
	}
	s.StopOwner()
	cfg.Alone, cfg.Snapshots.Rest = true, time.Millisecond
	s.Own(t, cfg)
	c := container(t, s, "things")
	snapshotted(t, c)
	log, err := feed.OpenLog(t.Context(), s.JS, c.Partitions()[0], feed.LogConfig{})
	must(t, err)
	defer log.Close()
	poll.Until(t, func() error {
		first, _, err := log.Bounds(t.Context())
		return errors.Join(err, poll.Unless(first > 1, "the log was not trimmed"))
	})
	return s, place
}

// TestCreate_ATrimmedLogWithoutASnapshotIsRefused: the owner keeps none any more, and no
// state can be made of what its log still holds.
func TestCreate_ATrimmedLogWithoutASnapshotIsRefused(t *testing.T) {
	t.Parallel()
	cfg := eager(t)
	s, place := trimmedBetween(t, cfg)
	s.StopOwner()
	cfg.Snapshots.LogBytes = 1 << 30 // it takes no more
	s.Own(t, cfg)
	container(t, s, "things")
	must(t, os.RemoveAll(cfg.Snapshots.Directory))
	for _, p := range []snapshot.Store{place, snapshot.Directory(t.TempDir())} {
		_, err := backup.Create(t.Context(), p, source(s))
		if err == nil || !strings.Contains(err.Error(), "store.snapshots.directory") {
			t.Errorf("a backup of a log without its beginning: %v", err)
		}
	}
	whole(t, place)
}

// TestCreate_WhatWasRemovedIsGoneFromTheOwnerToo: a damaged part was removed, and the owner
// has replaced its snapshot meanwhile. The newest one serves.
func TestCreate_WhatWasRemovedIsGoneFromTheOwnerToo(t *testing.T) {
	t.Parallel()
	cfg := atLarge(t)
	s := storetest.StartWith(t, cfg)
	c := s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	write(t, c, 0, 20, 1)
	large(t, c, 1)
	snapshotted(t, c)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	first := create(t, s, place)
	base := first.Partitions[0].Base
	write(t, c, 0, 10, 2)
	large(t, c, 2)
	poll.Until(t, func() error {
		newest, err := c.ReadSnapshot(t.Context(), c.Partitions()[0], store.ReadSnapshot{})
		return errors.Join(err, poll.Unless(newest != nil && newest.ID != base.ID, "the owner has no newer snapshot"))
	})
	for _, name := range objects(t, cfg.Snapshots.Directory) {
		if strings.Contains(name, base.ID) {
			must(t, os.Remove(name))
		}
	}
	_, err := c.ReadSnapshot(t.Context(), c.Partitions()[0], store.ReadSnapshot{ID: base.ID, Part: 1})
	if !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("the owner reads a snapshot that is gone: %v", err)
	}
	for _, name := range objects(t, dir) {
		if strings.Contains(name, "/parts/") {
			must(t, os.Remove(name))
		}
	}
	second := create(t, s, place)
	if is := second.Partitions[0].Base; is == nil || is.ID == base.ID {
		t.Errorf("the base is %+v, the former one was %s", is, base.ID)
	}
	report, err := backup.Verify(t.Context(), place, second.ID, nil)
	if err != nil || len(report.Damaged) > 0 {
		t.Errorf("verify: %v, %+v", err, report)
	}
}
