package processors

import (
	"iter"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// Batch is a run of changes of one partition in order: whole commits, or, when a
// change that cannot be processed is looked for, a part of them. It and all that
// it refers to are shared with other processors and must not be changed.
type Batch struct {
	Partition feed.Partition
	Parts     []Part
}

// Part holds changes of one transaction, all of them unless a bad one is looked
// for.
type Part struct {
	Commit      *feed.Commit
	Transaction *feed.Transaction
	Changes     []feed.Change
	// First is the index of Changes[0] in the commit.
	First uint32
}

// ETag is the version of the item that p.Changes[i] left. It is the position of the change,
// but for an item of a walk, which was written before.
func (p *Part) ETag(i int) store.ETag {
	if w := p.Commit.Walk; w != nil {
		return store.ETag(w.Versions[p.First-w.First+uint32(i)])
	}
	return store.ETag(p.At(i))
}

// At is the position of p.Changes[i].
func (p *Part) At(i int) feed.Position {
	return feed.Position{LSN: p.Commit.LSN, Index: p.First + uint32(i)}
}

// newBatch returns the batch of whole commits. A transaction without changes has
// no part.
func newBatch(partition feed.Partition, commits []*feed.Commit) *Batch {
	b := &Batch{Partition: partition, Parts: make([]Part, 0, len(commits))}
	for _, c := range commits {
		first := firstIndex(c)
		for i := range c.Transactions {
			t := &c.Transactions[i]
			if len(t.Changes) > 0 {
				b.Parts = append(b.Parts, Part{Commit: c, Transaction: t, Changes: t.Changes, First: first})
			}
			first += uint32(len(t.Changes))
		}
	}
	return b
}

// Len is the number of changes.
func (b *Batch) Len() int {
	n := 0
	for i := range b.Parts {
		n += len(b.Parts[i].Changes)
	}
	return n
}

// Changes yields each change with its position, in order.
func (b *Batch) Changes() iter.Seq2[feed.Position, *feed.Change] {
	return func(yield func(feed.Position, *feed.Change) bool) {
		for i := range b.Parts {
			p := &b.Parts[i]
			for j := range p.Changes {
				if !yield(p.At(j), &p.Changes[j]) {
					return
				}
			}
		}
	}
}

// split returns the first and the second half of a batch of at least two changes. Positions
// stay those of the log, whatever part a change is in:
//
//	commit 7: a b c d e   ->   First 0: a b   First 2: c d e
func (b *Batch) split() (first, second *Batch) {
	first, second = &Batch{Partition: b.Partition}, &Batch{Partition: b.Partition}
	left := b.Len() / 2
	for _, p := range b.Parts {
		n := min(left, len(p.Changes))
		left -= n
		if n > 0 {
			head := p
			head.Changes = p.Changes[:n]
			first.Parts = append(first.Parts, head)
		}
		if n < len(p.Changes) {
			tail := p
			tail.Changes = p.Changes[n:]
			tail.First += uint32(n)
			second.Parts = append(second.Parts, tail)
		}
	}
	return first, second
}

// firstIndex is the index of a commit's first change.
func firstIndex(c *feed.Commit) uint32 {
	if c.Walk != nil {
		return c.Walk.First
	}
	return 0
}

// lastPosition is where a commit ends.
func lastPosition(c *feed.Commit) feed.Position {
	return feed.Position{LSN: c.LSN, Index: firstIndex(c) + uint32(max(c.ChangeCount()-1, 0))}
}
