package node

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store/owner"
)

// holds tells the owners of this process who reads their logs, and how far, or why nothing
// may be trimmed.
func (n *Node) holds(ctx context.Context) (holds map[feed.Partition][]owner.Hold, barred string, err error) {
	// A store that has joined this process may become the owner, and find no snapshot.
	if alone := n.alone(); !n.cfg.Store.Snapshots.Shared(alone) {
		processes, err := leases.Processes(ctx, n.js, n.cfg.Leases.Bucket)
		if err != nil {
			return nil, "", err
		}
		for i := range processes {
			if p := &processes[i]; p.Group == GroupStore && (n.lock == nil || p.Node != n.lock.Node()) {
				return nil, fmt.Sprintf("%s runs beside this process, and a directory of snapshots is for one store alone; set store.snapshots.store to stream or s3", p), nil
			}
		}
	}
	all, err := n.registry.Holds(ctx, n.cfg.Leases.Bucket)
	if err != nil {
		return nil, "", err
	}
	holds = make(map[feed.Partition][]owner.Hold, len(all))
	for p, some := range all {
		for _, h := range some {
			holds[p] = append(holds[p], owner.Hold{Reader: "pipeline " + h.Pipeline, After: h.After, Walks: h.Walks})
		}
	}
	return holds, "", nil
}
