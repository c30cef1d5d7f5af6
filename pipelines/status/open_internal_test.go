package status

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// TestStatus_IsNotIdleWhileAPartitionDoesNotOpen, whether it is the pipeline's reader
// that cannot begin or the store's owner, and nothing is left to do.
func TestStatus_IsNotIdleWhileAPartitionDoesNotOpen(t *testing.T) {
	now := time.Now()
	failed := leases.Lease{Attempts: 3, LastError: "the disk is gone", Acquired: now.Add(-time.Minute), Progress: now}
	held, trying := failed, failed
	held.Owner, trying.Owner, trying.Acquired = "n1/a", "n1/a", now.Add(-time.Second)
	well := leases.Lease{Owner: "n1/a", Acquired: now.Add(-time.Minute), Progress: now}
	partition := feed.Partition{Container: "c7k2x4ab", Number: 1}
	reads := processors.Resource{Pipeline: "p", Generation: 1, Role: processors.RoleSource, Partition: feed.Partition{Container: "k2x4c7ab"}}
	b := &registry.Bound{Target: &store.ContainerInfo{ID: partition.Container, Partitions: []store.PartitionInfo{{Number: 0}, {Number: 1}}}}
	for name, c := range map[string]struct {
		reader leases.Lease
		owner  *leases.Lease // of a partition of the target
		want   State
	}{
		"all open":                           {well, &well, Idle},
		"the reader does not begin":          {failed, &well, Stuck},
		"the reader tries again":             {trying, &well, Stuck},
		"the reader has begun again":         {held, &well, Idle},
		"the target's partition is not open": {well, &failed, Stuck},
		"the target's partition tries again": {well, &trying, Stuck},
		"the target's partition is open now": {well, &held, Idle},
		"the target has never been held yet": {well, nil, Idle},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string]*leases.Lease{"store/" + partition.String(): c.owner}
			if c.owner == nil {
				clear(all)
			}
			w := &watched{
				resource: reads, record: &registry.Record{}, lease: &c.reader, checkpoint: &processors.Checkpoint{}, now: now, stuckAfter: time.Minute,
				closed: closedAmong(partitionsOf(reads, b), all, now),
			}
			s := w.status()
			if s.State != c.want || c.want == Stuck && !strings.Contains(s.Reason, "the disk is gone") {
				t.Errorf("it is %s: %s; want %s", s.State, s.Reason, c.want)
			}
		})
	}
}
