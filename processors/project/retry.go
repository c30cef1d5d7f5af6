package project

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Retry makes the rows of an item right after a change of it was given up: they become
// what the item is now. That contains what later changes said; the rows from before the
// change go, unless the item still has them. Changes that are on their way, and older
// than what was read, end with the same rows.
//
// What the item is now does not tell it where rows stay though their item has expired: the
// changes from the one that was given up on do, and so they are made again, from the log.
func (r *RowWriter) Retry(ctx context.Context, parked *processors.Parked) error {
	ref, err := store.ParseItemRef(parked.Item)
	if err != nil {
		return processors.Reject(err)
	}
	// A backfill gave up what it made of the item alone, and knows of nothing before it. What has
	// become of the item since then came by the feed, and is not to be done again: also its end.
	backfilled := parked.Target != ""
	var before []byte
	switch ch := parked.Change; {
	case backfilled:
	case ch == nil:
		return parked.Missing
	case ch.Op == feed.OpExpire && r.p.cfg.OnExpire != Delete:
		return nil
	default:
		if before, err = ch.BeforeBody(); err != nil {
			return processors.Reject(err)
		}
	}
	items, err := r.p.cfg.Source.ReadMany(ctx, []store.ItemRef{ref}, true)
	if err != nil {
		return err
	}
	g := newCoalescer(r.p, backfilled)
	item, body := &ItemToRepair{ItemRef: ref}, bodyOf(&items[0])
	if !backfilled && r.p.mayHaveKept(body) {
		err = r.replay(ctx, g, item, parked, before)
		// Of an item that is there, rows of an earlier life of it that expired are not known.
		if errors.Is(err, processors.ErrLost) && body != nil {
			g, err = newCoalescer(r.p, backfilled), nil
			g.addItem(item, before, body)
		}
		if err != nil {
			return err
		}
	} else {
		g.addItem(item, before, body)
	}
	if g.empty() {
		return nil
	}
	return r.endIfFatal(ctx, r.writeBetween(ctx, g, parked.Progress))
}

// mayHaveKept says whether an item that is body now, nil for nothing, may have rows that stay
// because it expired.
func (p *Projection) mayHaveKept(body []byte) bool {
	// An item that is not there may have expired, or been deleted: nothing of it says which.
	// The time to live of its container may have been another one then.
	return p.cfg.OnExpire != Delete && (body == nil || p.keepsLives())
}

// keepsLives says whether an item that expires leaves rows that stay when it is made again.
func (p *Projection) keepsLives() bool {
	return p.cfg.OnExpire != Delete && p.cfg.Source.Info().Spec.TTL != 0
}

// replay adds what a change that was given up and all later ones of its item make of its rows,
// whatever the sink has of them:
//
//	5 replaced   given up: the sink has the rows from before it
//	7 replaced   rows as of 7
//	9 expired    they stay: a retry of 5 must not remove them
func (r *RowWriter) replay(ctx context.Context, g *coalescer, item *ItemToRepair, parked *processors.Parked, before []byte) error {
	g.addItem(item, before, parked.Change.After)
	return parked.Later(ctx, func(ch *feed.Change) error {
		if ch.Op == feed.OpExpire { // kept
			return nil
		}
		before, err := ch.BeforeBody()
		if err != nil {
			return processors.Reject(err)
		}
		g.addItem(item, before, ch.After)
		return nil
	})
}

// writeBetween writes what was coalesced between two batches, and waits until it is durable.
func (r *RowWriter) writeBetween(ctx context.Context, g *coalescer, progress func()) error {
	upTo, err := r.takeBetween(ctx, g)
	if err != nil {
		return err
	}
	return r.awaitDurable(ctx, upTo, progress)
}

// takeBetween gives the sink what was coalesced, under a position that no change has: behind all
// that were processed or given up, in their last commit. There may be others before it, of earlier
// terms.
func (r *RowWriter) takeBetween(ctx context.Context, g *coalescer) (upTo feed.Position, err error) {
	if err := r.acquire(ctx); err != nil {
		return upTo, err
	}
	defer r.release()
	if err := r.openSink(ctx); err != nil {
		return upTo, err
	}
	r.mu.Lock()
	upTo = maxPosition(maxPosition(r.after, r.processed), r.seen)
	r.mu.Unlock()
	// In a walk the position behind the last item is that of the next one, which the sink
	// would skip then.
	if _, walked := upTo.Walked(); walked && !r.term.Saved().Position.Reached(upTo.LSN) {
		return upTo, store.Refuse(store.StatusUnavailable, "the items that were there are still being read; try again when that is done")
	}
	// A retry of an earlier term may have used positions behind the last change already,
	// and the sink would skip this one as known:
	//
	//	last change 12.3, an earlier retry recorded 12.4   this one takes 12.5
	// So may one of this term that failed, in some of the partitions of a container.
	for _, used := range []feed.Position{r.recordedAtOpen, r.retriedUpTo} {
		if used.LSN == upTo.LSN {
			upTo = maxPosition(upTo, used)
		}
	}
	if upTo.Index == math.MaxUint32 {
		return upTo, store.Refuse(store.StatusUnavailable, "no position is left behind %s; try again after the next change", upTo)
	}
	upTo.Index++
	r.retriedUpTo = upTo
	b := g.batch(r.after, upTo)
	w, err := r.sendBatch(ctx, b)
	switch {
	case err != nil:
		return upTo, err
	case w.Skipped:
		return upTo, store.Refuse(store.StatusUnavailable, "the sink is ahead of the checkpoint, up to which changes are read again; try again in a moment")
	}
	r.after = upTo
	r.noteWritten(ctx, b, w, g.bytes)
	return upTo, nil
}

const (
	// progressInterval is how often a retry that waits for a flush says so.
	progressInterval = time.Second
	// flushPatience is for how long it does so for one flush. The changes behind it wait, too.
	flushPatience = 10 * time.Minute
)

// awaitDurable waits until the sink has recorded a position that it was given. Run makes it durable,
// not this: a retry ends when it has waited for long, and with it would end a flush that is shared with
// other partitions, and that no one after it would bring to its end either. The error is that of a
// flush that failed meanwhile.
func (r *RowWriter) awaitDurable(ctx context.Context, upTo feed.Position, progress func()) error {
	r.mu.Lock()
	r.awaited = upTo
	r.mu.Unlock()
	signal(r.holding)
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	began := time.Now()
	for {
		// As in awaitRoom: flushed is that of the flush that recorded is not of yet.
		r.mu.Lock()
		done, flushed := !r.recorded.Before(upTo), r.flushed
		r.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ticker.C:
			if time.Since(began) < flushPatience {
				progress()
			}
			continue
		case <-flushed:
			began = time.Now()
		case <-r.runEnded:
			<-ctx.Done() // Run ends the term
			return context.Cause(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		r.mu.Lock()
		err := r.failure
		r.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
