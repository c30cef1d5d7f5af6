package feed

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/millrace/feed/document"
)

// Op is what a change did to its item.
type Op uint8

// The operations. They are stored: their numbers do not change.
const (
	// OpCreate made an item that was not there.
	OpCreate Op = 1
	// OpReplace gave an item new content: a replace, an upsert or a patch.
	OpReplace Op = 2
	// OpDelete removed an item because a client or a pipeline asked.
	OpDelete Op = 3
	// OpExpire removed an item because its time to live had passed.
	OpExpire Op = 4
)

// String prints create, replace, delete or expire.
func (o Op) String() string {
	switch o {
	case OpCreate:
		return "create"
	case OpReplace:
		return "replace"
	case OpDelete:
		return "delete"
	case OpExpire:
		return "expire"
	}
	return "op(" + strconv.Itoa(int(o)) + ")"
}

// Change is one create, replace, delete or expiry of one item.
type Change struct {
	// Op is what happened.
	Op Op
	// Key is the partition key value, ID the item's id: together they name the
	// item inside its container.
	Key PartitionKey
	ID  string
	// After is the item as it is now; nil for a delete or an expiry.
	After []byte
	// Before is the whole item that was replaced. It is nil for a create, and
	// where Undo tells it. BeforeBody returns it in each case.
	Before []byte
	// Undo, applied to After step by step in this order, gives the item
	// before. It stands in place of Before for a patch.
	Undo []document.Splice
	// Prev is the position of the change that wrote what was replaced; zero
	// for a create.
	Prev Position
	// PrevModified is the TTL clock, in Unix milliseconds, of what was
	// replaced; zero for a create.
	PrevModified int64
	// Modified is the TTL clock of After in Unix milliseconds: the time of the
	// last client's write. A pipeline's write keeps it.
	Modified int64
	// Written is the LSN of the item's last write that was not a pipeline's.
	Written LSN
}

// BeforeBody returns the item that the change replaced, or nil if there was
// none. It applies Undo if that is how the change tells it; the error then
// names the step that does not fit After. The result may alias the change.
func (c *Change) BeforeBody() ([]byte, error) {
	if len(c.Undo) == 0 {
		return c.Before, nil
	}
	body, err := document.Undo(c.After, c.Undo)
	if err != nil {
		return nil, fmt.Errorf("item %q: %w", c.ID, err)
	}
	return body, nil
}

// Touches reports whether the change may have altered a value at a JSON pointer for which
// paths is true. With Undo it asks paths about each pointer that the patch changed;
// without Undo the answer is yes. A pointer may name a parent or a child of the value
// that the caller means: a patch of /address changes /address/city too.
func (c *Change) Touches(paths func(pointer string) bool) bool {
	if len(c.Undo) == 0 {
		return true
	}
	for i := range c.Undo {
		if paths(c.Undo[i].Path) {
			return true
		}
	}
	return false
}

// Producer names who caused a derived write. It is comparable; the zero
// Producer means none.
type Producer struct {
	// Pipeline is the pipeline's id, Generation counts the meanings it has had.
	Pipeline   string
	Generation uint32
	// Source is the partition whose feed was read, as Partition.String prints
	// it, with a role before it where a pipeline has several:
	// "check:c7k2x4ab/0".
	Source string
}

// String prints "pipeline/generation/source".
func (p Producer) String() string {
	return p.Pipeline + "/" + strconv.FormatUint(uint64(p.Generation), 10) + "/" + p.Source
}

// IsZero reports whether p names nobody.
func (p Producer) IsZero() bool { return p == Producer{} }

// Of returns the producer of a part of p's work that has a position of its own. A
// partition that refuses an epoch for p refuses it for the part too.
func (p Producer) Of(part string) Producer {
	p.Source += "@" + part
	return p
}

// Parent undoes Of: it returns the producer to which the part belongs, and the part's name.
// ok is false if p is not a part.
func (p Producer) Parent() (parent Producer, part string, ok bool) {
	p.Source, part, ok = strings.Cut(p.Source, "@")
	return p, part, ok
}

// Effect marks a transaction as a processor's write.
type Effect struct {
	Producer Producer
	// Epoch is that of the lease under which the processor worked. A target
	// refuses an epoch older than one it has seen from this producer.
	Epoch uint64
	// After and UpTo bound the interval (After, UpTo] of source positions that
	// a write that adds has folded. Both are zero for a write that sets.
	After, UpTo Position
}

