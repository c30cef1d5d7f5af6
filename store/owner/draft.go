package owner

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/query"
)

// call is one request on its way through the owner.
type call struct {
	req        *store.Request
	handler    *handler
	about      string               // what it asks for; see Held
	conditions map[string]condition // of patches, by their texts
	done       chan *store.Response // holds one; the answer is given once
	changes    int                  // that it makes; the decider sets it, before the answer
	state      atomic.Int32         // one of the following
}

// What becomes of a call in the queue, once.
const (
	callWaits     = iota
	callTaken     // by the decider, which answers it
	callWithdrawn // by its caller: nothing of it happens
)

// take tells whether the decider is to decide the call. Once taken it may be taken again.
func (c *call) take() bool {
	return c.state.CompareAndSwap(callWaits, callTaken) || c.state.Load() == callTaken
}

// withdraw takes the call back, if the decider has not taken it. What it asks for is let go at
// once: the queue, which is bounded by a number, may hold thousands whose callers have gone.
func (c *call) withdraw() bool {
	if !c.state.CompareAndSwap(callWaits, callWithdrawn) {
		return false
	}
	c.req, c.conditions = nil, nil
	return true
}

func newCall(r *store.Request, h *handler) *call {
	return &call{req: r, handler: h, about: h.about(r), conditions: readConditions(r), done: make(chan *store.Response, 1)}
}

func (c *call) answer(r *store.Response) { c.done <- r }

// reply is an answer that waits for the commit on which it rests.
type reply struct {
	call *call
	resp *store.Response
}

// draft is a commit while it is being decided, with the answers that rest on it.
// A draft of refusals alone has no transactions and is never appended: it only
// waits for the commits before it, on which the refusals may rest.
type draft struct {
	lsn        feed.LSN // that it will have
	generation uint64   // of the decider's state; see Partition.generation
	time       int64
	txns       []feed.Transaction
	replies    []reply
	changes    int
	bytes      int
	pages      int
	trimmed    feed.LSN // the trim point that it raises to; 0 if it raises none
	applied    func()   // called when it is applied, before anything behind it is; nil: nobody waits for that
	ends       error    // the term, because nothing is appended behind it to the log's stream; nil if more is
}

// empty says that the draft has nobody to answer and nothing to append.
func (d *draft) empty() bool { return len(d.txns) == 0 && len(d.replies) == 0 }

// decided returns the LSN of the last commit on which a decision may rest that leaves with the draft: the draft's own, if
// it has something to append, else the one before it.
func (d *draft) decided() feed.LSN {
	// Nobody is told of a commit that will not be. The answers of a draft leave when its commit, and all before it, are in
	// the log; if one of these is not appended, the generation moves, and all that rest on it are answered otherwise:
	//
	//	42 is appended, in the draft: create A, refuse A    the draft has a commit: the refusal tells 43
	//	42 is appended, in the draft: refuse B              it has none, and may never get one: it tells 42
	if len(d.txns) == 0 {
		return d.lsn - 1
	}
	return d.lsn
}

// transactionOverhead is what a transaction costs in a commit beside its
// changes, trace context and producer included.
const transactionOverhead = 512 + traceParentMax + traceStateMax

// What of a trace context a commit takes. The W3C's recommendation has a traceparent of 55 bytes, and asks
// to pass on 512 of a tracestate; a client may send 64 KiB of it.
const (
	traceParentMax = 64
	traceStateMax  = 512
)

// commitOverhead is what a commit costs beside its transactions.
const commitOverhead = 4096

// fits says whether t leaves the draft a commit that always applies.
func (d *draft) fits(t *txn) bool {
	return d.bytes+t.bytes+transactionOverhead+commitOverhead <= store.CommitBytesMax
}

// add takes over a decided transaction and makes it visible to later decisions.
func (d *draft) add(t *txn, r *store.Request) {
	tx := feed.Transaction{
		IdempotencyKey: t.idemKey, Effect: t.effect, Page: t.page, Control: t.control, Folds: t.foldRecords(), Changes: t.changes,
	}
	if r != nil && len(r.TraceParent) <= traceParentMax {
		if tx.TraceParent = r.TraceParent; len(r.TraceState) <= traceStateMax {
			tx.TraceState = r.TraceState
		}
	}
	d.txns = append(d.txns, tx)
	d.changes += len(t.changes)
	d.bytes += t.bytes + transactionOverhead
	t.pending.merge(t.lsn, t)
}

func (d *draft) reply(c *call, resp *store.Response) { d.replies = append(d.replies, reply{c, resp}) }

