package owner

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/heat"
)

// decider decides requests in arrival order against the engine's state and what
// was already decided, and hands commits to the committer. One goroutine runs
// it and owns all of its fields; others reach them by onDecider.
type decider struct {
	p *Partition

	// Where the log will be when all that was decided is in it.
	generation uint64 // of Partition.generation, that it rests on
	schema     *schema
	next       feed.LSN // of the draft
	time       int64    // of the last draft

	split splitRecord

	// What decisions see.
	snap    *engine.Snapshot // nil while nothing is to be decided
	snapLSN feed.LSN
	pending *overlay
	cache   *ruleCache
	applied *schema // by which cache was read

	// What leaves next.
	deciding  *call // at hand: taken from its queue, and not in the draft yet
	draft     *draft
	began     time.Time // when the draft's first request was decided
	postponed *call     // did not fit into the draft
	sincePage int       // commits handed over since the last page
	busyUntil time.Time
	expiry    *time.Timer
	stays     map[string]int64 // expired items that no commit takes, by item keys: when each is tried again
}

// run decides until ctx ends. What was decided and not handed over is answered
// as not having happened.
func (d *decider) run(ctx context.Context) {
	defer d.close()
	defer func() {
		if wrong := d.p.engine.Caught(recover()); wrong != nil && d.deciding != nil {
			d.deciding.answer(&store.Response{Err: d.p.rebuilding(wrong)})
		}
	}()
	d.reset()
	d.expiry = time.NewTimer(d.p.cfg.ExpiryInterval)
	defer d.expiry.Stop()
	for {
		// Before the select, which takes any of the channels that are ready: with an idle
		// committer the draft would leave while others wait in the queue.
		d.takeWaiting()
		// A nil channel is never ready. in and pages are nil while the draft has no room,
		// out while there is nothing to hand over. out is ready as soon as the committer
		// has answered its last commit; what arrives until then joins the draft:
		//
		//	append of 4 ms, a request each 0.2 ms    20 requests a commit
		//	append of 4 ms, a request each 10 ms     1 request a commit, at once
		//
		// A timer that waits for company would only add to the second line.
		in, pages := d.sources()
		tasks := d.p.deciderTasks
		if d.draft.ends != nil {
			tasks = nil // no draft is behind it, and nothing joins it: what ends a log is its last word
		}
		var out chan *draft
		if d.draft.empty() {
			d.releaseSnapshot()
		} else {
			out = d.p.commits
		}
		select {
		case c := <-in:
			d.decide(c)
		case c := <-pages:
			d.decide(c)
		case out <- d.draft:
			d.handedOver()
		case <-d.expiry.C:
			d.occupy("the expiry of items")
			if d.draft.ends == nil {
				d.expire()
			}
			d.unoccupy()
			d.heartbeat()
			d.expiry.Reset(d.p.cfg.ExpiryInterval)
		case f := <-tasks:
			d.occupy("a change of settings, or the targets of an aggregate")
			f(d)
			d.unoccupy()
		case <-ctx.Done():
			return
		}
	}
}

// takeWaiting decides what waits already, so that it leaves in one commit; in more than one if a committer that is
// idle can begin with what is ripe.
func (d *decider) takeWaiting() {
	if d.postponed != nil && d.draft.empty() {
		c := d.postponed
		d.postponed = nil
		d.decide(c)
	}
	for d.postponed == nil && !d.full() {
		select {
		case c := <-d.p.queue:
			d.decide(c)
		default:
			return
		}
		if !d.ripe() {
			continue
		}
		select {
		case d.p.commits <- d.draft:
			d.handedOver()
			return // others than the queue have their turn
		default: // the committer is busy; the draft grows
		}
	}
}

// ripe says that the draft took as long to decide as the last append took. Then a committer that is idle gets it,
// though others wait to be decided: the two work beside each other, where they would take turns if each draft held
// all that wait. With 64 clients, 40 µs to decide a request and 1.3 ms to append and apply:
//
//	all that wait   decide 64 ─▶ append 64 ─▶ decide 64 ─▶ append 64     3.9 ms for 64
//	what is ripe    decide 32 ─▶ decide 32 ─▶ decide 32 ─▶ decide 32     2.6 ms for 64
//	                             append 32    append 32    append 32
//
// A fixed number of requests would not do. Where a sync takes long, two commits in place of one halve the rate; there
// all that wait are decided before the time of an append has passed, and leave in one.
func (d *decider) ripe() bool {
	return !d.draft.empty() && time.Since(d.began) >= time.Duration(d.p.appendTook.Load())
}

// sources returns the channels from which the draft may take more. Fan-outs
// come when no client waits, or when enough commits have passed without them.
func (d *decider) sources() (in, pages chan *call) {
	if d.postponed != nil || d.full() {
		return nil, nil
	}
	// One page a commit: a client's write waits for one page at most. And a fan-out tells by the
	// LSN of a page whether it was the first of its version (cascade.FanOut).
	// None between a new time to live and its applying: see expireBefore.
	if d.draft.pages == 0 && (len(d.p.queue) == 0 || d.sincePage >= d.p.cfg.PageShare) &&
		d.schema.settings.TTL == d.p.state.Load().schema.settings.TTL {
		pages = d.p.pages
	}
	return d.p.queue, pages
}

