package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
)

const (
	// PinFor is how long a pin lasts that nobody reads from any more.
	PinFor = 24 * time.Hour
	// PinAsked is how long a pin lasts that was asked for and that nobody reads from yet. A
	// process that dies before it has recorded the pin leaves a log that cannot be trimmed for
	// so long. A second request lets the pin last PinAsked from then on, a read, even at the
	// end of the items, PinFor.
	PinAsked = 5 * time.Minute
)

// PinSnapshot asks an owner to keep a snapshot of its partition for somebody who is to
// read its items, or to keep it no longer. Whoever asks twice under one name has one pin.
type PinSnapshot struct {
	// Holder names who reads.
	Holder string
	// Release ends the holder's pin.
	Release bool
	// LogMax is for a reader that can read the log as well, if it is whole: nothing is pinned if
	// the log is no larger than so many bytes, or than twice what the partition holds. 0 pins in
	// any case.
	LogMax uint64
}

// PinState tells what became of the wish for a pin.
type PinState byte

// The states of a pin. They are on the wire.
const (
	// PinNone: there is none, as it was asked for.
	PinNone PinState = iota
	// PinReady: the snapshot is pinned.
	PinReady
	// PinPending: the owner is at it; ask again.
	PinPending
	// PinLog: the log is cheaper, and whole.
	PinLog
	// PinOff: the owner keeps no snapshots.
	PinOff
)

// PinResult is the answer to PinSnapshot.
type PinResult struct {
	State PinState
	// Trimmed says that the log does not begin with its first commit any more.
	Trimmed bool
	// ID, LSN and Items are of the snapshot that is pinned. Behind LSN the log is whole for
	// as long as the pin lasts.
	ID    string
	LSN   feed.LSN
	Items uint64
	// LogBytes is the size of the log, HeldBytes what the partition held when the snapshot
	// was taken.
	LogBytes, HeldBytes uint64
}

var pinKind = kind{
	name:   "pin",
	asked:  func(r *Request) bool { return r.Pin != nil },
	writes: always,
	encode: func(w *wireWriter, r *Request) {
		w.str(r.Pin.Holder)
		w.bool(r.Pin.Release)
		w.uint(r.Pin.LogMax)
	},
	decode: func(d *wireReader, r *Request) {
		r.Pin = &PinSnapshot{Holder: d.str(), Release: d.bool(), LogMax: d.uint()}
	},
	encodeAnswer: func(w *wireWriter, r *Response) {
		w.byte(byte(r.Pin.State))
		w.bool(r.Pin.Trimmed)
		w.str(r.Pin.ID)
		w.uint(uint64(r.Pin.LSN))
		w.uint(r.Pin.Items)
		w.uint(r.Pin.LogBytes)
		w.uint(r.Pin.HeldBytes)
	},
	decodeAnswer: func(d *wireReader, r *Response) {
		r.Pin = &PinResult{
			State: PinState(d.byte()), Trimmed: d.bool(), ID: d.str(), LSN: feed.LSN(d.uint()), Items: d.uint(), LogBytes: d.uint(), HeldBytes: d.uint(),
		}
	},
}

// PinSnapshot pins a snapshot of a physical partition, or releases it, and waits until
// that is done: a snapshot may have to be taken first. The state is never PinPending.
func (c *Container) PinSnapshot(ctx context.Context, p feed.Partition, r PinSnapshot) (*PinResult, error) {
	for {
		resp, err := c.Do(ctx, &Request{Partition: p, Pin: &r})
		switch {
		case errors.Is(err, ErrBadRequest):
			// An owner that knows pins never finds the request bad. This one is of an earlier
			// release.
			return &PinResult{State: PinOff}, nil
		case err != nil:
			return nil, err
		case resp.Pin.State != PinPending:
			return resp.Pin, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("a snapshot of %s is being taken: %w", p, context.Cause(ctx))
		case <-time.After(pinRetry):
		}
	}
}

// pinRetry is the pause before an owner is asked again that is at it.
const pinRetry = 50 * time.Millisecond

// ReadPinned asks an owner for items of a snapshot that is pinned.
type ReadPinned struct {
	// Holder and ID are those of the pin. Reading extends it.
	Holder string
	ID     string
	// From is the ordinal of the first item, from 0, in the order of scans.
	From uint64
}

// PinnedPage is a page of items of a snapshot. The same item has the same ordinal whenever
// it is read, and whoever reads it.
type PinnedPage struct {
	// Items follow each other from ReadPinned.From on; none at the end alone. An item that
	// had expired and was not removed yet is among them.
	Items []Item
	// Log, LSN, Sum and Time are of the commit as of which the snapshot is.
	Log  feed.LogID
	LSN  feed.LSN
	Sum  feed.Checksum
	Time int64
}

var pinnedKind = kind{
	name:  "pinned",
	asked: func(r *Request) bool { return r.Pinned != nil },
	slow:  true,
	encode: func(w *wireWriter, r *Request) {
		w.str(r.Pinned.Holder)
		w.str(r.Pinned.ID)
		w.uint(r.Pinned.From)
	},
	decode: func(d *wireReader, r *Request) {
		r.Pinned = &ReadPinned{Holder: d.str(), ID: d.str(), From: d.uint()}
	},
	encodeAnswer: func(w *wireWriter, r *Response) {
		w.items(r.Pinned.Items)
		w.str(r.Pinned.Log.String())
		w.uint(uint64(r.Pinned.LSN))
		w.uint(uint64(r.Pinned.Sum))
		w.uint(uint64(r.Pinned.Time))
	},
	decodeAnswer: func(d *wireReader, r *Response) {
		r.Pinned = &PinnedPage{Items: d.items()}
		log, err := feed.ParseLogID(d.str())
		if err != nil {
			d.fail(err)
		}
		r.Pinned.Log, r.Pinned.LSN, r.Pinned.Sum, r.Pinned.Time = log, feed.LSN(d.uint()), feed.Checksum(d.uint()), int64(d.uint())
	},
}

// ReadPinned reads a page of items of a snapshot that is pinned: 404 if it is not, or no
// longer, 422 if it is damaged, 503 if that cannot be told now.
func (c *Container) ReadPinned(ctx context.Context, p feed.Partition, r ReadPinned) (*PinnedPage, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, Pinned: &r})
	if err != nil {
		return nil, err
	}
	return resp.Pinned, nil
}

// ReadSnapshot asks an owner for a part of a snapshot of its partition, or, with ID "",
// for the manifest of the newest one. It is how a backup copies snapshots.
type ReadSnapshot struct {
	ID string
	// Part is counted from 1. With ID "" it is how many snapshots are passed over, from the
	// newest on, because the reader found those damaged; an earlier release passes over none.
	Part int
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
	resp, err := c.Do(ctx, &Request{Partition: p, Snapshot: &r})
	if err != nil {
		return nil, err
	}
	return resp.Snapshot, nil
}
