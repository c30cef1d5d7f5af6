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
// nothing is wrong but a sync, the same as of its last good sync. Nobody may use the DB
// any more; its snapshots must be closed.
func (d *DB) Renew() (db *DB, aside string, err error) {
	wrong := d.health.wrong.Load()
	if wrong == nil {
		return nil, "", errors.New("engine: renew: it is not damaged")
	}
	if err := d.abandon(); err != nil {
		return nil, "", err
	}
	cfg := d.cfg
	if wrong.Unsynced {
		cfg.Verify = true // what was not written may be part of a table
		return OpenOrSetAside(d.dir, cfg, d.log)
	}
	if aside, err = setAside(d.dir, wrong, d.log); err != nil {
		return nil, "", err
	}
	db, err = Open(d.dir, cfg, d.log)
	return db, aside, err
}

// abandon closes the DB and records nothing.
func (d *DB) abandon() error {
	d.closeOnce.Do(func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }() // over what is damaged; the files are of no use any more
			d.sweeper.stop()
			d.o.close()
			openDBs.Add(-1)
			_ = d.b.Close() // what it could not write is written anew
		}()
		select {
		case <-done:
		case <-time.After(closeMax):
			d.closeErr = fmt.Errorf("engine: %s, which is damaged, cannot be closed: start the process anew", d.dir)
		}
	})
	return d.closeErr
}
