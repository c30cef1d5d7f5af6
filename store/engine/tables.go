package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4/y"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/store/engine/internal/sstable"
)

// loadSuffix ends the names of files that a load writes, until they are Badger's. Those that a
// crash leaves are removed by Open.
const loadSuffix = ".load"

// loading is how partitions are loaded. Tests change it.
type loading struct {
	bufferBytes int           // of entries that are written as transactions if there are no more
	tableBytes  int           // of the entries in a table, at least
	wait        time.Duration // for a moment without commits and snapshots
	closing     time.Duration // for Badger to close, when tables are handed over
	free        func(dir string) (int64, error)
	step        func(name string)
}

func defaultLoading() loading {
	return loading{
		bufferBytes: 4 << 20,
		tableBytes:  tableLeast,
		// Commits and reads take milliseconds. Longer ones, such as a snapshot that is written,
		// may take minutes.
		wait:    5 * time.Second,
		closing: closeMax,
		free:    freeBytes,
		step:    func(string) {},
	}
}

// tables builds Badger's tables of the entries of a partition's dump, in files that Badger does
// not know until they are handed over: see DB.adopt. One goroutine uses it; another syncs a
// table while the next is built.
//
// Through transactions each entry is written four times: to the log
// of a memtable, to the table that this becomes, and in one or two merges.
type tables struct {
	// Set by newTables; room has a lock of its own.
	d       *DB
	p       *Partition
	prefix  uint32 // of the partition when they were begun
	version uint64 // of all keys: below that of every commit to come
	room    *claim
	end     func() // of the turn to make tables; nil when it was called

	// Owned by whoever adds entries.
	builder sstable.Builder
	file    *os.File // of the table that is built; nil if the next entry begins one
	size    int      // of the entries in it
	target  int      // at which it ends
	total   int      // size of the entries in all tables before
	key     []byte
	files   []string

	syncing *errgroup.Group // of the table before; nil if there is none
}

// newTables begins tables of a partition, for which room is claimed. They are made in a turn,
// which ends with endTurn.
func (p *Partition) newTables(room *claim, endTurn func()) *tables {
	opt := p.d.cfg.badgerOptions(p.d.dir, p.d.log)
	return &tables{
		d: p.d, p: p, prefix: p.prefix.Load(), version: p.d.o.last(), room: room, end: endTurn,
		builder: sstable.Builder{BlockBytes: opt.BlockSize, FalsePositive: opt.BloomFalsePositive},
	}
}

// How large tables get. Each is a mapping and an open file, of which a process may have 65,530 and often fewer,
// so large loads make larger ones, as Badger's merges do:
//
//	load      tables    of
//	800 MB       160    5 MB
//	2 GB         270   16 MB
//	100 GB     6,400   16 MB
const (
	tableLeast = 5 << 20
	tableMost  = 16 << 20
	tableShare = 128 // a table is this part of what was loaded before it, within those bounds
)

// begin begins a table whose first entry has that size. The error is a *NoRoomError if the disk
// has no room for it: what a full disk does not take of the files of others damages the DB.
func (t *tables) begin(first int) error {
	if t.d.o.isClosed() {
		return ErrClosed // the tables could not be handed over
	}
	t.total += t.size
	t.target = max(t.d.loading.tableBytes, min(t.total/tableShare, tableMost))
	// The one before may be being synced.
	if err := t.room.ask(2 * tableFile(max(t.target, first))); err != nil {
		return err
	}
	name := filepath.Join(t.d.dir, fmt.Sprintf("%08x-%06d%s", t.prefix, len(t.files)+1, loadSuffix))
	t.files = append(t.files, name)
	// Not through a mapping, as Badger does it: that costs a fault for each page, and a disk that
	// is full says so here.
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("engine: write a table: %w", err)
	}
	t.file, t.size = f, 0
	t.builder.Begin(f)
	return nil
}

// tableFile is how large the file of a table gets at most, whose keys and values have that size:
// it has an index and a filter, some bytes for each entry and for each block, and no key twice.
func tableFile(size int) int64 { return int64(size) + int64(size)/8 }

// keyMax is the longest key that Badger takes.
const keyMax = 65000

// add adds the entry that follows.
func (t *tables) add(e DumpEntry) error {
	if prefixLen+len(e.Key) > keyMax {
		return corrupt("a dump has the key %.40x with %d bytes", e.Key, len(e.Key))
	}
	size := len(e.Key) + len(e.Value)
	if t.file != nil && t.size+size > t.target {
		if err := t.cut(); err != nil {
			return err
		}
	}
	if t.file == nil {
		if err := t.begin(size); err != nil {
			return err
		}
	}
	t.size += size
	t.key = binary.BigEndian.AppendUint32(t.key[:0], t.prefix)
	t.key = append(t.key, e.Key...)
	t.key = binary.BigEndian.AppendUint64(t.key, math.MaxUint64-t.version) // as y.KeyWithTs, which allocates
	t.builder.Add(t.key, y.ValueStruct{Value: e.Value})
	return nil
}

