package store

import (
	"context"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

// Handler answers requests for the physical partitions that it owns. The owner
// implements it; a Client reaches it directly inside one process and over NATS
// between processes. Handle never returns nil and is safe for concurrent use.
type Handler interface {
	Handle(ctx context.Context, r *Request) *Response
}

// Request asks something of the owner of one physical partition. Exactly one of
// the pointers is set.
type Request struct {
	Partition   feed.Partition
	TraceParent string // W3C trace context of the asker; may be empty
	TraceState  string

	Transact  *Transact
	Read      *ReadItems
	Sources   *ReadSources
	Versions  *ReadVersions
	Query     *Query
	Scan      *Scan
	Count     *Scope
	PatchMany *PatchMany
	Repair    *Repair
	Fold      *FoldMany
	Groups    *ReadGroups
	PutRows   *PutRows
	Claims    *ReadClaims
	Status    *StatusRequest
}

// Response answers a Request. Err is set if the request as a whole was refused
// and then nothing else is.
type Response struct {
	Err       *Error
	Transact  *TransactResult
	Read      []Item // in the order asked; a missing item has a zero ETag
	ReadLSN   feed.LSN
	Sources   *SourcesResult
	Versions  []ETag // in the order asked; a missing item has a zero ETag
	Query     *QueryResult
	Scan      *ScanResult
	Count     int
	PatchMany *PatchManyResult
	Repair    *RepairResult
	Fold      *FoldResult
	Groups    *GroupsResult
	PutRows   *PutRowsResult
	Claims    *ClaimsResult
	Status    *PartitionStatus
}

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
	// IfNoneMatch answers a read of an unchanged item with 304.
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
	// transaction again: the log remembers it for Config.IdempotencyWindow and a
	// repetition is answered as the first was, without bodies.
	IdempotencyKey string
	// RemoteKey is the IdempotencyKey of a transaction that leaves the process, where
	// an answer can get lost. One that its own process carries out needs none, and the
	// log and the engine are spared the record. It is not sent.
	RemoteKey string
}

// TransactResult holds a result for each operation. If Failed, the operation
// that failed has its own status, the others 424, and nothing happened.
type TransactResult struct {
	LSN     feed.LSN // of the commit; the session token
	Failed  bool
	Results []OpResult
}

// OpResult is the outcome of one Operation.
type OpResult struct {
	Status  Status
	Message string // of a refusal
	Item    Item   // as the operation left it (or read it); no Body after delete
}

// ReadItems reads items of one physical partition in one consistent view.
type ReadItems struct {
	Refs []ItemRef
	// Settled makes the read wait until every append in flight at its arrival is
	// resolved and applied: whoever follows the change feed may have seen a
	// change before its owner applied it, and must not read what it replaced.
	Settled bool
}

// ReadVersions asks for the ETags of items of one physical partition in one
// consistent view, settled as a ReadItems can be: whoever has seen a change in
// the feed learns whether the item is still as the change left it.
type ReadVersions struct {
	Refs []ItemRef // at most ReadManyMax
}

// Scope selects items of one physical partition: those of a logical partition,
// those under a value of a declared index, or all of them.
type Scope struct {
	Key   feed.PartitionKey // zero: not by logical partition
	Index string            // declared index path such as /tags/*/id; "": not by index
	Value []byte            // the index value, a JSON scalar
}

// Scan reads a page of items in item order.
type Scan struct {
	Scope
	After    []byte // Cursor of the page before; nil begins
	ItemsMax int    // default 100, at most 1000
	BytesMax int    // default and limit 4 MiB
	Settled  bool
}

// ScanResult is one page. Cursor is nil when nothing follows.
type ScanResult struct {
	Items  []Item
	Cursor []byte
	LSN    feed.LSN // of the state that was read
}

// Field is a value at a path. A nil Value stands for an absent field.
type Field struct {
	Path  string // a.b[0].c
	Value []byte // raw JSON
}

// CopyAction is what a pipeline does to a copy.
type CopyAction uint8

// The actions of a Copy.
const (
	CopySet    CopyAction = iota + 1 // fields take the values of Set
	CopyClear                        // fields of Set go; with Each the element goes
	CopyDelete                       // the item goes (never with Each)
)

// Copy says which items hold a copy and what the copy must be.
type Copy struct {
	// Where further restricts the items, an expression of store/query; "" none.
	Where string
	// Each is the path of an array whose elements are the copies; "" if the item
	// itself holds the copy.
	Each string
	// Match are the values that the item's (or element's) fields must equal.
	Match []Field
	Set   []Field
	// Action is what is done where Match and Where hold.
	Action CopyAction
}

