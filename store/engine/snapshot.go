package engine

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/millrace/millrace/feed"
)

// Snapshot is a view of a partition at one moment. It costs little to make, but
// while it is open nothing that it sees can be freed on disk. One goroutine at a
// time may use it.
type Snapshot struct {
	p      *Partition
	prefix uint32
	ts     uint64
	txn    *badger.Txn // nil if err is set
	err    error
	share  *Share // of which Dump shows; nil: all

	buf []byte // of a key

	// The key of the last item that was looked at: items of one logical partition
	// follow one another.
	key     feed.PartitionKey
	logical []byte // its LogicalPrefix
}

// Snapshot returns a view of the partition as it is now. Close it. After DB.Close
// everything that the snapshot does fails with ErrClosed.
func (p *Partition) Snapshot() *Snapshot {
	s := &Snapshot{p: p}
	if s.ts, s.err = p.d.o.read(&p.w); s.err != nil {
		return s
	}
	s.prefix = p.prefix.Load()
	s.txn = p.d.b.NewTransactionAt(s.ts, false)
	return s
}

// Hinders says that somebody waits until nothing is open, as a load does for its tables to be taken in: if the snapshot
// stays open for some seconds more, the load begins again in a slower way. Who reads for long gives way.
func (s *Snapshot) Hinders() bool { return s.p.d.o.isAwaited() }

// Close frees the snapshot. It may be called twice.
func (s *Snapshot) Close() {
	if s.txn == nil {
		return
	}
	defer s.p.d.o.release(s.ts) // Discard panics where an iterator could not be closed
	txn := s.txn
	s.txn, s.err = nil, ErrClosed
	txn.Discard()
}

// Get returns an item. Its Body is the caller's.
func (s *Snapshot) Get(k feed.PartitionKey, id string) (Item, bool, error) {
	v, ok, err := s.get(k, id)
	if !ok {
		return Item{}, false, err
	}
	return v.item(k, id), true, nil
}

// GetAt is Get for who has made the ItemKey of k and id already. The item is nil
// if there is none.
func (s *Snapshot) GetAt(itemKey []byte, k feed.PartitionKey, id string) (*Item, error) {
	if s.err != nil {
		return nil, s.err
	}
	s.buf = append(s.keyOf(kindItem), itemKey...)
	v, ok, err := s.at(s.buf, k, id)
	if !ok {
		return nil, err
	}
	item := v.item(k, id)
	return &item, nil
}

func (s *Snapshot) get(k feed.PartitionKey, id string) (f fields, ok bool, err error) {
	if s.err != nil {
		return f, false, s.err
	}
	return s.at(s.itemKey(k, id), k, id)
}

// at returns the item k, id, whose key in Badger is known.
func (s *Snapshot) at(key []byte, k feed.PartitionKey, id string) (f fields, ok bool, err error) {
	value, err := getValue(s.p.d, s.txn, key)
	if err != nil || value == nil {
		return f, false, err
	}
	if !f.decode(value) {
		return f, false, corrupt("item %s/%s", k, id)
	}
	return f, true, nil
}

// Unique returns the id of the item of a logical partition that has these raw
// values for a unique key; a nil value counts as null. See UniqueKey.Values.
func (s *Snapshot) Unique(k feed.PartitionKey, unique uint32, values [][]byte) (id string, ok bool, err error) {
	if s.err != nil {
		return "", false, s.err
	}
	s.buf = appendUniqueKey(appendPrefix(s.buf[:0], s.prefix, kindUnique), k, unique, values)
	value, err := getValue(s.p.d, s.txn, s.buf)
	if err != nil || value == nil {
		return "", false, err
	}
	return string(value[1:]), true, nil
}

// Record returns a record of the owner; false if there is none. The value is the
// caller's.
func (s *Snapshot) Record(kind byte, key []byte) ([]byte, bool, error) {
	if s.err != nil {
		return nil, false, s.err
	}
	s.buf = append(append(appendPrefix(s.buf[:0], s.prefix, kindRecord), kind), key...)
	value, err := getValue(s.p.d, s.txn, s.buf)
	if err != nil || value == nil {
		return nil, false, err
	}
	return value[1:], true, nil
}

// keyOf returns the partition's prefix with a kind, in s.buf.
func (s *Snapshot) keyOf(kind byte) []byte {
	s.buf = appendPrefix(s.buf[:0], s.prefix, kind)
	return s.buf
}

// itemKey returns the whole key of an item, in s.buf.
func (s *Snapshot) itemKey(k feed.PartitionKey, id string) []byte {
	if s.key != k || s.logical == nil {
		s.key, s.logical = k, AppendLogicalPrefix(s.logical[:0], k)
	}
	s.buf = append(append(s.keyOf(kindItem), s.logical...), id...)
	return s.buf
}
