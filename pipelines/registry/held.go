package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Trimming waits for the readers that are registered, and a log may be trimmed while one is
// being registered:
//
//	the log is seen to begin at 1
//	                                trim point 9   who reads? nobody
//	the record is written: from 1
//	                                purged up to 9
//
// An owner writes the trim point, asks who reads, and purges, in this order. So whoever
// registers writes the record, and reads the trim point then:
//
//	record, question   the owner is told, and purges no further than the record allows
//	question, record   the trim point was there before the record: it is read
//
// If the trim point has passed what the record begins with, what it needs may be gone, and
// its generation begins once more. A registrar that dies between the two leaves a pipeline that
// is cut off; BeginAnew is for those.

// shapeOf asks how the log of a partition stands.
func (r *Registry) shapeOf(ctx context.Context, p feed.Partition) (*feed.Shape, error) {
	log, err := feed.OpenLog(ctx, r.JetStream, p, r.cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", p, err)
	}
	defer log.Close()
	return log.Shape(ctx)
}

// outrun tells whether a trim point has passed what a generation begins with.
func (r *Registry) outrun(ctx context.Context, rec *Record, b *Bound) (bool, error) {
	for _, reader := range rec.present(b) {
		shape, err := r.shapeOf(ctx, reader.Partition)
		if err != nil {
			return false, err
		}
		if shape.Trimmed > rec.LogBehind(reader, rec.Begin(reader)) {
			return true, nil
		}
	}
	return false, nil
}

// holdLogs returns the record of a generation that was just registered, or of the one that had
// to take its place because the logs were trimmed meanwhile.
func (r *Registry) holdLogs(ctx context.Context, rec Record, b *Bound, opts *ApplyOptions) (Record, error) {
	for {
		if out, err := r.outrun(ctx, &rec, b); err != nil || !out {
			return rec, err
		}
		was, err := r.Get(ctx, rec.Database, rec.Name)
		if err != nil || was.ID != rec.ID || was.Generation != rec.Generation {
			return was, err // somebody has written another generation, and looks for it
		}
		next := was
		next.Generation++
		next.Changed = now()
		next.succeed(&was, opts)
		if err := r.begin(ctx, &next, b, opts); err != nil {
			return rec, fmt.Errorf("its log was trimmed meanwhile, so that it begins anew: %w", err)
		}
		switch err := r.put(ctx, &next, was.Revision); {
		case err == nil:
			r.registered(ctx, &was, &next, b)
			rec = next
		case !errors.Is(err, jetstream.ErrKeyRevisionMismatch):
			return rec, err
		}
	}
}

// begunAnew tells of a generation that holdLogs has put in the place of what was applied.
const begunAnew = "the log was trimmed while it was registered, so it began anew as generation %d"

// ByHand returns the command by which an operator lets a pipeline begin anew after a log was
// trimmed beyond what it has read; "" if it begins anew by itself, because its generation is
// about all items that are there, and no row is lost.
func (r *Record) ByHand(source *store.ContainerInfo) string {
	command := "millrace rewind " + r.Name + " --to beginning"
	switch {
	case r.Spec.Kind() == spec.AggregateKind:
		return ""
	// Who let a rebuild begin with items agreed to what it lacks of the rows before it, not to lose those of its own
	// that it has kept since. Of one that is being built nobody has read any.
	case r.keepsExpired(source) && !r.unread():
		return command + " --discard-expired, after which the rows of items that have expired are gone"
	case r.beganWhole(), len(r.Walks) > 0, r.Backfills > 0 && r.BackfillScope == BackfillScope{}:
		return ""
	}
	// It began with what changed from some moment on. Only the operator knows whether the items
	// from before belong to it.
	return command + ", which brings all items that are there, or --to now, which leaves out what changed meanwhile"
}

// unread says whether a generation began with items, and is built where nobody reads, for sure.
func (r *Record) unread() bool { return len(r.Walks) > 0 && r.Shadow && !r.Swapping }

