package backup_test

import (
	"context"
	"slices"
	"strings"
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

// splitting takes the snapshots alone without which there is no state.
func splitting(t testing.TB) owner.Config {
	t.Helper()
	return owner.Config{Alone: true, Snapshots: owner.SnapshotConfig{Directory: t.TempDir(), SharePercent: 100}}
}

// split splits a partition of the container "things" in two, and returns what the catalog says then.
func split(t testing.TB, s *storetest.Store, number uint32) *store.Container {
	t.Helper()
	c, err := s.Client.Container(t.Context(), "default", "things")
	must(t, err)
	_, err = c.Split(t.Context(), feed.Partition{Container: c.Info().ID, Number: number}, store.SplitPartition{})
	must(t, err)
	poll.Until(t, func() error {
		must(t, c.Refresh(t.Context()))
		still := slices.ContainsFunc(c.Info().Partitions, func(p store.PartitionInfo) bool { return p.Number == number })
		return poll.Unless(!still, "the partition is still there")
	})
	return c
}

// restored restores the newest backup of a place, and compares what it holds with what the source does.
func restored(t testing.TB, place snapshot.Store, from *storetest.Store, cfg owner.Config) (to *storetest.Store, c *store.Container) {
	t.Helper()
	whole(t, place)
	to = storetest.System(t)
	r := restore(t, place, to, backup.Latest)
	to.Own(t, cfg)
	c = container(t, to, "things")
	for _, p := range r.Partitions {
		if source, is := digest(t, from, p.From), digest(t, to, p.Partition); source != is || source != p.Digest {
			t.Errorf("partition %s of LSN %d: digest %016x, the source has %016x, the restore says %016x", p.Partition, p.LSN, is, source, p.Digest)
		}
	}
	return to, c
}

// TestCreate_OfAPartitionThatASplitMade: what it inherited is in the backup, whether its owner had a snapshot of its own
// by then or not.
func TestCreate_OfAPartitionThatASplitMade(t *testing.T) {
	t.Parallel()
	s := storetest.StartWith(t, splitting(t))
	write(t, s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}}), 0, 100, 1)
	c := split(t, s, 0)
	place := snapshot.Directory(t.TempDir())
	for round, items := range []int{100, 150} {
		write(t, c, 90, items, round)
		b := create(t, s, place)
		if len(b.Partitions) != 2 || b.Partitions[0].Base == nil || b.Partitions[1].Base == nil {
			t.Fatalf("round %d: the backup has %+v", round, b.Partitions)
		}
		if _, is := restored(t, place, s, splitting(t)); count(t, is) != items {
			t.Errorf("round %d: %d items of %d were restored", round, count(t, is), items)
		}
	}
}

// TestCreate_ABackupThatLacksWhatWasInheritedIsNotContinued: it counts for damaged, and the next one has all.
func TestCreate_ABackupThatLacksWhatWasInheritedIsNotContinued(t *testing.T) {
	t.Parallel()
	s := storetest.StartWith(t, splitting(t))
	write(t, s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}}), 0, 100, 1)
	c := split(t, s, 0)
	dir := t.TempDir()
	place := snapshot.Directory(dir)
	first := create(t, s, place)
	rewrite(t, dir, first.ID, func(b *backup.Backup) {
		for i, id := range c.Partitions() {
			b.Partitions[i] = *backup.LogAlone(t, place, source(s), id)
		}
	})
	report, err := backup.Verify(t.Context(), place, "", nil)
	if err != nil || len(report.Damaged) != 1 || !strings.Contains(report.Damaged[0].Reason, "no snapshot of what stood before") {
		t.Errorf("verify: %v, %+v", err, report)
	}
	write(t, c, 90, 120, 2)
	second := create(t, s, place)
	for i := range second.Partitions {
		if second.Partitions[i].Base == nil {
			t.Errorf("partition %s has no snapshot of what it inherited", second.Partitions[i].Partition)
		}
	}
	prune(t, place, backup.Keep{Last: 1}, false)
	if _, is := restored(t, place, s, splitting(t)); count(t, is) != 120 {
		t.Errorf("%d items of 120 were restored", count(t, is))
	}
}

