package cascade

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Retry begins a fan-out again that was given up, or one for a change that did not become a
// fan-out at all, each with its source as it is now; or brings its copies to the one item that
// refused them. A fan-out of the change, or of a newer one, that goes on is left alone.
func (f *FanOut) Retry(ctx context.Context, p *processors.Parked) error {
	if p.Target != "" {
		return f.c.repairItem(ctx, f.term, p.Target)
	}
	ref, err := store.ParseItemRef(p.Item)
	if err != nil {
		return processors.Reject(err)
	}
	// Looked at before a token is taken: with all of them in use a retry would wait for
	// nothing, and Process with it.
	parked, goesOn := f.standsAt(p.Item, p.At)
	switch {
	case goesOn:
		return nil
	case !parked:
		return f.openNow(ctx, ref, p)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.slots:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fo := f.open[p.Item]
	if fo == nil || !fo.job.Parked {
		f.slots <- struct{}{} // never full
		return nil
	}
	f.parked--
	// The version that was given up may be old, and a checkpoint may have kept it without
	// its values: the source is read.
	fo.unread, fo.slot = true, true
	fo.job.Parked, fo.job.Attempts, fo.job.LastError = false, 0, ""
	f.queue <- fo // never full: it has room for every token
	return nil
}

// standsAt says whether the fan-out of a source that has come as far as a change is parked, or
// goes on. Both are false if there is none, or only one of a change before that.
func (f *FanOut) standsAt(source string, at feed.Position) (parked, goesOn bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fo := f.open[source]
	if fo == nil || fo.want.position.Before(at) {
		return false, false
	}
	return fo.job.Parked, !fo.job.Parked
}

// openNow opens a fan-out with the source as it is now. A change of which nobody could tell what it
// means to the copies was given up before it became a fan-out. Or it became one that is
// finished: then this one finds all as it must be.
func (f *FanOut) openNow(ctx context.Context, ref store.ItemRef, p *processors.Parked) error {
	// What was given up is not needed, whatever it was.
	origins, err := f.c.Origins(ctx, []store.ItemRef{ref})
	if err != nil {
		return err
	}
	v := origins[0].v
	switch {
	case !v.position.IsZero() && v.position.Before(p.At):
		return fmt.Errorf("%w: %s is at %s, the change at %s", errStale, p.Item, v.position, p.At)
	case v.gone && !v.left: // it never was a source, or expires: what names it dangles, or its expiry comes
		return nil
	}
	var trace string
	if p.Transaction != nil {
		trace = p.Transaction.TraceParent
	}
	// In doubt everywhere: to owners that were told, by an earlier release, that nothing is left
	// to do up to a later change, its pages are done already.
	return f.enqueue(ctx, ref, v, opening{trace: trace, began: time.Now().UnixMilli(), doubted: true})
}

// Retry checks an item again that could not take its copies.
func (k *Checker) Retry(ctx context.Context, p *processors.Parked) error {
	return k.c.repairItem(ctx, k.term, cmp.Or(p.Target, p.Item))
}

// repairPart is the part of a term's work under which a fan-out's term repairs items. A partition forgets
// where a producer's fan-outs are finished when it writes something else: a page that comes late
// would then set a value that a newer fan-out, which is over, has replaced.
const repairPart = "retry"

// repairItem brings one item's copies to what their sources are now. An item that
// refuses them is the error.
func (c *Cascade) repairItem(ctx context.Context, term *processors.Term, target string) error {
	return processors.RepairItem(target, func(ref store.ItemRef) (bool, error) { return c.repairOnce(ctx, term, ref) })
}

// repairOnce is one attempt; done is false if the item has changed meanwhile.
func (c *Cascade) repairOnce(ctx context.Context, term *processors.Term, ref store.ItemRef) (done bool, err error) {
	items, err := c.cfg.Target.ReadMany(ctx, []store.ItemRef{ref}, true)
	if err != nil || items[0].ETag == (store.ETag{}) {
		return true, err
	}
	r := newRound(c)
	r.addItem(ref, &items[0], "")
	if err := r.readSources(ctx); err != nil {
		return false, err
	}
	repairs := r.compare()
	if len(repairs) == 0 {
		return true, nil
	}
	result, err := c.cfg.Target.Repair(ctx, c.cfg.Target.PartitionFor(ref.Key), &store.Repair{
		Producer: term.Producer().Of(repairPart), Epoch: term.Epoch, Items: []store.RepairItem{repairs[0].RepairItem},
	})
	if err != nil {
		return false, err
	}
	return processors.RepairOutcome(ref, result)
}