// beganWhole says whether a generation, or the rows among which it goes on, is about all that the logs of its source
// ever held.
func (r *Record) beganWhole() bool {
	// By the partitions with which it began: they may have been split since, and their children begin with nothing.
	starts := r.From
	if len(r.RowsFrom) > 0 {
		starts = r.RowsFrom
	}
	return !slices.ContainsFunc(starts, func(s Start) bool { return !s.After.IsZero() })
}

// BeginAnew lets a pipeline begin anew that cannot read on, because a log was trimmed beyond
// what it has read, or the snapshot is gone whose items it reads. It does nothing, and returns
// false, if nothing is gone, or if an operator must decide. Only a caller that has seen the
// readers fail may call it: a reader that runs may be ahead of its checkpoint.
func (r *Registry) BeginAnew(ctx context.Context, rec *Record, b *Bound, bucket string) (Record, bool, error) {
	if rec.Paused || rec.ByHand(b.Source) != "" {
		return *rec, false, nil
	}
	lost, err := r.lost(ctx, rec, b, bucket)
	if err != nil || !lost {
		return *rec, false, err
	}
	fresh, err := r.Get(ctx, rec.Database, rec.Name)
	if err != nil || fresh.ID != rec.ID || fresh.Generation != rec.Generation || fresh.Rewinds != rec.Rewinds {
		return fresh, false, err // somebody has begun it anew already
	}
	// Of that record alone: two who find the same must not begin it anew twice, one behind the other.
	next, err := r.Rewind(ctx, rec.Database, rec.Name, RewindTo{DiscardExpired: fresh.unread(), Revision: fresh.Revision}, bucket)
	if errors.Is(err, ErrRecordChanged) {
		return next, false, nil
	}
	return next, err == nil, err
}

// lost tells whether something is gone that a reader of a generation has yet to read.
func (r *Registry) lost(ctx context.Context, rec *Record, b *Bound, bucket string) (bool, error) {
	firsts := map[feed.Partition]feed.LSN{}
	var gone []feed.Partition // of which the snapshot is
	var all []processors.Resource
	rec.roles(b, func(role processors.Role, c *store.ContainerInfo) {
		l := rec.lineage(role, c, nil)
		for _, n := range l.numbers() {
			all = append(all, l.resource(n))
		}
	})
	for _, reader := range all {
		shape, err := r.shapeOf(ctx, reader.Partition)
		if err != nil {
			return false, err
		}
		firsts[reader.Partition] = shape.First
		if w := rec.WalkOf(reader); w != nil {
			there, err := r.pinned(ctx, b.Source, reader.PinHolder(), reader.Partition, w)
			if err != nil {
				return false, err
			}
			if !there {
				gone = append(gone, reader.Partition)
			}
		}
	}
	// Read after all of that: a log is trimmed, and a snapshot let go, behind the checkpoint
	// that needs it no more.
	at, unreadable, err := ReadCheckpoints(ctx, r.JetStream, bucket)
	if err = errors.Join(err, unreadable); err != nil {
		return false, err
	}
	for _, reader := range rec.Readers(b, at) {
		cp := at.Of(rec, reader.Role, reader.Partition)
		if rec.LogBehind(reader, cp.FinishedBelow())+1 < firsts[reader.Partition] {
			return true, nil
		}
		for _, p := range gone {
			if p == reader.Partition && rec.ItemsLeft(reader, cp.Position) > 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

// pinned tells whether the items of a walk can still be read.
func (r *Registry) pinned(ctx context.Context, source *store.ContainerInfo, holder string, p feed.Partition, w *Walk) (bool, error) {
	c, err := r.client.Open(*source)
	if err != nil {
		return false, err
	}
	// At the end there are no items, so that only the pin is looked at.
	page, err := c.ReadPinned(ctx, p, store.ReadPinned{Holder: holder, ID: w.Snapshot, From: w.Items})
	if processors.WalkGone(err) {
		return false, nil
	}
	return err == nil && page.LSN == w.LSN && len(page.Items) == 0, err
}