// withoutSnapshots is an owner that has none, and takes none.
type withoutSnapshots struct{}

func (withoutSnapshots) Handle(context.Context, *store.Request) *store.Response {
	return &store.Response{Snapshot: &store.SnapshotObject{}}
}

// TestCreate_WithoutASnapshotOfAPartitionThatASplitMade is refused. The test is not run beside others.
func TestCreate_WithoutASnapshotOfAPartitionThatASplitMade(t *testing.T) {
	backup.NewerWithin(t, time.Second)
	s := storetest.StartWith(t, splitting(t))
	write(t, s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}}), 0, 100, 1)
	src, local := source(s), &store.Local{}
	for _, p := range split(t, s, 0).Partitions() {
		local.Add(p, withoutSnapshots{})
	}
	src.Client = store.NewClient(s.NC, s.Client.Catalog(), store.ClientConfig{Local: local})
	_, err := backup.Create(t.Context(), snapshot.Directory(t.TempDir()), src)
	if err == nil || !strings.Contains(err.Error(), "a split made it") {
		t.Errorf("a backup of a partition whose beginning nobody has: %v", err)
	}
}

// TestCreate_APartitionIsSplitMeanwhile, behind the copy of it and before the records are read: the backup has its
// children.
func TestCreate_APartitionIsSplitMeanwhile(t *testing.T) {
	t.Parallel()
	s := storetest.StartWith(t, splitting(t))
	write(t, s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}}), 0, 100, 1)
	place := &hooked{Store: snapshot.Directory(t.TempDir()), before: func() { write(t, split(t, s, 0), 100, 120, 2) }}
	b := create(t, s, place)
	if len(b.Skipped) > 0 || len(b.Partitions) != 2 {
		t.Fatalf("skipped %v, and the backup has %+v", b.Skipped, b.Partitions)
	}
	if _, is := restored(t, place, s, splitting(t)); count(t, is) != 120 {
		t.Errorf("%d items of 120 were restored", count(t, is))
	}
}

// TestCreate_ALogEndsWithASplitOfWhichTheCatalogKnowsNothing: the records name the partition, and it has ended. The test
// is not run beside others.
func TestCreate_ALogEndsWithASplitOfWhichTheCatalogKnowsNothing(t *testing.T) {
	backup.SplitPause(t, time.Millisecond)
	s := storetest.StartWith(t, splitting(t))
	c := s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	write(t, c, 0, 100, 1)
	s.StopOwner()
	log, err := feed.OpenLog(t.Context(), s.JS, c.Partitions()[0], feed.LogConfig{})
	must(t, err)
	defer log.Close()
	_, end, err := log.Bounds(t.Context())
	must(t, err)
	last, err := log.Read(t.Context(), end)
	must(t, err)
	control, err := (&feed.Split{ID: "s", First: end + 100}).Control(feed.ControlSplit)
	must(t, err)
	commit := owner.StateCommit(log.ID(), last.Sum, last.Time, last.Trimmed, control)
	_, err = log.Append(t.Context(), end, commit.ID, feed.AppendCommit(nil, commit))
	must(t, err)
	src, local := source(s), &store.Local{}
	local.Add(c.Partitions()[0], withoutSnapshots{})
	src.Client = store.NewClient(s.NC, s.Client.Catalog(), store.ClientConfig{Local: local})
	place := snapshot.Directory(t.TempDir())
	if r, err := backup.Create(t.Context(), place, src); err == nil || !strings.Contains(err.Error(), "was split while") {
		t.Errorf("a backup of a partition that has ended: %+v, %v", r, err)
	}
	if all, _, err := backup.List(t.Context(), place); err != nil || len(all) > 0 {
		t.Errorf("the place lists %d backups, %v", len(all), err)
	}
}

