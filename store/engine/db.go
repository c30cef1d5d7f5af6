package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine/internal/memtable"
)

// keysVersion is the version of the layout that KEYS.md describes.
const keysVersion = 1

// DB holds the partitions of one node in one directory.
type DB struct {
	// Set by Open.
	dir  string
	log  *slog.Logger
	b    *badger.DB // replaced while nothing is open of o, under swap: see adopt
	o    *oracle
	cfg  Config
	kept bool // see Partition.Kept

	health  health
	witness *witness
	levels  *levels

	metaMu sync.Mutex // held by whoever writes the engine's own keys
	meta   writer

	mu         sync.Mutex // held to find or make a partition
	partitions map[feed.Partition]*Partition

	syncMu   sync.Mutex   // held by whoever records what is synced
	syncing  sync.RWMutex // shared by whoever syncs, and held to see what all of them were told
	syncFile func(name string) error
	swap     sync.RWMutex // held to close b and open another, and shared by who looks at its files
	gone     bool         // b is closed, or is being closed, for good; guarded by swap
	closing  bool         // b was to be closed under swap, and has not been yet
	loading  loading
	claims   claims
	sweeper  sweeper
	merger   merger
	tables   *memtable.Tables // of b
	stall    int              // how many tables of the first level keep memtables from being flushed
	stopping chan struct{}    // closed by stop: no flush waits for a merge any more
	stop     func()

	closeOnce sync.Once
	closeErr  error         // of Close
	abandoned chan struct{} // made by abandon, and closed when that has closed it
}

// Open opens the DB in dir and makes it if it is not there. The error is a
// *LockedError if another process has it open, a *FormatError if a later version
// wrote it, and has the cause ErrCorrupt if stored files cannot be read; see
// OpenOrSetAside for those. Call Close.
func Open(dir string, cfg Config, log *slog.Logger) (*DB, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &DB{dir: dir, log: log, cfg: cfg, syncFile: syncFile, loading: defaultLoading(), stall: level0Stall, partitions: make(map[feed.Partition]*Partition)}
	d.health.damaged = make(chan struct{})
	d.health.entered() // before Badger is open, which reads
	b, w, kept, err := openBadger(dir, cfg, log)
	if err != nil {
		left()
		return nil, err
	}
	d.b, d.kept, d.witness = b, kept, w
	// By d.b and not by b: adopt puts another Badger in its place.
	d.o = newOracle(b.MaxVersion(), func(ts uint64) { d.b.SetDiscardTs(ts) })
	if err = d.takeOver(b); err != nil {
		err = errors.Join(err, b.Close())
	} else if err = d.checkVersion(); err != nil {
		err = errors.Join(err, d.shut())
	}
	if err != nil {
		left()
		w.close()
		return nil, err
	}
	d.noteBoot()
	d.sweeper.start(d)
	return d, nil
}

// takeOver takes over what is not left to Badger: to write memtables, to flush them and to merge tables. The error says that this is
// another Badger.
func (d *DB) takeOver(b *badger.DB) (err error) {
	if d.levels, err = levelsOf(b); err != nil {
		return err
	}
	stopping := make(chan struct{})
	d.stopping, d.stop = stopping, sync.OnceFunc(func() { close(stopping) })
	if d.tables, err = memtable.Start(b, d.log, d.flush); err != nil {
		return err
	}
	d.merger = merger{}
	d.merger.start(d)
	return nil
}

// shut closes Badger, when what is in memory is flushed; that of a DB that is damaged stays in its logs.
func (d *DB) shut() error {
	d.stop()
	d.tables.Stop(d.damage() != nil)
	d.merger.stop()
	return d.b.Close()
}

// checkVersion compares the version of the directory with keysVersion, or records
// it in a new one.
func (d *DB) checkVersion() error {
	value, err := d.getMeta(metaKey(metaVersion, ""))
	if err != nil {
		return err
	}
	if value == nil {
		return d.updateMeta(func(t *tx) error {
			return t.set(metaKey(metaVersion, ""), []byte{valueVersion, keysVersion})
		})
	}
	if len(value) != 2 || value[1] == 0 {
		return corrupt("version %x", value)
	}
	if v := int(value[1]); v > keysVersion || value[0] != valueVersion {
		return &FormatError{Dir: d.dir, Version: v, Known: keysVersion}
	}
	return nil
}

