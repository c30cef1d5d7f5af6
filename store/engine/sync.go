package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dgraph-io/badger/v4"
)

// Sync returns when all that was committed before is on disk.
//
// Badger's own Sync is not enough. It syncs the log of the memtable that is being
// written (and the value log, which holds nothing here), but not the logs of memtables that wait for
// their flush, which hold what was committed before. A memtable is on disk in
// another form only when its table has been written: a flush syncs the table, then
// the manifest, and then removes the log. So every log that is there is synced
// first; one that goes away meanwhile has become a table. The directory comes
// last, because a new log's name need not be on disk yet.
//
// The logs are mapped, and written by calls. On Linux fsync covers both.
func (d *DB) Sync() error {
	if err := d.damage(); err != nil {
		return err
	}
	if err := d.syncShared(); err != nil {
		if wrong := d.damage(); wrong != nil {
			return wrong
		}
		return fmt.Errorf("engine: sync: %w", err)
	}
	// The system tells once that it could not write a file, so a sync beside this one may have been
	// told in its place:
	//
	//	this sync     file 1 ──────────────── file 2: well
	//	another one          file 2: failed
	//
	// So this one ends when those that ran beside it have, and know what they were told.
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if err := d.damage(); err != nil {
		return err
	}
	return d.faulted() // no sync tells of a page that its file lacks
}

// syncShared syncs beside others, and records that it failed before it lets them end.
func (d *DB) syncShared() error {
	d.syncing.RLock()
	defer d.syncing.RUnlock()
	err := d.syncFiles()
	if failed, ok := errors.AsType[*syncError](err); ok {
		// The system may have dropped what it could not write, and say nothing when it is
		// asked again: only what the last good sync covered is known to be there.
		return d.fail(&DamagedError{Unsynced: true, Reason: fmt.Sprintf("a sync failed, and what was written since the last good one may be lost: %v", failed.err)})
	}
	return err
}

// endSyncs waits for the syncs that run, and refuses those that come: Badger has no log to sync
// when it is closed, and would panic.
func (d *DB) endSyncs() {
	d.swap.Lock()
	defer d.swap.Unlock()
	d.gone = true
}

func (d *DB) syncFiles() error {
	d.swap.RLock()
	defer d.swap.RUnlock()
	if d.gone {
		return ErrClosed
	}
	logs, err := filesOf(d.dir, logSuffix)
	if err != nil {
		return err
	}
	for _, name := range logs {
		if err := d.syncFile(name); err != nil {
			return err
		}
	}
	// Little is left for it to do, and it does not depend on what fsync covers.
	if err := d.b.Sync(); err != nil {
		return &syncError{err}
	}
	return d.syncFile(d.dir)
}

// syncError says that the system could not write what it had taken.
type syncError struct{ err error }

func (e *syncError) Error() string { return e.err.Error() }
func (e *syncError) Unwrap() error { return e.err }

// syncFile syncs a file or directory. One that is not there (any more) is synced.
func syncFile(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		err = &syncError{err}
	}
	return errors.Join(err, f.Close())
}

// SyncPartitions syncs the DB and then records for each of the partitions that
// what it had applied before is covered; for all open ones if none is given. When
// it returns, the record is on disk too. Two syncs serve all partitions.
func (d *DB) SyncPartitions(partitions ...*Partition) error {
	if len(partitions) == 0 {
		partitions = d.open()
	}
	return d.syncPartitions(partitions, false)
}

func (d *DB) syncPartitions(partitions []*Partition, closing bool) error {
	d.syncMu.Lock()
	defer d.syncMu.Unlock()
	type covered struct {
		prefix uint32
		state  []byte // nil if there is none, or it is recorded already
	}
	before := make([]covered, len(partitions))
	for i, p := range partitions {
		before[i].prefix = p.prefix.Load()
		state, err := p.unsynced(closing)
		if err != nil {
			return fmt.Errorf("sync %s: %w", p.id, err)
		}
		before[i].state = state
	}
	if err := d.Sync(); err != nil {
		return err
	}
	recorded := false
	for i, p := range partitions {
		if before[i].state == nil {
			continue
		}
		if err := p.setSynced(before[i].prefix, before[i].state, closing); err != nil {
			return fmt.Errorf("sync %s: %w", p.id, err)
		}
		recorded = true
	}
	if !recorded {
		return nil
	}
	return d.Sync() // of little more than the record
}

// unsynced returns the stored form of the state, nil if there is none or if it is
// recorded as synced.
func (p *Partition) unsynced(closing bool) (state []byte, err error) {
	defer func() {
		if wrong := p.d.Caught(recover()); wrong != nil {
			err = wrong
		}
	}()
	if closing { // nobody writes, and the oracle makes no more snapshots
		txn := p.d.b.NewTransactionAt(p.d.o.last(), false)
		defer txn.Discard()
		return unsyncedState(p.d, txn, p.prefix.Load())
	}
	s := p.Snapshot()
	defer s.Close()
	if s.err != nil {
		return nil, s.err
	}
	return unsyncedState(p.d, s.txn, s.prefix)
}

func unsyncedState(d *DB, txn *badger.Txn, prefix uint32) ([]byte, error) {
	state, err := getValue(d, txn, appendPrefix(nil, prefix, kindState))
	if err != nil {
		return nil, err
	}
	synced, err := getValue(d, txn, appendPrefix(nil, prefix, kindSynced))
	if err != nil || bytes.Equal(state, synced) {
		return nil, err
	}
	return state, nil
}

// setSynced records that a state is covered by a sync, unless the partition was
// cleared meanwhile.
func (p *Partition) setSynced(prefix uint32, state []byte, closing bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.prefix.Load() != prefix {
		return nil
	}
	return p.d.update(&p.w, closing, func(t *tx) error {
		if err := p.setValue(t, p.key(kindSynced), state); err != nil {
			return err
		}
		return p.setValue(t, p.key(kindWitness), state)
	})
}

// appliedByAnother says whether a release that writes no witness has applied commits here
// since one that does: it has set what is synced, and has left the witness where it was.
// The earlier release did not make what later ones keep beside the items, such as tombstones,
// so the state is not the one that the log says.
//
//	witness   synced
//	none      40      an earlier release, before its first upgrade: as its log says
//	40        40      this one, or a later one
//	40        55      this one, then an earlier one up to 55
func (p *Partition) appliedByAnother() (another bool, err error) {
	err = p.d.view(&p.w, func(txn *badger.Txn) error {
		witness, err := getValue(p.d, txn, p.key(kindWitness))
		if err != nil || witness == nil {
			return err
		}
		synced, err := getValue(p.d, txn, p.key(kindSynced))
		another = !bytes.Equal(witness, synced)
		return err
	})
	return another, err
}
