package owner

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/heat"
)

const (
	scanItemsDefault = 100
	scanItemsMax     = 1000
	scanBytesMax     = 4 << 20
)

// readOne answers the commonest request without a detour.
func (p *Partition) readOne(t *store.Transact) *store.Response {
	op := &t.Ops[0]
	if err := document.CheckID(op.ID); err != nil {
		return &store.Response{Err: store.Refuse(store.StatusBadRequest, "%v", err)}
	}
	snap, s := p.snapshot()
	defer snap.Close()
	item, ok, err := snap.Get(t.Key, op.ID)
	switch {
	case err != nil:
		return p.readFailed(err)
	case !p.lease.Valid():
		return &store.Response{Err: p.notOwner()}
	case !ok || expired(&item, p.now()):
		refusal := store.Refuse(store.StatusNotFound, "item %q does not exist in its logical partition", op.ID)
		refusal.LSN = p.seen(s)
		return &store.Response{Err: refusal}
	}
	result := &store.TransactResult{LSN: p.seen(s), Results: []store.OpResult{{Status: store.StatusOK}}}
	if op.IfNoneMatch != (store.ETag{}) && op.IfNoneMatch == store.ETag(item.Position) {
		result.Results[0].Status = store.StatusNotModified
	} else {
		result.Results[0].Item = itemOf(&item)
	}
	return &store.Response{Transact: result}
}

// snapshot returns a view of the engine at least as new as the state with it, whose
// indexes are whole in it: one is dropped behind a change of the schema, and built
// before one.
func (p *Partition) snapshot() (*engine.Snapshot, *applied) {
	// The state is loaded before and after: a snapshot between two schemas would be read by
	// indexes that it has not.
	for {
		s := p.state.Load()
		snap := p.engine.Snapshot()
		if p.state.Load().schema == s.schema {
			return snap, s
		}
		snap.Close()
	}
}

// seen returns the LSN of all that a view may show which was taken with s: the view may be newer than s by the commit that
// is being applied. A session that asks for less than it has seen could be answered from before:
//
//	commit 9: an item, settings      the item is written
//	                                 a view with the state of 8 shows it; the session has seen 9
//	                                 an index is dropped, entry by entry
//	                                 the state says 9
func (p *Partition) seen(s *applied) feed.LSN { return max(s.lsn, feed.LSN(p.applying.Load())) }

// wholeSnapshot is snapshot for who goes on behind it in the log: the view holds all of each
// commit up to the engine's state, and nothing of a later one.
func (p *Partition) wholeSnapshot(ctx context.Context) (*engine.Snapshot, *applied, *store.Error) {
	// A commit that changes settings is applied in parts, and the state is in the last of them:
	//
	//	commit 9: create X, drop an index    X is written      the state says 8
	//	                                     a view says 8 and has X
	//	                                     entries go, page by page
	//	                                     the state says 9
	//
	// Who takes that view for LSN 8 and reads the log from 9 takes X twice: an aggregate counts it
	// twice for good (I6), and an engine that is loaded from it is at no state of the log (I3).
	// parts grows before the first part is written and after the last. So a view that was taken
	// between two looks that found it the same, and even, has no part of a commit that it has not
	// all of: the first part of it would have moved what the second look found.
	//
	// To take the view on the committer's goroutine was the other way. That waits for an append
	// too, and one that hangs would hold the snapshots of all partitions of this process.
	for {
		wait := p.changed.wait() // before the look: behind the last part it is told
		parts := p.parts.Load()
		if parts%2 == 0 {
			snap, s := p.snapshot()
			if p.parts.Load() == parts {
				return snap, s, nil
			}
			snap.Close()
			continue
		}
		if p.changed.closed() {
			return nil, nil, p.notOwner() // it could not be applied, and whoever is next applies it again
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, nil, &store.Error{Status: store.StatusUnavailable, Message: "a commit that changes settings was not applied in time", RetryAfter: indexRetry}
		}
	}
}

func (p *Partition) readFailed(err error) *store.Response {
	p.engine.Fail(err)
	return &store.Response{Err: store.Refuse(store.StatusInternal, "partition %s: read: %v", p.id, err)}
}

// awaitAppends waits until every append that was in flight when it was called is
// resolved and applied.
func (p *Partition) awaitAppends(ctx context.Context) *store.Error {
	// One append is in flight at most, so this waits for one commit and never for a stream
	// of them:
	//
	//	asked while 41 is applied and 42 is appended    waits for 42, not for 43
	//	asked while nothing is appended                 answers at once
	want := feed.LSN(p.inFlight.Load())
	for {
		wait := p.changed.wait()
		// An append that did not happen lowers inFlight; then nothing is left to
		// wait for.
		if p.state.Load().lsn >= min(want, feed.LSN(p.inFlight.Load())) {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return &store.Error{Status: store.StatusUnavailable, Message: "the appends in flight were not resolved in time", RetryAfter: indexRetry}
		}
		if p.changed.closed() {
			return p.notOwner()
		}
	}
}

