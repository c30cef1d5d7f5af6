package store

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

// OpKind is what an Operation does.
type OpKind uint8

// The kinds of operations.
const (
	OpCreate OpKind = iota + 1
	OpRead
	OpReplace
	OpUpsert
	OpDelete
	OpPatch
)

func (k OpKind) String() string {
	switch k {
	case OpCreate:
		return "create"
	case OpRead:
		return "read"
	case OpReplace:
		return "replace"
	case OpUpsert:
		return "upsert"
	case OpDelete:
		return "delete"
	case OpPatch:
		return "patch"
	}
	return "unknown"
}

// Operation is one step of a transaction.
type Operation struct {
	Kind OpKind
	// ID names the item; for create and upsert it may be empty and is then taken
	// from Body.
	ID   string
	Body []byte // of create, replace and upsert
	// Patch are the operations of a patch, at most PatchOpsMax.
	Patch []document.Op
	// Condition is a predicate of the SQL dialect (with or without "from c where")
	// that must be true of the item for a patch; else 412.
	Condition string
	// IfMatch must be the item's ETag for replace, upsert, patch and delete; else 412.
	IfMatch ETag
	// IfNoneMatch answers a read of an unchanged item with 304. A create must not find an item, so
	// there any ETag says no more than that its failure is 412, and that of a unique key is still 409. Of an upsert any ETag says that
	// IfMatch is asked of an item that is there: where there is none, it is created, as in Cosmos DB.
	IfNoneMatch ETag
}

// Transact runs operations on one logical partition in order, all or nothing.
// A single operation is a transaction of one.
type Transact struct {
	Key feed.PartitionKey
	Ops []Operation
	// Batch says that a client asked for a transactional batch: its results are
	// statuses of each operation even if only one fails.
	Batch bool
	// IdempotencyKey, at most 128 bytes, makes it safe to send the same
	// transaction again: the log remembers it for an hour of its own time, and a
	// repetition is answered as the first was, without bodies.
	IdempotencyKey string
	// RemoteKey becomes the IdempotencyKey if the transaction leaves the process, because an
	// answer can get lost on the way. A transaction that its own process carries out needs no
	// key, which saves a record in the log and in the engine. RemoteKey itself is not sent.
	RemoteKey string
	// Guarded has the owner refuse the transaction with 412 if it has decided anything about the logical partition behind the
	// commit at Since; 0 asks for nothing but an LSN to begin with: all up to that one is applied when the answer comes, so that
	// every read which is sent then sees it. A guarded transaction may be without operations, and has up to GuardedOpsMax. It
	// takes feature level featurelevel.Scripts.
	Guarded bool
	Since   feed.LSN
}

// TransactResult holds a result for each operation. If Failed, the operation
// that failed has its own status, the others 424, and nothing happened.
type TransactResult struct {
	// LSN is that of the commit, or of the state on which an answer rests that needed none: one of reads alone, or a
	// refusal (see Error.LSN). It is what a session has seen.
	LSN     feed.LSN
	Failed  bool
	Results []OpResult
}

// OpResult is the outcome of one Operation.
type OpResult struct {
	Status  Status
	Message string // of a refusal
	Item    Item   // as the operation left it (or read it); no Body after delete
}

// transactKind carries the name of a batch; a single operation goes by its own.
var transactKind = kind{
	name: "batch", once: true, mayRead: true,
	asked:        func(r *Request) bool { return r.Transact != nil && !r.Transact.Guarded },
	writes:       func(r *Request) bool { return !r.Transact.readOnly() },
	encode:       func(w *wireWriter, r *Request) { w.transact(r.Transact) },
	decode:       func(d *wireReader, r *Request) { r.Transact = d.transact(BatchOpsMax) },
	encodeAnswer: encodeTransactResult,
	decodeAnswer: decodeTransactResult,
}

