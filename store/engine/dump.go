package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/cespare/xxhash/v2"
	"github.com/dgraph-io/badger/v4"
)

// LayoutVersion is the version of keys and values (KEYS.md) that Dump shows and Load
// takes.
const LayoutVersion = 1

// DumpEntry is an entry of a partition as Dump shows it: the key without the partition's prefix, and
// the stored value.
type DumpEntry struct{ Key, Value []byte }

// State returns the state as of the snapshot.
func (s *Snapshot) State() (State, error) {
	if s.err != nil {
		return State{}, s.err
	}
	value, err := getValue(s.txn, s.keyOf(kindState))
	if err != nil || value == nil {
		return State{}, err
	}
	return decodeState(value)
}

// Dump lists all that the snapshot holds but its State, in the order of the keys. It is
// what Load makes a partition of, and what Digest is the hash of. The bytes are valid
// until the scan goes on, which ends after its first error.
//
// What it shows is to be believed only if the DB is Sound afterwards.
func (s *Snapshot) Dump() iter.Seq2[DumpEntry, error] {
	return func(yield func(DumpEntry, error) bool) {
		if s.err != nil {
			yield(DumpEntry{}, s.err)
			return
		}
		it := s.txn.NewIterator(badger.IteratorOptions{Prefix: binary.BigEndian.AppendUint32(nil, s.prefix)})
		defer it.Close()
		var e DumpEntry
		show := func(value []byte) error {
			e.Value = value
			return nil
		}
		for it.Rewind(); it.Valid(); it.Next() {
			e.Key = it.Item().Key()[prefixLen:]
			if e.Key[0] == kindState || e.Key[0] == kindSynced || e.Key[0] == kindWitness {
				continue
			}
			if err := it.Item().Value(show); err != nil {
				yield(DumpEntry{}, wrapRead(err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Digester computes a partition's Digest from its entries, added in order.
type Digester struct {
	h xxhash.Digest
	n [8]byte
}

// NewDigester returns the digester of a partition without entries.
func NewDigester() *Digester {
	d := &Digester{}
	d.h.Reset()
	return d
}

// Add adds the entry that follows.
func (d *Digester) Add(e DumpEntry) {
	d.add(e.Key)
	d.add(e.Value)
}

func (d *Digester) add(b []byte) {
	binary.LittleEndian.PutUint64(d.n[:], uint64(len(b)))
	_, _ = d.h.Write(d.n[:]) // never fails
	_, _ = d.h.Write(b)
}

// Sum returns the digest of what was added.
func (d *Digester) Sum() uint64 { return d.h.Sum64() }

// loadBytes bounds what Load holds in memory, and writes at once.
const loadBytes = 4 << 20

// Load makes the partition what Dump has shown of another one, or of itself at another
// time: state is that of the dump. What the partition held is gone. Nobody may read or
// write it meanwhile.
//
// The state is written last. Whatever ends Load before, an error of entries, a crash or
// Close, leaves the partition empty, and as if it had never been written. The error is
// that of entries, or has the cause ErrCorrupt if one of them is none of an engine with
// this LayoutVersion.
func (p *Partition) Load(state State, entries iter.Seq2[DumpEntry, error]) error {
	// What an earlier try left would stay between the keys of this one.
	if err := p.Clear(); err != nil {
		return err
	}
	err := p.load(state, entries)
	if err == nil {
		return nil
	}
	return errors.Join(err, p.Clear())
}

func (p *Partition) load(state State, entries iter.Seq2[DumpEntry, error]) error {
	l := loader{p: p}
	for e, err := range entries {
		if err == nil {
			err = l.add(e)
		}
		if err != nil {
			return err
		}
	}
	if err := l.flush(); err != nil {
		return err
	}
	p.mu.Lock()
	err := p.findLarge()
	if err == nil {
		err = p.update(func(t *tx) error { return p.setValue(t, p.key(kindState), appendState(nil, &state)) })
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("load %s: %w", p.id, err)
	}
	return nil
}

// LoadMore adds entries of a Dump, in the order of their keys, to what the partition holds:
// a dump may come in pieces. To add a piece again changes nothing. The state stays.
func (p *Partition) LoadMore(entries iter.Seq2[DumpEntry, error]) error {
	l := loader{p: p}
	chunks := false
	for e, err := range entries {
		if err == nil {
			err = l.add(e)
		}
		if err != nil {
			return err
		}
		chunks = chunks || e.Key[0] == kindChunk
	}
	if err := l.flush(); err != nil || !chunks {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.findLarge()
}

// loader writes entries of a dump, many at once.
type loader struct {
	p       *Partition
	last    []byte // key
	buf     []byte // keys and values of entries
	entries []badger.Entry
}

// add writes an entry by and by. Keys that do not ascend would make a partition whose
// digest is that of nothing.
func (l *loader) add(e DumpEntry) error {
	if len(e.Key) == 0 || !isDumped(e.Key[0]) || len(e.Value) == 0 || e.Value[0] != valueVersion && e.Value[0] != valueChunked {
		return corrupt("a dump has the key %.40x with %d bytes", e.Key, len(e.Value))
	}
	if string(e.Key) <= string(l.last) {
		return corrupt("a dump has the key %.40x behind %.40x", e.Key, l.last)
	}
	l.last = append(l.last[:0], e.Key...)
	size := prefixLen + len(e.Key) + len(e.Value)
	if len(l.buf)+size > cap(l.buf) {
		if err := l.flush(); err != nil {
			return err
		}
		if size > cap(l.buf) {
			l.buf = make([]byte, 0, max(loadBytes, size))
		}
	}
	at := len(l.buf)
	l.buf = binary.BigEndian.AppendUint32(l.buf, l.p.prefix.Load())
	l.buf = append(l.buf, e.Key...)
	split := len(l.buf)
	l.buf = append(l.buf, e.Value...)
	l.entries = append(l.entries, badger.Entry{Key: l.buf[at:split:split], Value: l.buf[split:len(l.buf):len(l.buf)]})
	return nil
}

func isDumped(kind byte) bool {
	switch kind {
	case kindChunk, kindExpiry, kindItem, kindRecord, kindUnique, kindIndex:
		return true
	}
	return false
}

// flush writes what was added. Badger has copied all of it when the transaction is
// committed, so that the memory serves again.
func (l *loader) flush() error {
	if len(l.entries) == 0 {
		return nil
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	err := l.p.update(func(t *tx) error {
		for i := range l.entries {
			if err := t.setEntry(&l.entries[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("load %s: %w", l.p.id, err)
	}
	clear(l.entries)
	l.buf, l.entries = l.buf[:0], l.entries[:0]
	return nil
}
