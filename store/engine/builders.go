package engine

import (
	"reflect"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/ristretto/v2/z"
)

// buildersInterval is how long Badger keeps the buffers of a table that was built.
const buildersInterval = time.Second

// builders gives back the buffers in which Badger built tables.
//
// Badger keeps eight sets of them for the next tables, as large as they ever were, and as
// long as a table is built every two seconds. A flush takes one, and needs twice a memtable. The pool is a
// queue, so flush after flush enlarges another one: with memtables of 8 MiB it had 8 x 14 MiB in the
// end, a third of all live memory while a shop was imported. Buffers that are given
// back leave those in use, and garbage. The pool is no setting, and a fork of Badger or a
// replace in go.mod is too much to keep for it. Merges have a pool of their own, see merger.
type builders struct {
	quit chan struct{}
	done sync.WaitGroup
	once sync.Once
}

// start begins to give back what the pool of b holds. Where Badger has no such
// pool any more nothing is done.
func (s *builders) start(b *badger.DB) {
	s.quit = make(chan struct{})
	pool := builderPool(b)
	if pool == nil {
		return
	}
	s.done.Go(func() {
		tick := time.NewTicker(buildersInterval)
		defer tick.Stop()
		for {
			select {
			case <-s.quit:
				return
			case <-tick.C:
				giveBack(pool)
			}
		}
	})
}

// stop ends it. A pool must not be asked when its DB has been closed.
func (s *builders) stop() {
	s.once.Do(func() { close(s.quit) })
	s.done.Wait()
}

// builderPool returns where Badger keeps buffers. Badger shows it to nobody; the
// field is set before its DB is returned, and not changed then. It is nil if there is
// no such field, as in another version.
func builderPool(b *badger.DB) *z.AllocatorPool {
	field := reflect.ValueOf(b).Elem().FieldByName("allocPool")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*z.AllocatorPool]() {
		return nil
	}
	return (*z.AllocatorPool)(field.UnsafePointer())
}

// giveBack empties a pool and returns how many bytes it had. The pool is asked as
// whoever builds a table asks it, so nobody's buffers are touched.
func giveBack(pool *z.AllocatorPool) (bytes uint64) {
	const least = 512 // what the pool makes where it has nothing to give
	for {
		a := pool.Get(least, "")
		had := a.Allocated()
		a.Release()
		if had <= least {
			return bytes
		}
		bytes += had
	}
}
