package project

import (
	"context"
	"math"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Retry brings the rows of an item, a change of which was given up, to what the
// item is now. What later changes said is contained in that; the rows from before
// the change go, unless the item still has them. Changes that are on their way and
// older than what was read come to the same end.
func (r *RowWriter) Retry(ctx context.Context, parked *processors.Parked) error {
	ch := parked.Change
	if ch.Op == feed.OpExpire && r.p.cfg.OnExpire != Delete {
		return nil
	}
	before, err := ch.BeforeBody()
	if err != nil {
		return processors.Reject(err)
	}
	items, err := r.p.cfg.Source.ReadMany(ctx, []store.ItemRef{{Key: ch.Key, ID: ch.ID}}, true)
	if err != nil {
		return err
	}
	g := newGatherer(r.p)
	g.mend(&Was{ItemRef: store.ItemRef{Key: ch.Key, ID: ch.ID}}, before, bodyOf(&items[0]))
	if g.empty() {
		return nil
	}
	return r.ended(ctx, r.again(ctx, g))
}

// again writes what was gathered between two batches, under a position that no
// change has: behind all that were processed, in their last commit. There may be
// others before it, of earlier terms.
func (r *RowWriter) again(ctx context.Context, g *gatherer) error {
	if err := r.acquire(ctx); err != nil {
		return err
	}
	defer r.release()
	if err := r.open(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	upTo := maxPosition(r.after, r.through)
	r.mu.Unlock()
	if r.found.LSN == upTo.LSN {
		upTo = maxPosition(upTo, r.found)
	}
	if upTo.Index == math.MaxUint32 {
		return store.Refuse(store.StatusUnavailable, "no position is left behind %s; try again after the next change", upTo)
	}
	upTo.Index++
	b := g.batch(r.after, upTo)
	w, err := r.send(ctx, b)
	switch {
	case err != nil:
		return err
	case w.Skipped:
		return store.Refuse(store.StatusUnavailable, "the sink is ahead of the checkpoint, up to which changes are read again; try again in a moment")
	}
	r.after = upTo
	r.wrote(ctx, b, w, g.bytes)
	return r.flush(ctx)
}
