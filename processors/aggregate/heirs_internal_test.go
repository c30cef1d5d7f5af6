package aggregate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// Members and targets in one logical partition: what the log of a partition says that was split is folded into the
// partitions that have its items, through two generations.
func TestHeirs_OfAPartitionThatWasSplit(t *testing.T) {
	t.Parallel()
	c := &store.ContainerInfo{ID: "c7k2x4ab", Former: []store.FormerPartition{
		{PartitionInfo: store.PartitionInfo{Number: 0}, Children: []uint32{3, 4}}, {PartitionInfo: store.PartitionInfo{Number: 4}, Children: []uint32{5, 6}},
	}}
	p := func(n uint32) feed.Partition { return feed.Partition{Container: c.ID, Number: n} }
	for n, want := range map[uint32][]feed.Partition{0: {p(3), p(5), p(6)}, 4: {p(5), p(6)}, 1: {p(1)}, 6: {p(6)}} {
		if diff := cmp.Diff(want, heirs(c, p(n))); diff != "" {
			t.Errorf("of %d (-want +got):\n%s", n, diff)
		}
	}
}
