package owner

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/heat"
)

var transactHandler = handler{
	// Most requests are a read of one item, which waits for nobody.
	read: func(_ context.Context, p *Partition, r *store.Request) *store.Response {
		if refusal := checkTransact(r.Transact); refusal != nil {
			return &store.Response{Err: refusal}
		}
		if readsOne(r) {
			return p.readOne(r.Transact)
		}
		return nil
	},
	heat: func(_ *Partition, r *store.Request, resp *store.Response) heat.Work {
		work := heat.Work{Keys: heat.Only(r.Transact.Key)}
		if resp.Transact != nil {
			work.Bytes = len(resp.Transact.Results[0].Item.Body)
		}
		return work
	},
	decide: func(d *decider, t *txn, r *store.Request, _ int) (*store.Response, bool) {
		d.busyUntil = time.Now().Add(busyFor)
		return decideTransact(t, r.Transact)
	},
	about: func(r *store.Request) string {
		switch ops := r.Transact.Ops; {
		case len(ops) == 1 && ops[0].ID != "":
			return ops[0].Kind.String() + " of item " + ops[0].ID
		case len(ops) == 1:
			return ops[0].Kind.String() + " of an item"
		}
		return "a batch"
	},
}

// checkTransact refuses what needs no state to be refused.
func checkTransact(t *store.Transact) *store.Error {
	switch n := len(t.Ops); {
	case t.Guarded && n > store.GuardedOpsMax:
		return store.Refuse(store.StatusBadRequest, "a guarded transaction has at most %d operations, this one has %d", store.GuardedOpsMax, n)
	case !t.Guarded && (n == 0 || n > store.BatchOpsMax):
		return store.RefuseBatch(n)
	}
	if len(t.IdempotencyKey) > idempotencyKeyMax {
		return store.Refuse(store.StatusBadRequest, "the idempotency key has %d bytes; at most %d are allowed", len(t.IdempotencyKey), idempotencyKeyMax)
	}
	if len(t.Ops) == 1 {
		return nil
	}
	size := 0
	for i := range t.Ops {
		size += len(t.Ops[i].Body)
	}
	if size > store.BatchBytesMax {
		return store.Refuse(store.StatusTooLarge, "the batch's items are %d bytes; at most %d are allowed", size, store.BatchBytesMax)
	}
	return nil
}

const idempotencyKeyMax = 128

// decideTransact decides a client's transaction, unless it was decided already under the
// same idempotency key.
func decideTransact(t *txn, r *store.Transact) (*store.Response, bool) {
	// Before anything is decided: the first time may have changed what would refuse the
	// second, as a create does.
	remembered, refusal := t.remembered(r)
	switch {
	case refusal != nil:
		return &store.Response{Err: t.rests(refusal)}, false
	case remembered != nil:
		return &store.Response{Transact: remembered}, false
	}
	if refusal := t.guard(r); refusal != nil {
		return &store.Response{Err: t.rests(refusal)}, false
	}
	result := t.operateAll(r)
	if result.Failed && len(r.Ops) == 1 && !r.Batch {
		res := result.Results[0]
		return &store.Response{Err: &store.Error{Status: res.Status, Message: res.Message, LSN: result.LSN}}, false
	}
	if result.Failed {
		return &store.Response{Transact: result}, false
	}
	if len(t.changes) == 0 {
		result.LSN = t.draft.decided() // reads alone get no commit
		return &store.Response{Transact: result}, false
	}
	if refusal := t.applyRulesStrictly(r, result); refusal != nil {
		return &store.Response{Err: t.rests(refusal)}, false
	}
	t.remember(r.IdempotencyKey)
	t.idemKey = r.IdempotencyKey
	return &store.Response{Transact: result}, true
}

// guard refuses a guarded transaction if anything was decided about its logical partition behind the commit that it names.
func (t *txn) guard(r *store.Transact) *store.Error {
	if !r.Guarded {
		return nil
	}
	if t.pending.recent == nil {
		// From here on it is known. What was decided before has this LSN at most.
		t.pending.recent = newRecency(t.draft.decided())
	}
	if r.Since == 0 || t.pending.recent.of(r.Key) <= r.Since {
		return nil
	}
	return store.Refuse(store.StatusPreconditionFailed, "the logical partition may have changed since LSN %d; read it again", r.Since)
}

