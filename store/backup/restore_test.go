package backup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/backup"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/snapshot"
)

// target is a System to restore into.
func target(t testing.TB, s *storetest.Store) *backup.Target {
	t.Helper()
	catalog, err := store.OpenCatalog(t.Context(), s.JS, store.CatalogConfig{Restoring: true})
	must(t, err)
	return &backup.Target{
		Catalog: catalog, Logger: storetest.Quiet(), Scratch: t.TempDir(),
		Empty:     func(context.Context) (string, error) { return "", nil },
		Pipelines: func(context.Context, []backup.Record) error { return nil },
	}
}

func restore(t testing.TB, place snapshot.Store, s *storetest.Store, at string) *backup.Restored {
	t.Helper()
	plan, err := backup.Choose(t.Context(), place, "", at, nil)
	must(t, err)
	r, err := plan.Restore(t.Context(), target(t, s))
	must(t, err)
	return r
}

// digest is the digest of a partition in the owner's engine.
func digest(t testing.TB, s *storetest.Store, partition string) snapshot.Sum {
	t.Helper()
	id, err := feed.ParsePartition(partition)
	must(t, err)
	p, err := s.DB.Partition(id)
	must(t, err)
	d, err := p.Digest()
	must(t, err)
	return snapshot.Sum(d)
}

// container opens a container whose owner has begun.
func container(t testing.TB, s *storetest.Store, name string) *store.Container {
	t.Helper()
	c, err := s.Client.Container(t.Context(), "default", name)
	must(t, err)
	for _, p := range c.Partitions() {
		_, err := c.Count(t.Context(), p, store.Scope{})
		must(t, err)
	}
	return c
}

// streams are the names of all streams.
func streams(t testing.TB, s *storetest.Store) []string {
	t.Helper()
	names, err := feed.StreamNames(t.Context(), s.JS)
	must(t, err)
	return names
}

var rich = store.ContainerSpec{
	PartitionKey: []string{"/k"}, Partitions: 2, Indexes: []string{"/n"}, UniqueKeys: [][]string{{"/u"}}, TTL: -1,
}

