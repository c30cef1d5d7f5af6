package aggregate

import (
	"context"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// writeDeadLetters writes a dead letter for each target item that could not take its
// fields. Their accumulators are right, and the fields are set when the group or the item
// changes again.
func (f *Folder) writeDeadLetters(ctx context.Context, members []member, upTo feed.Position, refusals []store.Refusal) error {
	for _, r := range refusals {
		deadLetter := processors.DeadLetter{Position: upTo, Target: r.Ref.String(), Status: int(r.Status), Reason: r.Reason}
		if m := f.causeOf(members, r.Ref); m != nil {
			deadLetter.Item, deadLetter.Position, deadLetter.Trace = m.ref().String(), m.at, m.part.Transaction.TraceParent
		}
		// The interval is folded and will not be sent again, so nobody comes back to
		// write the dead letter: it is tried until it is there or the term ends. A crash
		// in between loses the dead letter, not the fold; verify lists the item.
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
	}
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