// operateAll runs a client's operations in order against the view. The
// result says what each did; if it Failed, t must be thrown away.
func (t *txn) operateAll(r *store.Transact) *store.TransactResult {
	result := &store.TransactResult{LSN: t.lsn, Results: make([]store.OpResult, len(r.Ops))}
	size := 0
	for i := range r.Ops {
		res := &result.Results[i]
		refusal := t.operate(&r.Ops[i], r.Key, res)
		if size += len(res.Item.Body); refusal == nil && size > store.CommitBytesMax {
			refusal = store.Refuse(store.StatusTooLarge, "the batch's answer exceeds %d bytes; read less at once", store.CommitBytesMax)
		}
		if refusal != nil {
			if i > 0 { // also one of a body that is no item tells that those before it did not fail
				refusal = t.rests(refusal)
			}
			failAll(result, i, refusal)
			return result
		}
	}
	return result
}

// rests gives a refusal the LSN of the state that it was decided on.
func (t *txn) rests(refusal *store.Error) *store.Error {
	if !refusal.Status.TellsLSN() {
		return refusal
	}
	told := *refusal
	told.LSN = t.draft.decided()
	return &told
}

// failAll gives operation i its status and all others 424.
func failAll(result *store.TransactResult, i int, refusal *store.Error) {
	result.Failed = true
	result.LSN = refusal.LSN // nothing of it will be in the log
	for j := range result.Results {
		result.Results[j] = store.OpResult{Status: store.StatusFailedDependency}
	}
	result.Results[i] = store.OpResult{Status: refusal.Status, Message: refusal.Message}
}

func (t *txn) operate(op *store.Operation, key feed.PartitionKey, res *store.OpResult) *store.Error {
	id := op.ID
	var refusal *store.Error
	switch op.Kind {
	case store.OpCreate, store.OpReplace, store.OpUpsert:
		if id, refusal = t.bodyFor(op, key); refusal != nil {
			return refusal
		}
	case store.OpRead, store.OpDelete, store.OpPatch:
		if err := document.CheckID(id); err != nil {
			return store.Refuse(store.StatusBadRequest, "%v", err)
		}
	default:
		return store.Refuse(store.StatusBadRequest, "operation kind %d is not known", op.Kind)
	}
	itemKey := engine.ItemKey(key, id)
	current, err := t.get(key, id, itemKey)
	if err != nil {
		return store.Refuse(store.StatusInternal, "read item %s: %v", id, err)
	}
	// An item whose time has passed is gone, though no sweep has removed it yet. A write removes
	// it first, so that readers of the log see it end before another begins. A read leaves it,
	// since a read must not need a commit.
	if current != nil && expired(current, t.now) {
		if op.Kind != store.OpRead {
			t.remove(itemKey, current, feed.OpExpire)
		}
		current = nil
	}
	if refusal = precondition(op, id, current); refusal == nil {
		refusal = t.write(op, key, id, itemKey, current, res)
	}
	if refusal != nil {
		return t.rests(refusal)
	}
	return nil
}

// precondition checks existence and ETag:
//
//	            the item is there           it is not
//	create      409, 412 if none may be     goes on
//	upsert      goes on, or 412 by its etag goes on, or 412 if an etag is asked for and not IfNoneMatch too
//	all others  goes on, or 412 by its etag 404
func precondition(op *store.Operation, id string, current *engine.Item) *store.Error {
	switch {
	case op.Kind == store.OpCreate && current != nil && op.IfNoneMatch != (store.ETag{}):
		return store.Refuse(store.StatusPreconditionFailed, "item %q exists already in its logical partition, and the request expects that it does not", id)
	case op.Kind == store.OpCreate && current != nil:
		return store.Refuse(store.StatusConflict, "item %q exists already in its logical partition", id)
	case op.Kind == store.OpCreate || op.Kind == store.OpUpsert && current == nil && (op.IfMatch == (store.ETag{}) || op.IfNoneMatch != (store.ETag{})):
		return nil
	case op.Kind == store.OpUpsert && current == nil:
		return store.Refuse(store.StatusPreconditionFailed, "item %q does not exist, the request expects version %s", id, op.IfMatch)
	case current == nil:
		return store.Refuse(store.StatusNotFound, "item %q does not exist in its logical partition", id)
	case op.IfMatch != (store.ETag{}) && op.IfMatch != store.ETag(current.Position):
		return store.Refuse(store.StatusPreconditionFailed, "item %q is at version %s, the request expects %s; read it again",
			id, store.ETag(current.Position), op.IfMatch)
	}
	return nil
}

