package feed

import (
	"unsafe"

	"github.com/millrace/millrace/feed/document"
)

// Bytes that each structure of a decoded commit takes in memory, beside its message.
const (
	commitBytes      = int(unsafe.Sizeof(Commit{}))
	transactionBytes = int(unsafe.Sizeof(Transaction{}))
	changeBytes      = int(unsafe.Sizeof(Change{}))
	spliceBytes      = int(unsafe.Sizeof(document.Splice{}))
	foldBytes        = int(unsafe.Sizeof(Fold{}))
	recordBytes      = int(unsafe.Sizeof(Record{}))
	effectBytes      = int(unsafe.Sizeof(Effect{}))
	pageBytes        = int(unsafe.Sizeof(Page{}))
	positionBytes    = int(unsafe.Sizeof(Position{}))
)

// Memory returns about how many bytes of memory a commit takes that DecodeCommit made: its
// message or what that was decompressed to, which byte slices alias, its structs, and its
// strings, which are copies.
// Queues and rings of commits are bounded by this and not by the size of messages, because
// a commit of small patches takes a few times the bytes of its message.
func (c *Commit) Memory() int {
	n := c.SizeMax() + commitBytes + len(c.Owner)
	if c.Walk != nil {
		n += positionBytes * len(c.Walk.Versions)
	}
	for i := range c.Transactions {
		n += transactionBytes + c.Transactions[i].memory()
	}
	return n
}

// memory is what t takes beside its message and its own struct.
func (t *Transaction) memory() int {
	n := len(t.TraceParent) + len(t.TraceState) + len(t.IdempotencyKey)
	if t.Effect != nil {
		n += effectBytes + len(t.Effect.Producer.Pipeline) + len(t.Effect.Producer.Source)
	}
	if t.Page != nil {
		n += pageBytes + len(t.Page.Source)
	}
	for i := range t.Folds {
		n += foldBytes + len(t.Folds[i].Pipeline) + recordBytes*len(t.Folds[i].Records)
	}
	for i := range t.Changes {
		ch := &t.Changes[i]
		n += changeBytes + len(ch.ID) + spliceBytes*len(ch.Undo)
		// Changes with one key share its string.
		if i == 0 || ch.Key != t.Changes[i-1].Key {
			n += len(ch.Key.enc)
		}
	}
	return n
}