// Close syncs everything, records that it did, and closes the DB. It waits for
// open snapshots and commits, and for tables that are being handed over; new ones fail with
// ErrClosed. A DB that is damaged because the disk was full, and still is, stays as it is, and so
// does one that could not be closed to hand tables over: nobody can open it in this process.
func (d *DB) Close() error {
	d.closeOnce.Do(func() {
		defer left() // last: to close it reads, and what it finds wrong then is its own
		d.sweeper.stop()
		d.o.close()
		sound := d.Sound() == nil
		if sound {
			d.closeErr = d.syncPartitions(d.open(), true)
		}
		if d.tooFull() {
			d.stop()
			d.tables.Stop(true)
			d.merger.stop()
			// Badger would write what is in memory, into tables that lack pages. It stays as after a
			// kill, and locked until the process ends.
			d.log.Warn("the disk is full, so the engine ends without writing what is in memory; the logs have it", "dir", d.dir)
			d.witness.close()
			return
		}
		d.endSyncs()
		err := d.endBadger()
		if err == nil && sound {
			if err = d.Sound(); err == nil {
				err = setClean(d.dir)
			}
		}
		d.witness.close()
		if d.closeErr == nil && err != nil {
			d.closeErr = fmt.Errorf("engine: close %s: %w", d.dir, err)
		}
	})
	return d.closed()
}

// Partition returns the partition p, which is empty if it was never written.
// The same *Partition is returned every time.
//
// The first call after Open looks whether the partition was closed in order. If it
// was not, its State becomes what Synced is: the log must be applied from there.
func (d *DB) Partition(p feed.Partition) (*Partition, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q := d.partitions[p]; q != nil {
		return q, nil
	}
	prefix, err := d.prefixOf(p)
	if err != nil {
		return nil, fmt.Errorf("open partition %s: %w", p, err)
	}
	q := &Partition{d: d, id: p, large: make(map[string]uint32)}
	q.prefix.Store(prefix)
	if err := q.recover(); err != nil {
		return nil, fmt.Errorf("open partition %s: %w", p, err)
	}
	d.partitions[p] = q
	return q, nil
}

// open returns the partitions that are open.
func (d *DB) open() []*Partition {
	d.mu.Lock()
	defer d.mu.Unlock()
	open := make([]*Partition, 0, len(d.partitions))
	for _, p := range d.partitions {
		open = append(open, p)
	}
	return open
}

// Partitions returns the partitions that the DB holds, opened or not.
func (d *DB) Partitions() ([]feed.Partition, error) {
	var found []feed.Partition
	err := d.eachMeta(metaPartition, func(rest, _ []byte) error {
		p, err := feed.ParsePartition(string(rest))
		if err != nil {
			return corrupt("%v", err)
		}
		found = append(found, p)
		return nil
	})
	return found, err
}

// CatalogOf returns the catalog that SetCatalogOf has noted for p, "" if none was.
func (d *DB) CatalogOf(p feed.Partition) (identity string, err error) {
	value, err := d.getMeta(metaKey(metaCatalog, p.String()))
	if err != nil || value == nil {
		return "", err
	}
	if value[0] != valueVersion {
		return "", corrupt("catalog of %s: %x", p, value)
	}
	return string(value[1:]), nil
}

// SetCatalogOf notes which catalog lists p's container, by its identity, which is not empty. It is not
// synced: one that is lost is noted again when p is opened.
func (d *DB) SetCatalogOf(p feed.Partition, identity string) error {
	if was, err := d.CatalogOf(p); err != nil || was == identity {
		return err
	}
	return d.updateMeta(func(t *tx) error {
		return t.set(metaKey(metaCatalog, p.String()), append([]byte{valueVersion}, identity...))
	})
}

// DropPartition forgets all about p. Nobody may use the *Partition for writing any
// more; open snapshots of it stay valid. The disk space comes back by and by.
func (d *DB) DropPartition(p feed.Partition) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	value, err := d.getMeta(metaKey(metaPartition, p.String()))
	if err != nil || value == nil {
		return err
	}
	// All in one: what no key names any more is garbage, and what is garbage is named by none.
	err = d.updateMeta(func(t *tx) error {
		for _, kind := range []byte{metaPartition, metaReached, metaCatalog} {
			if err := t.delete(metaKey(kind, p.String())); err != nil {
				return err
			}
		}
		return t.set(metaKey(metaGarbage, string(value[1:])), []byte{valueVersion})
	})
	if err == nil {
		err = d.Sync()
	}
	if err != nil {
		return fmt.Errorf("drop partition %s: %w", p, err)
	}
	delete(d.partitions, p)
	d.sweeper.wake()
	return nil
}

