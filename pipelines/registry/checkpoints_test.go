package registry_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
)

// TestCheckpointsOf_NamesWhatCannotBeReadAndReadsTheRest: one bad checkpoint stops
// nobody who sees to all pipelines, and is not hidden from whoever verifies.
func TestCheckpointsOf_NamesWhatCannotBeReadAndReadsTheRest(t *testing.T) {
	good := (&processors.Checkpoint{Position: feed.Position{LSN: 7}}).Encode()
	reader := func(number uint32) string {
		return processors.Resource{
			Pipeline: "names-k2x4c7ab", Generation: 1, Role: processors.RoleSource, Partition: feed.Partition{Container: "c7k2x4ab", Number: number},
		}.String()
	}
	at, unreadable := registry.CheckpointsOf([]leases.Lease{
		{Resource: reader(0), Checkpoint: good},
		{Resource: reader(1), Checkpoint: []byte(`{"version":200}`)},
		{Resource: reader(2)},
		{Resource: registry.ReconcilerResource, Checkpoint: []byte("its own")},
		{Resource: reader(3), Checkpoint: []byte("nonsense")},
	})
	if len(at) != 1 || at[reader(0)] == nil || at[reader(0)].Position.LSN != 7 {
		t.Errorf("read %v", at)
	}
	if unreadable == nil || !strings.Contains(unreadable.Error(), reader(1)) || !strings.Contains(unreadable.Error(), reader(3)) {
		t.Errorf("unreadable: %v", unreadable)
	}
	if _, unreadable := registry.CheckpointsOf([]leases.Lease{{Resource: reader(0), Checkpoint: good}}); unreadable != nil {
		t.Errorf("unreadable: %v", unreadable)
	}
}
