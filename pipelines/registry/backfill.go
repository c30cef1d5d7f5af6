package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/query"
)

// BackfillScope says which of the items that are there a backfill is about: those that hold
// the copies of a cascade, those whose rows a projection keeps. The zero value is all.
type BackfillScope struct {
	// Where is an expression that is true for them; "" is all.
	Where string `json:"where,omitempty"`
	// Key is their partition key, a JSON array; "" is all.
	Key string `json:"key,omitempty"`
	// None says that it is about no items: a backfill was stopped.
	None bool `json:"none,omitempty"`
}

// String says it in words.
func (s BackfillScope) String() string {
	if s.None {
		return "no items"
	}
	var words []string
	if s.Key != "" {
		words = append(words, "under key "+s.Key)
	}
	if s.Where != "" {
		words = append(words, "where "+s.Where)
	}
	if len(words) == 0 {
		return "all items"
	}
	return "the items " + strings.Join(words, ", ")
}

// Backfill lets a pipeline go once through the items that are there, all of them or a
// part: a cascade sets their copies where these differ from their sources, a projection
// writes their rows. It does so page by page, beside what changes, and goes on after a
// crash where it was. So a pipeline that began with what changes from then on gets what
// was there before, as a whole or part by part.
//
// Rows that ought not to be there stay; Repairer removes them.
//
// The error is *NoPipelineError, *query.SyntaxError, or says what cannot be: an
// aggregate, which is right about a group only if it knows all its members; a backfill
// while another is under way.
func (r *Registry) Backfill(ctx context.Context, database, name string, scope BackfillScope, bucket string) (Record, error) {
	return r.requestBackfill(ctx, database, name, scope, func(rec *Record) error { return r.checkBackfill(ctx, rec, &scope, bucket) })
}

// StopBackfill ends the backfill of a pipeline that Backfill, or a column that its table
// gained, has begun. What it has brought till then stays.
//
// The error is *NoPipelineError, or says that no backfill is under way. The reading with which
// a generation begins is no such backfill and cannot be stopped.
func (r *Registry) StopBackfill(ctx context.Context, database, name, bucket string) (Record, error) {
	return r.requestBackfill(ctx, database, name, BackfillScope{None: true}, func(rec *Record) error { return r.checkStop(ctx, rec, bucket) })
}

// requestBackfill asks the processors of a pipeline for a scope, in the place of what was asked
// before, if may allows it.
func (r *Registry) requestBackfill(ctx context.Context, database, name string, scope BackfillScope, may func(rec *Record) error) (Record, error) {
	for {
		rec, err := r.Get(ctx, database, name)
		if err != nil {
			return rec, err
		}
		if err := may(&rec); err != nil {
			return rec, fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
		}
		// The number and not the scope tells processors that something is asked for: the same
		// scope may be asked for twice.
		next := rec
		next.Backfills++
		next.BackfillScope, next.InForce = scope, false
		if err = r.put(ctx, &next, rec.Revision); err == nil {
			return r.Get(ctx, database, name)
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return rec, err
		}
	}
}

// checkBackfill tells whether a pipeline can begin to backfill a scope.
func (r *Registry) checkBackfill(ctx context.Context, rec *Record, scope *BackfillScope, bucket string) error {
	b, err := r.containersOf(ctx, rec)
	switch {
	case err != nil:
		return err
	case rec.Spec.Kind() == spec.AggregateKind:
		return errors.New("an aggregate knows all members of its groups, or its fields would be wrong; millrace repair repairs fields that differ")
	case rec.Shadow:
		return errors.New("its rows are being built anew, those of all items; see millrace status")
	}
	levels := len(rec.backfilledContainer(&b).Spec.PartitionKey)
	if err := scope.Request(1).Broken; err != nil {
		return err
	}
	if key, _ := scope.key(); !key.IsZero() && key.Levels() != levels {
		return fmt.Errorf("key %s has %d components, and the partition key of container %s has %d",
			scope.Key, key.Levels(), rec.backfilledContainer(&b).Name, levels)
	}
	done, err := r.backfillDone(ctx, rec, &b, bucket)
	if err != nil || done || rec.BackfillScope.None || rec.BackfillScope.Request(rec.Backfills).Broken != nil {
		return err
	}
	paused := ""
	if rec.Paused {
		paused = ", and the pipeline is paused"
	}
	return fmt.Errorf("a backfill of %s is under way%s: see millrace status %s, and ask again when it is done, or stop it by millrace backfill %s --stop",
		rec.BackfillScope, paused, rec.Name, rec.Name)
}