// cut ends a table. It is synced while the next one is built: Badger must not be told of one that a power loss could take.
func (t *tables) cut() error {
	f := t.file
	t.file = nil
	if err := errors.Join(t.builder.Finish(), f.Close()); err != nil {
		return fmt.Errorf("engine: write a table: %w", err)
	}
	if err := t.synced(); err != nil {
		return err
	}
	name, size := f.Name(), int64(t.builder.Written())
	t.syncing = new(errgroup.Group)
	t.syncing.Go(func() error {
		if err := t.d.syncFile(name); err != nil {
			return fmt.Errorf("engine: write a table: %w", err)
		}
		t.room.took(size)
		t.d.loading.step("table written")
		return nil
	})
	return nil
}

// synced waits for the table that is being synced.
func (t *tables) synced() error {
	if t.syncing == nil {
		return nil
	}
	err := t.syncing.Wait()
	t.syncing = nil
	return err
}

// finish returns when all tables are on disk. Others may make theirs then.
func (t *tables) finish() error {
	if t.file != nil {
		if err := t.cut(); err != nil {
			return err
		}
	}
	err := t.synced()
	t.endTurn()
	return err
}

func (t *tables) endTurn() {
	if t.end != nil {
		t.end()
		t.end = nil
	}
}

// close frees what t holds, and removes the files that are not Badger's.
func (t *tables) close() {
	_ = t.synced() // it is removed
	if t.file != nil {
		_ = t.file.Close() // the same
		t.file = nil
	}
	t.endTurn()
	for _, name := range t.files {
		_ = os.Remove(name) // Open does it else
	}
}

// removeLoads removes what a load left that a crash ended: tables, and a manifest.
func removeLoads(dir string) error {
	left, err := filesOf(dir, loadSuffix)
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// makersMax is how many loads make tables at once in a process. A node may get dozens of
// partitions at once, and two cores are busy with two.
const makersMax = 4

// makers has an element for each load of the process that makes tables.
var makers = make(chan struct{}, makersMax)

// turnInterval is the time between two calls of LoadOptions.Progress while a load waits.
const turnInterval = time.Second

// turn waits until the load may make tables, and tells progress that it waits. Call end.
func (d *DB) turn(ctx context.Context, progress func(waits bool) error) (end func(), err error) {
	end = func() { <-makers }
	select {
	case makers <- struct{}{}:
		return end, nil
	default:
	}
	tick := time.NewTicker(turnInterval)
	defer tick.Stop()
	for {
		if d.o.isClosed() {
			return nil, ErrClosed
		}
		if err := progress(true); err != nil {
			return nil, err
		}
		select {
		case makers <- struct{}{}:
			return end, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// claims are the room on the disk that loads have asked for and not used yet: what is free is
// not free for all of them.
type claims struct {
	mu  sync.Mutex
	all int64
}

// claim is that of one load.
type claim struct {
	d       *DB
	what    string
	reserve int64 // must stay free

	// Guarded by claims.mu.
	left int64 // of what was claimed
	used int64
}

// claim claims the room that a load with those options takes, if it is known.
func (d *DB) claim(p *Partition, opt *LoadOptions) (*claim, error) {
	c := &claim{d: d, what: "to load partition " + p.id.String(), reserve: max(opt.Reserve, d.cfg.openRoom())}
	if opt.Bytes <= int64(d.loading.bufferBytes) {
		return c, nil // it is little, or not known
	}
	return c, c.claim(tableFile(int(opt.Bytes)), true)
}

// ask returns a *NoRoomError unless there is room for so many bytes more.
func (c *claim) ask(bytes int64) error {
	if c == nil {
		return nil
	}
	return c.claim(bytes, false)
}

// claim is ask, and with keep the room is kept from other loads until it is used.
func (c *claim) claim(bytes int64, keep bool) error {
	free, err := c.d.loading.free(c.d.dir)
	if err != nil {
		return fmt.Errorf("engine: free space below %s: %w", c.d.dir, err)
	}
	all := &c.d.claims
	all.mu.Lock()
	defer all.mu.Unlock()
	bytes = max(bytes, c.left)
	if need := c.reserve + all.all - c.left + bytes; free < need {
		// What it has used will be free when it has ended.
		return &NoRoomError{Dir: c.d.dir, Free: free + c.used, Need: need + c.used, What: c.what}
	}
	if keep {
		all.all += bytes - c.left
		c.left = bytes
	}
	return nil
}

// took says that so many bytes more are used.
func (c *claim) took(bytes int64) {
	if c == nil {
		return
	}
	all := &c.d.claims
	all.mu.Lock()
	defer all.mu.Unlock()
	c.used += bytes
	all.all -= min(bytes, c.left)
	c.left -= min(bytes, c.left)
}

// again says that what was used is free again, and that the load begins again.
func (c *claim) again() {
	all := &c.d.claims
	all.mu.Lock()
	defer all.mu.Unlock()
	all.all += c.used
	c.left += c.used
	c.used = 0
}

// end gives back what was not used.
func (c *claim) end() {
	all := &c.d.claims
	all.mu.Lock()
	defer all.mu.Unlock()
	all.all -= c.left
	c.left = 0
}