// TestI3_WhatIsRestoredIsWhatTheSourceHeld makes a store of a backup, and another one of a
// backup of that: each partition has the digest of its source, and goes on.
func TestI3_WhatIsRestoredIsWhatTheSourceHeld(t *testing.T) {
	t.Parallel()
	for _, based := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshots=%v", based), func(t *testing.T) {
			t.Parallel()
			cfg := func() owner.Config {
				if based {
					return eager(t)
				}
				return owner.Config{}
			}
			from := storetest.StartWith(t, cfg())
			c := from.Container(t, "things", rich)
			write(t, c, 0, 60, 1)
			large := strings.Repeat("x", 1<<20)
			_, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"large","k":"k1","u":-1,"text":%q}`, large))
			must(t, err)
			if based {
				snapshotted(t, c)
			}
			write(t, c, 30, 90, 2)
			key, err := feed.NewPartitionKey("k3")
			must(t, err)
			must(t, c.Delete(t.Context(), key, "3"))
			for round := range 2 {
				place := snapshot.Directory(t.TempDir())
				create(t, from, place)
				to := storetest.System(t)
				r := restore(t, place, to, backup.Latest)
				to.Own(t, cfg())
				restored := container(t, to, "things")
				if len(r.Partitions) != 2 || restored.Info().ID == c.Info().ID {
					t.Fatalf("round %d: restored %+v as %s", round, r, restored.Info().ID)
				}
				for _, p := range r.Partitions {
					if source, is := digest(t, from, p.From), digest(t, to, p.Partition); source != is || source != p.Digest {
						t.Errorf("round %d, partition %s of LSN %d: digest %016x, the source has %016x, the restore says %016x", round, p.Partition, p.LSN, is, source, p.Digest)
					}
				}
				before, err := c.ReadMany(t.Context(), []store.ItemRef{{Key: key, ID: "10"}, {Key: key, ID: "3"}}, true)
				must(t, err)
				after, err := restored.ReadMany(t.Context(), []store.ItemRef{{Key: key, ID: "10"}, {Key: key, ID: "3"}}, true)
				must(t, err)
				if after[0].ETag != before[0].ETag || string(after[0].Body) != string(before[0].Body) || after[1].ETag != (store.ETag{}) {
					t.Errorf("round %d: items %+v, then %+v", round, before, after)
				}
				write(t, restored, 80, 100, 3+round) // it goes on, with its unique keys
				_, err = restored.Create(t.Context(), []byte(`{"id":"other","k":"k3","u":10}`))
				if !errors.Is(err, store.ErrConflict) {
					t.Errorf("round %d: a unique key was taken twice: %v", round, err)
				}
				from, c = to, restored
			}
		})
	}
}

// TestRestore_EarlierChangesAreGone: who read the log of the source begins anew.
func TestRestore_EarlierChangesAreGone(t *testing.T) {
	t.Parallel()
	from := storetest.Start(t)
	c := from.Container(t, "things", spec)
	write(t, c, 0, 20, 1)
	page, err := c.Changes(t.Context(), store.ChangesRequest{ItemsMax: 5})
	must(t, err)
	place := snapshot.Directory(t.TempDir())
	create(t, from, place)
	to := storetest.System(t)
	restore(t, place, to, backup.Latest)
	to.Own(t, owner.Config{})
	restored := container(t, to, "things")
	_, err = restored.Changes(t.Context(), store.ChangesRequest{Continuation: page.Continuation, AllVersions: true})
	if !isTrimmed(err) {
		t.Errorf("a continuation of the source: %v", err)
	}
	_, err = restored.Changes(t.Context(), store.ChangesRequest{AllVersions: true, Start: feed.StartBeginning()})
	if !isTrimmed(err) {
		t.Errorf("all changes from the beginning: %v", err)
	}
	now, err := restored.Changes(t.Context(), store.ChangesRequest{AllVersions: true, Start: feed.StartNow()})
	must(t, err)
	write(t, restored, 5, 8, 2)
	changes, err := restored.Changes(t.Context(), store.ChangesRequest{AllVersions: true, Continuation: now.Continuation})
	if err != nil || len(changes.Changes) != 3 {
		t.Errorf("changes from now on: %+v, %v", changes, err)
	}
}

func isTrimmed(err error) bool {
	_, ok := errors.AsType[*feed.TrimmedError](err)
	return ok
}

// TestRestore_APointInTime restores to a time between two writes.
func TestRestore_APointInTime(t *testing.T) {
	t.Parallel()
	from := storetest.Start(t)
	c := from.Container(t, "things", spec)
	write(t, c, 0, 20, 1)
	at := moment(t)
	write(t, c, 20, 30, 2)
	from.Container(t, "later", spec)
	place := snapshot.Directory(t.TempDir())
	create(t, from, place)
	to := storetest.System(t)
	r := restore(t, place, to, at)
	to.Own(t, owner.Config{})
	restored := container(t, to, "things")
	if n := count(t, restored); n != 20 || !slices.Equal(r.LeftOut, []string{"default/later"}) {
		t.Errorf("%d items, left out %v", n, r.LeftOut)
	}
}

// TestBadInput_RestoreAsOfATimeOutsideOfWhatIsKept is refused with the times that are kept, before
// anything is made.
func TestBadInput_RestoreAsOfATimeOutsideOfWhatIsKept(t *testing.T) {
	t.Parallel()
	from := storetest.Start(t)
	write(t, from.Container(t, "things", spec), 0, 20, 1)
	place := snapshot.Directory(t.TempDir())
	since, until, err := create(t, from, place).Span()
	must(t, err)
	for _, outside := range []time.Time{since.Add(-time.Second), until.Add(time.Second)} {
		_, err := backup.Choose(t.Context(), place, "", outside.Format(time.RFC3339Nano), nil)
		if o, ok := errors.AsType[*backup.OutsideError](err); !ok || !strings.Contains(o.Error(), until.Format(time.RFC3339Nano)) {
			t.Errorf("at %s: %v", outside, err)
		}
	}
}

// moment waits until the clock has gone on by a millisecond, and returns the one that has
// passed: no commit that comes is of that.
func moment(t testing.TB) string {
	t.Helper()
	at := time.Now()
	poll.Until(t, func() error {
		return poll.Unless(time.Now().UnixMilli() > at.UnixMilli()+1, "the clock stands still")
	})
	return at.UTC().Format(time.RFC3339Nano)
}

func count(t testing.TB, c *store.Container) (n int) {
	t.Helper()
	for _, p := range c.Partitions() {
		some, err := c.Count(t.Context(), p, store.Scope{})
		must(t, err)
		n += some
	}
	return n
}

// TestBadInput_RestoreIntoAStoreThatIsNotEmpty changes nothing in it.
func TestBadInput_RestoreIntoAStoreThatIsNotEmpty(t *testing.T) {
	t.Parallel()
	from := storetest.Start(t)
	c := from.Container(t, "things", spec)
	write(t, c, 0, 20, 1)
	place := snapshot.Directory(t.TempDir())
	b := create(t, from, place)
	plan, err := backup.Choose(t.Context(), place, b.ID, backup.Latest, nil)
	must(t, err)

	before := streams(t, from)
	_, err = plan.Restore(t.Context(), target(t, from))
	if full, ok := errors.AsType[*backup.NotEmptyError](err); !ok || !strings.Contains(full.Error(), "default/things") {
		t.Errorf("into a store that is not empty: %v", err)
	}
	if after := streams(t, from); !slices.Equal(before, after) || count(t, c) != 20 {
		t.Errorf("streams %v, then %v", before, after)
	}
	_, err = store.OpenCatalog(t.Context(), from.JS, store.CatalogConfig{})
	must(t, err) // it is still open to all
}

// TestBadInput_RestoreIntoDataOfAnEarlierRelease: a process of that release could not read what the backup may hold.
func TestBadInput_RestoreIntoDataOfAnEarlierRelease(t *testing.T) {
	t.Parallel()
	from := storetest.Start(t)
	write(t, from.Container(t, "things", spec), 0, 20, 1)
	place := snapshot.Directory(t.TempDir())
	plan, err := backup.Choose(t.Context(), place, create(t, from, place).ID, backup.Latest, nil)
	must(t, err)

	server := natstest.Start(t)
	_, err = server.JS.CreateKeyValue(t.Context(), store.CatalogBucketConfig(1)) // of level 1
	must(t, err)
	to := &storetest.Store{Server: server, NC: server.NC, JS: server.JS}
	catalog, err := store.OpenCatalog(t.Context(), to.JS, store.CatalogConfig{})
	must(t, err)
	to.Client = store.NewClient(to.NC, catalog, store.ClientConfig{})
	before := streams(t, to)
	if _, err := plan.Restore(t.Context(), target(t, to)); err == nil || !strings.Contains(err.Error(), "millrace upgrade --finish") {
		t.Errorf("into data of level 1: %v", err)
	}
	if under, err := catalog.Restoring(t.Context()); err != nil || under != nil || !slices.Equal(before, streams(t, to)) {
		t.Errorf("behind the refusal %+v is under way, %v", under, err)
	}
	must(t, featurelevel.Raise(t.Context(), to.JS))
	if _, err := plan.Restore(t.Context(), target(t, to)); err != nil {
		t.Errorf("into data of the newest level: %v", err)
	}
}

// TestBadInput_RestoreOfWhatCannotBeUsed: a damaged backup, one of a later format, and a place
// without any.
func TestBadInput_RestoreOfWhatCannotBeUsed(t *testing.T) {
	t.Parallel()
	from := storetest.Start(t)
	write(t, from.Container(t, "things", spec), 0, 20, 1)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	b := create(t, from, place)
	name := objects(t, dir)[slices.IndexFunc(objects(t, dir), func(name string) bool { return strings.Contains(name, "/log/") })]
	data, err := os.ReadFile(name)
	must(t, err)
	data[len(data)/2] ^= 1
	must(t, os.WriteFile(name, data, 0o600))
	_, err = backup.Choose(t.Context(), place, b.ID, backup.Latest, nil)
	if bad, ok := errors.AsType[*backup.NotWholeError](err); !ok || !strings.HasSuffix(name, bad.Damaged[0].Object) {
		t.Errorf("a damaged backup: %v", err)
	}

	file := dir + "/backups/" + b.ID + ".json"
	must(t, os.WriteFile(file, []byte(`{"format":7,"checksum":"0000000000000000","backup":{"x":1}}`), 0o600))
	_, err = backup.Choose(t.Context(), place, b.ID, backup.Latest, nil)
	if newer, ok := errors.AsType[*backup.NewerError](err); !ok || newer.Format != 7 {
		t.Errorf("a backup of a later format: %v", err)
	}
	_, err = backup.Choose(t.Context(), snapshot.Directory(t.TempDir()), "", backup.Latest, nil)
	if _, ok := errors.AsType[*backup.NoBackupsError](err); !ok {
		t.Errorf("a place without backups: %v", err)
	}
}

// dying fails the nth read, and all after it.
type dying struct {
	snapshot.Store
	calls, fail int
}

var errCrash = errors.New("crash")

func (d *dying) Get(ctx context.Context, name string) ([]byte, error) {
	if d.calls++; d.fail > 0 && d.calls >= d.fail {
		return nil, errCrash
	}
	return d.Store.Get(ctx, name)
}

// TestRestore_AnEndAtAnyStepGoesOn ends a restore before each of its reads, and before the
// pipelines are registered: the store is closed to everybody until the same restore has
// ended, and another one is refused.
func TestRestore_AnEndAtAnyStepGoesOn(t *testing.T) {
	t.Parallel()
	from := storetest.Start(t)
	c := from.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}, Partitions: 2})
	write(t, c, 0, 30, 1)
	dir := snapshot.Directory(t.TempDir())
	create(t, from, dir)
	create(t, from, dir)
	for fail := 1; ; fail++ {
		place := &dying{Store: dir}
		plan, err := backup.Choose(t.Context(), place, "", backup.Latest, nil)
		must(t, err)
		to := storetest.System(t)
		tg := target(t, to)
		last := false
		tg.Pipelines = func(context.Context, []backup.Record) error {
			last = true
			return errCrash
		}
		place.calls, place.fail = 0, fail
		if _, err := plan.Restore(t.Context(), tg); !errors.Is(err, errCrash) {
			t.Fatalf("step %d: %v", fail, err)
		}
		place.fail = 0
		_, err = store.OpenCatalog(t.Context(), to.JS, store.CatalogConfig{})
		if _, ok := errors.AsType[*store.RestoringError](err); !ok {
			t.Errorf("step %d: the catalog can be opened: %v", fail, err)
		}
		all, _, err := backup.List(t.Context(), dir)
		must(t, err)
		other, err := backup.Choose(t.Context(), place, all[0].ID, backup.Latest, nil)
		must(t, err)
		_, err = other.Restore(t.Context(), target(t, to))
		if _, ok := errors.AsType[*store.RestoringError](err); !ok {
			t.Errorf("step %d: another restore: %v", fail, err)
		}
		if r := restore(t, dir, to, backup.Latest); len(r.Partitions) != 2 || r.Partitions[0].Entries == 0 {
			t.Errorf("step %d: restored %+v", fail, r.Partitions)
		}
		to.Own(t, owner.Config{})
		is := container(t, to, "things")
		for i, p := range is.Partitions() {
			if got, want := digest(t, to, p.String()), digest(t, from, c.Partitions()[i].String()); got != want {
				t.Errorf("step %d: partition %s has digest %016x, want %016x", fail, p, got, want)
			}
		}
		if last {
			if fail < 3 {
				t.Fatalf("a restore has %d steps: that tests little", fail)
			}
			return
		}
	}
}

// meanwhile does something before a read, once.
type meanwhile struct {
	snapshot.Store
	do func()
}

func (m *meanwhile) Get(ctx context.Context, name string) ([]byte, error) {
	if do := m.do; do != nil {
		m.do = nil
		do()
	}
	return m.Store.Get(ctx, name)
}

// TestRestore_ASecondRunDeletesNothingOfTheFirst: of two runs of the same command the one that began
// first goes on to nothing, and the one that reads slowly changes nothing of a store that the other
// has made and that is used.
func TestRestore_ASecondRunDeletesNothingOfTheFirst(t *testing.T) {
	t.Parallel()
	from := storetest.Start(t)
	c := from.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	write(t, c, 0, 30, 1)
	dir := snapshot.Directory(t.TempDir())
	create(t, from, dir)
	to := storetest.System(t)
	begun, err := backup.Choose(t.Context(), &dying{Store: dir}, "", backup.Latest, nil)
	must(t, err)
	cut := target(t, to)
	cut.Pipelines = func(context.Context, []backup.Record) error { return errCrash }
	if _, err := begun.Restore(t.Context(), cut); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	// As after an end before the first log was whole.
	begin, err := store.OpenCatalog(t.Context(), to.JS, store.CatalogConfig{Restoring: true})
	must(t, err)
	record, err := begin.Restoring(t.Context())
	must(t, err)
	record.Logs = nil
	must(t, begin.PutRestoring(t.Context(), record))

	place := &meanwhile{Store: dir}
	slow, err := backup.Choose(t.Context(), place, "", backup.Latest, nil)
	must(t, err)
	var is *store.Container
	place.do = func() {
		restore(t, dir, to, backup.Latest)
		to.Own(t, owner.Config{})
		is = container(t, to, "things")
		write(t, is, 30, 40, 1)
	}
	if _, err := slow.Restore(t.Context(), target(t, to)); err == nil || !strings.Contains(err.Error(), "another run of this restore") {
		t.Errorf("a run whose place another has taken: %v", err)
	}
	if is == nil {
		t.Fatal("the slow run has read nothing")
	}
	write(t, is, 40, 50, 1) // the owner's log is the one that it knows
	if n := count(t, is); n != 50 {
		t.Errorf("there are %d items, 50 were acknowledged", n)
	}
}

// TestFormat_V1StaysReadable: a backup that an earlier release wrote is whole, and a store can
// be made of it.
func TestFormat_V1StaysReadable(t *testing.T) {
	t.Parallel()
	const dir = "testdata/v1"
	if storetest.Update() {
		s := storetest.StartWith(t, eager(t))
		c := s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
		write(t, c, 0, 3, 1)
		snapshotted(t, c)
		write(t, c, 2, 5, 2)
		must(t, os.RemoveAll(dir))
		create(t, s, snapshot.Directory(dir))
	}
	place := snapshot.Directory(dir)
	if r := whole(t, place); len(r.Backups) != 1 || r.Objects < 2 {
		t.Errorf("verified %+v", r)
	}
	all, _, err := backup.List(t.Context(), place)
	must(t, err)
	if all[0].Partitions[0].Base == nil || len(all[0].Partitions[0].Segments) == 0 {
		t.Errorf("a golden backup with a base and a segment is needed: %+v", all[0].Partitions[0])
	}
	to := storetest.System(t)
	r := restore(t, place, to, backup.Latest)
	to.Own(t, owner.Config{})
	if n := count(t, container(t, to, "things")); n != 5 || digest(t, to, r.Partitions[0].Partition) != r.Partitions[0].Digest {
		t.Errorf("%d items", n)
	}
}

// TestRestore_ALogIsTrimmedLikeAnyOther: when a snapshot was taken the state at the beginning
// of a restored log goes, and an engine that is lost is made of the snapshot.
func TestRestore_ALogIsTrimmedLikeAnyOther(t *testing.T) {
	t.Parallel()
	from := storetest.Start(t)
	keep := store.ChangeFeedSpec{Retention: new(store.Retention(0))}
	c := from.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}, ChangeFeed: keep})
	write(t, c, 0, 800, 1) // more than a trim at rest must free
	place := snapshot.Directory(t.TempDir())
	create(t, from, place)
	to := storetest.System(t)
	left := restore(t, place, to, backup.Latest).Partitions[0].LSN
	cfg := eager(t)
	cfg.Alone, cfg.Snapshots.Rest = true, time.Millisecond
	to.Own(t, cfg)
	restored := container(t, to, "things")
	write(t, restored, 0, 10, 2)
	for i := range 4 { // where the first snapshot is of before nearly all of that, half of what it holds makes another one due
		large(t, restored, i)
	}
	snapshotted(t, restored)
	id := restored.Partitions()[0]
	log, err := feed.OpenLog(t.Context(), to.JS, id, feed.LogConfig{})
	must(t, err)
	defer log.Close()
	poll.Until(t, func() error {
		first, _, err := log.Bounds(t.Context())
		return errors.Join(err, poll.Unless(first > left+2, fmt.Sprintf("the log begins at LSN %d, behind %d", first, left)))
	})
	want := digest(t, to, id.String())
	to.StopOwner()
	to.Own(t, cfg) // with an empty engine
	if n := count(t, container(t, to, "things")); n != 801 || digest(t, to, id.String()) != want {
		t.Errorf("%d items, digest %016x, want %016x", n, digest(t, to, id.String()), want)
	}
}
