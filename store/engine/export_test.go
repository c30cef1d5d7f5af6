package engine

import (
	"os"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/millrace/millrace/feed/document"
)

// OnSync makes db call f with the name of every file before it syncs it.
func OnSync(db *DB, f func(name string)) {
	db.syncFile = func(name string) error {
		f(name)
		return syncFile(name)
	}
}

// SetVersion makes db one of another version.
func SetVersion(db *DB, version byte) error {
	return db.updateMeta(func(t *tx) error {
		return t.set(metaKey(metaVersion, ""), []byte{valueVersion, version})
	})
}

// Flatten merges all tables, so that readings do not depend on what is merged
// meanwhile.
func Flatten(db *DB) error { return db.b.Flatten(2) }

// BuilderPool returns where Badger keeps the buffers of tables.
func BuilderPool(db *DB) *z.AllocatorPool { return builderPool(db.b) }

// GiveBack empties a pool now and returns how many bytes it had.
func GiveBack(pool *z.AllocatorPool) uint64 { return giveBack(pool) }

// Sweep deletes all garbage now and returns how many keys of partitions are left.
func Sweep(db *DB) (left int, err error) {
	if err := db.sweep(nil); err != nil {
		return 0, err
	}
	return left, db.view(&db.meta, func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{})
		defer it.Close()
		for it.Seek([]byte{0, 0, 0, 1}); it.Valid(); it.Next() {
			left++
		}
		return nil
	})
}

// FailSync makes db call f in place of syncing a file.
func FailSync(db *DB, f func(name string) error) {
	db.syncFile = func(name string) error {
		if err := f(name); err != nil {
			return &syncError{err}
		}
		return nil
	}
}

// ScrubBytes scrubs a table of which the file name shall hold data.
func ScrubBytes(name string, data []byte) error {
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return err
	}
	_, err := scrubTable(name, nil)
	return err
}

// InPlace tells whether a DB in dir is opened anew where it is after a page could not be
// written, or read.
func InPlace(dir string, write bool) bool {
	fs := fileSystemOf(dir)
	return fs.inPlace && (write || fs.holesTakeRoom)
}

// SyncAsEarlier records what was applied as synced, as releases did that wrote no witness.
func SyncAsEarlier(p *Partition) error {
	state, err := p.unsynced(false)
	if err != nil || state == nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.update(func(t *tx) error { return p.setValue(t, p.key(kindSynced), state) })
}

// IndexValueLen is indexValueLen.
func IndexValueLen(key []byte) int { return indexValueLen(key) }

// Verify reads all tables and compares checksums.
func (d *DB) Verify() error {
	_, err := d.Scrub(nil)
	return err
}

// Values returns the raw values that body has at the paths of the unique key, for
// Snapshot.Unique.
func (u *UniqueKey) Values(body []byte) [][]byte {
	values := make([][]byte, len(u.Paths))
	for i, p := range u.Paths {
		if raw, ok := document.Get(body, p); ok {
			values[i] = raw
		}
	}
	return values
}

// CoveredBytes returns where in a table the bytes stand that checksums of blocks cover.
func CoveredBytes(table string) (at []int, err error) {
	data, err := os.ReadFile(table)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	index, err := readIndex(f)
	if err != nil {
		return nil, err
	}
	for i := range index.OffsetsLength() {
		var block fb.BlockOffset
		if !index.Offsets(&block, i) {
			return nil, corrupt("table %s: block %d is not in its index", table, i)
		}
		begin := int(block.Offset())
		covered, ok := checked(data[begin : begin+int(block.Len())])
		if !ok {
			return nil, corrupt("table %s: block %d does not have its checksum", table, i)
		}
		for k := range covered {
			at = append(at, begin+k)
		}
	}
	return at, nil
}
