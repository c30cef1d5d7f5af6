package engine

import (
	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/millrace/millrace/store/engine/internal/memtable"
)

// get returns a copy of the value of a key as a transaction sees it, nil if there is none. No block in which it may stand was
// passed over. The DB is not closed meanwhile: the transaction is that of a commit or of a snapshot.
//
// What has no version above the one that was found is not looked at. Badger's own get looks at all tables that may have the key,
// and an item that is written again and again stands in most tables of the first level, each of them a block to be compared with
// its checksum. Where a version stands is no proof of its age: see doc.go.
func (d *DB) get(txn *badger.Txn, key []byte) ([]byte, error) {
	at := y.KeyWithTs(key, txn.ReadTs())
	newest := d.tables.Get(at)
	hash := y.Hash(key)
	var room [8]*table.Table
	for i := range d.levels.of {
		held := d.levels.of[i].holdNewer(room[:0], key, hash, newest.Version, i == 0)
		if len(held) == 0 {
			continue
		}
		found, wrong := d.newestIn(held, at, newest)
		if wrong != nil {
			return nil, d.fail(wrong.damage())
		}
		newest = found
	}
	return newest.Value, nil
}

// holdNewer appends the tables that may have a version of a key above one that is known, the newest of the first level before the
// others. They stay until letGo: to read a block may take longer than anybody can wait for the lock.
func (l *level) holdNewer(held []*table.Table, key []byte, hash uint32, version uint64, first bool) []*table.Table {
	l.mu.RLock()
	defer l.mu.RUnlock()
	tables := *l.tables
	if !first {
		tables = overlapping(tables, key, key)
	}
	for i := range tables {
		t := tables[len(tables)-1-i]
		if t.MaxVersion() > version && overlaps(t, key, key) && !t.DoesNotHave(hash) {
			t.IncrRef()
			held = append(held, t)
		}
	}
	return held
}

// newestIn returns the newest of what is known and of what tables have, and lets go of the tables.
func (d *DB) newestIn(held []*table.Table, at []byte, newest memtable.Found) (memtable.Found, *badTrailer) {
	defer func() { // also where a page cannot be read, which panics
		for _, t := range held {
			d.letGo(t)
		}
	}()
	for _, t := range held {
		if t.MaxVersion() <= newest.Version {
			continue
		}
		found, ok := getOf(t, at)
		switch {
		case !ok:
			// Nothing may be found because a block cannot be read.
			if wrong := checkRange(t, y.ParseKey(at), y.ParseKey(at)); wrong != nil {
				return newest, wrong
			}
		case found.Version > newest.Version:
			newest = found
		}
	}
	return newest, nil
}

// getOf returns the newest version that a table has, up to the one with which at ends; false if it has none.
func getOf(t *table.Table, at []byte) (memtable.Found, bool) {
	it := t.NewIterator(table.NOCACHE)
	defer func() { _ = it.Close() }() // it was only read
	it.Seek(at)
	if !it.Valid() || !y.SameKey(at, it.Key()) {
		return memtable.Found{}, false
	}
	return memtable.FoundIn(it.Value(), y.ParseTs(it.Key())), true
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
