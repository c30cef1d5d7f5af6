package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/millrace/millrace/feed/document"
)

// Level0Max is from how many tables on the first level is merged.
const Level0Max = level0Max

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
func Flatten(db *DB) error { return db.merger.flatten() }

// Unwritten has a DB find that a commit could not be written.
func Unwritten(db *DB, cause error) { _ = db.unwritten(cause) }

// StopMerges ends merges for good.
func StopMerges(db *DB) { db.merger.stop() }

// Rest does what db does when nothing was written for a while.
func Rest(db *DB) { db.flatten() }

// Sweep deletes all garbage now and returns how many keys of partitions are left.
func Sweep(db *DB) (left int, err error) {
	if err := db.sweep(nil); err != nil {
		return 0, err
	}
	return left, db.view(&db.meta, func(txn *badger.Txn) error {
		it := db.iterate(txn, badger.IteratorOptions{})
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

// OnLoad makes db load what has more than bytes as tables of that size, wait so long to hand
// them over, and call step at each step.
func OnLoad(db *DB, bytes int, wait time.Duration, step func(name string)) {
	db.loading.bufferBytes, db.loading.tableBytes = bytes, bytes
	db.loading.wait, db.loading.step = wait, step
}

// OnRoom makes db ask free how much of the disk is free for loads.
func OnRoom(db *DB, free func() int64) {
	db.loading.free = func(string) (int64, error) { return free(), nil }
}

// Claimed returns how much room loads have claimed and not used.
func Claimed(db *DB) int64 {
	db.claims.mu.Lock()
	defer db.claims.mu.Unlock()
	return db.claims.all
}

// CloseWithin bounds the wait for Badger to close when tables are handed over, or db is renewed.
func CloseWithin(db *DB, d time.Duration) { db.loading.closing = d }

// AwaitBadger waits until Badger is closed, as whoever gave it up has begun to.
func AwaitBadger(db *DB) error { return db.shut() }

// Levels returns how many tables each level has.
func Levels(db *DB) (tables []int) {
	for _, l := range db.b.Levels() {
		tables = append(tables, l.NumTables)
	}
	return tables
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

// BlockBytes returns how many bytes of a table are blocks. They come first.
func BlockBytes(table string) (int, error) {
	data, err := os.ReadFile(table)
	if err != nil {
		return 0, err
	}
	index, ok := indexOf(data)
	var last fb.BlockOffset
	if !ok || !index.Offsets(&last, index.OffsetsLength()-1) {
		return 0, corrupt("table %s: its index is damaged", table)
	}
	return int(last.Offset() + last.Len()), nil
}

// BehindBlocks returns where the bytes stand that are behind each block of a table.
func BehindBlocks(table string) (at [][]int, err error) {
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
		data := make([]byte, block.Len())
		if _, err := f.ReadAt(data, int64(block.Offset())); err != nil {
			return nil, err
		}
		covered, ok := checked(data)
		if !ok {
			return nil, corrupt("table %s: block %d does not have its checksum", table, i)
		}
		var behind []int
		for k := len(covered); k < len(data); k++ {
			behind = append(behind, int(block.Offset())+k)
		}
		at = append(at, behind)
	}
	return at, nil
}

// Forgive makes db forget its damage.
func Forgive(db *DB) {
	db.merger.mu.Lock() // it may be finding the damage too
	defer db.merger.mu.Unlock()
	h := &db.health
	if h.wrong.Swap(nil) != nil {
		h.damaged = make(chan struct{})
		_ = os.Remove(filepath.Join(db.dir, damagedName)) // it may not be there
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = closedDBs.Load()
	h.judged.Store(mismatches.Load())
}

// CheckTable is checkTable without the blocks.
func CheckTable(name string) error { return checkTable(name, false) }

// BloomByte returns where in a table a byte of its filter stands.
func BloomByte(table string) (int64, error) {
	data, err := os.ReadFile(table)
	if err != nil {
		return 0, err
	}
	index, ok := indexOf(data)
	if !ok {
		return 0, corrupt("table %s: its index is damaged", table)
	}
	return int64(bytes.LastIndex(data, index.BloomFilterBytes())), nil
}

// Unchecked makes db believe what Badger shows, until the function that it returns is called.
func Unchecked(db *DB) (undo func()) {
	db.merger.stop()
	l := db.levels
	db.levels = &levels{}
	return func() {
		db.levels = l
		db.merger = merger{}
		db.merger.start(db)
	}
}

// WriteTable writes a table that has these keys, in the newest version.
func WriteTable(db *DB, name string, keys ...string) error {
	builder := table.NewTableBuilder(table.Options{BlockSize: 4096, TableSize: 1 << 20, BloomFalsePositive: 0.01})
	defer builder.Close()
	for _, key := range keys {
		builder.Add(y.KeyWithTs([]byte(key), db.o.last()), y.ValueStruct{Value: []byte{valueVersion}}, 0)
	}
	return os.WriteFile(name, builder.Finish(), 0o600)
}

// Waiting returns how many wait until nobody has a commit or a snapshot.
func Waiting(db *DB) int {
	db.o.mu.Lock()
	defer db.o.mu.Unlock()
	return len(db.o.turns)
}

// OpenReads returns how many commits and snapshots are open.
func OpenReads(db *DB) int {
	db.o.mu.Lock()
	defer db.o.mu.Unlock()
	return db.o.open
}

// OpenError is openError.
func OpenError(dir string, err error) error { return openError(dir, err) }

// Mismatches returns how many blocks of all DBs did not have their checksum.
func Mismatches() uint64 { return mismatches.Load() }

// SyncsEnd tells whether somebody waits for the syncs of db to end, or has Badger to himself.
func SyncsEnd(db *DB) bool {
	if !db.swap.TryRLock() {
		return true
	}
	db.swap.RUnlock()
	return false
}
