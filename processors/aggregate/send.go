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

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// learnPositions asks the targets whose position is not known how far they have folded.
// The request records this term's epoch there, so that no earlier term can fold any more.
//
// All are asked before the first is sent anything. After a crash a target may have
// folded a part of the interval, and then the rest must be sent to it even if the whole
// means nothing to its groups:
//
//	batch (10, 14]   12: order o comes to customer c   13: o is deleted
//	                 the whole means nothing to c
//	target at 12     it has counted o, and needs 13 alone to count it out again
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
		// Within a term no position goes back. At its beginning the checkpoint knows
		// only the least position of all targets, so a target that is at the
		// checkpoint's own position or behind it is right in any case.
		expected := t.at
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
	ctx, span := tracer().Start(ctx, "millrace.fold")
	defer span.End()
	if span.IsRecording() {
		info := f.a.cfg.Target.Info()
		span.SetAttributes(info.Attributes()...)
		span.SetAttributes(attribute.String("millrace.pipeline", f.a.cfg.Pipeline), store.AttrPartition.String(f.partition.String()),
			attribute.Int("millrace.changes", len(members)), attribute.Int("millrace.groups", len(groups)), attribute.String("millrace.position", upTo.String()))
	}
	// A Delta is not safe for concurrent use, so the shares of all targets are cut out
	// before the first request is sent.
	todo := map[*target]shares{}
	for _, t := range f.targets {
		switch {
		case !t.at.Before(upTo): // it has folded all of it
			if len(t.untold(members)) > 0 {
				todo[t] = shares{} // and nothing is sent
			}
		case t.at.Before(members[0].at) && !t.owesAny(members):
			if s := f.a.sharesOf(f.delta, t.partition); s.data != nil {
				todo[t] = s
			}
		default:
			// It has folded a part, or a part was given up for it. The shared Delta is
			// of the whole: deliver folds the members that are left for it alone.
			todo[t] = shares{}
		}
	}
	if err := f.checkTargets(); err != nil {
		return err
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

// deliver brings the members up to upTo to one target. s is what all of them mean to
// it; if s is zero, deliver folds the members behind the target's position anew.
//
// A target refuses an interval whose commit would be too large. Then the members are
// halved, and each half is an interval of its own:
//
//	(10, 18] with 11 12 15 17   too large
//	(10, 12] with 11 12         folded
//	(12, 18] with 15 17         too large: halved again, down to one member
func (f *Folder) deliver(ctx context.Context, t *target, members []member, upTo feed.Position, s shares) error {
	for {
		if err := f.examine(ctx, t, members); err != nil {
			return err
		}
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
			// FoldBytesMax bounds the Delta, but nobody knows before the owner does how
			// much the target items add to the commit, which carries their new bodies.
			half := len(members) / 2
			if err := f.deliver(ctx, t, members[:half], members[half-1].at, shares{}); err != nil {
				return err
			}
			members = members[half:] // and the rest in the next turn of the loop
		case err != nil:
			return err
		case result.Applied:
			err := f.writeDeadLetters(ctx, members, upTo, result.Refused)
			if err == nil {
				t.told = upTo
			}
			return err
		}
		// The target was ahead: it has folded a part or all, up to t.at, in an attempt whose
		// answer was lost. What that refused is looked for, and what is left is folded anew.
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
	s := f.a.sharesOf(d, t.partition)
	return s, f.checkTargets()
}

// checkTargets returns an error if a partition of the target was split since the term began. The container may have learned
// of that while a Delta was cut into shares: then those of groups whose partition is new are in none of them. It is asked
// behind the cutting, because a container that still names the partitions of before has named them all the time.
func (f *Folder) checkTargets() error {
	now := f.a.targetsOf(f.partition)
	if slices.EqualFunc(f.targets, now, func(t *target, p feed.Partition) bool { return t.partition == p }) {
		return nil
	}
	return unavailable(fmt.Errorf("a partition of container %s was split: %w", f.a.cfg.Target.Info().Name, store.ErrNotOwner))
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
		// A refusal says that nothing happened. After anything else, such as a timeout,
		// the target may have folded the interval: it is asked before the next one.
		t.known = t.known && isRefusal(ctx, err)
		return nil, fmt.Errorf("fold (%s, %s] into %s: %w", t.at, upTo, t.partition, unavailableUnlessRefused(ctx, err))
	}
	f.term.Heartbeat()
	if result.Applied {
		t.at = upTo
		f.countFolded(ctx, s)
		return result, nil
	}
	// Not applied: the target does not stand where the interval begins. If it is ahead,
	// an attempt without an answer has been carried out after all. It cannot be behind
	// by itself; then it was restored from an older state.
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

// recordIdle records the last processed position in targets that stand before it
// because nothing since then meant anything to them. The interval is empty, and true:
// whatever it covers was processed, and was not theirs.
func (f *Folder) recordIdle(ctx context.Context) error {
	if err := f.acquire(ctx); err != nil {
		return err
	}
	defer f.release()
	nothing := f.a.rule.NewDelta().Append(nil)
	// A change that failed, or was given up, lies behind the position of the targets
	// that lack it. To record a position behind it would say that they have it: first
	// Process has to tell them that they owe it.
	if len(f.givenUp) > 0 || !f.suspect.IsZero() {
		return nil
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