func (d *decider) full() bool {
	return d.draft.ends != nil || d.draft.changes >= d.p.cfg.CommitItemsMax || d.draft.bytes >= store.CommitBytesMax/2
}

func (d *decider) handedOver() {
	// A draft of refusals is never appended and takes no LSN.
	if len(d.draft.txns) > 0 {
		d.next++
		d.time = d.draft.time
		d.sincePage++
	}
	d.begin()
}

// begin starts the next draft.
func (d *decider) begin() {
	d.draft = &draft{lsn: d.next, generation: d.generation, time: max(d.time, d.p.now())}
	d.abandonLateSplit()
}

// reset takes the applied state as the truth: at first, and after an append that
// did not happen took all later decisions with it.
func (d *decider) reset() {
	d.generation = d.p.generation.Load()
	applied := d.p.state.Load()
	d.next, d.time, d.schema = applied.lsn+1, applied.time, applied.schema
	d.pending = newOverlay()
	d.cache.clear()
	d.refresh(true)
	d.findSplit()
	d.begin()
}

// refresh renews the snapshot when commits were applied since, and forgets from
// the overlay what the new one shows.
func (d *decider) refresh(force bool) {
	state := d.p.state.Load()
	applied := state.lsn
	if !force && applied == d.snapLSN && d.snap != nil {
		return
	}
	if d.snap != nil {
		d.snap.Close()
	}
	// The state was loaded first, so the snapshot is as new or newer, and the overlay loses
	// no more than the snapshot is sure to have:
	//
	//	state 41, snapshot with 42    prune to 41; 42 stays in the overlay too, and agrees
	//	snapshot with 41, state 42    prune to 42 would lose what the snapshot has not
	d.snap = d.p.engine.Snapshot()
	d.snapLSN = applied
	d.pending.prune(applied, d.cache)
	if d.applied != state.schema {
		d.applied = state.schema
		d.cache.clear()
	}
}

// releaseSnapshot lets go of the snapshot while nothing is to be decided: what an open one
// sees cannot be freed on disk.
func (d *decider) releaseSnapshot() {
	if d.snap != nil {
		d.snap.Close()
		d.snap = nil
	}
}

// dropLost drops what rested on an append that did not happen.
func (d *decider) dropLost() {
	// The committer moves the generation when an append did not happen. What was decided
	// since rests on what is not so: an etag that was never given, an id that is free.
	if d.generation == d.p.generation.Load() {
		return
	}
	lost := d.draft
	d.reset()
	for _, r := range lost.replies {
		r.call.answer(&store.Response{Err: errNotAppended})
	}
}

var errNotAppended = &store.Error{
	Status: store.StatusUnavailable, RetryAfter: 250 * time.Millisecond,
	Message: "the log could not be written; nothing was changed",
}

// view returns what the next decision sees.
func (d *decider) view() *view {
	d.dropLost()
	d.refresh(false)
	if d.draft.empty() {
		d.draft.time = max(d.time, d.p.now())
		d.began = time.Now()
	}
	return &view{schema: d.schema, snap: d.snap, pending: d.pending, cache: d.cache, lsn: d.draft.lsn, now: d.draft.time, level: d.p.cfg.level.Level()}
}

// decide decides one request. Its answer leaves with the draft, for it may rest
// on decisions that are not durable yet.
func (d *decider) decide(c *call) {
	if !c.take() {
		return
	}
	d.occupy(c.about)
	defer d.unoccupy()
	span := d.p.heat.Begin(heat.Write, !single(c.req))
	d.deciding = c
	t, decided := d.decideNow(c)
	d.deciding = nil
	if decided {
		if t != nil {
			c.changes = len(t.changes)
		}
		d.p.measure(span, c.req, t)
	}
}

// decideNow decides a request, or postpones it. It returns the transaction that it makes; nil if
// it makes none.
func (d *decider) decideNow(c *call) (made *txn, decided bool) {
	v := d.view()
	if refusal := d.p.refusing(); refusal != nil {
		d.draft.refuse(c, refusal)
		return nil, true
	}
	// What rules make of a page comes on top of what the page writes, and is known only
	// when it is decided. A page of nine orders whose customers have 800 KB each is 7 MB
	// with them: it is thrown away and decided again with four, which fit. One order whose
	// customers are too much by themselves is refused, as an item that would be too large is,
	// and the page ends behind it. Refusing the page was tried; the fan-out then never ended, for
	// the next page was the same one.
	var excess *excessCopy
	for pageItems := pageItemsLimit; ; {
		t := newTxn(v, d.draft)
		t.conditions, t.excess = c.conditions, excess
		resp, write := c.handler.decide(d, t, c.req, pageItems)
		if !write {
			d.draft.reply(c, resp)
			return nil, true
		}
		if refusal := d.applyRules(t); refusal != nil {
			d.draft.refuse(c, refusal)
			return nil, true
		}
		if d.draft.fits(t) {
			d.draft.add(t, c.req)
			d.draft.reply(c, resp)
			return t, true
		}
		if !d.draft.empty() {
			d.postponed = c // the draft leaves first
			return nil, false
		}
		switch page := resp.PatchMany; {
		case page == nil || t.copied == nil:
			refusal := store.Refuse(store.StatusTooLarge,
				"the transaction needs about %d bytes in the log, what it replaces included; at most %d are allowed", t.bytes, store.CommitBytesMax)
			if c.req.Transact != nil { // pipelines have no sessions
				refusal = t.rests(refusal)
			}
			d.draft.refuse(c, refusal)
			return nil, true
		case page.Patched > 1:
			pageItems = page.Patched / 2 // what follows from rules was too much
		default:
			// It ends: whatever is too much next comes before this item, where the page ends.
			excess = &excessCopy{t.copied, store.Refuse(store.StatusTooLarge,
				"the copy, with what aggregates make of it, needs about %d bytes in the log, what it replaces included; at most %d are allowed",
				t.bytes, store.CommitBytesMax)}
		}
	}
}

