package store

import (
	"context"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/heat"
)

// StatusRequest asks an owner how a partition is.
type StatusRequest struct{}

var statusKind = kind{
	name:         "status",
	asked:        func(r *Request) bool { return r.Status != nil },
	encode:       func(*wireWriter, *Request) {},
	decode:       func(_ *wireReader, r *Request) { r.Status = &StatusRequest{} },
	encodeAnswer: func(w *wireWriter, r *Response) { w.json(r.Status) },
	decodeAnswer: func(d *wireReader, r *Response) {
		r.Status = &PartitionStatus{}
		d.json(r.Status)
	},
}

// PartitionStatus is how a partition is.
type PartitionStatus struct {
	Owner string `json:"owner"`
	Epoch uint64 `json:"epoch"`
	// Listens is for how long the owner has taken requests, in nanoseconds; 0 if it is of a release that does not tell.
	Listens time.Duration `json:"listens,omitempty"`
	// Unanswered are the hashes (HashKey) of the idempotency keys of what came over NATS and is not answered yet, in no
	// order; nil if that is not known.
	Unanswered []uint64     `json:"unanswered,omitzero"`
	Log        feed.LogID   `json:"log"`
	Applied    feed.LSN     `json:"applied"`
	Synced     feed.LSN     `json:"synced"` // covered by a sync of the engine
	Changes    uint64       `json:"changes"`
	Indexes    []IndexState `json:"indexes,omitempty"`
	Rules      []RuleState  `json:"rules,omitempty"`
	// Refusing says why writes are refused; "" if they are not.
	Refusing string `json:"refusing,omitempty"`
	// Unreadable says that reads are refused too.
	Unreadable bool `json:"unreadable,omitempty"`
	// Splitting says how far the split of the partition is, or what it waits for; "" if none is planned.
	Splitting string `json:"splitting,omitempty"`
	// AbandonedSplit is the last split of the partition that was given up; nil if none was since another one was prepared.
	AbandonedSplit *AbandonedSplit `json:"abandonedSplit,omitempty"`
	// Scrub is the last time that the whole log was read; nil if it has not been since
	// the partition was opened.
	Scrub *ScrubState `json:"scrub,omitempty"`
	// Snapshot is the newest one; nil if there is none, or if it is not known yet.
	Snapshot *SnapshotState `json:"snapshot,omitempty"`
	// Pins are what keeps older snapshots, and the log behind them.
	Pins []SnapshotPin `json:"pins,omitempty"`
	// Trim tells how far the log is trimmed; nil if that is not known yet.
	Trim *TrimState `json:"trim,omitempty"`
	// EngineScrub is the last time that all blocks of the engine were read, in the owner's
	// process.
	EngineScrub *ScrubState `json:"engineScrub,omitempty"`
	Queue       int         `json:"queue"` // requests waiting to be decided
	FanOuts     int         `json:"fanOuts"`
	// Heat tells what was asked for of late, and by which partition keys; nil if the owner is of
	// a release that does not measure it.
	Heat *heat.Report `json:"heat,omitempty"`
}

// AbandonedSplit tells of a split that was given up. No owner splits under its id any more.
type AbandonedSplit struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// ScrubState tells of a pass in which everything stored was read and its checksums
// compared.
type ScrubState struct {
	Ended time.Time     `json:"ended"`
	Took  time.Duration `json:"took"`
	// Commits or blocks that were read.
	Commits uint64 `json:"commits,omitempty"`
	Blocks  uint64 `json:"blocks,omitempty"`
	// Finding is what was wrong; "" if nothing was.
	Finding string `json:"finding,omitempty"`
}

// SnapshotState tells of the newest snapshot of a partition.
type SnapshotState struct {
	ID      string    `json:"id"`
	LSN     feed.LSN  `json:"lsn"`
	Taken   time.Time `json:"taken"`
	Entries uint64    `json:"entries"`
	// Bytes is what the partition held, Stored what the snapshot takes, compressed.
	Bytes  uint64 `json:"bytes"`
	Stored uint64 `json:"stored"`
	// LogBytes is the size of the log when it was taken, or when Failed.
	LogBytes uint64 `json:"logBytes"`
	// Failed says why the last try to take a newer one failed; "" if it did not.
	Failed string `json:"failed,omitempty"`
}

// SnapshotPin keeps a snapshot for a reader of its items.
type SnapshotPin struct {
	Holder string    `json:"holder"`
	LSN    feed.LSN  `json:"lsn"`
	Items  uint64    `json:"items"`
	Until  time.Time `json:"until"`
}

// TrimState tells how far the log of a partition is trimmed.
type TrimState struct {
	// Retention is what the container declares, or the default.
	Retention string `json:"retention"`
	// First is the first LSN that the log has, Point the trim point: the last that may be gone.
	First feed.LSN `json:"first"`
	Point feed.LSN `json:"point"`
	// HeldBy says what keeps the trim point from going further.
	HeldBy string `json:"heldBy,omitempty"`
	// Late are the readers that changeFeed.retentionMax will cut off unless they go on.
	Late []LateReader `json:"late,omitempty"`
}

// LateReader is somebody who has not read a log for long.
type LateReader struct {
	Reader string `json:"reader"`
	// After is the last LSN that was read.
	After feed.LSN `json:"after"`
	// CutOff is when what follows may be trimmed.
	CutOff time.Time `json:"cutOff"`
}

// IndexState tells whether an index can be used.
type IndexState struct {
	Path  string `json:"path"`
	Ready bool   `json:"ready"`
}

// Status tells how a physical partition is.
func (c *Container) Status(ctx context.Context, p feed.Partition) (*PartitionStatus, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, Status: &StatusRequest{}})
	if err != nil {
		return nil, err
	}
	return resp.Status, nil
}
