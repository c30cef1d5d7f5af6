package owner

import (
	"context"
	"errors"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/snapshot"
)

var snapshotHandler = handler{
	read: func(ctx context.Context, p *Partition, r *store.Request) *store.Response {
		return p.readSnapshot(ctx, r.Snapshot)
	},
}

// readSnapshot hands out what lies in the store of snapshots. It waits at no barrier: a
// snapshot is of the log that it names, whoever owns the partition now.
func (p *Partition) readSnapshot(ctx context.Context, r *store.ReadSnapshot) *store.Response {
	object := &store.SnapshotObject{ID: r.ID}
	if p.cfg.snapshots == nil {
		return &store.Response{Snapshot: &store.SnapshotObject{}}
	}
	var err error
	if r.ID == "" {
		object.ID, object.Data, err = snapshot.NewestOf(ctx, p.cfg.snapshots, p.id, p.feed.ID(), r.Part)
		if r.Part > 0 {
			p.doubted.Store(true)
		}
	} else {
		object.Data, err = snapshot.ReadPart(ctx, p.cfg.snapshots, p.id, r.ID, r.Part)
	}
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
		return &store.Response{Err: store.Refuse(store.StatusNotFound, "partition %s has no snapshot %s with a part %d any more", p.id, r.ID, r.Part)}
	case err != nil:
		return &store.Response{Err: store.Refuse(store.StatusUnavailable, "partition %s: a snapshot cannot be read: %v", p.id, err)}
	}
	return &store.Response{Snapshot: object}
}