// expiryMax bounds the expiries of one round.
const expiryMax = 1000

// expiryPause is when an expired item that no commit takes is tried again: what rules make of
// its delete shrinks only when somebody writes its targets.
const expiryPause = 10 * time.Minute

// expire decides the deletes of items whose time has passed.
func (d *decider) expire() {
	if d.schema.engine.DefaultTTL == nil || d.p.refusing() != nil {
		return
	}
	v := d.view()
	refs, err := d.expired(v)
	if err != nil {
		d.p.log.Error("look for expired items", "partition", d.p.id.String(), "error", err)
		return
	}
	// What rules add to the deletes of all of them may be too much for one commit. Then half
	// of them are tried; the rest follows in the next round.
	for n := len(refs); n > 0; n /= 2 {
		t, refusal := d.expireSome(v, refs[:n])
		switch {
		case refusal == nil && len(t.changes) == 0:
			return
		case refusal == nil && d.draft.fits(t):
			d.draft.add(t, nil)
			return
		case refusal == nil && !d.draft.empty():
			return // it leaves first
		case n == 1:
			d.stay(refs[0], t, refusal)
		}
	}
}

// expired returns the items whose time has passed, earliest first, without those of which it
// is known that no commit takes their deletes.
func (d *decider) expired(v *view) ([]engine.ItemRef, error) {
	// The earliest come first, so these few would be before all others in every round:
	//
	//	o1 (its four customers are 8 MB)  o2  o3    halved: o1 o2, then o1 alone, which does not fit
	//	the next round, without o1                  o2 o3
	refs, err := v.snap.Expired(v.now, expiryMax+len(d.stays))
	if err != nil || len(d.stays) == 0 {
		return refs, err
	}
	now, still := d.p.now(), map[string]int64{}
	refs = slices.DeleteFunc(refs, func(ref engine.ItemRef) bool {
		key := string(engine.ItemKey(ref.Key, ref.ID))
		again, stays := d.stays[key]
		if stays {
			still[key] = again
		}
		return stays && now < again
	})
	d.stays = still // without those that are gone
	return refs[:min(len(refs), expiryMax)], nil
}

// stay lets an expired item be whose delete cannot be part of any commit now.
func (d *decider) stay(ref engine.ItemRef, t *txn, refusal *store.Error) {
	key := string(engine.ItemKey(ref.Key, ref.ID))
	if _, told := d.stays[key]; !told {
		reason := "with what rules make of its delete it does not fit into a commit"
		if refusal != nil {
			reason = refusal.Message
		}
		d.p.log.Error("an expired item stays for now; others go", "item", store.ItemRef{Key: ref.Key, ID: ref.ID}.String(),
			"reason", reason, "bytes", t.bytes)
	}
	if d.stays == nil {
		d.stays = map[string]int64{}
	}
	d.stays[key] = d.p.now() + expiryPause.Milliseconds()
}

// expireSome decides the deletes of some items.
func (d *decider) expireSome(v *view, refs []engine.ItemRef) (*txn, *store.Error) {
	t := newTxn(v, d.draft)
	for _, ref := range refs {
		itemKey := engine.ItemKey(ref.Key, ref.ID)
		item, err := t.get(ref.Key, ref.ID, itemKey)
		if err == nil && item != nil && expired(item, v.now) {
			t.remove(itemKey, item, feed.OpExpire)
		}
		if t.bytes > pageBytesMax {
			break
		}
	}
	return t, d.applyRules(t)
}

// heartbeat tells the lease that both goroutines make progress: this one, and the committer if
// it is free. A busy committer reports progress itself after its commit.
func (d *decider) heartbeat() {
	// Only the committer reports for the committer: one that hangs in an append does not take
	// the task, and then the lease hears of no progress and passes on.
	select {
	case d.p.committerTasks <- func(c *committer) { c.p.lease.Progress() }:
	default:
	}
}

func (d *decider) close() {
	if d.snap != nil {
		d.snap.Close()
	}
	closing := &store.Response{Err: d.p.closing()}
	for _, r := range d.draft.replies {
		r.call.answer(closing)
	}
	if d.postponed != nil {
		d.postponed.answer(closing)
	}
}
