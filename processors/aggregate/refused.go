package aggregate

import (
	"context"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// writeDeadLetters writes a dead letter for each target item that could not take its
// fields. Their accumulators are right: the fields are set when either changes
// again.
func (f *Folder) writeDeadLetters(ctx context.Context, members []member, upTo feed.Position, refusals []store.Refusal) error {
	for _, r := range refusals {
		deadLetter := processors.DeadLetter{Position: upTo, Target: r.Ref.String(), Status: int(r.Status), Reason: r.Reason}
		if m := f.causeOf(members, r.Ref); m != nil {
			deadLetter.Item, deadLetter.Position, deadLetter.Trace = m.ref().String(), m.at, m.part.Transaction.TraceParent
		}
		// The interval is folded: nobody comes back to write the dead letter.
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

// causeOf returns the last member that has a share in a group of the target, nil if
// none is found.
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
