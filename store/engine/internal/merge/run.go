package merge

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/millrace/millrace/store/engine/internal/sstable"
)

// Run is how tables are made.
type Run struct {
	Dir     string           // of the tables
	Builder *sstable.Builder // of this run alone
	Options table.Options    // with which they are opened
	NextID  func() uint64    // gives numbers to tables
	Discard uint64           // up to which version of a key only the newest is kept
	Quit    <-chan struct{}  // closed to give up; nil never
}

// ErrQuit says that a merge was given up because it was told to.
var ErrQuit = errors.New("the merge was given up")

// yieldEvery is how many entries are written before those who wait for a processor come first: a merge is at work for tenths of
// a second, and would have a processor for 10 ms at a time, where a commit takes one.
const yieldEvery = 32

const (
	// deleted is the bit of a value's Meta that says that the key was deleted.
	deleted = 1

	// belowMax is how many tables of the level below a table may overlap, as far as belowEvery keys tell: a merge of it
	// writes all of those.
	belowMax   = 10
	belowEvery = 1000
)

// Merge makes the tables that the plan's become, syncs them, and opens them: each has one reference. The names in the
// directory are not synced. After an error there are none.
//
// Badger makes tables through shared mappings, which costs a fault for each page and a sync for each table; written by
// calls a table costs half, and a disk that is full says so. All are synced behind the last one, so that the
// system writes what it knows of all files at once.
func (r *Run) Merge(p *Plan) ([]*table.Table, error) {
	return r.make(func(w *writer) error { return r.build(p, w) })
}

// Flush makes one table, for the first level, of what a memtable has, which must be something; else it is like Merge.
func (r *Run) Flush(memtable y.Iterator) (*table.Table, error) {
	tables, err := r.make(func(w *writer) error {
		defer func() { _ = memtable.Close() }() // it was only read
		memtable.Rewind()
		return w.table(func(b *sstable.Builder) { r.fill(&Plan{covers: true}, memtable, b) })
	})
	if err != nil {
		return nil, err
	}
	return tables[0], nil
}

// make syncs and opens the tables that build writes.
func (r *Run) make(build func(*writer) error) (tables []*table.Table, err error) {
	w := &writer{run: r}
	made := false
	defer func() { // also where Badger panics over a damaged block
		if !made {
			w.remove(tables)
			tables = nil
		}
	}()
	if err := build(w); err != nil {
		return nil, err
	}
	for _, f := range w.files {
		if err := f.Sync(); err != nil {
			return nil, err
		}
	}
	for i, f := range w.files {
		mapped, err := z.OpenMmapFileUsing(f, 0, true)
		if err != nil {
			return tables, err
		}
		w.files[i] = nil // it is the mapping's
		t, err := table.OpenTable(mapped, r.Options)
		if err != nil {
			return tables, errors.Join(err, os.Remove(f.Name()))
		}
		tables = append(tables, t)
	}
	made = true
	return tables, nil
}

// build writes the tables that a plan's become.
func (r *Run) build(p *Plan, w *writer) error {
	var iters []y.Iterator
	if p.From == 0 {
		for _, t := range slices.Backward(p.Top) {
			iters = append(iters, t.NewIterator(table.NOCACHE))
		}
	} else {
		iters = append(iters, table.NewConcatIterator(p.Top, table.NOCACHE))
	}
	it := table.NewMergeIterator(append(iters, table.NewConcatIterator(p.Bottom, table.NOCACHE)), false)
	defer func() { _ = it.Close() }() // tables were only read
	for it.Rewind(); it.Valid(); {
		select {
		case <-r.Quit:
			return ErrQuit
		default:
		}
		if err := w.table(func(b *sstable.Builder) { r.fill(p, it, b) }); err != nil {
			return err
		}
	}
	return nil
}

// fill adds what a table gets: all, if the plan names no size. It ends between two keys.
func (r *Run) fill(p *Plan, it y.Iterator, b *sstable.Builder) {
	var first, last, done []byte // keys with versions
	n, added := 0, 0
	for ; it.Valid(); it.Next() {
		key := it.Key()
		if len(done) > 0 && y.SameKey(key, done) {
			continue // an older version than one that all see
		}
		if len(last) == 0 || !y.SameKey(key, last) {
			// All versions of a key stand in one table.
			if n > 0 && p.tableBytes > 0 && (int64(b.Size()) > p.tableBytes/20*19 || n%belowEvery == 0 && r.farBelow(p, first, last)) {
				return
			}
			last = append(last[:0], key...)
			if n++; n == 1 {
				first = append(first, key...)
			}
		}
		value := it.Value()
		if y.ParseTs(key) <= r.Discard {
			done = append(done[:0], key...)
			if value.Meta&deleted != 0 && !p.covers {
				continue // nothing is left for it to hide
			}
		}
		b.Add(key, value)
		if added++; added%yieldEvery == 0 {
			runtime.Gosched()
		}
	}
}

// farBelow tells whether a table from first to last overlaps too much of the level below.
func (r *Run) farBelow(p *Plan, first, last []byte) bool {
	return len(overlapping(p.below, y.ParseKey(first), y.ParseKey(last))) >= belowMax
}

// writer writes tables.
type writer struct {
	run   *Run
	begun bool // the last of files is the table's that is being written
	files []*os.File
}

// table writes what fill adds as a table; nothing if it adds nothing.
func (w *writer) table(fill func(*sstable.Builder)) error {
	b := w.run.Builder
	w.begun = false
	b.Begin(w)
	fill(b)
	if b.Empty() {
		return nil
	}
	if err := b.Finish(); err != nil {
		return err
	}
	beginWriteback(w.files[len(w.files)-1])
	return nil
}

// Write writes to the table, which gets its number and its name with the first bytes.
func (w *writer) Write(p []byte) (int, error) {
	if !w.begun {
		f, err := os.OpenFile(table.NewFilename(w.run.NextID(), w.run.Dir), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
		if err != nil {
			return 0, err
		}
		w.files, w.begun = append(w.files, f), true
	}
	return w.files[len(w.files)-1].Write(p)
}

// remove removes what was made.
func (w *writer) remove(tables []*table.Table) {
	for _, f := range w.files {
		if f != nil {
			_ = f.Close() // it is of no use
			_ = os.Remove(f.Name())
		}
	}
	Drop(tables)
}

// Drop lets go of tables that Merge made, and so removes them if they are nobody else's.
func Drop(tables []*table.Table) {
	for _, t := range tables {
		_ = t.DecrRef() // a file that stays is removed when Badger is opened
	}
}

func (p *Plan) String() string {
	return fmt.Sprintf("%d tables of level %d with %d of level %d", len(p.Top), p.From, len(p.Bottom), p.To)
}
