package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/pace"
)

// A repair repairs what is there, and a retry of a dead letter adds or sets what was
// given up. For copies and rows the order does not matter, since both set what the
// source says. An aggregate adds: what a repair adds to a group for a change that is
// missing in it must not be added by a retry too.
//
// So a repair begins with the dead letters. The workers try all of them once more, those
// too that were dropped, as long as their change is parked or owed; a change of an
// aggregate that fails again is let go, so that nobody adds it any more. What is
// missing then is like whatever else is missing. Who asks whom is durable, and a
// repair that crashes between the two leaves what verify finds and the next repair
// repairs.

// deadLettersMax bounds the dead letters of one pipeline that a repair asks about.
const deadLettersMax = 10_000

// retryGivenUp lets what was given up in pipelines be tried once more, and waits for it up
// to the timeout.
func (r *Repairer) retryGivenUp(ctx context.Context, names []spec.Metadata) error {
	world, err := r.v.registry.World(ctx)
	if err != nil {
		return err
	}
	records, err := r.v.choose(ctx, world.Pipelines, names)
	if err != nil {
		return err
	}
	deadLetters, err := processors.OpenDeadLetters(ctx, r.v.client)
	if err != nil {
		return err
	}
	at, err := r.v.readCheckpoints(ctx)
	if err != nil {
		return err
	}
	var asked []processors.DeadLetter
	for i := range records {
		rec := &records[i]
		b, gone := rec.Bound(world.Containers)
		if gone != "" || rec.Paused {
			continue // nobody is there to try
		}
		all, err := r.givenUp(ctx, rec, &b, deadLetters, at)
		if err != nil {
			return fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
		}
		for j := range all {
			if err := deadLetters.RetryFinally(ctx, &all[j]); err != nil {
				return fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
			}
		}
		asked = append(asked, all...)
	}
	return r.awaitRetries(ctx, deadLetters, asked)
}

// givenUp returns a dead letter for each change and item that the pipeline has given up,
// whether or not the one that was written is there.
func (r *Repairer) givenUp(ctx context.Context, rec *registry.Record, b *registry.Bound, deadLetters *processors.DeadLetters, at registry.Checkpoints) ([]processors.DeadLetter, error) {
	all, err := deadLetters.List(ctx, rec.ID, deadLettersMax)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(l processors.DeadLetter) bool { return l.Generation != rec.Generation })
	known := map[string]bool{}
	for i := range all {
		known[all[i].ID] = true
	}
	add := func(reader processors.Resource, j *processors.Job) {
		if l := processors.DeadLetterOf(reader, j); !known[l.ID] {
			known[l.ID] = true
			all = append(all, l)
		}
	}
	for _, reader := range rec.Readers(b) {
		cp := at.Of(rec, reader.Role, reader.Partition)
		for _, jobs := range [][]processors.Job{cp.Parked, cp.Jobs} {
			for i := range jobs {
				if jobs[i].Parked {
					add(reader, &jobs[i])
				}
			}
		}
	}
	if rec.Spec.Kind() != spec.AggregateKind {
		return all, nil
	}
	owed, err := r.owedChanges(ctx, rec, b)
	if err != nil {
		return nil, err
	}
	for _, reader := range rec.Readers(b) {
		for _, at := range owed[reader.Producer().Source] {
			add(reader, &processors.Job{Position: at, LastError: "its dead letter was dropped", Attempts: processors.AttemptsMax})
		}
	}
	return all, nil
}

// owedChanges asks the partitions of an aggregate's target which changes they have not taken
// because they were given up, by the source of their producer.
func (r *Repairer) owedChanges(ctx context.Context, rec *registry.Record, b *registry.Bound) (map[string][]feed.Position, error) {
	target, err := r.v.client.Open(*b.Target)
	if err != nil {
		return nil, err
	}
	owed := map[string][]feed.Position{}
	for _, partition := range target.Partitions() {
		result, err := target.ReadGroups(ctx, partition, &store.ReadGroups{Pipeline: rec.ID, Generation: rec.Generation, Groups: []string{}})
		if errors.Is(err, store.ErrUnavailable) {
			continue // the rule is not in force there yet
		}
		if err != nil {
			return nil, fmt.Errorf("ask %s what it owes: %w", partition, err)
		}
		all, err := aggregate.GivenUpOf(result.Positions)
		if err != nil {
			return nil, fmt.Errorf("partition %s: %w", partition, err)
		}
		for _, g := range all {
			if g.Owed && !slices.Contains(owed[g.Source], g.At) {
				owed[g.Source] = append(owed[g.Source], g.At)
			}
		}
	}
	return owed, nil
}

// awaitRetries waits until all dead letters were tried. What nobody tried in time is not asked
// for any more.
func (r *Repairer) awaitRetries(ctx context.Context, deadLetters *processors.DeadLetters, asked []processors.DeadLetter) error {
	deadline := time.Now().Add(max(r.v.cfg.Timeout, 0))
	left, err := r.awaitAnswers(ctx, deadLetters, asked, deadline)
	if err != nil {
		return err
	}
	for i := range left {
		if err := deadLetters.CancelFinalRetry(ctx, left[i].Pipeline, left[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// awaitAnswers waits until all dead letters were tried, and no checkpoint says of one that is
// gone that its change is given up; it returns those of which that did not come.
func (r *Repairer) awaitAnswers(ctx context.Context, deadLetters *processors.DeadLetters, asked []processors.DeadLetter, deadline time.Time) ([]processors.DeadLetter, error) {
	left := slices.Clone(asked)
	for {
		at, err := r.v.readCheckpoints(ctx)
		if err != nil {
			return nil, err
		}
		for len(left) > 0 {
			l := &left[0]
			is, err := deadLetters.Get(ctx, l.Pipeline, l.ID)
			gone := errors.Is(err, store.ErrNotFound)
			if err != nil && !gone {
				return nil, err
			}
			//	dead letter, asked       the worker has not come to it
			//	dead letter, not asked   it was tried and failed, or was cancelled
			//	gone, still parked       tried with success, but its checkpoint is yet to say so
			//	gone, not parked         done
			if gone && parks(at, l) || !gone && is.Asked() {
				break
			}
			left = left[1:]
		}
		if len(left) == 0 || !time.Now().Before(deadline) {
			return left, nil
		}
		if err := pace.Pause(ctx, r.v.cfg.PollInterval); err != nil {
			return nil, err
		}
	}
}

// parks tells whether a checkpoint says that the change of a dead letter is given up.
func parks(at registry.Checkpoints, l *processors.DeadLetter) bool {
	for name, cp := range at {
		if reader, err := processors.ParseResource(name); err != nil || !l.Of(reader) {
			continue
		}
		return slices.ContainsFunc(cp.Parked, func(j processors.Job) bool { return j.Position == l.Position })
	}
	return false
}
