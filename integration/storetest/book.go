package storetest

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
)

// Book is where leases stand that only the test gives and takes.
type Book struct {
	mu      sync.Mutex
	entries map[processors.Resource]*entry
}

// entry is the lease of one resource.
type entry struct {
	epoch      uint64
	checkpoint []byte
}

// Take gives a lease to a new holder. The old one does not know.
func (b *Book) Take(r processors.Resource) *Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[r]
	if e == nil {
		if b.entries == nil {
			b.entries = map[processors.Resource]*entry{}
		}
		e = &entry{}
		b.entries[r] = e
	}
	e.epoch++
	return &Lease{Resource: r, book: b, epoch: e.epoch, checkpoint: e.checkpoint}
}

// Checkpoints are those that stand in the book.
func (b *Book) Checkpoints() map[processors.Resource][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[processors.Resource][]byte{}
	for r, e := range b.entries {
		all[r] = e.checkpoint
	}
	return all
}

// SetBack lets the next holders begin at other checkpoints, as a redelivery does;
// without one they begin at the beginning. Resources that it does not name stay.
func (b *Book) SetBack(checkpoints map[processors.Resource][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, checkpoint := range maps.All(checkpoints) {
		b.entries[r].checkpoint = bytes.Clone(checkpoint)
	}
}

// Lease is a holder's view of a lease.
type Lease struct {
	Resource processors.Resource

	book       *Book
	epoch      uint64
	checkpoint []byte
	dead       atomic.Bool
	beats      atomic.Int64
}

// Epoch implements processors.Lease.
func (l *Lease) Epoch() uint64 { return l.epoch }

// Checkpoint implements processors.Lease: it is that with which the holder began.
func (l *Lease) Checkpoint() []byte { return l.checkpoint }

// Progress implements processors.Lease.
func (l *Lease) Progress() { l.beats.Add(1) }

// Beats is how often the holder has said that it makes progress.
func (l *Lease) Beats() int64 { return l.beats.Load() }

// Save implements processors.Lease. It is refused after another took the lease, and
// after Die.
func (l *Lease) Save(_ context.Context, checkpoint []byte) error {
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	e := l.book.entries[l.Resource]
	if l.dead.Load() || e.epoch != l.epoch {
		return leases.ErrLost
	}
	e.checkpoint = checkpoint
	return nil
}

// Die lets no checkpoint of the holder be saved any more.
func (l *Lease) Die() { l.dead.Store(true) }
