package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
)

// A reader of latest versions that begins at the beginning, or that comes back when the
// log was trimmed behind its place, walks: it goes through the items that are there, in the
// order of their keys, page by page, while the log goes on. So what it costs follows what
// lives and not what was ever written. Its place in a partition is (l, c): of the items with
// keys up to c it has seen all versions up to l that were not replaced; of those with greater
// keys it has seen nothing.
//
//	place (40, "f")      the owner is asked for items behind "f":  "g" to "m", as of 52
//	log 41 to 52         "b" changed at 45     it comes: its key is not behind "f"
//	                     "h" changed at 47     passed over: the page has it, as it was at 52
//	                     "x" changed at 50     passed over: a later page will have it
//	place (52, "m")
//
// Why nothing is missing. Let v be a version of an item that is not replaced or deleted in
// the end, at position p. If its key is at most c when the place passes p, the log part of that
// step brings it. If its key is greater, it is not in a page yet; the page that comes to
// its key is read behind a barrier at some l' >= p, from one view of the owner's engine
// whose own state says l', and holds v. Afterwards its key is at most c and the log is read
// behind l', so v does not come again. Versions of one item come in their order, since its
// page is at l' and the log part behind that.
//
// Nothing is kept at the owner for a walk, and the place needs no snapshot: a page is what
// the engine holds when it is asked, which any owner can answer after any restart.
//
// A place behind which the log was trimmed begins a walk with a floor, the position up to
// which the reader knows everything: items at positions up to the floor are passed over.
// If a walk itself is overtaken by a trim it begins again with the floor that it had, and so
// shows once more what it had shown: nothing says which of them changed.
//
// Whoever begins at a time that the log does not reach back to walks too. An item tells the
// time of its last write if a client made that; if a pipeline did, the item is shown even if
// it may be older, because leaving it out could lose it.
//
// Within a page changes of one partition are in the order of their positions, as everywhere.
// From one page of a walk to the next only those of one item are.

// walkItemBytes is what an item that a walk passes over counts beside its body, against what
// may be read for one page.
const walkItemBytes = 64

// walkPlace is where a walk stands, beside the position in the log.
type walkPlace struct {
	// cursor is the item key up to which all is done; nil if nothing is.
	cursor []byte
	// floor passes items over that were last written up to it, as a reader's position says
	// it; since those that a client wrote last before it, in unix milliseconds.
	floor feed.Position
	since int64
}

// again returns the place of a reader of whose log the rest is not to be had: a walk from
// its beginning.
func (p *partitionPosition) again() partitionPosition {
	w := walkPlace{floor: p.after}
	if p.walk != nil {
		w = walkPlace{floor: p.walk.floor, since: p.walk.since}
	}
	return partitionPosition{number: p.number, walk: &w}
}

// known returns the last LSN of which a reader knows something.
func (p *partitionPosition) known() feed.LSN {
	if p.walk == nil {
		return p.after.LSN
	}
	return max(p.after.LSN, p.walk.floor.LSN)
}

// passesOver tells whether a walk leaves an item out.
func (w *walkPlace) passesOver(item *Item) bool {
	if item.Written == item.ETag.LSN && item.Modified < w.since {
		return true
	}
	at := feed.Position(item.ETag)
	// A floor (n, 0) is behind all of commit n, (n, i) behind its first i changes.
	return at.LSN < w.floor.LSN || at.LSN == w.floor.LSN && (w.floor.Index == 0 || at.Index < w.floor.Index)
}

// mustWalk decides whether a reader of latest versions walks from here: its log does not hold
// what comes next, or it stands at the beginning of one that is longer than one page may read.
// A short log is read from its beginning instead, because it shows changes in the order in
// which they were made.
func (g *changesPage) mustWalk(ctx context.Context, log *feed.Log, at *partitionPosition, first feed.LSN) (bool, error) {
	switch {
	case g.r.AllVersions:
		return false, nil
	case at.walk != nil:
		// One that has shown nothing yet needs nothing of the log.
		return at.walk.cursor != nil && nextLSN(at.after) < first, nil
	case nextLSN(at.after) < first:
		return true, nil
	case at.after != (feed.Position{}):
		return false, nil
	}
	shape, err := log.Shape(ctx)
	if err != nil {
		return false, err
	}
	return shape.First > 1 || shape.Commits > changesCommitsMax || shape.Bytes > changesReadMax, nil
}