// guardedKind is a transaction that names the LSN behind which nothing may have been decided about its logical partition.
var guardedKind = kind{
	name: "guarded batch", once: true, mayRead: true,
	asked:  func(r *Request) bool { return r.Transact != nil && r.Transact.Guarded },
	writes: func(r *Request) bool { return !r.Transact.readOnly() },
	encode: func(w *wireWriter, r *Request) {
		w.uint(uint64(r.Transact.Since))
		w.transact(r.Transact)
	},
	decode: func(d *wireReader, r *Request) {
		since := feed.LSN(d.uint())
		r.Transact = d.transact(GuardedOpsMax)
		r.Transact.Guarded, r.Transact.Since = true, since
	},
	encodeAnswer: encodeTransactResult,
	decodeAnswer: decodeTransactResult,
}

func encodeTransactResult(w *wireWriter, r *Response) {
	w.uint(uint64(r.Transact.LSN))
	w.bool(r.Transact.Failed)
	w.uint(uint64(len(r.Transact.Results)))
	for i := range r.Transact.Results {
		res := &r.Transact.Results[i]
		w.uint(uint64(res.Status))
		w.str(res.Message)
		w.item(&res.Item)
	}
}

func decodeTransactResult(d *wireReader, r *Response) {
	r.Transact = &TransactResult{LSN: feed.LSN(d.uint()), Failed: d.bool()}
	r.Transact.Results = make([]OpResult, d.count())
	for i := range r.Transact.Results {
		r.Transact.Results[i] = OpResult{Status: Status(d.uint()), Message: d.str(), Item: d.item()}
	}
}

// single returns the operation of a request that is not a batch; nil if it is none.
func (r *Request) single() *Operation {
	if t := r.Transact; t != nil && len(t.Ops) == 1 && !t.Batch {
		return &t.Ops[0]
	}
	return nil
}

// keyed returns r with its RemoteKey in force, if it has one.
func (r *Request) keyed() *Request {
	if r.Transact == nil || r.Transact.RemoteKey == "" || r.Transact.IdempotencyKey != "" || r.Transact.readOnly() {
		return r
	}
	sent, t := *r, *r.Transact
	t.IdempotencyKey = t.RemoteKey
	sent.Transact = &t
	return &sent
}

// key is the idempotency key of a write; "" of one without, and of what is no transaction.
func (r *Request) key() string {
	if r.Transact == nil || r.Transact.readOnly() {
		return ""
	}
	return r.Transact.IdempotencyKey
}

// HashKey is the hash of an idempotency key by which an owner tells that a write is under way; see PartitionStatus.
func HashKey(key string) uint64 { return xxhash.Sum64String(key) }

// RefuseBatch refuses a batch of n operations.
func RefuseBatch(n int) *Error {
	return Refuse(StatusBadRequest, "a batch has 1 to %d operations, this one has %d", BatchOpsMax, n)
}

// RefusePatch refuses a patch of n operations.
func RefusePatch(n int) *Error {
	return Refuse(StatusBadRequest, "a patch has 1 to %d operations, this one has %d", PatchOpsMax, n)
}

// readOnly tells whether all operations are reads.
func (t *Transact) readOnly() bool {
	return !slices.ContainsFunc(t.Ops, func(op Operation) bool { return op.Kind != OpRead })
}

func (w *wireWriter) transact(t *Transact) {
	w.str(t.Key.Encoded())
	w.bool(t.Batch)
	w.str(t.IdempotencyKey)
	w.uint(uint64(len(t.Ops)))
	for i := range t.Ops {
		op := &t.Ops[i]
		w.byte(byte(op.Kind))
		w.str(op.ID)
		w.bytes(op.Body)
		w.str(op.Condition)
		w.etag(op.IfMatch)
		w.etag(op.IfNoneMatch)
		if op.Kind == OpPatch {
			w.json(op.Patch)
		}
	}
}

func (d *wireReader) transact(opsMax int) *Transact {
	t := &Transact{Key: d.key(), Batch: d.bool(), IdempotencyKey: d.str()}
	t.Ops = make([]Operation, d.countMax(opsMax, RefuseBatch))
	for i := range t.Ops {
		op := &t.Ops[i]
		if op.Kind = OpKind(d.byte()); d.readsOnly && op.Kind != OpRead {
			d.fail(errWrites)
		}
		op.ID = d.str()
		op.Body = d.bytes()
		op.Condition = d.str()
		op.IfMatch = d.etag()
		op.IfNoneMatch = d.etag()
		if op.Kind == OpPatch {
			op.Patch = d.patch()
		}
	}
	return t
}
