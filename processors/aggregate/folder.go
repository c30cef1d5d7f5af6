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
	// Set by Fold and Open, then only read.
	a         *Aggregate
	partition feed.Partition
	term      *processors.Term
	start     feed.Position // of the checkpoint from which the term goes on
	floor     feed.Position // which that checkpoint knows to be recorded everywhere

	// Owned by whoever holds the one slot of sem. Process, Retry and the ticker of
	// Run all send to the same targets, and wait for their answers meanwhile: a
	// channel can be waited for until ctx ends, a mutex cannot.
	sem          chan struct{}
	targets      []*target
	delta        *accumulator.Delta // of the interval at hand; empty between two
	processed    feed.Position      // of the last change that was processed
	parkedLoaded bool               // givenUp has what the checkpoint had parked
	suspect      feed.Position      // of a change that could not be processed by itself
	givenUp      []feed.Position    // changes that were given up and that targets do not owe yet

	// Guarded by mu: State must not wait for a request.
	mu       sync.Mutex
	counts   processors.Counts
	recorded feed.Position
}

// target is a partition of the target, and how far it has folded. It belongs to the
// holder of Folder.sem; several requests at once are for different targets.
type target struct {
	partition feed.Partition
	foreign   bool          // it is not the partition that is read
	asked     bool          // this term has learned its position at least once
	known     bool          // at is what the partition has recorded, without a doubt
	at        feed.Position // recorded there for this producer
	told      feed.Position // up to which this term knows which items have refused their fields
	// owes are the changes that were given up for it, which Retry alone folds: true
	// while the partition lacks the change, false once it was retried or let go. An
	// entry stays for the whole term, since the feed may bring the change again.
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

// State returns the counts and the least position that the partitions have recorded.
// The partition that is read does not count: it cannot be older than its own feed.
func (f *Folder) State() processors.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return processors.State{Counts: f.counts, Recorded: f.recorded}
}

// Run records the position every RecordInterval in partitions to which nothing was
// sent. Without it the least recorded position, which the checkpoint keeps, would stay
// where the quietest partition last got something, and say little about a restore.
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
			default: // Process meets the same failure, counts it and tells of it
				f.term.Logger.DebugContext(ctx, "a position could not be recorded", slog.Any("error", err))
			}
		}
	}
}

// acquire waits for the slot of sem; it returns the cause if ctx ends before.
func (f *Folder) acquire(ctx context.Context) error {
	select {
	case f.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release publishes what State tells, and frees the slot of sem.
func (f *Folder) release() {
	// The position of a target that was not asked in this term is not known, and zero
	// would look as if the partition had been emptied: nothing is published before all
	// are known, and the checkpoint keeps what the term before it knew.
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
	// A batch without members still has to learn the positions where targets are in
	// other partitions: recordIdle may only record in a target that this term knows.
	if len(members) > 0 || len(f.givenUp) > 0 || !f.a.local {
		if err := f.learnPositions(ctx); err != nil {
			return err
		}
	}
	// Before any target is told what lies behind a change that was given up, see the
	// package comment: afterwards its position would say that it has the change.
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
		// A batch whose Delta grows too large is cut into intervals of its own. The last
		// one reaches to the end of the batch, behind the last member: what lies there
		// means nothing to the rule.
		//
		//	batch     1  2  3  4  5  6      members  1 3 4, cut after 3
		//	          (0, 3] with 1 and 3,  then  (3, 6] with 4
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
