package engine

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

const (
	// sweepKeys is how many keys of a dropped partition are deleted at a time.
	sweepKeys = 1000

	// flattenAfter is for how long nothing was written before tables are merged into one level, and
	// flattenMax is up to how many bytes of tables. Tables of the first level hold what was overwritten
	// since: 1,000 items of 1 KB written again and again stood in 17 MB of tables at rest. In a larger DB
	// that is a small part, a merge of it would write all levels anew, and commits would wait for it.
	flattenAfter = 10 * time.Second
	flattenMax   = level0Max * memTableDefault
)

// sweeper deletes what is under the prefixes of dropped and cleared partitions, and, in a small DB
// at rest, what was overwritten. Badger's DropPrefix would stop all readers and writers meanwhile.
type sweeper struct {
	work     chan struct{}
	quit     chan struct{}
	quitOnce sync.Once
	done     sync.WaitGroup
}

func (s *sweeper) start(d *DB) {
	s.work = make(chan struct{}, 1)
	s.quit = make(chan struct{})
	s.wake()
	s.done.Go(func() {
		look := time.NewTicker(flattenAfter)
		defer look.Stop()
		last, flat := d.o.last(), uint64(0)
		for {
			select {
			case <-s.quit:
				return
			case <-look.C:
				now := d.o.last()
				if now == last && now != flat {
					d.flatten()
					flat = now // also if it could not be: it is tried again when something was written
				}
				last = now
				continue
			case <-s.work:
			}
			if err := d.sweep(s.quit); err != nil && !errors.Is(err, ErrClosed) {
				d.log.Warn("dropped partitions keep their disk space until the next start", "error", err)
			}
		}
	})
}

// wake makes the sweeper look for garbage.
func (s *sweeper) wake() {
	select {
	case s.work <- struct{}{}:
	default:
	}
}

func (s *sweeper) stop() {
	s.quitOnce.Do(func() { close(s.quit) })
	s.done.Wait()
}

// sweep deletes all garbage, or ends early when quit is closed.
func (d *DB) sweep(quit <-chan struct{}) (err error) {
	defer func() {
		if wrong := d.Caught(recover()); wrong != nil {
			err = wrong
		}
	}()
	var garbage []uint32
	err = d.eachMeta(metaGarbage, func(rest, _ []byte) error {
		if len(rest) != prefixLen {
			return corrupt("garbage key %x", rest)
		}
		garbage = append(garbage, binary.BigEndian.Uint32(rest))
		return nil
	})
	if err != nil {
		return err
	}
	for _, prefix := range garbage {
		if err := d.sweepPrefix(prefix, quit); err != nil {
			return err
		}
	}
	return nil
}

// sweepPrefix deletes what is under one prefix, and then that it is garbage.
func (d *DB) sweepPrefix(prefix uint32, quit <-chan struct{}) error {
	start := binary.BigEndian.AppendUint32(nil, prefix)
	for from := start; ; {
		select {
		case <-quit:
			return nil
		default:
		}
		var keys [][]byte
		err := d.view(&d.meta, func(txn *badger.Txn) error {
			it := d.iterate(txn, badger.IteratorOptions{Prefix: start})
			defer it.Close()
			for it.Seek(from); it.Valid() && len(keys) < sweepKeys; it.Next() {
				keys = append(keys, it.Item().KeyCopy(nil))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		from = keys[len(keys)-1]
		err = d.updateMeta(func(t *tx) error {
			for _, key := range keys {
				if err := t.delete(key); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := d.Sync(); err != nil { // or deleted keys could come back as nobody's
		return err
	}
	return d.updateMeta(func(t *tx) error { return t.delete(metaKey(metaGarbage, string(start))) })
}

// flatten merges the tables of a small DB into one level. Others read meanwhile, and commits wait, for some
// tenths of a second: merges go on until there is one level, and each memtable that is written would add to another.
// Nothing is done where only the first level has tables, or it has none. Some of a young DB stay.
func (d *DB) flatten() {
	if d.Sound() != nil {
		return // a merge would leave out what cannot be read
	}
	// Badger must not be closed meanwhile: who wants to hand tables over waits for the snapshot, as for any other.
	err := d.view(&d.meta, func(*badger.Txn) error {
		return d.o.hold(func() error {
			var first, others int64
			for _, l := range d.b.Levels() {
				if l.Level == 0 {
					first = l.Size
				} else {
					others += l.Size
				}
			}
			if first == 0 || others == 0 || first+others > flattenMax {
				return nil
			}
			// Where the disk is full it stays as it is.
			free, err := d.loading.free(d.dir)
			if err != nil || free < d.cfg.Headroom()+first+others {
				return err
			}
			return d.merger.flatten()
		})
	})
	if err != nil {
		// Nothing is lost: they are merged when there are more.
		d.log.Debug("tables at rest were not merged", "error", err)
	}
}
