// Package memtable writes to Badger's memtables in Badger's place.
//
//	Badger   a channel, a goroutine, a map of the transaction     this package   the caller's goroutine
//	         the log through a mapping, entry by entry                           the log by one call
//	         a full memtable becomes a table through a mapping                   the table is written by one call,
//	                                                                             without versions that nobody reads
//
// In ext4 each page that is written through a new mapping takes a fault that reserves a block, and a full disk is a signal
// there and not an error. What stands in memory, in the logs and in the tables is what Badger would put there: its iterators
// find it, and so does the Badger that is opened next, of whatever release.
//
//	Write ──▶ log, skiplist of the current memtable
//	             │ full: another takes its place
//	             ▼
//	          waiting, at most Options.NumMemtables; then writers wait
//	             │ one after the other, the oldest first
//	             ▼
//	          flush: a table of the first level; the log is removed
//
// A memtable that Badger itself has found when it was opened it flushes itself, before those that come here.
//
// Nothing may be written through Badger's own transactions: its goroutine would write to the same memtable. It is the engine's.
package memtable

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/skl"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/millrace/millrace/store/engine/internal/inside"
)

// retry is the time between two attempts to flush a memtable.
const retry = time.Second

// Write is a key and its value, or that it is deleted. A value is never empty.
type Write struct {
	Key, Value []byte
	Delete     bool
}

// Bytes is about how much a write takes of a memtable.
func (w *Write) Bytes() int64 { return int64(len(w.Key) + len(w.Value) + overhead) }

// overhead is what a memtable takes for a write beside key, value and node: the version, and what stands before the value.
const overhead = 32

// Tables are the memtables of an open Badger. Write is safe for concurrent use.
type Tables struct {
	b   *badger.DB
	log *slog.Logger

	// Badger's own; lock guards them for those who read.
	lock    *sync.RWMutex
	flushed *sync.Cond        // of lock: Badger itself has flushed one
	current *unsafe.Pointer   // the memtable that is written
	waiting *[]unsafe.Pointer // for their flush, the oldest first
	at      offsets

	mu     sync.Mutex // held by whoever writes
	full   int64      // bytes
	buf    []byte     // of the log
	key    []byte
	failed error // to write the log, which has a part of something behind its end then

	flush   func(y.Iterator) error
	most    int // that may wait
	flushes chan unsafe.Pointer
	ours    int           // how many of waiting came from here: the last ones; guarded by lock, as is ended
	ended   error         // why nothing is flushed any more
	quit    chan struct{} // closed when what fails is not to be tried again
	once    sync.Once
	done    sync.WaitGroup
}

// ErrEnd is the cause of an error of a flush that is not to be tried again: nothing is flushed any more, and Write returns it instead of
// waiting.
var ErrEnd = errors.New("memtables are not flushed any more")

// offsets says where Badger's memtable and its log have their fields.
type offsets struct{ list, log, maxVersion, file, end uintptr }

// Start takes over the memtables of b. flush makes a table of what a memtable has, in the order of its keys, so that Badger
// reads it there; after an error it is called again, unless that has the cause ErrEnd. The error is that this is another Badger.
func Start(b *badger.DB, log *slog.Logger, flush func(y.Iterator) error) (*Tables, error) {
	opt := b.Opts()
	t := &Tables{
		b: b, log: log, full: opt.MemTableSize, flush: flush,
		most: opt.NumMemtables, flushes: make(chan unsafe.Pointer, opt.NumMemtables+1), quit: make(chan struct{}), // one more when it is stopped
	}
	if err := t.find(); err != nil {
		return nil, err
	}
	t.done.Go(t.run)
	return t, nil
}

