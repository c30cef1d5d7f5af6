package engine

import (
	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/millrace/millrace/store/engine/internal/memtable"
)

// get returns a copy of what a key has for who reads by txn, nil if it has nothing. No block in which it may stand was passed over, and
// the DB is not closed meanwhile: txn is of a commit or a snapshot.
//
// It ends with the first version that it comes upon. What is newer stands above what is older, in memtables before tables and in each
// level before those below, but Badger's own get goes on to the last level, because it lets whoever writes name versions as he
// likes. An item that is written again and again stands in most tables of the first level, each a block to be compared with its
// checksum.
func (d *DB) get(txn *badger.Txn, key []byte) ([]byte, error) {
	at := y.KeyWithTs(key, txn.ReadTs())
	if value, ok := d.tables.Get(at); ok {
		return value, nil
	}
	hash := y.Hash(key)
	for i := range d.levels.of {
		value, ok, wrong := d.levels.of[i].get(at, hash, i == 0)
		if wrong != nil {
			return nil, d.fail(wrong.damage())
		}
		if ok {
			return value, nil
		}
	}
	return nil, nil
}

// get is DB.get for one level. Nobody takes a table away meanwhile, because whoever does needs the lock, and nobody waits for
// that for long: a get looks at a few blocks.
func (l *level) get(at []byte, hash uint32, first bool) (value []byte, ok bool, wrong *badTrailer) {
	key := y.ParseKey(at)
	l.mu.RLock()
	defer l.mu.RUnlock()
	tables := *l.tables
	if !first {
		tables = overlapping(tables, key, key)
	}
	for i := range tables {
		t := tables[i]
		if first {
			t = tables[len(tables)-1-i] // the newest stands last
		}
		if !overlaps(t, key, key) || t.DoesNotHave(hash) {
			continue
		}
		if wrong := checkRange(t, key, key); wrong != nil {
			return nil, false, wrong
		}
		if value, ok := getOf(t, at); ok {
			return value, true, nil
		}
	}
	return nil, false, nil
}

// getOf returns what a table has.
func getOf(t *table.Table, at []byte) (value []byte, ok bool) {
	it := t.NewIterator(table.NOCACHE)
	defer func() { _ = it.Close() }() // it was only read
	it.Seek(at)
	if !it.Valid() || !y.SameKey(at, it.Key()) {
		return nil, false
	}
	return memtable.Value(it.Value()), true
}

// getValue returns a copy of the value of a key, nil if there is none, put together
// from its chunks if it was cut.
func getValue(d *DB, txn *badger.Txn, key []byte) ([]byte, error) {
	value, err := d.get(txn, key)
	if err != nil || value == nil {
		return nil, err
	}
	if len(value) == 0 {
		return nil, corrupt("key %x has no value", key)
	}
	if value[0] == valueChunked {
		return joinChunks(d, txn, key, value)
	}
	return value, nil
}

// joinChunks returns the value of a key whose stored form is head.
func joinChunks(d *DB, txn *badger.Txn, key, head []byte) ([]byte, error) {
	r := reader{b: head[1:]}
	n, size := r.uvarint(), r.uvarint()
	if r.bad || size > 1<<30 || uint64(chunks(int(size))) != n {
		return nil, corrupt("key %x has the value %x", key, head)
	}
	value := make([]byte, 0, size)
	for i := range uint32(n) {
		chunk, err := d.get(txn, chunkKey(key, i))
		if err != nil {
			return nil, err
		}
		if len(chunk) == 0 {
			return nil, corrupt("key %x has no chunk %d", key, i)
		}
		value = append(value, chunk[1:]...)
	}
	if uint64(len(value)) != size {
		return nil, corrupt("key %x has %d bytes in chunks, want %d", key, len(value), size)
	}
	return value, nil
}