var readHandler = handler{
	read:    func(_ context.Context, p *Partition, r *store.Request) *store.Response { return p.read(r.Read) },
	barrier: func(r *store.Request) bool { return r.Read.Barrier },
	heat: func(_ *Partition, r *store.Request, resp *store.Response) heat.Work {
		return heat.Work{Bytes: bytesOf(resp.Read), Keys: keysOf(r.Read.Refs)}
	},
}

func (p *Partition) read(r *store.ReadItems) *store.Response {
	if len(r.Refs) > store.ReadManyMax {
		return &store.Response{Err: store.Refuse(store.StatusBadRequest, "a read has at most %d items, this one has %d", store.ReadManyMax, len(r.Refs))}
	}
	snap, s := p.snapshot()
	defer snap.Close()
	resp := &store.Response{Read: make([]store.Item, len(r.Refs)), ReadLSN: p.seen(s)}
	now := p.now()
	for i, ref := range r.Refs {
		item, ok, err := snap.Get(ref.Key, ref.ID)
		if err != nil {
			return p.readFailed(err)
		}
		if ok && !expired(&item, now) {
			resp.Read[i] = itemOf(&item)
		}
	}
	if !p.lease.Valid() {
		return &store.Response{Err: p.notOwner()}
	}
	return resp
}

var versionsHandler = handler{
	read: func(_ context.Context, p *Partition, r *store.Request) *store.Response {
		return p.versions(r.Versions)
	},
	barrier: always,
	heat: func(_ *Partition, r *store.Request, _ *store.Response) heat.Work {
		return heat.Work{Keys: keysOf(r.Versions.Refs)}
	},
}

func (p *Partition) versions(r *store.ReadVersions) *store.Response {
	if len(r.Refs) > store.ReadManyMax {
		return &store.Response{Err: store.Refuse(store.StatusBadRequest, "a read has at most %d items, this one has %d", store.ReadManyMax, len(r.Refs))}
	}
	snap, _ := p.snapshot()
	defer snap.Close()
	versions := make([]store.ETag, len(r.Refs))
	now := p.now()
	for i, ref := range r.Refs {
		item, ok, err := snap.Get(ref.Key, ref.ID)
		if err != nil {
			return p.readFailed(err)
		}
		if ok && !expired(&item, now) {
			versions[i] = store.ETag(item.Position)
		}
	}
	if !p.lease.Valid() {
		return &store.Response{Err: p.notOwner()}
	}
	return &store.Response{Versions: versions}
}

var scanHandler = handler{
	read: func(ctx context.Context, p *Partition, r *store.Request) *store.Response {
		return p.scan(ctx, r.Scan)
	},
	barrier: func(r *store.Request) bool { return r.Scan.Barrier },
	heat: func(_ *Partition, r *store.Request, resp *store.Response) heat.Work {
		work := heat.Work{Keys: heat.Only(r.Scan.Key)}
		if resp.Scan != nil {
			work.Bytes = bytesOf(resp.Scan.Items)
		}
		return work
	},
}

func (p *Partition) scan(ctx context.Context, r *store.Scan) *store.Response {
	itemsMax := r.ItemsMax
	if itemsMax <= 0 {
		itemsMax = scanItemsDefault
	}
	itemsMax = min(itemsMax, scanItemsMax)
	bytesMax := r.BytesMax
	if bytesMax <= 0 || bytesMax > scanBytesMax {
		bytesMax = scanBytesMax
	}
	snap, s, refusal := p.wholeSnapshot(ctx)
	if refusal != nil {
		return &store.Response{Err: refusal}
	}
	defer snap.Close()
	candidates, refusal := scopeItems(snap, s.schema, &r.Scope, r.After)
	if refusal != nil {
		return &store.Response{Err: refusal}
	}
	// The view may be newer than the state that was loaded before it. Who goes on in the
	// log behind the page must not read what the page has.
	state, err := snap.State()
	if err != nil {
		return p.readFailed(err)
	}
	result := &store.ScanResult{LSN: state.Applied}
	now, size := p.now(), 0
	// Full is found out at the candidate behind the page, so the cursor of a page that ends
	// exactly with the scope is nil, and nobody asks for an empty one.
	for c, err := range candidates {
		if err != nil {
			return p.readFailed(err)
		}
		if len(result.Items) >= itemsMax || size > 0 && size+len(c.Body) > bytesMax {
			last := &result.Items[len(result.Items)-1]
			result.Cursor = engine.ItemKey(last.Key, last.ID)
			break
		}
		if c.Expires != 0 && c.Expires <= now || !inScope(s.schema, &r.Scope, c.Body) {
			continue
		}
		size += len(c.Body)
		item := c.Item()
		result.Items = append(result.Items, itemOf(&item))
	}
	if !p.lease.Valid() {
		return &store.Response{Err: p.notOwner()}
	}
	return &store.Response{Scan: result}
}

var countHandler = handler{
	read: func(_ context.Context, p *Partition, r *store.Request) *store.Response { return p.count(r.Count) },
	heat: func(_ *Partition, r *store.Request, _ *store.Response) heat.Work {
		return heat.Work{Keys: heat.Only(r.Count.Key)}
	},
}