// refuse answers a call when the commits on which the refusal may rest are
// resolved.
func (d *draft) refuse(c *call, refusal *store.Error) { d.reply(c, &store.Response{Err: refusal}) }

// commit is the draft in the log's form, behind what was applied last.
func (d *draft) commit(log feed.LogID, last *applied, epoch uint64, owner string) *feed.Commit {
	c := &feed.Commit{
		Log: log, Prev: last.sum, Epoch: epoch, Owner: owner, Time: d.time, Transactions: d.txns, LSN: d.lsn,
		// Every commit repeats the trim point: whoever has the log's end knows it.
		Trimmed: max(last.schema.trimmed(), d.trimmed),
	}
	_, _ = rand.Read(c.ID[:]) // crypto/rand.Read never fails
	return c
}

// answer answers the draft's callers as was decided.
func (d *draft) answer() {
	for _, r := range d.replies {
		r.call.answer(r.resp)
	}
}

// fail answers the draft's callers with one error.
func (d *draft) fail(e *store.Error) {
	for _, r := range d.replies {
		r.call.answer(&store.Response{Err: e})
	}
}

// conditionTime bounds the evaluation of all conditions of one request: the other
// writes of the partition wait for it. It may be a time, which no replay can repeat,
// because a refusal is not in the log: what the log has is what was decided.
const conditionTime = 100 * time.Millisecond

// condition is the condition of a patch, or why it is none.
type condition struct {
	expr   *query.Expr
	system bool // it reads properties that no item holds; see store.AppendSystem
	err    error
}

// readConditions reads the conditions of a request, by their texts; nil if there are
// none. It is done before the decider has the request: a long text takes its time.
func readConditions(r *store.Request) map[string]condition {
	if r.Transact == nil {
		return nil
	}
	var all map[string]condition
	for i := range r.Transact.Ops {
		text := r.Transact.Ops[i].Condition
		if _, known := all[text]; known || text == "" {
			continue
		}
		if all == nil {
			all = map[string]condition{}
		}
		all[text] = compileCondition(text)
	}
	return all
}

func compileCondition(text string) condition {
	e, err := readCondition(text)
	if err != nil {
		return condition{err: err}
	}
	c := condition{expr: e}
	for _, path := range e.Paths() {
		switch {
		case len(path) == 0:
		case path[0] == "_rid" || path[0] == "_self":
			return condition{err: fmt.Errorf("it reads %s, which is not known here; ask for the item by its id", path[0])}
		default:
			c.system = c.system || store.IsSystemProperty(path[0])
		}
	}
	return c
}

// conditionHead is "from ALIAS where" before a predicate, and the alias. Names and white space are those of the
// language.
var conditionHead = regexp.MustCompile(`(?i)^([\s\pZ]*from[\s\pZ]+([\pL_$][\pL\p{Nd}_$]*)[\s\pZ]+where)(?:[^\pL\p{Nd}_$]|$)`)

// readCondition reads a predicate, or "from ALIAS where PREDICATE" as the SDKs send it.
func readCondition(text string) (*query.Expr, error) {
	alias := "c"
	if head := conditionHead.FindStringSubmatch(text); head != nil {
		text, alias = text[len(head[1]):], head[2]
	}
	return query.ParseExprAs(text, alias)
}

// checkCondition refuses a patch whose condition an item does not satisfy, or that takes too
// long to tell.
func (t *txn) checkCondition(op *store.Operation, current *engine.Item) *store.Error {
	if op.Condition == "" {
		return nil
	}
	c := t.conditions[op.Condition]
	if c.err != nil {
		return store.Refuse(store.StatusBadRequest, "condition: %v", c.err)
	}
	began, body := time.Now(), current.Body
	if c.system {
		body = store.AppendSystem(nil, body, "", "", store.ETag(current.Position), current.Modified)
	}
	holds, err := c.expr.Holds(body, began.Add(conditionTime-t.conditionTook))
	t.conditionTook += time.Since(began)
	switch {
	case errors.Is(err, query.ErrTooMuch):
		return store.Refuse(store.StatusBadRequest,
			"condition: it was not decided within %s for item %q of %d bytes, and other writes wait for it; nothing was changed. "+
				"Ask for less: a shorter regular expression or list, a smaller item, or read the item and patch it by its etag",
			conditionTime, op.ID, len(current.Body))
	case err != nil:
		return store.Refuse(store.StatusBadRequest, "condition: %v", err)
	case !holds:
		return store.Refuse(store.StatusPreconditionFailed, "item %q does not satisfy the condition %s", op.ID, document.Excerpt(op.Condition, 200))
	}
	return nil
}