// prefixOf returns the prefix of a partition, giving it one if it has none.
func (d *DB) prefixOf(p feed.Partition) (uint32, error) {
	value, err := d.getMeta(metaKey(metaPartition, p.String()))
	if err != nil {
		return 0, err
	}
	if value != nil {
		return parsePrefix(value)
	}
	return d.newPrefix(p, 0)
}

// newPrefix gives p a prefix that nothing has used before, in place of old, whose
// keys are then garbage. It is on disk when newPrefix returns: otherwise a power
// loss could give the same prefix to another partition while keys of this one are
// still there.
func (d *DB) newPrefix(p feed.Partition, old uint32) (uint32, error) {
	prefix := uint32(1)
	err := d.updateMeta(func(t *tx) error {
		value, err := d.getMeta(metaKey(metaNext, ""))
		if err != nil {
			return err
		}
		if value != nil {
			if prefix, err = parsePrefix(value); err != nil {
				return err
			}
		}
		if old != 0 {
			err = t.set(metaKey(metaGarbage, string(binary.BigEndian.AppendUint32(nil, old))), []byte{valueVersion})
			if err != nil {
				return err
			}
		}
		if err := t.set(metaKey(metaNext, ""), prefixValue(prefix+1)); err != nil {
			return err
		}
		return t.set(metaKey(metaPartition, p.String()), prefixValue(prefix))
	})
	if err != nil {
		return 0, err
	}
	return prefix, d.Sync()
}

func prefixValue(prefix uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{valueVersion}, prefix)
}

func parsePrefix(value []byte) (uint32, error) {
	if len(value) != 1+prefixLen || value[0] != valueVersion {
		return 0, corrupt("prefix %x", value)
	}
	return binary.BigEndian.Uint32(value[1:]), nil
}

// getMeta returns the value of one of the engine's own keys, nil if there is none.
func (d *DB) getMeta(key []byte) (value []byte, err error) {
	err = d.view(&d.meta, func(txn *badger.Txn) error {
		value, err = getValue(d, txn, key)
		return err
	})
	return value, err
}

// eachMeta calls f for the engine's own keys of one kind: what follows the kind,
// and the value.
func (d *DB) eachMeta(kind byte, f func(rest, value []byte) error) error {
	return d.view(&d.meta, func(txn *badger.Txn) error {
		prefix := metaKey(kind, "")
		it := d.iterate(txn, badger.IteratorOptions{Prefix: prefix})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			rest := bytes.Clone(it.Item().Key()[len(prefix):])
			if err := it.Item().Value(func(value []byte) error { return f(rest, value) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// updateMeta writes some of the engine's own keys.
func (d *DB) updateMeta(f func(*tx) error) error {
	d.metaMu.Lock()
	defer d.metaMu.Unlock()
	return d.update(&d.meta, false, f)
}

// view runs f in a read transaction of w's keys.
func (d *DB) view(w *writer, f func(*badger.Txn) error) (err error) {
	ts, err := d.o.read(w)
	if err != nil {
		return err
	}
	defer d.o.release(ts)
	txn := d.b.NewTransactionAt(ts, false)
	defer txn.Discard()
	defer func() {
		if wrong := d.Caught(recover()); wrong != nil {
			err = wrong
		}
	}()
	return f(txn)
}

// update runs f in a write transaction of w's keys, whose lock the caller holds.
// closing says that the DB is being closed and nobody else writes.
func (d *DB) update(w *writer, closing bool, f func(*tx) error) error {
	if d.health.unwritable.Load() {
		return d.damage()
	}
	ts, err := d.o.begin(w, closing)
	if err != nil {
		return err
	}
	defer d.o.end(w)
	t := w.txAt(d, ts)
	defer t.forget()
	err = f(t)
	if err == nil {
		err = t.commit()
	}
	if t.lost != nil {
		return d.unwritten(t.lost)
	}
	return err
}