func (p *Partition) count(r *store.Scope) *store.Response {
	snap, s := p.snapshot()
	defer snap.Close()
	var n int
	var err error
	switch {
	case r.Index != "":
		index, refusal := s.schema.index(r.Index)
		if refusal != nil {
			return &store.Response{Err: refusal}
		}
		n, err = snap.CountIndex(index.Number, r.Value)
	case !r.Key.IsZero():
		n, err = snap.Count(engine.LogicalPrefix(r.Key))
	default:
		n, err = snap.Count(nil)
	}
	if err != nil {
		return p.readFailed(err)
	}
	if !p.lease.Valid() {
		return &store.Response{Err: p.notOwner()}
	}
	return &store.Response{Count: n}
}

var statusHandler = handler{
	evenClosed: true,
	read:       func(_ context.Context, p *Partition, _ *store.Request) *store.Response { return p.status() },
}

func (p *Partition) status() *store.Response {
	st := &store.PartitionStatus{
		Owner: p.owner, Epoch: p.lease.Epoch(), Log: p.feed.ID(), Queue: len(p.queue), FanOuts: int(p.fanOuts.Load()),
	}
	if since := p.listens.Load(); since != nil {
		st.Listens = time.Since(*since)
	}
	if o := p.remote.Load(); o != nil {
		st.Unanswered = o.unanswered()
	}
	st.Scrub, st.Trim = p.scrubbed.Load(), p.trim.Load()
	if taken := p.copied.Load(); taken != nil && (taken.LSN > 0 || taken.Failed != "") {
		st.Snapshot = taken
	}
	st.Pins, st.Heat = p.pins.last(), p.heat.Report()
	if says := p.splitSays.Load(); says != nil {
		st.Splitting = *says
	}
	if r := p.split.Load(); r != nil && r.abandoned != nil {
		st.AbandonedSplit = &store.AbandonedSplit{ID: r.abandoned.ID, Why: r.abandoned.Why}
	}
	if why := p.closedFor.Load(); why != nil {
		st.Refusing, st.Unreadable = why.Message, true
		return &store.Response{Status: st}
	}
	s := p.state.Load()
	st.Applied = s.lsn
	if p.engineScrubbed != nil {
		st.EngineScrub = p.engineScrubbed.Load()
	}
	if synced, _, err := p.engine.Synced(); err == nil {
		st.Synced = synced
	}
	for i := range s.schema.settings.Rules {
		r := &s.schema.settings.Rules[i]
		st.Rules = append(st.Rules, store.RuleState{
			Pipeline: r.Pipeline, Generation: r.Generation, Active: r.Active, Folds: r.Folds, Published: r.Published, Swept: r.Swept, Since: r.Since,
		})
	}
	for _, i := range s.schema.settings.Indexes {
		if i.Rule != "" {
			continue
		}
		st.Indexes = append(st.Indexes, store.IndexState{Path: i.Path, Ready: i.Ready})
	}
	if trouble := p.trouble.Load(); trouble != nil {
		st.Refusing = trouble.Message
	}
	return &store.Response{Status: st}
}

// inScope checks an index's candidate against the item: entries may be stale or
// shared by values that were too long to keep whole.
func inScope(s *schema, scope *store.Scope, body []byte) bool {
	if scope.Index == "" {
		return true
	}
	index, refusal := s.index(scope.Index)
	if refusal != nil {
		return false
	}
	found := false
	document.Walk(body, index.Path, func(raw []byte, _ int) bool {
		found = document.Equal(raw, scope.Value)
		return !found
	})
	return found
}

// notifier wakes everybody who waits for the next change.
type notifier struct {
	mu   sync.Mutex
	ch   chan struct{}
	done bool
}

// wait returns a channel that is closed at the next notify.
func (n *notifier) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
		if n.done {
			close(n.ch)
		}
	}
	return n.ch
}

func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil && !n.done {
		close(n.ch)
		n.ch = nil
	}
}

// close wakes everybody for good.
func (n *notifier) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.done && n.ch != nil {
		close(n.ch)
	}
	n.done = true
	n.ch = nil
}

func (n *notifier) closed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.done
}

// scopeItems returns the items of a scope behind an item key, in item order, as
// the engine's snapshot shows them. The items are views, valid until the next.
func scopeItems(snap *engine.Snapshot, s *schema, scope *store.Scope, after []byte) (iter.Seq2[*engine.View, error], *store.Error) {
	switch {
	case scope.Index != "":
		index, refusal := s.index(scope.Index)
		if refusal != nil {
			return nil, refusal
		}
		if len(scope.Value) == 0 {
			return nil, store.Refuse(store.StatusBadRequest, "a scope on index %s names a value", scope.Index)
		}
		return snap.IndexItems(index.Number, scope.Value, after), nil
	case !scope.Key.IsZero():
		return snap.Items(after, engine.LogicalPrefix(scope.Key)), nil
	}
	return snap.Items(after, nil), nil
}
