package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// owed is the position that the change's own producer has in a partition which lacks
// the change. It is no position of a log, since LSNs begin at 1, and lies before all:
//
//	producer   the reader's own, with the change's position as its last part
//	(0, owed]  recorded, empty, when the change is given up
//	(owed, at] sent by a retry: with the change's shares, or empty when it is let go
//
// Both are intervals like any other, so each is applied once, whoever repeats it.
var owed = feed.Position{Index: 1}

// producerOf is the producer under which a change that was given up is tried again:
// one of those of the Folder's own, so that it is fenced with it.
func (f *Folder) producerOf(at feed.Position) feed.Producer {
	return f.term.Producer().Of(at.String())
}

// GivenUp is a change that was given up, and that a partition of the target has not
// taken by the feed.
type GivenUp struct {
	Source string // of the producer that reads it, as feed.Producer has it
	At     feed.Position
	// Owed says that it is yet to be folded there, by a retry. Without it, it was, or
	// has been let go.
	Owed bool
}

// GivenUpOf returns the changes among the positions of an aggregate's producers,
// which a partition tells with its groups, that were given up there.
func GivenUpOf(positions []store.ProducerPosition) (all []GivenUp, err error) {
	for _, p := range positions {
		source, text, ok := feed.Producer{Source: p.Source}.Parent()
		if !ok {
			continue
		}
		at, err := feed.ParsePosition(text)
		if err != nil {
			return nil, fmt.Errorf("producer %q: %w", p.Source, err)
		}
		if !p.Position.IsZero() { // it has more than an epoch
			all = append(all, GivenUp{Source: source.Source, At: at, Owed: p.Position == owed})
		}
	}
	return all, nil
}

// noteFailure notes that a change by itself cannot be processed. If the Host goes on
// behind it, it was given up.
func (f *Folder) noteFailure(ctx context.Context, b *processors.Batch, err error) {
	f.suspect = feed.Position{}
	if failure := processors.FailureOf(ctx, err); b.Len() == 1 && (failure == processors.Permanent || failure == processors.Transient) {
		f.suspect = b.Parts[0].At(0)
	}
}

// noteGivenUp notes which changes have been given up: by earlier terms, and the last one
// that failed if what comes next is behind it. The Host does not tell a processor that
// it gives a change up; that it goes on behind the change says so.
func (f *Folder) noteGivenUp(next feed.Position) {
	if !f.parkedLoaded {
		f.parkedLoaded = true
		for _, job := range f.term.Saved().Parked {
			f.givenUp = append(f.givenUp, job.Position)
		}
	}
	if !f.suspect.IsZero() && f.suspect.Before(next) {
		f.givenUp = append(f.givenUp, f.suspect)
	}
	f.suspect = feed.Position{}
}

// recordOwed records in the partitions that lack a change which was given up that they
// owe it. It must come before they are told anything behind the change: as long as their
// position lies before the change, it says by itself who lacks it.
func (f *Folder) recordOwed(ctx context.Context) error {
	for len(f.givenUp) > 0 {
		at := f.givenUp[0]
		err := f.forTargets(func(t *target) bool { return t.at.Before(at) && !t.isGivenUp(at) }, func(t *target) error {
			_, err := f.a.cfg.Target.Fold(ctx, t.partition, &store.FoldMany{
				Producer: f.producerOf(at), Epoch: f.term.Epoch, UpTo: owed, Delta: f.a.rule.NewDelta().Append(nil),
			})
			if err != nil {
				return fmt.Errorf("note in %s that change %s is owed: %w", t.partition, at, unavailable(err))
			}
			f.term.Heartbeat()
			t.owes[at] = true
			return nil
		})
		if err != nil {
			return err
		}
		f.givenUp = f.givenUp[1:]
	}
	return nil
}

// isGivenUp says whether a change is for a retry to fold into t, or was already.
func (t *target) isGivenUp(at feed.Position) bool {
	_, is := t.owes[at]
	return is
}

// readOwed returns which changes of the partition that is read were given up for t: those
// that it still owes, and those that a retry has folded or let go. The feed brings some
// of them again when the pipeline is set back; t must not fold any of them then.
func (f *Folder) readOwed(ctx context.Context, t *target) (map[feed.Position]bool, error) {
	result, err := f.a.cfg.Target.ReadGroups(ctx, t.partition, &store.ReadGroups{
		Pipeline: f.a.cfg.Pipeline, Generation: f.a.cfg.Generation, Groups: []string{},
	})
	if err != nil {
		return nil, err
	}
	all, err := GivenUpOf(result.Positions)
	if err != nil {
		return nil, fmt.Errorf("partition %s: %w", t.partition, err)
	}
	owes := map[feed.Position]bool{}
	for _, g := range all {
		if g.Source == f.term.Producer().Source {
			owes[g.At] = g.Owed
		}
	}
	return owes, nil
}

