package aggregate

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store/accumulator"
)

// requestsMax bounds the partitions that one processor asks at a time.
const requestsMax = 16

// Folder is the processor that brings what changes of one source partition mean to
// the accumulators of their groups.
type Folder struct {
	a         *Aggregate
	partition feed.Partition
	term      *processors.Term
	start     feed.Position // of the checkpoint from which the term goes on
	floor     feed.Position // which that checkpoint knows to be recorded everywhere

	sem          chan struct{} // holds one token: the right to what follows
	targets      []*target
	delta        *accumulator.Delta
	processed    feed.Position // of the last change that was processed
	parkedLoaded bool
	suspect      feed.Position   // of a change that could not be processed by itself
	givenUp      []feed.Position // of changes that were given up, and are not owed yet

	mu       sync.Mutex
	counts   processors.Counts
	recorded feed.Position
}

// target is a partition of the target, and how far it has folded.
type target struct {
	partition feed.Partition
	foreign   bool          // it is not the partition that is read
	asked     bool          // at is known from this term
	known     bool          // and not in doubt
	at        feed.Position // recorded there for this producer
	// owes are changes that were given up for it: they are folded by Retry alone. The
	// value says whether that is still to come.
	owes map[feed.Position]bool
}

// Fold returns a processor of a partition of the aggregate's source, for one term.
func (a *Aggregate) Fold(p feed.Partition) processors.Processor {
	f := &Folder{a: a, partition: p, sem: make(chan struct{}, 1), delta: a.rule.NewDelta()}
	for _, t := range a.targetsOf(p) {
		f.targets = append(f.targets, &target{partition: t, foreign: t != p})
	}
	return f
}

// Open takes over the counts of the checkpoint.
func (f *Folder) Open(_ context.Context, t *processors.Term, state processors.State) error {
	f.term, f.start, f.floor = t, t.Saved().Position, state.Recorded
	f.counts, f.recorded = state.Counts, state.Recorded
	return nil
}

// State returns the counts, and what is recorded in every partition but the one
// that is read: that cannot be older than its own feed.
func (f *Folder) State() processors.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return processors.State{Counts: f.counts, Recorded: f.recorded}
}

// Run records the position now and then in partitions to which nothing was sent.
func (f *Folder) Run(ctx context.Context) error {
	if f.a.local || f.a.cfg.RecordInterval < 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(f.a.cfg.RecordInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := f.recordIdle(ctx); err != nil {
			switch processors.FailureOf(ctx, err) {
			case processors.Canceled:
				return nil
			case processors.Fenced:
				processors.CountFenced(ctx, f.term.Resource)
				return errors.Join(processors.ErrFenced, err)
			default: // Process meets it too, and says so
				f.term.Logger.DebugContext(ctx, "a position could not be recorded", slog.Any("error", err))
			}
		}
	}
}

// acquire waits for the turn; it returns the cause if ctx ends before.
func (f *Folder) acquire(ctx context.Context) error {
	select {
	case f.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release publishes what State tells, and gives the turn back.
func (f *Folder) release() {
	var least *target
	asked := false
	for _, t := range f.targets {
		if !t.foreign {
			continue
		}
		asked = t.asked
		if !asked {
			break
		}
		if least == nil || t.at.Before(least.at) {
			least = t
		}
	}
	f.mu.Lock()
	if asked {
		f.recorded = least.at
	}
	f.mu.Unlock()
	<-f.sem
}

// Process folds the batch into all its targets.
func (f *Folder) Process(ctx context.Context, b *processors.Batch) error {
	if len(b.Parts) == 0 {
		return nil
	}
	if err := f.acquire(ctx); err != nil {
		return err
	}
	defer f.release()
	f.noteGivenUp(b.Parts[0].At(0))
	if err := f.process(ctx, b); err != nil {
		f.noteFailure(ctx, b, err)
		return err
	}
	return nil
}

func (f *Folder) process(ctx context.Context, b *processors.Batch) error {
	members := f.a.membersOf(b)
	if len(members) > 0 || len(f.givenUp) > 0 || !f.a.local {
		if err := f.learnPositions(ctx); err != nil {
			return err
		}
	}
	if err := f.recordOwed(ctx); err != nil {
		return err
	}
	last := &b.Parts[len(b.Parts)-1]
	end := last.At(len(last.Changes) - 1)
	for len(members) > 0 {
		n, err := f.a.fold(f.delta, members, f.a.cfg.FoldBytesMax)
		if err != nil {
			f.delta.Reset()
			return err
		}
		upTo := end
		if n < len(members) {
			upTo = members[n-1].at
		}
		if err := f.send(ctx, members[:n], upTo); err != nil {
			return err
		}
		members = members[n:]
	}
	f.processed = end
	return nil
}

// forTargets calls do for some targets, several at a time, and waits for all: one that
// cannot be reached does not hold up the others.
func (f *Folder) forTargets(some func(*target) bool, do func(*target) error) error {
	var chosen []*target
	for _, t := range f.targets {
		if some(t) {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 1 {
		return do(chosen[0])
	}
	errs := make([]error, len(chosen))
	var g errgroup.Group
	g.SetLimit(requestsMax)
	for i, t := range chosen {
		g.Go(func() error {
			errs[i] = do(t)
			return nil
		})
	}
	_ = g.Wait() // do's errors are in errs, all of them
	return errors.Join(errs...)
}
