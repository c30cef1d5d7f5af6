package owner

import (
	"bytes"
	"iter"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

const (
	pageItemsLimit = 2000
	pageBytesMax   = 2 << 20 // of changes in one page
	pageScanMax    = 20000   // candidates looked at by one page
	pageTimeMax    = 20 * time.Millisecond
	// yieldEvery is the number of candidates between two looks at whether a
	// client waits.
	yieldEvery = 16
	indexRetry = 200 * time.Millisecond
)

var patchManyHandler = handler{
	paged: true,
	decide: func(d *decider, t *txn, r *store.Request, itemsMax int) (*store.Response, bool) {
		result, write, refusal := decidePage(t, r.PatchMany, min(itemsMax, d.pageItems(r.PatchMany)), d.yield)
		if refusal != nil {
			return &store.Response{Err: refusal}, false
		}
		d.draft.pages++
		d.sincePage = 0
		return &store.Response{PatchMany: result}, write
	},
	about: func(r *store.Request) string {
		return "a page of a fan-out of pipeline " + r.PatchMany.Producer.Pipeline
	},
}

// busyFor is how long after a client's write pages stay small.
const busyFor = 20 * time.Millisecond

func (d *decider) pageItems(r *store.PatchMany) int {
	n := d.p.cfg.PageItemsMax
	if r.ItemsMax > 0 {
		n = min(n, r.ItemsMax)
	}
	if time.Now().Before(d.busyUntil) {
		n = min(n, d.p.cfg.PageItemsBusy)
	}
	return n
}

// yield ends a page early because a client waits.
func (d *decider) yield(patched int) bool {
	return len(d.p.queue) > 0 && patched >= d.p.cfg.PageItemsBusy
}

// page is one page of a fan-out while it is being decided.
// The decider's goroutine owns all of it.
type page struct {
	t        *txn
	req      *store.PatchMany
	copy     *copier
	progress *fanOut
	result   *store.PatchManyResult
	prefix   []byte
	shown    engine.Item // what the scan shows, valid until it goes on
	cursor   []byte      // item key of the last candidate of this sweep
	itemsMax int
	yield    func(patched int) bool // whether a client waits for the decider
	deadline time.Time
	ended    bool // behind an item whose copy is too much for any commit
}

// excessCopy is an item whose copy no commit takes, since what follows from it is too much, and
// the refusal that says so. That is known when the whole page is decided, which then is decided again.
type excessCopy struct {
	itemKey []byte
	refusal *store.Error
}

// decidePage decides the next page of a fan-out, and says whether there is something to
// commit.
func decidePage(t *txn, r *store.PatchMany, itemsMax int, yield func(int) bool) (*store.PatchManyResult, bool, *store.Error) {
	known, plant, refusal := t.fence(r.Producer, r.Epoch)
	if refusal != nil {
		return nil, false, refusal
	}
	recorded, refusal := t.fanOut(r.Producer, r.Source)
	if refusal != nil {
		return nil, false, refusal
	}
	result := &store.PatchManyResult{LSN: t.lsn - 1, Position: r.Position}
	progress, fresh := advance(recorded, r, t.lsn)
	switch {
	case recorded == nil && r.Position.Before(known.Finished): // done, and forgotten
		result.Superseded, result.Done, result.Position = true, true, known.Finished
		return result, false, nil
	case progress == nil: // a newer version of the source has been here
		result.Superseded, result.Done, result.Position = true, true, recorded.Position
		return result, false, nil
	case r.Plant && !fresh:
		result.LSN = progress.Planted
		if !plant {
			return result, false, nil
		}
	case progress.Done && !plant:
		result.Done = true
		return result, false, nil
	}
	result.LSN = t.lsn
	if r.Plant {
		result.LSN = progress.Planted
	} else if !progress.Done {
		p := &page{t: t, req: r, progress: progress, result: result, itemsMax: itemsMax, yield: yield}
		p.deadline = time.Now().Add(pageTimeMax)
		if refusal := p.run(); refusal != nil {
			return nil, false, refusal
		}
	}
	result.Done = progress.Done && !r.Plant
	result.Cursor = progress.Cursor
	if known.Finished.Before(r.FinishedBelow) {
		known.Finished = r.FinishedBelow
	}
	t.recordPage(r, progress, known.Finished)
	return result, true, nil
}

// recordPage puts a page's progress into the transaction: for the log, and for
// decisions that come before it is applied.
func (t *txn) recordPage(r *store.PatchMany, f *fanOut, finished feed.Position) {
	t.effect = &feed.Effect{Producer: r.Producer, Epoch: r.Epoch}
	t.page = &feed.Page{
		Source: r.Source, Position: f.Position, Cursor: f.Cursor, Takeover: f.Takeover, Wrapped: f.Wrapped, Done: f.Done,
		Planted: f.Planted, FinishedBelow: finished, Action: uint8(r.Copy.Action), Paths: copyPaths(&r.Copy), Digest: r.Digest,
	}
	if r.Plant {
		t.page.Action, t.page.Paths = 0, nil
	}
	t.setRecord(recordProducer, r.Producer.String(), producerState{Epoch: r.Epoch, Finished: finished}.encode())
	t.setRecord(recordFanOut, fanOutKey(r.Producer, r.Source), f.encode())
}

// advance returns the progress from which a request goes on, nil if a newer version of the
// source was here before, and whether the request's version is new here.
//
//	recorded           request   goes on
//	nothing            v7        from the start with v7, fresh
//	v7, cursor at m    v7        from m with v7
//	v7, cursor at m    v5        not at all
//	v7, done           v9        from the start with v9, fresh
//	v7, cursor at m    v9        from m to the end with v9, then from the start up to m, fresh
func advance(recorded *fanOut, r *store.PatchMany, lsn feed.LSN) (progress *fanOut, fresh bool) {
	switch {
	case recorded == nil:
		return &fanOut{Position: r.Position, Planted: lsn}, true
	case r.Position.Compare(recorded.Position) < 0:
		return nil, false
	case r.Position == recorded.Position:
		p := *recorded
		return &p, false
	case recorded.Done:
		return &fanOut{Position: r.Position, Planted: lsn}, true
	}
	// Not from the start: a source that changes faster than its fan-out runs would begin
	// again and again, and the items at the end would never get any of its values.
	return &fanOut{Position: r.Position, Planted: lsn, Cursor: recorded.Cursor, Takeover: recorded.Cursor}, true
}

// run scans candidates from the cursor and decides their copies.
func (p *page) run() *store.Error {
	copy, refusal := (&copiers{schema: p.t.schema}).compile(&p.req.Copy)
	if refusal != nil {
		return refusal
	}
	p.copy = copy
	if !p.req.Scope.Key.IsZero() {
		p.prefix = engine.LogicalPrefix(p.req.Scope.Key)
	}
	// At most twice: to the end of the scope, and from its start to where a newer version of
	// the source took over.
	for {
		full, refusal := p.sweep()
		// Handed over, not copied: the next sweep must not write into these bytes.
		if p.cursor != nil {
			p.progress.Cursor, p.cursor = p.cursor, nil
		}
		if refusal != nil || full {
			return refusal
		}
		f := p.progress
		if f.Wrapped || f.Takeover == nil {
			f.Done = true
			return nil
		}
		f.Wrapped, f.Cursor = true, nil
	}
}

// sweep looks at candidates after the cursor until the page is full (true), the
// scope ends, or the scan has come round. Items that the engine's snapshot does
// not show yet are merged in from the overlay.
func (p *page) sweep() (full bool, refusal *store.Error) {
	// Both are in the order of item keys, and so is the cursor:
	//
	//	the scan shows    a     c  d
	//	the overlay has      b  c        b is new, c was changed
	//	visited           a  b  c  d     c as the overlay has it
	//
	// Were the overlay looked at behind the scan, a page that ends at c would put the cursor
	// behind b, and this fan-out would never visit b.
	//
	// The overlay is not filtered by index or value: what it has is decided by the copy's
	// match, as everything is. An item that an index shows and that was moved away since is
	// found in the overlay too, and left alone there.
	pending := p.t.pending.within(p.prefix, p.progress.Cursor)
	candidates, refusal := p.candidates()
	if refusal != nil {
		return false, refusal
	}
	stop := false
	visit := func(itemKey []byte, item *engine.Item) bool {
		if p.cameRound(itemKey) {
			stop = true
			return false
		}
		if refusal = p.consider(itemKey, item); refusal != nil {
			return false
		}
		full = p.full()
		return !full
	}
	pendingBefore := func(limit []byte) bool {
		for len(pending) > 0 && (limit == nil || pending[0] < string(limit)) {
			k := pending[0]
			pending = pending[1:]
			if !visit([]byte(k), p.t.pending.items[k].item) {
				return false
			}
		}
		return true
	}
	for c, err := range candidates {
		if err != nil {
			return false, store.Refuse(store.StatusInternal, "scan: %v", err)
		}
		itemKey := c.ItemKey()
		if !pendingBefore(itemKey) {
			return full, refusal
		}
		item := &p.shown
		if len(pending) > 0 && pending[0] == string(itemKey) {
			item = p.t.pending.items[pending[0]].item
			pending = pending[1:]
		} else {
			p.show(c)
		}
		if !visit(itemKey, item) {
			return full, refusal
		}
	}
	if !stop {
		pendingBefore(nil)
	}
	return full, refusal
}

// show makes p.shown what the scan shows.
func (p *page) show(v *engine.View) {
	p.shown = engine.Item{
		Key: v.Key(), ID: v.ID(), Body: v.Body, Position: v.Position, Modified: v.Modified, Written: v.Written, Expires: v.Expires,
	}
}

// cameRound says whether a scan that began again has reached the place where
// its values took over.
func (p *page) cameRound(itemKey []byte) bool {
	return p.progress.Wrapped && bytes.Compare(itemKey, p.progress.Takeover) > 0
}

func (p *page) full() bool {
	r := p.result
	if p.ended || r.Patched >= p.itemsMax || p.t.bytes >= pageBytesMax || r.Scanned >= pageScanMax {
		return true
	}
	if p.copy.where != nil && time.Now().After(p.deadline) {
		return true // a condition may take long for each item
	}
	return r.Scanned%yieldEvery == 0 && (p.yield(r.Patched) || time.Now().After(p.deadline))
}

// consider decides one candidate. The cursor moves behind it whatever happens.
func (p *page) consider(itemKey []byte, item *engine.Item) *store.Error {
	p.result.Scanned++
	p.cursor = append(p.cursor[:0], itemKey...)
	if item == nil || expired(item, p.t.now) {
		return nil
	}
	if p.req.NotAfter != 0 && item.Written > p.req.NotAfter {
		return nil
	}
	if p.req.Until != 0 && item.Modified > p.req.Until {
		return nil
	}
	changed, refusal := p.copyTo(itemKey, item)
	if refusal != nil {
		// An item that cannot take its copy must not keep the others from theirs: it is told
		// of, and the worker makes a dead letter of it. A read that fails says nothing about
		// the item, so the whole page is tried again.
		if refusal.Status == store.StatusInternal {
			return refusal
		}
		p.result.Refused = append(p.result.Refused, store.Refusal{
			Ref: store.ItemRef{Key: item.Key, ID: item.ID}, Status: refusal.Status, Reason: refusal.Message,
		})
		return nil
	}
	if changed {
		p.result.Patched++
	}
	return nil
}

// copyTo decides the copy of one candidate.
func (p *page) copyTo(itemKey []byte, item *engine.Item) (changed bool, refusal *store.Error) {
	// The page ends behind an item whose copy is too much: what comes behind it was too much too, or
	// is not known, and another such item is found by the next page.
	if x := p.t.excess; x != nil && bytes.Equal(x.itemKey, itemKey) {
		p.ended = true
		return false, x.refusal
	}
	before := len(p.t.changes)
	changed, refusal = p.copy.apply(p.t, itemKey, item)
	// Also a copy that is refused may have removed what had expired and held its unique key.
	if len(p.t.changes) > before {
		p.t.copied = append(p.t.copied[:0], itemKey...)
	}
	return changed, refusal
}

// candidates are the items among which a page looks for copies.
func (p *page) candidates() (iter.Seq2[*engine.View, error], *store.Error) {
	return scopeItems(p.t.snap, p.t.schema, &p.req.Scope, p.progress.Cursor)
}