// find finds what is Badger's.
func (t *Tables) find() error {
	of := reflect.ValueOf(t.b).Elem()
	memtable, err := inside.Target(of, "mt")
	if err != nil {
		return err
	}
	log, err := inside.Target(memtable, "wal")
	if err != nil {
		return err
	}
	current, waiting := of.FieldByName("mt"), of.FieldByName("imm")
	if !waiting.IsValid() || waiting.Type() != reflect.SliceOf(current.Type()) {
		return fmt.Errorf("engine: Badger's %s has no imm of type %s", of.Type(), reflect.SliceOf(current.Type()))
	}
	t.current = (*unsafe.Pointer)(current.Addr().UnsafePointer())
	t.waiting = (*[]unsafe.Pointer)(waiting.Addr().UnsafePointer())
	if t.lock, err = inside.Field[sync.RWMutex](of, "lock"); err != nil {
		return err
	}
	flushed, err := inside.Field[*sync.Cond](of, "flushCond")
	if err != nil {
		return err
	}
	t.flushed = *flushed
	for _, f := range []struct {
		at   *uintptr
		of   reflect.Type
		name string
		is   reflect.Type
	}{
		{&t.at.list, memtable.Type(), "sl", reflect.TypeFor[*skl.Skiplist]()},
		{&t.at.log, memtable.Type(), "wal", log.Addr().Type()},
		{&t.at.maxVersion, memtable.Type(), "maxVersion", reflect.TypeFor[uint64]()},
		{&t.at.file, log.Type(), "MmapFile", reflect.TypeFor[*z.MmapFile]()},
		{&t.at.end, log.Type(), "writeAt", reflect.TypeFor[uint32]()},
	} {
		if *f.at, err = inside.Offset(f.of, f.name, f.is); err != nil {
			return err
		}
	}
	return nil
}

// Stop returns when all is flushed, so that Badger has nothing left to write when it is closed; with giveUp, or behind an error with the cause
// ErrEnd, it does not wait for what is not flushed yet: that stays in its logs, for the Badger that is opened next. Nobody writes any more, or reads.
// It may be called twice.
func (t *Tables) Stop(giveUp bool) {
	t.once.Do(func() {
		switch {
		case giveUp:
			close(t.quit)
			t.end(ErrEnd)
		case !t.list(*t.current).Empty():
			if memtable := *t.current; t.replace(memtable) == nil { // else Badger writes it
				t.flushes <- memtable
			}
		}
		close(t.flushes)
	})
	t.done.Wait()
	t.leave()
}

// end has nobody wait for a flush any more.
func (t *Tables) end(err error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.ended == nil {
		t.ended = err
	}
	t.flushed.Broadcast()
}

// leave leaves what waits in its logs. Badger, which would take the first that waits for the one that it has flushed itself, does not find it when it is closed.
func (t *Tables) leave() {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.ended == nil {
		return
	}
	found := len(*t.waiting) - t.ours
	for _, memtable := range (*t.waiting)[found:] {
		_ = t.mapped(memtable).Close(-1) // it stays as long as it is
	}
	*t.waiting, t.ours = (*t.waiting)[:found], 0
}

// Write puts writes into the current memtable, at a timestamp. Their keys differ, and their Bytes are together less than Badger's MaxBatchSize, and they are
// at most as many as its MaxBatchCount. It waits while too many memtables wait for their flush. After an error none of the writes
// is in memory, and the log may have a part of them: nothing can be written any more.
func (t *Tables) Write(ts uint64, writes []Write) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed != nil {
		return t.failed
	}
	if err := t.makeRoom(); err != nil {
		return err
	}
	memtable := *t.current
	end := t.endOfLog(memtable)
	t.buf = appendTxn(t.buf[:0], ts, writes)
	if _, t.failed = t.mapped(memtable).Fd.WriteAt(t.buf, int64(*end)); t.failed != nil {
		return t.failed
	}
	*end += uint32(len(t.buf))
	if cap(t.buf) > int(t.full)/4 {
		t.buf = nil
	}
	list := t.list(memtable)
	for i := range writes {
		w := &writes[i]
		t.key = appendVersioned(t.key[:0], w.Key, ts)
		list.Put(t.key, y.ValueStruct{Value: w.Value, Meta: w.meta()})
	}
	if version := t.maxVersion(memtable); *version < ts {
		*version = ts
	}
	return nil
}

// Found is a copy of what a version of a key has.
type Found struct {
	Version uint64
	Value   []byte // nil: the key was deleted
}

// FoundIn is what stands in a memtable or a table at a version.
func FoundIn(v y.ValueStruct, version uint64) Found {
	f := Found{Version: version}
	if v.Meta&metaDeleted == 0 {
		f.Value = append(make([]byte, 0, len(v.Value)), v.Value...)
	}
	return f
}

// Get returns the newest version of a key that any memtable has, up to the one with which at ends (y.KeyWithTs); none has the version 0.
func (t *Tables) Get(at []byte) Found {
	// Under the lock, for which those who write wait when a memtable is full: to look at each of a few takes a microsecond.
	t.lock.RLock()
	defer t.lock.RUnlock()
	v := t.list(*t.current).Get(at)
	for _, memtable := range slices.Backward(*t.waiting) {
		if *t.maxVersion(memtable) <= v.Version {
			continue
		}
		if older := t.list(memtable).Get(at); older.Version > v.Version {
			v = older
		}
	}
	if v.Version == 0 {
		return Found{}
	}
	return FoundIn(v, v.Version)
}

