package engine

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/millrace/millrace/store/engine/internal/memtable"
	"github.com/millrace/millrace/store/engine/internal/merge"
)

// stallInterval is how often a flush looks whether the first level has fewer tables.
const stallInterval = 10 * time.Millisecond

// flush makes a table of the first level of what a memtable has. It waits while that level has too many tables, unless the DB is being closed. After
// damage nothing is flushed any more: what the logs have, the DB that is opened next reads.
func (d *DB) flush(t y.Iterator) (err error) {
	defer func() {
		if wrong := d.Caught(recover()); wrong != nil {
			err = fmt.Errorf("%w: %w", memtable.ErrEnd, wrong)
		}
	}()
	d.awaitMerges()
	if wrong := d.damage(); wrong != nil {
		return fmt.Errorf("%w: %w", memtable.ErrEnd, wrong)
	}
	made, err := d.run(&d.merger.flushes, func(string) {}).Flush(t)
	if err != nil {
		return err
	}
	if err := syncFile(d.dir); err != nil {
		merge.Drop([]*table.Table{made})
		if _, ok := errors.AsType[*syncError](err); !ok {
			return err
		}
		return d.endFlushes("its directory could not be synced", err) // another sync may not be told of it
	}
	if err := addLevel0Table(d.levels.controller, made); err != nil {
		_ = made.Close(-1) // the manifest may name the table, so its file stays for whoever opens the DB anew
		return d.endFlushes("its manifest could not be written", err)
	}
	merge.Drop([]*table.Table{made}) // Badger has its own reference
	return nil
}

// awaitMerges returns when the first level has not too many tables, the DB is damaged, or it is being closed.
func (d *DB) awaitMerges() {
	tick := time.NewTicker(stallInterval)
	defer tick.Stop()
	for d.levels.first() >= d.stall {
		select {
		case <-d.health.damaged:
			return
		case <-d.stopping:
			return
		case <-tick.C:
		}
	}
}

func (d *DB) endFlushes(what string, cause error) error {
	wrong := d.fail(&DamagedError{
		Unsynced: true, Full: ofFullDisk(cause), Reason: fmt.Sprintf("a table was made in %s, and %s: %v", d.dir, what, cause),
	})
	return fmt.Errorf("%w: %w", memtable.ErrEnd, wrong)
}

// first returns how many tables the first level has.
func (l *levels) first() int {
	l.of[0].mu.RLock()
	defer l.of[0].mu.RUnlock()
	return len(*l.of[0].tables)
}

// addLevel0Table is Badger's, which shows it to nobody.
//
//go:linkname addLevel0Table github.com/dgraph-io/badger/v4.(*levelsController).addLevel0Table
func addLevel0Table(controller unsafe.Pointer, t *table.Table) error
