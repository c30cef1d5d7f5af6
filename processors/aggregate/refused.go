package aggregate

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// writeDeadLetters writes a dead letter for each target item that could not take its
// fields. Their accumulators are right, and the fields are set when the group or the item
// changes again.
func (f *Folder) writeDeadLetters(ctx context.Context, members []member, upTo feed.Position, refusals []store.Refusal) error {
	for i := range refusals {
		if err := f.writeDeadLetter(ctx, f.causeOf(members, refusals[i].Ref), upTo, &refusals[i]); err != nil {
			return err
		}
	}
	return nil
}

// writeDeadLetter writes the dead letter of one target; cause is the change that it could not
// follow, nil if that is not known.
func (f *Folder) writeDeadLetter(ctx context.Context, cause *member, upTo feed.Position, r *store.Refusal) error {
	deadLetter := processors.DeadLetter{Position: upTo, Target: r.Ref.String(), Subject: f.subjectOf(cause, r.Ref), Status: int(r.Status), Reason: r.Reason}
	if cause != nil {
		deadLetter.Item, deadLetter.Position, deadLetter.Trace = cause.ref().String(), cause.at, cause.part.Transaction.TraceParent
	}
	// The interval is folded and will not be sent again: the dead letter is tried until it
	// is there or the term ends. After a crash in between the change comes again, and its
	// targets are examined.
	pauses := processors.NewPauses()
	for {
		err := f.term.DeadLetter(ctx, deadLetter)
		if err == nil {
			break
		}
		processors.CountRetry(ctx, f.term.Resource)
		f.term.Heartbeat()
		if err := pauses.Wait(ctx, err); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.counts.DeadLetters++
	f.mu.Unlock()
	return nil
}

// causeOf returns the last member that has a share in a group of the target, nil if none
// is found. A refusal names the target alone; the members are folded one by one to find
// which of them concerns it, which is seldom enough to be allowed to be slow.
func (f *Folder) causeOf(members []member, ref store.ItemRef) *member {
	d := f.a.rule.NewDelta()
	for i := len(members) - 1; i >= 0; i-- {
		d.Reset()
		if _, err := f.a.fold(d, members[i:i+1], 1); err != nil {
			continue
		}
		for _, g := range d.Groups() {
			key, ok := f.a.rule.TargetKey(g, f.a.targetKey)
			if id, fixed := f.a.rule.TargetID(g); ok && key == ref.Key && (!fixed || id == ref.ID) {
				return &members[i]
			}
		}
	}
	return nil
}

// subjectOf returns what a retry brings a target that refused a cause, see processors.DeadLetter. It is
// the fields of the group that the target is of, whichever of its members comes and goes, so the dead letter
// of the last one stands for all:
//
//	orders o1, o2 and o3 of customer c, who has no room for a count   one dead letter, of o3
//
// Where the target is to be made it need not be of any group, and a retry asks the change which one lacks it.
// Another group may want the same id, and that one's dead letter is another.
func (f *Folder) subjectOf(cause *member, ref store.ItemRef) string {
	if cause == nil || !f.a.rule.Spec().Create {
		return ref.String()
	}
	var groups []string
	for g := range f.causesIn(f.a.cfg.Target.PartitionFor(ref.Key), []member{*cause}) {
		if of, ok := f.a.targetRef(g); ok && of == ref {
			groups = append(groups, string(g))
		}
	}
	slices.Sort(groups)
	subject := []byte(ref.String())
	for _, g := range groups {
		subject = fmt.Appendf(subject, " %d %s", len(g), g)
	}
	return string(subject)
}