// checkStop tells whether a pipeline has a backfill that can be stopped.
func (r *Registry) checkStop(ctx context.Context, rec *Record, bucket string) error {
	b, err := r.containersOf(ctx, rec)
	if err != nil {
		return err
	}
	done, err := r.backfillDone(ctx, rec, &b, bucket)
	if err == nil && done {
		return fmt.Errorf("no backfill that can be stopped is under way: see millrace status %s", rec.Name)
	}
	return err
}

// containersOf looks up the containers of a pipeline that is registered.
func (r *Registry) containersOf(ctx context.Context, rec *Record) (Bound, error) {
	containers, err := r.client.Catalog().List(ctx)
	if err != nil {
		return Bound{}, err
	}
	b, gone := rec.Bound(containers)
	if gone != "" {
		return b, &store.NoContainerError{Database: rec.Database, Name: gone}
	}
	return b, nil
}

// backfillDone tells whether a backfill is done everywhere, as the checkpoints
// say.
func (r *Registry) backfillDone(ctx context.Context, rec *Record, b *Bound, bucket string) (bool, error) {
	at, _, err := ReadCheckpoints(ctx, r.JetStream, bucket) // one that cannot be read has backfilled nothing
	if err != nil {
		return false, err
	}
	return rec.BackfillDone(b, at), nil
}

// key returns the partition key, zero for all.
func (s BackfillScope) key() (feed.PartitionKey, error) {
	if s.Key == "" {
		return feed.PartitionKey{}, nil
	}
	key, err := feed.ParsePartitionKey(s.Key)
	if err != nil {
		return key, fmt.Errorf("key %s: %w", s.Key, err)
	}
	return key, nil
}

// Request returns what a processor is asked for; number 0 asks for nothing. It is
// broken if this release does not understand the scope.
func (s BackfillScope) Request(number uint32) processors.BackfillRequest {
	r := processors.BackfillRequest{Number: number, None: s.None}
	if number == 0 || s.None {
		return r
	}
	if r.Key, r.Broken = s.key(); r.Broken != nil || s.Where == "" {
		return r
	}
	where, err := query.ParseExpr(s.Where)
	if err != nil {
		r.Broken = fmt.Errorf("where: %w", err)
		return r
	}
	r.Where = where.True
	return r
}

// backfillRole is the role of the readers that backfill: those of the items that hold the
// copies of a cascade, and of those whose rows a projection keeps.
func (r *Record) backfillRole() processors.Role {
	if r.Spec.Kind() == spec.CascadeKind {
		return processors.RoleTarget
	}
	return processors.RoleSource
}

// backfilledContainer is the container whose items a backfill goes through.
func (r *Record) backfilledContainer(b *Bound) *store.ContainerInfo {
	if r.backfillRole() == processors.RoleTarget {
		return b.Target
	}
	return b.Source
}

// BackfillPending tells whether a reader has yet to do what the record asks it to backfill.
func (r *Record) BackfillPending(reader processors.Resource, cp *processors.Checkpoint) bool {
	if r.Backfills == 0 || reader.Role != r.backfillRole() || reader.Generation != r.Generation {
		return false
	}
	return cp == nil || cp.Backfill == nil || cp.Backfill.Number < r.Backfills || !cp.Backfill.Done
}

// BackfillDone tells whether a backfill is done everywhere.
func (r *Record) BackfillDone(b *Bound, at Checkpoints) bool {
	if r.Backfills == 0 {
		return true
	}
	return !slices.ContainsFunc(r.readersOf(r.backfillRole(), r.backfilledContainer(b)), func(reader processors.Resource) bool {
		return r.BackfillPending(reader, at[reader.String()])
	})
}