// PatchMany carries out one page of a fan-out in one commit. The owner keeps the
// cursor, under the producer and Source, in the log: the same request again goes
// on where the last page ended, so two may be under way at once.
type PatchMany struct {
	Producer feed.Producer
	Epoch    uint64
	// Source identifies the source item, Position the version of it that Copy
	// carries. A request with an older Position than the recorded one changes
	// nothing and is answered Superseded. A newer one goes on from the cursor with
	// the newer Copy and ends when it has come round to where it took over.
	Source   string
	Position feed.Position
	// FinishedBelow lets the owner forget records of this producer's finished
	// fan-outs whose Position lies below it.
	FinishedBelow feed.Position
	// Plant records Epoch and Position in the log and touches no item; the
	// answer's LSN is then the planting commit.
	Plant bool
	Scope Scope
	Copy  Copy
	// Digest identifies the values that Copy sets; it is written to the feed.
	Digest uint64
	// NotAfter, if set, leaves items alone that a client wrote after it.
	NotAfter feed.LSN
	// Until, if set, leaves items alone that a client wrote at a later time, in unix
	// milliseconds.
	Until int64
	// ItemsMax bounds the items patched by the page, default and limit 2000. The
	// owner makes pages smaller while clients write.
	ItemsMax int
}

// PatchManyResult is the outcome of one page.
type PatchManyResult struct {
	LSN        feed.LSN // of the page's commit, or of the last commit if it needed none
	Scanned    int      // candidates looked at
	Patched    int      // items changed
	Refused    []Refusal
	Done       bool
	Superseded bool
	Position   feed.Position // recorded
	Cursor     []byte
}

// Refusal is an item that could not take its copy.
type Refusal struct {
	Ref    ItemRef
	Status Status
	Reason string
}

// Repair sets the copies of single items, each guarded by its ETag, in one
// transaction of a producer.
type Repair struct {
	Producer feed.Producer
	Epoch    uint64
	Items    []RepairItem // at most 1000
}

// RepairItem is one guarded repair.
type RepairItem struct {
	Ref     ItemRef
	IfMatch ETag
	Copies  []Copy
}

// RepairResult holds, for each item in order, 200 if it was changed, 304 if it
// already was as it should be, 404 if it is gone, 412 if it changed since, or why
// it was refused.
type RepairResult struct {
	LSN      feed.LSN
	Statuses []Status
	Reasons  []string // "" where the status says it all
}

// StatusRequest asks an owner how a partition is.
type StatusRequest struct{}

// PartitionStatus is how a partition is.
type PartitionStatus struct {
	Owner   string       `json:"owner"`
	Epoch   uint64       `json:"epoch"`
	Log     feed.LogID   `json:"log"`
	Applied feed.LSN     `json:"applied"`
	Synced  feed.LSN     `json:"synced"` // covered by a sync of the engine
	Changes uint64       `json:"changes"`
	Indexes []IndexState `json:"indexes,omitempty"`
	Rules   []RuleState  `json:"rules,omitempty"`
	// Refusing says why writes are refused; "" if they are not.
	Refusing string `json:"refusing,omitempty"`
	// Unreadable says that reads are refused too.
	Unreadable bool `json:"unreadable,omitempty"`
	// Scrub is the last time that the whole log was read; nil if it has not been since
	// the partition was opened.
	Scrub *ScrubState `json:"scrub,omitempty"`
	// EngineScrub is the same of the engine of the owner's process.
	EngineScrub *ScrubState `json:"engineScrub,omitempty"`
	Queue       int         `json:"queue"` // requests waiting to be decided
	FanOuts     int         `json:"fanOuts"`
}

// ScrubState tells of a pass in which everything stored was read and its checksums
// compared.
type ScrubState struct {
	Ended time.Time     `json:"ended"`
	Took  time.Duration `json:"took"`
	// Commits or blocks that were read.
	Commits uint64 `json:"commits,omitempty"`
	Blocks  uint64 `json:"blocks,omitempty"`
	// Finding is what was wrong; "" if nothing was.
	Finding string `json:"finding,omitempty"`
}

// IndexState tells whether an index can be used.
type IndexState struct {
	Path  string `json:"path"`
	Ready bool   `json:"ready"`
}