func (t *txn) write(op *store.Operation, key feed.PartitionKey, id string, itemKey []byte, current *engine.Item, res *store.OpResult) *store.Error {
	switch op.Kind { //nolint:exhaustive // the others store a body
	case store.OpRead:
		if op.IfNoneMatch != (store.ETag{}) && op.IfNoneMatch == store.ETag(current.Position) {
			res.Status = store.StatusNotModified
			return nil
		}
		res.Status, res.Item = store.StatusOK, itemOf(current)
		return nil
	case store.OpDelete:
		t.remove(itemKey, current, feed.OpDelete)
		res.Status = store.StatusNoContent
		res.Item = store.Item{Key: key, ID: id}
		return nil
	}
	after := &engine.Item{Key: key, ID: id, Body: op.Body}
	var undo []document.Splice
	if op.Kind == store.OpPatch {
		var refusal *store.Error
		if after.Body, undo, refusal = t.patch(op, current); refusal != nil {
			return refusal
		}
	}
	if refusal := t.put(itemKey, after, current, undo, false); refusal != nil {
		return refusal
	}
	res.Status = store.StatusOK
	if current == nil {
		res.Status = store.StatusCreated
	}
	res.Item = itemOf(after)
	return nil
}

// patch applies a client's patch to the current body.
func (t *txn) patch(op *store.Operation, current *engine.Item) ([]byte, []document.Splice, *store.Error) {
	if len(op.Patch) == 0 || len(op.Patch) > store.PatchOpsMax {
		return nil, nil, store.RefusePatch(len(op.Patch))
	}
	if refusal := t.checkCondition(op, current); refusal != nil {
		return nil, nil, refusal
	}
	for i := range op.Patch {
		pointers := []string{op.Patch[i].Path}
		if op.Patch[i].Kind == "move" {
			pointers = append(pointers, op.Patch[i].From)
		}
		for _, pointer := range pointers {
			if reason := t.schema.protected(pointer); reason != "" {
				return nil, nil, store.Refuse(store.StatusBadRequest, "patch operation %d (%s %s): %s", i, op.Patch[i].Kind, pointer, reason)
			}
		}
	}
	compiled, err := document.CompilePatch(op.Patch)
	if err != nil {
		return nil, nil, store.Refuse(store.StatusBadRequest, "patch: %v", err)
	}
	after, undo, err := compiled.Apply(current.Body)
	if tooLarge := new(document.SizeError); errors.As(err, &tooLarge) {
		return nil, nil, store.Refuse(store.StatusTooLarge, "patch: %v", err)
	}
	if err != nil {
		return nil, nil, store.Refuse(store.StatusBadRequest, "patch: %v", err)
	}
	if err := document.Check(after); err != nil {
		return nil, nil, store.Refuse(store.StatusBadRequest, "patch: the item would be: %v", err)
	}
	if refusal := t.checkTTL(after); refusal != nil {
		return nil, nil, refusal
	}
	if undo == nil {
		undo = []document.Splice{} // a patch that changed nothing still is a write
	}
	return after, undo, nil
}

func itemOf(i *engine.Item) store.Item {
	return store.Item{
		Key: i.Key, ID: i.ID, Body: i.Body, ETag: store.ETag(i.Position), Modified: i.Modified, Written: i.Written,
	}
}
