package project

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Was is an item whose rows are to be mended: what the sink may have of it that
// it should not have.
type Was struct {
	store.ItemRef
	Rows    []Row    // Table, Key and Source count
	Rejects []Reject // Table, Source and Element count
}

// mendRoundsMax is how often items that change while they are mended are read and
// written anew.
const mendRoundsMax = 16

// Mend makes the sink have the rows of items as they are, while the pipeline may
// go on: a repair, or a change that was given up and is tried again. w was opened
// for a Producer of its own, whose positions count what it wrote: at is the one
// that Open returned, or the last that Mend did. It returns the next one, also
// with an error.
//
// An item is read, its rows are written, and it is read again, until it is still
// the same: what the pipeline writes of it from then on is of later changes. What
// it has yet to write of earlier ones it writes up to the present.
func (p *Projection) Mend(ctx context.Context, w Writer, at feed.Position, items []Was) (feed.Position, error) {
	before, err := p.read(ctx, items)
	for round := 0; err == nil && len(items) > 0; round++ {
		if round == mendRoundsMax {
			return at, &store.Error{
				Status: store.StatusUnavailable, RetryAfter: processors.RetryFirst,
				Message: fmt.Sprintf("%d items change faster than their rows can be mended, such as %s", len(items), items[0].ItemRef),
			}
		}
		if at, err = p.mend(ctx, w, at, items, before); err != nil {
			return at, err
		}
		var after []store.Item
		if after, err = p.read(ctx, items); err != nil {
			return at, err
		}
		items, before = p.changed(items, before, after)
	}
	return at, err
}

// read reads the items as they are, settled.
func (p *Projection) read(ctx context.Context, items []Was) ([]store.Item, error) {
	refs := make([]store.ItemRef, len(items))
	for i := range items {
		refs[i] = items[i].ItemRef
	}
	return p.cfg.Source.ReadMany(ctx, refs, true)
}

// mend writes items as they were read.
func (p *Projection) mend(ctx context.Context, w Writer, at feed.Position, items []Was, bodies []store.Item) (feed.Position, error) {
	g := newGatherer(p)
	for i := range items {
		g.mend(&items[i], nil, bodyOf(&bodies[i]))
	}
	if g.empty() {
		return at, nil
	}
	next := feed.Position{LSN: at.LSN + 1}
	if _, err := w.Write(ctx, g.batch(at, next)); err != nil {
		return at, fmt.Errorf("mend the rows of %d items: %w", len(items), err)
	}
	if _, err := w.Flush(ctx); err != nil {
		return next, fmt.Errorf("mend the rows of %d items: %w", len(items), err)
	}
	return next, nil
}

// changed returns the items that are not what they were, with the rows that were
// written of them meanwhile.
func (p *Projection) changed(items []Was, before, after []store.Item) (still []Was, now []store.Item) {
	for i := range items {
		if before[i].ETag == after[i].ETag {
			continue
		}
		w := Was{ItemRef: items[i].ItemRef}
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