// makeRoom puts a new memtable in the place of one that is full, when fewer than most wait.
func (t *Tables) makeRoom() error {
	memtable := *t.current
	if t.list(memtable).MemSize() < t.full && int64(*t.endOfLog(memtable)) < t.full {
		return nil
	}
	if err := t.awaitRoom(); err != nil {
		return err
	}
	if err := t.replace(memtable); err != nil {
		return err
	}
	t.flushes <- memtable
	return nil
}

func (t *Tables) awaitRoom() error {
	t.lock.Lock()
	defer t.lock.Unlock()
	for len(*t.waiting) >= t.most && t.ended == nil {
		t.flushed.Wait()
	}
	return t.ended
}

func (t *Tables) replace(memtable unsafe.Pointer) error {
	next, err := newMemTable(t.b) // before the lock, for which whoever reads would wait some milliseconds
	if err != nil {
		return fmt.Errorf("make a memtable: %w", err)
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	*t.waiting = append(*t.waiting, memtable)
	t.ours++
	*t.current = next
	return nil
}

// run flushes one memtable after the other.
func (t *Tables) run() {
	for memtable := range t.flushes {
		if !t.await(memtable) {
			return
		}
		for {
			err := t.flush(t.list(memtable).NewUniIterator(false))
			if err == nil {
				break
			}
			if errors.Is(err, ErrEnd) {
				t.end(err)
				return
			}
			t.log.Error("a memtable could not be written; nothing is lost, and it is tried again: look at free space, inodes, "+
				"descriptors (ulimit -n) and mappings (vm.max_map_count)", "dir", t.b.Opts().Dir, "error", err)
			select {
			case <-t.quit:
				return
			case <-time.After(retry):
			}
		}
		t.release(memtable)
	}
}

// await waits until Badger has flushed what it found itself: what is older becomes a table first. It is false if nothing is to be flushed
// any more.
func (t *Tables) await(memtable unsafe.Pointer) bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	for t.ended == nil && (*t.waiting)[0] != memtable {
		t.flushed.Wait()
	}
	return t.ended == nil
}

// release lets go of a memtable that is a table now, and empties its log. The log goes with the last iterator that has the memtable,
// and a process that is killed before would find there what merges have dropped meanwhile: an item that was deleted, and with it what
// says that it was.
func (t *Tables) release(memtable unsafe.Pointer) {
	if err := t.mapped(memtable).Fd.Truncate(0); err != nil { // nobody reads the log of a memtable
		t.log.Warn("the log of a memtable that is a table now could not be emptied; if the process is killed before it is removed, "+
			"what was deleted since may come back", "dir", t.b.Opts().Dir, "error", err)
	}
	t.lock.Lock()
	*t.waiting = (*t.waiting)[1:]
	t.ours--
	t.flushed.Broadcast()
	t.lock.Unlock()
	t.list(memtable).DecrRef() // who reads it has a reference; the last one removes the log, which takes a while
}

func (t *Tables) list(memtable unsafe.Pointer) *skl.Skiplist {
	return *(**skl.Skiplist)(unsafe.Add(memtable, t.at.list))
}

// maxVersion is the greatest version that a memtable has. Nobody changes it in one that waits.
func (t *Tables) maxVersion(memtable unsafe.Pointer) *uint64 {
	return (*uint64)(unsafe.Add(memtable, t.at.maxVersion))
}

// mapped is the log of a memtable.
func (t *Tables) mapped(memtable unsafe.Pointer) *z.MmapFile {
	log := *(*unsafe.Pointer)(unsafe.Add(memtable, t.at.log))
	return *(**z.MmapFile)(unsafe.Add(log, t.at.file))
}

// endOfLog is where the log of a memtable ends.
func (t *Tables) endOfLog(memtable unsafe.Pointer) *uint32 {
	return (*uint32)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Add(memtable, t.at.log)), t.at.end))
}

// newMemTable is Badger's, which shows it to nobody. Badger calls it under its lock, for a counter that nobody else uses.
//
//go:linkname newMemTable github.com/dgraph-io/badger/v4.(*DB).newMemTable
func newMemTable(b *badger.DB) (unsafe.Pointer, error)
