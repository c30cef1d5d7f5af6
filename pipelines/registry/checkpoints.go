package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Checkpoints are how far processors have come, by the names of their leases.
type Checkpoints map[string]*processors.Checkpoint

// CheckpointsOf reads the checkpoints of the processors among leases. It leaves out those that
// cannot be read, as if their readers had not begun; unreadable names them, nil if there are
// none. A caller that looks after many pipelines may go on without them, so that one does not
// stop all. One that verifies, or that trims logs, must not.
func CheckpointsOf(held []leases.Lease) (at Checkpoints, unreadable error) {
	at = Checkpoints{}
	var errs []error
	for i := range held {
		if _, err := processors.ParseResource(held[i].Resource); err != nil || len(held[i].Checkpoint) == 0 {
			continue // not a processor's, or nothing was saved yet
		}
		cp, err := processors.DecodeCheckpoint(held[i].Checkpoint)
		if err != nil {
			errs = append(errs, fmt.Errorf("lease %s: %w", held[i].Resource, err))
			continue
		}
		at[held[i].Resource] = cp
	}
	return at, errors.Join(errs...)
}

// ReadCheckpoints is CheckpointsOf for the leases in a bucket. Not to get at them is an
// error, and then nothing is read.
func ReadCheckpoints(ctx context.Context, js jetstream.JetStream, bucket string) (at Checkpoints, unreadable, err error) {
	held, err := leases.List(ctx, js, bucket)
	if err != nil {
		return nil, nil, fmt.Errorf("read the checkpoints: %w", err)
	}
	at, unreadable = CheckpointsOf(held)
	return at, unreadable, nil
}

// withRefusals returns at with what items of a cascade have refused among what its readers have given up, where that
// decides from where the cascade reads. A checkpoint has passed such a change, and the dead letter, which goes with its
// generation, alone tells of it.
func (r *Registry) withRefusals(ctx context.Context, rec *Record, to RewindTo, at Checkpoints) (Checkpoints, error) {
	if rec.Spec.Kind() != spec.CascadeKind || to.Kind == rewindBeginning || to.Kind == RewindNow {
		return at, nil
	}
	first := map[string]feed.Position{} // by reader
	err := processors.FindDeadLetters(r.client).Each(ctx, rec.ID, func(l *processors.DeadLetter) {
		partition, err := feed.ParsePartition(l.Partition)
		if err != nil || l.Target == "" {
			return // one without a target is parked in the checkpoint
		}
		// Also what an earlier generation has left: this one has gone on behind it.
		reader := processors.Resource{Pipeline: rec.ID, Generation: rec.Generation, Role: l.Role, Partition: partition}.String()
		if known, ok := first[reader]; !ok || l.Position.Before(known) {
			first[reader] = l.Position
		}
	})
	if errors.Is(err, store.ErrNotFound) {
		return at, nil // nothing was ever given up
	}
	if err != nil {
		return nil, err
	}
	at = maps.Clone(at)
	for reader, position := range first {
		if at[reader] != nil {
			cp := *at[reader]
			cp.Parked = append(slices.Clone(cp.Parked), processors.Job{Position: position})
			at[reader] = &cp
		}
	}
	return at, nil
}

// Of returns the checkpoint of one reader of a record, as its next holder would
// find it.
func (at Checkpoints) Of(rec *Record, role processors.Role, partition feed.Partition) *processors.Checkpoint {
	reader := processors.Resource{Pipeline: rec.ID, Generation: rec.Generation, Role: role, Partition: partition}
	begin := rec.Begin(reader)
	cp := at[reader.String()]
	if cp == nil {
		return &processors.Checkpoint{Position: begin}
	}
	// The next holder will set it back; see processors.Task.Rewinds.
	if cp.Rewinds < rec.Rewinds && begin.Before(cp.Position) {
		again := *cp
		again.Position = begin
		return &again
	}
	return cp
}

// Passed tells whether the readers of a generation's source have come to goals. Of a partition that was split since, that
// may be among its children's.
func (r *Record) Passed(b *Bound, at Checkpoints, goals []Start) bool {
	l := r.lineage(processors.RoleSource, b.Source, at)
	for _, n := range l.numbers() {
		if l.hasEnded(n) {
			continue
		}
		reader := l.resource(n)
		goal := PositionOf(goals, reader.Partition.Number).LSN
		position := PositionOf(r.From, reader.Partition.Number)
		if cp := at[reader.String()]; cp != nil {
			position = cp.Position
		}
		if goal > 0 && !position.Reached(goal) {
			return false
		}
	}
	return true
}

// ReconcilerResource is the lease of the reconciler, one for all pipelines.
const ReconcilerResource = "steward"