// Page is the progress of a fan-out, recorded by the commit of its page.
type Page struct {
	// Source identifies the source item, Position the change of it whose value
	// the page sets.
	Source   string
	Position Position
	// Cursor is the item key at which the next page continues. Takeover is the key at which
	// the present value replaced an older one in the middle of a scan: a scan that has
	// wrapped around and reached it again is complete. Both are opaque to feed.
	Cursor, Takeover []byte
	// Wrapped says that the scan has passed its end once; Done that it is
	// complete.
	Wrapped, Done bool
	// Planted is the LSN of the commit that first recorded Position in this partition.
	Planted LSN
	// FinishedBelow is the source position below which the processor has
	// nothing left to do; records of older fan-outs may be forgotten.
	FinishedBelow Position
	// Action is what the page does to matching items; opaque to feed.
	Action uint8
	// Paths are the JSON pointers, with * for the elements of an array, that
	// the page may have set.
	Paths []string
	// Digest is that of the values that the page sets: equal digests mean
	// equal values.
	Digest uint64
}

// Control changes what decides writes, in the log itself: the first commit,
// a takeover by a new owner, settings, an index that became ready.
type Control struct {
	// Kind is "genesis", "takeover", "settings", "tombstones" or "trim".
	Kind string
	// Data is JSON, opaque to feed.
	Data []byte
}

// Fold is what a transaction changed in the state of one aggregate, in the
// partition of the transaction. It is of the transaction's own changes, unless its
// Effect names the same pipeline and generation: then it is of a delta that the
// aggregate's processor has sent, and the changes are what followed from it.
type Fold struct {
	// Pipeline and Generation name the aggregate.
	Pipeline   string
	Generation uint32
	// Records are the pieces of state as they are now. There may be none: then
	// the changes of the transaction were folded and came to nothing.
	Records []Record
}

// Record is a piece of state that a partition keeps beside its items.
type Record struct {
	// Key is unique among the records of one aggregate and generation.
	Key []byte
	// Value is opaque to feed. Nil means that the record is gone; an empty value that is
	// not nil is a value.
	Value []byte
}

// Transaction is what happens together: all of its changes or none, never
// split between commits.
type Transaction struct {
	// TraceParent and TraceState are the W3C trace context of the request that
	// wrote it; either may be empty.
	TraceParent, TraceState string
	// IdempotencyKey is the request's, so that it is answered alike when it
	// comes again; may be empty.
	IdempotencyKey string
	// Effect, Page and Control are nil where they do not apply.
	Effect  *Effect
	Page    *Page
	Control *Control
	// Folds are what the transaction changed in the state of aggregates, at most
	// one of each pipeline and generation. A change of an aggregate's source has
	// been folded by the partition's owner itself if its transaction has a Fold of
	// it and no Effect of the aggregate; otherwise the aggregate's processor folds it.
	Folds []Fold
	// Changes may be empty: a control commit and a page that found nothing to
	// change have none.
	Changes []Change
}

// Commit is one append to a physical partition's log: transactions that become
// durable together.
type Commit struct {
	// ID is random for each commit, and stays the same when its bytes are sent again.
	ID CommitID
	// Log is the log to which the commit belongs, Prev the checksum of the
	// commit before it, zero for the first.
	Log  LogID
	Prev Checksum
	// Epoch and Owner are of the lease under which the commit was decided.
	Epoch uint64
	Owner string
	// Time is when it was decided, in Unix milliseconds, never below that of
	// the commit before. Applying a commit reads no other clock.
	Time int64
	// Trimmed is the trim point of the log as of this commit: the last LSN that may be
	// gone from it, zero if none may be. It is always below the commit's own LSN, and
	// never below the trim point of the commit before.
	Trimmed      LSN
	Transactions []Transaction

	// LSN is where the commit stands in its log. It is not encoded: Log and
	// Tail set it.
	LSN LSN
	// Sum is the checksum of the encoded commit. It is not encoded:
	// AppendCommit, AppendCompressed and DecodeCommit set it.
	Sum Checksum
	// Walk is nil for a commit of a log. It is not encoded.
	Walk *Walk
}

// Walk makes a commit a part of a walk, see WalkPosition: LSN, Sum and Time are those of
// the commit as of which the items are, and its changes are creates of them.
type Walk struct {
	// First is the index of the first change; the others follow it.
	First uint32
	// Versions are the positions of the changes that wrote the items, in the order of the
	// changes.
	Versions []Position
}

// ChangeCount is the number of changes in all transactions of the commit.
func (c *Commit) ChangeCount() int {
	n := 0
	for i := range c.Transactions {
		n += len(c.Transactions[i].Changes)
	}
	return n
}