// seen reads the changes of a container from the beginning, up to its end.
func seen(t testing.TB, c *store.Container) map[string]bool {
	t.Helper()
	ids, from := map[string]bool{}, ""
	for {
		page, err := c.Changes(t.Context(), store.ChangesRequest{Start: feed.StartBeginning(), Continuation: from})
		must(t, err)
		for _, change := range page.Changes {
			ids[change.Item.ID] = true
		}
		if from = page.Continuation; page.End {
			return ids
		}
	}
}

// TestRestore_OfAContainerThatWasSplit: nothing names logs that the container does not have, its changes can be read from
// the beginning, and it can be written to and split again.
func TestRestore_OfAContainerThatWasSplit(t *testing.T) {
	t.Parallel()
	s := storetest.StartWith(t, splitting(t))
	write(t, s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}}), 0, 100, 1)
	c := split(t, s, 0)
	former, err := c.Changes(t.Context(), store.ChangesRequest{Start: feed.StartBeginning(), AllVersions: true, ItemsMax: 5})
	must(t, err)
	write(t, split(t, s, 1), 100, 120, 2)
	place := snapshot.Directory(t.TempDir())
	create(t, s, place)
	to, c := restored(t, place, s, splitting(t))
	if info := c.Info(); len(info.Former) > 0 || len(info.Splits) > 0 || info.NextPartition != 5 || len(info.Partitions) != 3 {
		t.Errorf("the catalog has %+v", info)
	}
	for _, continuation := range []string{former.Continuation, ""} {
		_, err = c.Changes(t.Context(), store.ChangesRequest{Continuation: continuation, AllVersions: true, Start: feed.StartBeginning()})
		if !isTrimmed(err) {
			t.Errorf("all changes behind %q: %v", continuation, err)
		}
	}
	if ids := seen(t, c); len(ids) != 120 {
		t.Errorf("%d changes of 120 were seen", len(ids))
	}
	write(t, c, 110, 130, 3)
	again := split(t, to, 2)
	if p := again.Info().Partitions; len(p) != 4 || again.Info().NextPartition != 7 {
		t.Errorf("split again it has %+v", p)
	}
	write(t, again, 120, 140, 4)
	if ids := seen(t, again); count(t, again) != 140 || len(ids) != 140 {
		t.Errorf("%d items and %d changes of 140", count(t, again), len(ids))
	}
}

// TestRestore_OfAContainerThatIsBeingSplit: the split that its log has prepared is none of the container that is restored.
func TestRestore_OfAContainerThatIsBeingSplit(t *testing.T) {
	t.Parallel()
	cfg := splitting(t)
	cfg.Holds = func(context.Context) (map[feed.Partition][]owner.Hold, string, error) {
		return nil, "the test waits", nil
	}
	s := storetest.StartWith(t, cfg)
	c := s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	write(t, c, 0, 100, 1)
	_, err := c.Split(t.Context(), c.Partitions()[0], store.SplitPartition{})
	must(t, err)
	poll.Until(t, func() error {
		st, err := c.Status(t.Context(), c.Partitions()[0])
		must(t, err)
		return poll.Unless(strings.Contains(st.Splitting, "the test waits"), "the split is not prepared: "+st.Splitting)
	})
	place := snapshot.Directory(t.TempDir())
	if b := create(t, s, place); len(b.Skipped) > 0 || len(b.Partitions) != 1 {
		t.Fatalf("skipped %v, and the backup has %+v", b.Skipped, b.Partitions)
	}
	// Not compared with the source: whoever owns it here may give the split up in its log.
	to := storetest.System(t)
	restore(t, place, to, backup.Latest)
	to.Own(t, splitting(t))
	is := container(t, to, "things")
	if info := is.Info(); len(info.Splits) > 0 || info.NextPartition != 3 {
		t.Errorf("the catalog has %+v", info)
	}
	write(t, is, 90, 110, 2)
	if ids := seen(t, is); count(t, is) != 110 || len(ids) != 110 {
		t.Errorf("%d items and %d changes of 110", count(t, is), len(ids))
	}
}
