package store

import (
	"context"

	"github.com/millrace/millrace/feed"
)

// ReadSnapshot asks an owner for a part of a snapshot of its partition, or, with ID "",
// for the manifest of the newest one. It is how a backup copies snapshots.
type ReadSnapshot struct {
	ID   string
	Part int // from 1
}

// SnapshotObject is a manifest or a part, as store/snapshot/FORMAT.md describes them.
type SnapshotObject struct {
	// ID is that of the snapshot; "" if there is none.
	ID   string
	Data []byte
}

var snapshotKind = kind{
	name:  "snapshot",
	asked: func(r *Request) bool { return r.Snapshot != nil },
	slow:  true,
	encode: func(w *wireWriter, r *Request) {
		w.str(r.Snapshot.ID)
		w.uint(uint64(r.Snapshot.Part))
	},
	decode: func(d *wireReader, r *Request) {
		r.Snapshot = &ReadSnapshot{ID: d.str(), Part: int(d.uint())}
	},
	encodeAnswer: func(w *wireWriter, r *Response) {
		w.str(r.Snapshot.ID)
		w.bytes(r.Snapshot.Data)
	},
	decodeAnswer: func(d *wireReader, r *Response) {
		r.Snapshot = &SnapshotObject{ID: d.str(), Data: d.bytes()}
	},
}

// ReadSnapshot reads a manifest or a part of a snapshot of a physical partition: 404 if a
// snapshot that is named is not there, or no longer.
func (c *Container) ReadSnapshot(ctx context.Context, p feed.Partition, r ReadSnapshot) (*SnapshotObject, error) {
	resp, err := c.client.Do(ctx, &Request{Partition: p, Snapshot: &r})
	if err != nil {
		return nil, err
	}
	return resp.Snapshot, nil
}
