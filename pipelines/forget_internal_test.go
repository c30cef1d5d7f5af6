package pipelines

import (
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// The lease of a partition that was split says that it has ended, until its log is gone.
func TestWants_TheLeaseOfAPartitionThatWasSplit(t *testing.T) {
	t.Parallel()
	w := &registry.World{
		Pipelines: []registry.Record{{ID: "p", Generation: 1}},
		Containers: []store.ContainerInfo{{
			ID: "c7k2x4ab", Partitions: []store.PartitionInfo{{Number: 1}, {Number: 2}},
			Former: []store.FormerPartition{{PartitionInfo: store.PartitionInfo{Number: 0}, Children: []uint32{1, 2}}},
		}},
	}
	of := func(number uint32) *leases.Lease {
		r := processors.Resource{Pipeline: "p", Generation: 1, Role: processors.RoleSource, Partition: feed.Partition{Container: "c7k2x4ab", Number: number}}
		return &leases.Lease{Resource: r.String()}
	}
	for number, want := range map[uint32]bool{0: true, 1: true, 2: true, 3: false} {
		if got := wants(w, of(number)); got != want {
			t.Errorf("the lease of partition %d is of use: %t", number, got)
		}
	}
	// The children of one that is being split are read before the catalog lists them.
	w.Containers[0].Splits = []store.PlannedSplit{{Parent: 2, Children: []store.PartitionInfo{{Number: 3}, {Number: 4}}}}
	for number, want := range map[uint32]bool{2: true, 3: true, 4: true, 5: false} {
		if got := wants(w, of(number)); got != want {
			t.Errorf("while partition 2 is split, the lease of partition %d is of use: %t", number, got)
		}
	}
	w.Containers[0].Former = nil
	if wants(w, of(0)) {
		t.Error("a lease is kept whose partition is gone")
	}
}
