package engine

import (
	"errors"
	"fmt"
	"time"
)

// closeMax bounds the wait for Badger to close over damaged files.
const closeMax = 30 * time.Second

// Renew closes a damaged DB, without relying on anything that it holds, and opens
// another in its place: an empty one, with the old directory moved to aside, or, if
// nothing is wrong but that files were not written, the same as of its last good sync. Nobody
// may use the DB any more; its snapshots must be closed.
//
// After a full disk it needs room: reserve bytes, or what opening takes, and beside a directory
// that must be moved aside as much again as that holds. While there is less the error is a
// *NoRoomError, and Renew may be called again.
func (d *DB) Renew(reserve int64) (db *DB, aside string, err error) {
	wrong := d.health.wrong.Load()
	if wrong == nil {
		return nil, "", errors.New("engine: renew: it is not damaged")
	}
	need := max(reserve, d.cfg.openRoom())
	if wrong.Full {
		// Closing comes after it too: it writes what is in memory.
		if err := room(d.dir, need); err != nil {
			return nil, "", err
		}
	}
	if err := d.abandon(); err != nil {
		return nil, "", err
	}
	var cause error = wrong
	if wrong.Unsynced && !d.worse() {
		cfg := d.cfg
		cfg.Verify = true // what was not written may be part of a table
		db, err := Open(d.dir, cfg, d.log)
		if err == nil || !errors.Is(err, ErrCorrupt) {
			return db, "", err
		}
		cause = err
	}
	if wrong.Full {
		if err := room(d.dir, need+sizeOf(d.dir)); err != nil {
			return nil, "", err
		}
	}
	if aside, err = setAside(d.dir, cause, d.log); err != nil {
		return nil, "", err
	}
	db, err = Open(d.dir, d.cfg, d.log)
	return db, aside, err
}

// abandon closes the DB and records nothing. The error says that Badger has not closed yet: it
// goes on, and abandon may be called again, which waits for the same end.
func (d *DB) abandon() error {
	d.closeOnce.Do(func() {
		done := make(chan struct{})
		d.abandoned = done
		go func() {
			defer close(done)
			defer func() { _ = recover() }() // over what is damaged; the files are of no use any more
			defer left()
			d.sweeper.stop()
			d.o.close()
			d.endSyncs() // one that hangs is waited for here, like Badger
			_ = d.shut() // what it could not write is written anew
			d.witness.close()
		}()
	})
	return d.closed()
}

// closed returns how closing has ended, which was begun by Close or by abandon.
func (d *DB) closed() error {
	if d.abandoned == nil {
		return d.closeErr
	}
	late := time.NewTimer(d.loading.closing)
	defer late.Stop()
	select {
	case <-d.abandoned:
		return nil
	case <-late.C:
		// Not kept: a flush that was slow ends later, and whoever asks then shall know it.
		return fmt.Errorf("engine: %s, which is damaged, is not closed after %s; if it stays so, start the process anew", d.dir, d.loading.closing)
	}
}
