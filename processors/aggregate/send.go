package aggregate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// learnPositions learns how far targets have folded, of which that is not known. The epoch is
// planted there by it, so that no earlier term can fold any more.
//
// All are asked before the first is sent anything: one that is ahead has a part of
// the interval, and must be told the rest even where the whole comes to nothing.
func (f *Folder) learnPositions(ctx context.Context) error {
	return f.forTargets(func(t *target) bool { return !t.known }, func(t *target) error {
		result, err := f.a.cfg.Target.Fold(ctx, t.partition, &store.FoldMany{
			Producer: f.term.Producer(), Epoch: f.term.Epoch, Ask: true,
		})
		if err != nil {
			return fmt.Errorf("ask %s how far it has folded: %w", t.partition, unavailable(err))
		}
		if !t.asked {
			if t.owes, err = f.readOwed(ctx, t); err != nil {
				return fmt.Errorf("ask %s what it owes: %w", t.partition, unavailable(err))
			}
			f.countDeadLetters(t.owedCount())
		}
		f.term.Heartbeat()
		expected := t.at // by this term
		if !t.asked && t.foreign && result.Position.Before(f.start) {
			expected = f.floor
		}
		if result.Position.Before(expected) {
			return f.behindError(t, result.Position, expected)
		}
		t.at, t.asked, t.known = result.Position, true, true
		return nil
	})
}

func (f *Folder) behindError(t *target, position, before feed.Position) error {
	return &BehindError{Pipeline: f.a.cfg.Pipeline, Source: f.partition, Target: t.partition, Position: position, Before: before}
}

// send brings the interval up to upTo to all targets that it means something to.
// Its members have been folded into f.delta, which is empty again afterwards.
func (f *Folder) send(ctx context.Context, members []member, upTo feed.Position) (err error) {
	defer f.delta.Reset()
	groups := f.delta.Groups()
	ctx, span := tracer().Start(ctx, "millrace.fold", trace.WithAttributes(
		attribute.String("millrace.pipeline", f.a.cfg.Pipeline), attribute.Int("millrace.changes", len(members)),
		attribute.Int("millrace.groups", len(groups)), attribute.String("millrace.position", upTo.String())))
	defer span.End()
	// A delta is not for several at a time.
	todo := map[*target]shares{}
	for _, t := range f.targets {
		switch {
		case !t.at.Before(upTo): // it has all
		case t.at.Before(members[0].at) && !t.owesAny(members):
			if s := f.a.sharesOf(f.delta, t.partition); s.data != nil {
				todo[t] = s
			}
		default: // it has a part, or must not be told a part
			todo[t] = shares{}
		}
	}
	err = f.forTargets(func(t *target) bool { _, ok := todo[t]; return ok }, func(t *target) error {
		return f.deliver(ctx, t, members, upTo, todo[t])
	})
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
		return err
	}
	meters.changes.Add(ctx, int64(len(members)), f.a.measured())
	age := time.Since(time.UnixMilli(members[0].part.Commit.Time)).Seconds()
	meters.duration.Record(ctx, max(age, 0), f.a.measured())
	return nil
}

// deliver brings the members up to upTo to one target. s is what all of them mean
// to it, or zero where it has a part of them: what lies behind its position is
// folded anew then.
func (f *Folder) deliver(ctx context.Context, t *target, members []member, upTo feed.Position, s shares) error {
	for {
		if s.data == nil {
			var err error
			members = membersAfter(members, t.at)
			if s, err = f.sharesAnew(t, members); err != nil || s.data == nil {
				return err
			}
		}
		result, err := f.foldInto(ctx, t, upTo, s)
		switch {
		case errors.Is(err, store.ErrTooLarge) && len(members) > 1:
			// It is not told beforehand how much the targets add to the commit.
			half := len(members) / 2
			if err := f.deliver(ctx, t, members[:half], members[half-1].at, shares{}); err != nil {
				return err
			}
			members = members[half:]
		case err != nil:
			return err
		case result.Applied:
			return f.writeDeadLetters(ctx, members, upTo, result.Refused)
		case !t.at.Before(upTo):
			return nil
		}
		s = shares{}
	}
}

// sharesAnew folds members for one target alone, but for those that it owes: they were
// given up.
func (f *Folder) sharesAnew(t *target, members []member) (shares, error) {
	if t.owesAny(members) {
		members = slices.DeleteFunc(slices.Clone(members), func(m member) bool { return t.isGivenUp(m.at) })
	}
	d := f.a.rule.NewDelta()
	if _, err := f.a.fold(d, members, math.MaxInt); err != nil {
		return shares{}, err
	}
	return f.a.sharesOf(d, t.partition), nil
}

// owesAny says whether one of the members was given up for t.
func (t *target) owesAny(members []member) bool {
	return len(t.owes) > 0 && slices.ContainsFunc(members, func(m member) bool { return t.isGivenUp(m.at) })
}

// owedCount is how many changes are yet to be folded by a retry.
func (t *target) owedCount() (n int) {
	for _, still := range t.owes {
		if still {
			n++
		}
	}
	return n
}

// foldInto sends one interval to one target, and notes where it stands then.
func (f *Folder) foldInto(ctx context.Context, t *target, upTo feed.Position, s shares) (*store.FoldResult, error) {
	result, err := f.a.cfg.Target.Fold(ctx, t.partition, &store.FoldMany{
		Producer: f.term.Producer(), Epoch: f.term.Epoch, After: t.at, UpTo: upTo, Delta: s.data,
	})
	if err != nil {
		t.known = t.known && isRefusal(ctx, err)
		return nil, fmt.Errorf("fold (%s, %s] into %s: %w", t.at, upTo, t.partition, unavailableUnlessRefused(ctx, err))
	}
	f.term.Heartbeat()
	if result.Applied {
		t.at = upTo
		f.countFolded(ctx, s)
		return result, nil
	}
	// An attempt of which no answer came has been carried out after all.
	if !t.at.Before(result.Position) {
		t.known = false
		return nil, f.behindError(t, result.Position, t.at)
	}
	meters.known.Add(ctx, 1, f.a.measured())
	t.at = result.Position
	return result, nil
}

// countFolded counts what a partition has taken.
func (f *Folder) countFolded(ctx context.Context, s shares) {
	meters.requests.Add(ctx, 1, f.a.measured())
	meters.groups.Add(ctx, int64(s.groups), f.a.measured())
	meters.bytes.Record(ctx, int64(len(s.data)), f.a.measured())
	f.mu.Lock()
	f.counts.Copies += int64(s.groups)
	f.mu.Unlock()
}

// recordIdle records the position in targets that it has passed because nothing was
// theirs. Only what was processed counts, so nothing is left out.
func (f *Folder) recordIdle(ctx context.Context) error {
	if err := f.acquire(ctx); err != nil {
		return err
	}
	defer f.release()
	nothing := f.a.rule.NewDelta().Append(nil)
	if len(f.givenUp) > 0 || !f.suspect.IsZero() {
		return nil // Process comes first
	}
	moved := false
	idle := func(t *target) bool {
		is := t.foreign && t.known && t.at.Before(f.processed)
		moved = moved || is
		return is
	}
	err := f.forTargets(idle, func(t *target) error {
		_, err := f.foldInto(ctx, t, f.processed, shares{data: nothing})
		return err
	})
	if moved && err == nil {
		f.term.Changed("")
	}
	return err
}
