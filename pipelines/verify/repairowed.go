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

// askedMax bounds the dead letters that a repair waits for at a time. With more of them it asks for
// the next when these are answered.
const askedMax = processors.DeadLetterPageMax

// givenUpRetry lets dead letters be tried once more, some at a time.
type givenUpRetry struct {
	*Repairer
	deadLetters *processors.DeadLetters
	asked       []processors.DeadLetter // those that it waits for, without what is for people
	late        map[string]bool         // ids of pipelines that did not answer in time
}

// errLate ends a walk through the dead letters of a pipeline that does not answer in time.
var errLate = errors.New("verify: the pipeline does not try its dead letters")

// retryGivenUp lets what was given up in pipelines be tried once more, and waits for it up
// to the timeout, or as often as there are askedMax more.
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
	g := &givenUpRetry{Repairer: r, deadLetters: deadLetters, late: map[string]bool{}}
	for i := range records {
		rec := &records[i]
		b, gone := rec.Bound(world.Containers)
		if gone != "" || rec.Paused {
			continue // nobody is there to try
		}
		if err := g.askPipeline(ctx, rec, &b, at); err != nil && !errors.Is(err, errLate) {
			return fmt.Errorf("pipeline %s: %w", rec.Metadata(), err)
		}
	}
	return g.await(ctx)
}

// askPipeline asks for a last retry of each change and item that the pipeline has given up, whether
// or not the dead letter that was written is there.
func (g *givenUpRetry) askPipeline(ctx context.Context, rec *registry.Record, b *registry.Bound, at registry.Checkpoints) error {
	// Before any is asked for: one that was tried with success would be missing like one that was
	// dropped.
	dropped, err := g.dropped(ctx, rec, b, at)
	if err != nil {
		return err
	}
	err = g.deadLetters.Walk(ctx, rec.ID, func(page []processors.DeadLetter, _ int) error {
		for i := range page {
			if page[i].Generation != rec.Generation {
				continue
			}
			if err := g.ask(ctx, &page[i]); err != nil {
				return err
			}
		}
		return nil
	})
	for i := 0; err == nil && i < len(dropped); i++ {
		err = g.ask(ctx, &dropped[i])
	}
	return err
}

// ask asks for one, and waits for those before it if they are many.
func (g *givenUpRetry) ask(ctx context.Context, l *processors.DeadLetter) error {
	if len(g.asked) >= askedMax {
		if err := g.await(ctx); err != nil {
			return err
		}
	}
	if g.late[l.Pipeline] {
		return errLate
	}
	if err := g.deadLetters.RetryFinally(ctx, l); err != nil {
		return err
	}
	g.asked = append(g.asked, processors.DeadLetter{
		ID: l.ID, Pipeline: l.Pipeline, Generation: l.Generation, Role: l.Role, Partition: l.Partition, Position: l.Position,
	})
	return nil
}

// dropped returns a dead letter for each change that a checkpoint, or the target of an aggregate,
// tells as given up and that has none: an operator dropped it. They are bounded as those are.
func (g *givenUpRetry) dropped(ctx context.Context, rec *registry.Record, b *registry.Bound, at registry.Checkpoints) ([]processors.DeadLetter, error) {
	var all []processors.DeadLetter
	known := map[string]bool{}
	add := func(reader processors.Resource, j *processors.Job) error {
		l := processors.DeadLetterOf(reader, j)
		if known[l.ID] {
			return nil
		}
		known[l.ID] = true
		_, err := g.deadLetters.Get(ctx, rec.ID, l.ID)
		if errors.Is(err, store.ErrNotFound) {
			all, err = append(all, l), nil
		}
		return err
	}
	for _, reader := range rec.Readers(b, at) {
		cp := at.Of(rec, reader.Role, reader.Partition)
		for _, jobs := range [][]processors.Job{cp.Parked, cp.Jobs} {
			for i := range jobs {
				if !jobs[i].Parked {
					continue
				}
				if err := add(reader, &jobs[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	if rec.Spec.Kind() != spec.AggregateKind {
		return all, nil
	}
	owed, err := g.owedChanges(ctx, rec, b)
	if err != nil {
		return nil, err
	}
	for _, reader := range rec.Readers(b, at) {
		for _, at := range owed[reader.Producer().Source] {
			if err := add(reader, &processors.Job{Position: at, LastError: "its dead letter was dropped", Attempts: processors.AttemptsMax}); err != nil {
				return nil, err
			}
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
	for left := target.Partitions(); len(left) > 0; left = left[1:] {
		partition := left[0]
		result, err := target.ReadGroups(ctx, partition, &store.ReadGroups{Pipeline: rec.ID, Generation: rec.Generation, Groups: []string{}})
		if errors.Is(err, store.ErrUnavailable) {
			continue // the rule is not in force there yet
		}
		info := target.Info()
		if _, split := errors.AsType[*store.SplitError](err); split && info.HeirsOf(partition.Number) != nil {
			for _, heir := range info.HeirsOf(partition.Number) {
				left = append(left, feed.Partition{Container: info.ID, Number: heir.Number})
			}
			continue
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

// await waits until all that were asked for were tried. What nobody tried in time is not asked
// for any more.
func (g *givenUpRetry) await(ctx context.Context) error {
	deadline := time.Now().Add(max(g.v.cfg.Timeout, 0))
	left, err := g.awaitAnswers(ctx, g.deadLetters, g.asked, deadline)
	if err != nil {
		return err
	}
	for i := range left {
		g.late[left[i].Pipeline] = true
		if err := g.deadLetters.CancelFinalRetry(ctx, left[i].Pipeline, left[i].ID); err != nil {
			return err
		}
	}
	g.asked = g.asked[:0]
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
