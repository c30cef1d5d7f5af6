package owner_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/snapshot"
)

// A child's own snapshot is damaged since it was read back. Its parent's log and its seed are all that could make it again,
// and stay until another snapshot was taken, however short changes are kept.
func TestI2_NoFormerLogIsDroppedByADamagedSnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dir := t.TempDir()
	c.cfg = owner.Config{Alone: true, DataDir: dir, DiskReserve: -1, Snapshots: owner.SnapshotConfig{Store: owner.SnapshotsDirectory}}
	p := c.process("a", t.TempDir())
	ct := splitContainer(t, c, p.client)
	for n := range 300 {
		if _, err := ct.Create(t.Context(), splitItem(n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ct.Split(t.Context(), ct.Partitions()[0], store.SplitPartition{}); err != nil {
		t.Fatal(err)
	}
	ct = awaitSplit(t, p.client, 0)
	info := ct.Info()
	child := info.Partitions[1]
	id, from := ct.Partitions()[1], snapshot.Directory(filepath.Join(dir, "snapshots"))
	own := func(of store.PartitionInfo) []*snapshot.Manifest {
		all, _, err := snapshot.Newest(t.Context(), from, feed.Partition{Container: info.ID, Number: of.Number})
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(all, func(m *snapshot.Manifest) bool { return m.Log != of.Log })
	}
	poll.Until(t, func() error {
		return poll.Unless(len(own(info.Partitions[0])) > 0 && len(own(child)) > 0, "there are no snapshots yet")
	})
	damaged := own(child)[0]
	part := filepath.Join(dir, "snapshots", id.String(), damaged.ID(), "000001")
	data, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(part, data, 0o600); err != nil {
		t.Fatal(err)
	}
	info.Spec.ChangeFeed.Retention = new(store.Retention(0))
	if _, err := c.catalog.Update(t.Context(), "default", "things", info.Spec); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		return poll.Unless(len(reopen(t, p.client).Info().Former) == 0, "the parent is remembered still")
	})
	left := own(child)
	if len(left) == 0 || left[0].ID() == damaged.ID() {
		t.Error("the parent's log was dropped, and the one snapshot of a child is damaged")
	} else if err := snapshot.Verify(t.Context(), from, left[0], t.Context().Err); err != nil {
		t.Error(err)
	}
}