// countDeadLetters raises the count of dead letters to those that a target still owes:
// after a crash the checkpoint may not know of the last ones.
func (f *Folder) countDeadLetters(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.DeadLetters = max(f.counts.DeadLetters, int64(n))
}

// Retry folds a change that was given up into the partitions that owe it, each
// once; or it gives an item the fields that it could not take.
func (f *Folder) Retry(ctx context.Context, p *processors.Parked) error {
	if err := f.acquire(ctx); err != nil {
		return err
	}
	defer f.release()
	if p.Target != "" {
		return f.repairTarget(ctx, p)
	}
	// After a crash the change may be parked in the checkpoint and not yet owed in the
	// target: without the record, the fold below would begin at a wrong position.
	if err := f.ensureOwed(ctx); err != nil {
		return err
	}
	if p.Change == nil {
		return p.Missing
	}
	members := []member{{p.Change, p.At, &processors.Part{Commit: p.Commit, Transaction: p.Transaction}}}
	d := f.a.rule.NewDelta()
	if _, err := f.a.fold(d, members, 1); err != nil {
		return err
	}
	return f.foldOwed(ctx, p.At, func(t *target) shares { return f.a.sharesOf(d, t.partition) }, members)
}

// RetryFinally tries a change that was given up once more. Partitions that refuse it again
// never fold it: it is missing in their accumulators from then on, and whoever asks has to
// repair their groups.
func (f *Folder) RetryFinally(ctx context.Context, p *processors.Parked) error {
	err := f.Retry(ctx, p)
	// Only a refusal of the change itself lets it go. A target that cannot be reached
	// still owes it: letting go now would lose a change that nobody has refused.
	if failure := processors.FailureOf(ctx, err); err == nil || p.Target != "" || failure != processors.Permanent && failure != processors.Transient {
		return err
	}
	f.term.Logger.WarnContext(ctx, "a change that was given up is let go, for a repair adds what it means",
		slog.String("position", p.At.String()), slog.Any("error", err))
	if err := f.acquire(ctx); err != nil {
		return err
	}
	defer f.release()
	if err := f.ensureOwed(ctx); err != nil {
		return err
	}
	return f.foldOwed(ctx, p.At, func(*target) shares { return shares{} }, nil)
}

// ensureOwed makes sure that each partition that lacks a change has recorded that it owes
// it, which Process may not have come to yet.
func (f *Folder) ensureOwed(ctx context.Context) error {
	// A retry comes between two batches, and then whatever failed last has been given up: also a
	// change behind this one. Forgetting it here would lose it, for nothing else notes it.
	f.noteGivenUp(feed.Position{LSN: math.MaxUint64})
	if err := f.learnPositions(ctx); err != nil {
		return err
	}
	return f.recordOwed(ctx)
}

// foldOwed folds a change into the partitions that owe it, one after the other. mean
// returns the change's shares for a partition; members hold the change, for the dead
// letters. A partition to which it means nothing gets an empty interval, by which it
// owes the change no more. One failure does not keep the change from the others.
func (f *Folder) foldOwed(ctx context.Context, at feed.Position, mean func(*target) shares, members []member) error {
	var errs []error
	for _, t := range f.targets {
		if !t.owes[at] {
			// An earlier retry has folded it, whose answer may have been lost.
			if t.isGivenUp(at) {
				errs = append(errs, f.examineTargets(ctx, t, members))
			}
			continue
		}
		// Also an empty interval is sent: the target owes the change until its producer has
		// moved, and reads "owed" again in each later term.
		s := mean(t)
		nothing := s.data == nil
		if nothing {
			s.data = f.a.rule.NewDelta().Append(nil)
		}
		result, err := f.a.cfg.Target.Fold(ctx, t.partition, &store.FoldMany{
			Producer: f.producerOf(at), Epoch: f.term.Epoch, After: owed, UpTo: at, Delta: s.data,
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("fold change %s into %s: %w", at, t.partition, err))
			continue
		}
		f.term.Heartbeat()
		t.owes[at] = false
		if nothing {
			continue
		}
		if !result.Applied { // an attempt of which no answer came was carried out
			errs = append(errs, f.examineTargets(ctx, t, members))
			continue
		}
		f.countFolded(ctx, s)
		if err := f.writeDeadLetters(ctx, members, at, result.Refused); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
