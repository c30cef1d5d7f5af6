package project

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// ItemToRepair is an item whose rows are to be made right, and what the sink may have of it
// that it should not have.
type ItemToRepair struct {
	store.ItemRef
	Rows    []Row    // Table, Key and Source count
	Rejects []Reject // Table, Source and Element count
	// KeptRows and KeptRejects must be there though the item, as it is, does not make them: it
	// has expired since, and rows of expired items stay.
	KeptRows    []Row
	KeptRejects []Reject
}

// Repair makes the sink have the rows of items as they are, while the pipeline may
// go on: a repair, or a change that was given up and is tried again. w was opened
// for a Producer of its own, whose positions count what it wrote: at is the one
// that Open returned, or the last that Repair did. It returns the next one, also
// with an error.
//
// An item is read, its rows are written, and it is read again, until it is still the same:
//
//	read p at 40   write its row of 40   read p at 40   done: the pipeline writes what
//	                                                    comes after 40 later than this
//	read p at 40   write its row of 40   read p at 41   the pipeline may have written 41
//	                                                    before this wrote 40: once more
//
// Changes up to 40 that the pipeline has yet to write end with the row of 40. Rows of an
// item that goes meanwhile, and may have expired, are left where expired items keep theirs.
func (p *Projection) Repair(ctx context.Context, w Writer, at feed.Position, items []ItemToRepair) (feed.Position, error) {
	before, err := p.readItems(ctx, items)
	for round := 0; err == nil && len(items) > 0; round++ {
		if round == processors.RepairAttemptsMax {
			return at, processors.ItemChanges(len(items), items[0].String())
		}
		if at, err = p.writeRepair(ctx, w, at, items, before); err != nil {
			return at, err
		}
		var after []store.Item
		if after, err = p.readItems(ctx, items); err != nil {
			return at, err
		}
		items, before = p.changedSince(items, before, after)
	}
	return at, err
}

// readItems reads the items as they are, behind a barrier.
func (p *Projection) readItems(ctx context.Context, items []ItemToRepair) ([]store.Item, error) {
	refs := make([]store.ItemRef, len(items))
	for i := range items {
		refs[i] = items[i].ItemRef
	}
	return p.cfg.Source.ReadMany(ctx, refs, true)
}

// writeRepair writes items as they were read.
func (p *Projection) writeRepair(ctx context.Context, w Writer, at feed.Position, items []ItemToRepair, bodies []store.Item) (feed.Position, error) {
	g := newCoalescer(p, false)
	for i := range items {
		g.addItem(&items[i], nil, bodyOf(&bodies[i]))
		g.addKept(&items[i], bodyOf(&bodies[i]))
	}
	if g.empty() {
		return at, nil
	}
	next := feed.Position{LSN: at.LSN + 1}
	if _, err := w.Write(ctx, g.batch(at, next)); err != nil {
		return at, fmt.Errorf("repair the rows of %d items: %w", len(items), err)
	}
	if _, err := w.Flush(ctx); err != nil {
		return next, fmt.Errorf("repair the rows of %d items: %w", len(items), err)
	}
	return next, nil
}

// changedSince returns the items that are not what they were, each with the rows that were
// written of it: they go in the next round, unless the item still has them.
func (p *Projection) changedSince(items []ItemToRepair, before, after []store.Item) (still []ItemToRepair, now []store.Item) {
	for i := range items {
		if before[i].ETag == after[i].ETag {
			continue
		}
		// It has expired, and its rows stay; or it was deleted, and the pipeline has removed
		// them before they were written here. Only the log tells, and the next verification
		// reads it. To remove them might remove the last trace of the item.
		if bodyOf(&after[i]) == nil && p.cfg.OnExpire != Delete && p.cfg.Source.Info().Spec.TTL != 0 {
			continue
		}
		w := ItemToRepair{ItemRef: items[i].ItemRef}
		w.Rows, w.Rejects = p.RowsOf(w.Key, w.ID, bodyOf(&before[i]))
		still, now = append(still, w), append(now, after[i])
	}
	return still, now
}

// bodyOf returns the body of an item that was read, nil if it is not there.
func bodyOf(item *store.Item) []byte {
	if item.ETag == (store.ETag{}) {
		return nil
	}
	return item.Body
}
