package standby_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// The store that splits a partition has its children ready, and takes them: nobody else has to load them first. Another
// store follows them from then on, from their seeds and their parent's log, and its copy equals the owner's.
func TestI3_TheCopiesOfAPartitionThatWasSplit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cfg.Snapshots = owner.SnapshotConfig{Store: owner.SnapshotsStream}
	ct, id, a := c.things()
	for n := range 300 {
		if _, err := ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"i%d","k":"a%d","u":%d}`, n, n%50, n)); err != nil {
			t.Fatal(err)
		}
	}
	b := c.start("b", t.TempDir())
	b.ready(id)
	if _, err := ct.Split(t.Context(), id, store.SplitPartition{}); err != nil {
		t.Fatal(err)
	}
	var children []feed.Partition
	poll.Until(t, func() error {
		ct, err := c.client.Container(t.Context(), "default", "things")
		if err == nil && len(ct.Partitions()) == 1 {
			err = fmt.Errorf("partition %s is there", id)
		}
		children = ct.Partitions()
		return err
	})
	a.owns(children...)
	for _, child := range children {
		// The other store may get its share meanwhile, and then this one follows.
		poll.Until(t, func() error {
			end, warm := c.end(child), c.warm(child)
			if max(warm[a.node()], warm[b.node()]) < end {
				return fmt.Errorf("partition %s ends at %d, warm are %v", child, end, warm)
			}
			lsn, want := digest(t, a.copy(child))
			at, got := digest(t, b.copy(child))
			if at != lsn {
				return fmt.Errorf("partition %s: one store has LSN %d, the other %d", child, lsn, at)
			}
			if got != want {
				t.Errorf("partition %s at LSN %d: one store has %x, the other %x", child, lsn, want, got)
			}
			return nil
		})
	}
	a.stop()
	b.owns(children...)
	if n := b.log.count("seed of the partition loaded"); n > 2 {
		t.Errorf("the store that followed has loaded %d seeds", n)
	}
}
