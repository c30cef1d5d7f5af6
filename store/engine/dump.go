package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/cespare/xxhash/v2"
	"github.com/dgraph-io/badger/v4"

	"github.com/millrace/millrace/store/engine/internal/memtable"
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
	value, err := getValue(s.p.d, s.txn, s.keyOf(kindState))
	if err != nil || value == nil {
		return State{}, err
	}
	return decodeState(value)
}

// Dump lists all that the snapshot holds but its State, or of that its share (Only), in the order of the keys. It is
// what Load makes a partition of, and what Digest is the hash of. The bytes are valid
// until the scan goes on, which ends after its first error.
//
// Believe what it shows only if the DB is Sound afterwards.
func (s *Snapshot) Dump() iter.Seq2[DumpEntry, error] {
	return func(yield func(DumpEntry, error) bool) {
		if s.err != nil {
			yield(DumpEntry{}, s.err)
			return
		}
		it := s.p.d.iterate(s.txn, badger.IteratorOptions{Prefix: binary.BigEndian.AppendUint32(nil, s.prefix)})
		defer it.Close()
		var e DumpEntry
		show := func(value []byte) error {
			e.Value = value
			return nil
		}
		for it.Rewind(); it.Valid(); it.Next() {
			e.Key = it.Item().Key()[prefixLen:]
			// The state is passed on beside the dump. How far this node has synced is its own matter.
			if e.Key[0] == kindState || e.Key[0] == kindSynced || e.Key[0] == kindWitness || s.share != nil && !s.share.Holds(e.Key) {
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
	// Each behind its length: else "ab" with "c" and "a" with "bc" would have one digest.
	binary.LittleEndian.PutUint64(d.n[:], uint64(len(b)))
	_, _ = d.h.Write(d.n[:]) // never fails
	_, _ = d.h.Write(b)
}

// Sum returns the digest of what was added.
func (d *Digester) Sum() uint64 { return d.h.Sum64() }

// Digest returns a hash of items, index entries, unique entries, expiries and
// records. Two partitions that applied the same log up to the same commit have the
// same digest (while no index is being built), wherever they did it and however
// often they were interrupted. The state, which can be compared as it is, and what
// only this node knows are left out.
func (p *Partition) Digest() (uint64, error) {
	s := p.Snapshot()
	defer s.Close()
	return s.Digest()
}

// Digest is Partition.Digest of the snapshot.
func (s *Snapshot) Digest() (uint64, error) {
	d := NewDigester()
	for e, err := range s.Dump() {
		if err != nil {
			return 0, err
		}
		d.Add(e)
	}
	return d.Sum(), nil
}

// LoadOptions tell how a partition is loaded. The zero value is that of a load of which nothing
// is known, and that tells nobody how it goes.
type LoadOptions struct {
	// Bytes is how much the keys and values of all entries have together. Room for them is asked
	// for before the partition is emptied, and kept from other loads. 0 is not known: room is asked
	// for bit by bit then.
	Bytes int64

	// Reserve is how many bytes must stay free on the disk. It is at least what closing and
	// opening the DB may need.
	Reserve int64

	// Progress is called about once a second while the load waits until others have made their
	// tables, with waits set; its error ends the load. May be nil.
	Progress func(waits bool) error
}

// Load replaces all that the partition holds by what Dump has shown of another partition, or
// of this one at another time. state is that of the dump. Nobody may read or write the
// partition meanwhile. Where tables cannot be handed over (see the package comment) the entries
// are listed a second time.
//
// The state is written last. If Load ends before, by an error of entries, a crash or Close,
// the partition is left empty, as if it had never been written. The error is
// that of entries, or of a wait for other loads that ctx ended, or has the cause ErrCorrupt if
// an entry is none of an engine with this LayoutVersion. It is a *NoRoomError if the disk lacks
// room, unless there are so few entries that nobody asks; where Bytes tell so before the load, the
// partition stays as it was.
func (p *Partition) Load(ctx context.Context, state State, entries iter.Seq2[DumpEntry, error], opt LoadOptions) error {
	room, err := p.d.claim(p, &opt)
	if err != nil {
		return err
	}
	defer room.end()
	// What an earlier try left would stay between the keys of this one.
	if err := p.Clear(); err != nil {
		return err
	}
	if opt.Progress == nil {
		opt.Progress = func(bool) error { return nil }
	}
	turn := func() (end func(), err error) { return p.d.turn(ctx, opt.Progress) }
	err = p.load(state, entries, loader{p: p, room: room, turn: turn})
	if err == nil {
		return nil
	}
	return errors.Join(err, p.Clear())
}

// LoadRoom returns the *NoRoomError that Load would, without loading anything.
func (p *Partition) LoadRoom(opt LoadOptions) error {
	room, err := p.d.claim(p, &opt)
	if err == nil {
		room.end()
	}
	return err
}

// load is Load of an empty partition, with a loader that has added nothing.
func (p *Partition) load(state State, entries iter.Seq2[DumpEntry, error], l loader) error {
	byTables := l
	byTables.byTables = true
	err := byTables.load(entries)
	if errors.Is(err, errNotAdopted) {
		l.room.again()
		err = l.load(entries)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	// The entries came past setValue, which notes the keys whose values are in chunks.
	err = p.findLarge()
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
	if err := l.load(entries); err != nil || !l.chunks {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.findLarge()
}

// loader writes entries of a dump, many at once.
type loader struct {
	p        *Partition
	room     *claim                         // nil if nobody asks
	byTables bool                           // if there are more than one buffer of them
	turn     func() (end func(), err error) // waits until tables may be made

	last    []byte // key
	chunks  bool   // there were some
	buf     []byte // keys and values of entries
	entries []memtable.Write
	tables  *tables // nil until the first buffer is full
}

// load writes all entries. Of those that are written as tables none is there after an error.
func (l *loader) load(entries iter.Seq2[DumpEntry, error]) error {
	defer func() {
		if l.tables != nil {
			l.tables.close()
		}
	}()
	for e, err := range entries {
		if err == nil {
			err = l.add(e)
		}
		if err != nil {
			return err
		}
	}
	if l.tables == nil {
		return l.flush()
	}
	err := l.tables.finish()
	if err == nil {
		err = l.p.d.adopt(l.tables)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", l.p.id, err)
	}
	return nil
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
	l.chunks = l.chunks || e.Key[0] == kindChunk
	if l.tables != nil {
		return l.tables.add(e)
	}
	size := prefixLen + len(e.Key) + len(e.Value)
	// buf never grows by append: the entries that wait point into it.
	if len(l.buf)+size > cap(l.buf) {
		if l.byTables && len(l.entries) > 0 {
			return l.turnToTables(e)
		}
		// A dump of one buffer takes no more than commits do beside it.
		if err := l.room.ask(2 * int64(len(l.buf))); err != nil {
			return err
		}
		if err := l.flush(); err != nil {
			return err
		}
		if size > cap(l.buf) {
			l.buf = make([]byte, 0, max(l.p.d.loading.bufferBytes, size))
		}
	}
	at := len(l.buf)
	l.buf = binary.BigEndian.AppendUint32(l.buf, l.p.prefix.Load())
	l.buf = append(l.buf, e.Key...)
	split := len(l.buf)
	l.buf = append(l.buf, e.Value...)
	l.entries = append(l.entries, memtable.Write{Key: l.buf[at:split:split], Value: l.buf[split:len(l.buf):len(l.buf)]})
	return nil
}

// turnToTables makes tables of the entries of the first buffer, of e, and of all that follow.
func (l *loader) turnToTables(e DumpEntry) error {
	endTurn, err := l.turn()
	if err != nil {
		return fmt.Errorf("load %s: wait for other loads: %w", l.p.id, err)
	}
	// What the first buffer holds goes into the tables too. They have one version, and a load is handed over
	// whole or not at all.
	l.tables = l.p.newTables(l.room, endTurn)
	for i := range l.entries {
		first := &l.entries[i]
		if err := l.tables.add(DumpEntry{first.Key[prefixLen:], first.Value}); err != nil {
			return err
		}
	}
	l.buf, l.entries = nil, nil
	return l.tables.add(e)
}

func isDumped(kind byte) bool {
	switch kind {
	case kindChunk, kindExpiry, kindItem, kindRecord, kindUnique, kindIndex:
		return true
	}
	return false
}

// flush writes what was added. All of it is copied when the transaction is
// committed, so that the memory serves again.
func (l *loader) flush() error {
	if len(l.entries) == 0 {
		return nil
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	err := l.p.update(func(t *tx) error {
		for i := range l.entries {
			if err := t.add(l.entries[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("load %s: %w", l.p.id, err)
	}
	l.room.took(int64(len(l.buf)))
	clear(l.entries)
	l.buf, l.entries = l.buf[:0], l.entries[:0]
	return nil
}