// readWalk adds changes of a walk to the page, and returns the place reached: without a walk
// if it is done. last is the end of the log.
func (g *changesPage) readWalk(ctx context.Context, p feed.Partition, log *feed.Log, at partitionPosition, last feed.LSN) (partitionPosition, error) {
	begun := len(g.changes)
	defer func() {
		// The log's part and the items' are in no order with each other.
		slices.SortFunc(g.changes[begun:], func(a, b ItemChange) int {
			return feed.Position(a.Item.ETag).Compare(feed.Position(b.Item.ETag))
		})
	}()
	// What has changed behind the cursor comes first. After a long pause it may fill the
	// page, and then no item has to be read.
	if at.walk.cursor != nil {
		if arrived, err := g.readBehind(ctx, p, log, &at, last); err != nil || !arrived {
			return at, err
		}
	}
	for at.walk != nil && !g.spent() && g.info.has(p.Number) {
		scan := g.walkScan(p, at.walk)
		// Not one of its children: their LSNs are of other logs.
		resp, err := g.ct.doExactly(ctx, &Request{Partition: p, Scan: &scan})
		if err != nil {
			return at, fmt.Errorf("changes of %s: %w", p, err)
		}
		page := resp.Scan
		if page.LSN < at.after.LSN {
			// Its owner has lost the log's end: nobody goes back.
			return at, &Error{
				Status: StatusUnavailable, RetryAfter: feedRetry,
				Message: fmt.Sprintf("changes of %s: its owner is at LSN %d, the reader at %s", p, page.LSN, at.after),
			}
		}
		if arrived, err := g.readBehind(ctx, p, log, &at, page.LSN); err != nil || !arrived {
			return at, err
		}
		at = g.addItems(p, at, page)
	}
	return at, nil
}

// spent tells whether the page takes nothing more.
func (g *changesPage) spent() bool {
	return g.full || g.room <= 0 || g.bytes <= 0 || g.commits <= 0 || g.read <= 0
}

// readBehind adds what the log says up to an LSN of the items that a walk has passed. It
// moves the position of at, and tells whether it came to the LSN.
func (g *changesPage) readBehind(ctx context.Context, p feed.Partition, log *feed.Log, at *partitionPosition, upTo feed.LSN) (bool, error) {
	if at.walk.cursor == nil {
		at.after = feed.Position{LSN: upTo} // of no item
		return true, nil
	}
	g.passed = at.walk.cursor
	defer func() { g.passed = nil }()
	after, err := g.readLog(ctx, p, log, at.after, upTo)
	at.after = after
	return err == nil && reached(after, upTo), err
}

// hasPassed tells whether a walk has come to the item of a change. Without a walk it has.
func (g *changesPage) hasPassed(c *feed.Change) bool {
	return g.passed == nil || bytes.Compare(AppendCursor(nil, c.Key, c.ID), g.passed) <= 0
}

// walkScan asks for the items that a walk comes to next.
func (g *changesPage) walkScan(p feed.Partition, w *walkPlace) Scan {
	scan := Scan{Scope: Scope{Key: g.r.Scope.Key}, After: w.cursor, ItemsMax: g.room, BytesMax: min(g.bytes, g.read), Barrier: true}
	if w.floor != (feed.Position{}) || w.since > 0 {
		// Most of them are passed over, whatever the page has room for.
		scan.ItemsMax, scan.BytesMax = ChangesMax, min(ChangesBytesMax, g.read)
	}
	if span, _ := g.info.spanOf(p.Number); g.r.Scope.Key.IsZero() && g.r.Scope.Range.Min > span.Min {
		// A cursor that lies before the range was made for a wider one.
		begin := append([]byte{byte(len(g.info.Spec.PartitionKey))}, g.r.Scope.Range.Min...)
		if bytes.Compare(scan.After, begin) < 0 {
			scan.After = begin
		}
	}
	return scan
}

// addItems adds the items of a page that the owner has answered, as far as there is room, and
// returns the place behind them.
func (g *changesPage) addItems(p feed.Partition, at partitionPosition, page *ScanResult) partitionPosition {
	next := *at.walk
	done := partitionPosition{number: at.number, after: at.after}
	span := g.r.Scope.Range
	for i := range page.Items {
		item := &page.Items[i]
		if span != (feed.Range{}) && item.Key.Hash() >= span.Max {
			return done
		}
		size := len(item.Body)
		g.read -= size + walkItemBytes
		if g.r.Scope.holds(item.Key) && !next.passesOver(item) {
			if len(g.changes) > 0 && (g.room < 1 || size > g.bytes) {
				g.full = true
				break
			}
			g.changes = append(g.changes, ItemChange{Op: feed.OpCreate, Item: *item, Time: item.Modified})
			g.room--
			g.bytes -= size
		}
		next.cursor = AppendCursor(nil, item.Key, item.ID)
		if i == len(page.Items)-1 && page.Cursor == nil {
			return done
		}
	}
	if len(page.Items) == 0 {
		return done
	}
	return partitionPosition{number: at.number, after: at.after, walk: &next}
}
