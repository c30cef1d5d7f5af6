package merge

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/dgraph-io/ristretto/v2/z"
)

// Run is how a plan is carried out.
type Run struct {
	Dir     string          // of the tables
	Options table.Options   // with which they are built and opened, but for their size
	NextID  func() uint64   // gives numbers to tables
	Discard uint64          // up to which version of a key only the newest is kept
	Quit    <-chan struct{} // closed to give up; nil never
}

// ErrQuit says that a merge was given up because it was told to.
var ErrQuit = errors.New("the merge was given up")

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
// one call a table costs half, and a disk that is full says so. All are synced behind the last one, so that the
// system writes what it knows of all files at once.
func (r *Run) Merge(p *Plan) (tables []*table.Table, err error) {
	w := &writer{run: r}
	made := false
	defer func() { // also where Badger panics over a damaged block
		if !made {
			_ = w.wait() // it is removed
			w.remove(tables)
			tables = nil
		}
	}()
	if err := r.build(p, w.add); err != nil {
		return nil, err
	}
	if err := w.wait(); err != nil {
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

// build puts tables together and passes them to add, which closes them.
func (r *Run) build(p *Plan, add func(*table.Builder) error) error {
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
	opt := r.Options
	opt.TableSize = uint64(p.tableBytes)
	for it.Rewind(); it.Valid(); {
		select {
		case <-r.Quit:
			return ErrQuit
		default:
		}
		b := r.table(p, it, opt)
		if b.Empty() {
			b.Finish() // or its goroutines stay
			b.Close()
			continue
		}
		if err := add(b); err != nil {
			return err
		}
	}
	return nil
}

// table puts a table together.
func (r *Run) table(p *Plan, it y.Iterator, opt table.Options) *table.Builder {
	b := table.NewTableBuilder(opt)
	filled := false
	defer func() {
		if !filled { // Badger panics over a damaged block
			b.Close()
		}
	}()
	r.fill(p, it, b)
	filled = true
	return b
}

// fill adds what a table gets. It ends between two keys.
func (r *Run) fill(p *Plan, it y.Iterator, b *table.Builder) {
	var first, last, done []byte // keys with versions
	n := 0
	for ; it.Valid(); it.Next() {
		key := it.Key()
		if len(done) > 0 && y.SameKey(key, done) {
			continue // an older version than one that all see
		}
		if len(last) == 0 || !y.SameKey(key, last) {
			// All versions of a key stand in one table.
			if n > 0 && (b.ReachedCapacity() || n%belowEvery == 0 && r.farBelow(p, first, last)) {
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
		b.Add(key, value, 0)
	}
}

// farBelow tells whether a table from first to last overlaps too much of the level below.
func (r *Run) farBelow(p *Plan, first, last []byte) bool {
	return len(overlapping(p.below, y.ParseKey(first), y.ParseKey(last))) >= belowMax
}

// writer writes tables, one while the next is built.
type writer struct {
	run     *Run
	files   []*os.File
	buf     []byte
	writing chan error // of the table before; nil if there is none
}

// add writes the table of b, when the one before is written.
func (w *writer) add(b *table.Builder) error {
	if err := w.wait(); err != nil {
		b.Finish()
		b.Close()
		return err
	}
	w.writing = make(chan error, 1)
	go func() {
		err := w.write(b)
		b.Close() // first: who is told may release the pool
		w.writing <- err
	}()
	return nil
}

// wait waits for the table that is being written.
func (w *writer) wait() error {
	if w.writing == nil {
		return nil
	}
	err := <-w.writing
	w.writing = nil
	return err
}

func (w *writer) write(b *table.Builder) error {
	built := b.Done()
	w.buf = slices.Grow(w.buf[:0], built.Size)[:built.Size]
	built.Copy(w.buf)
	f, err := os.OpenFile(table.NewFilename(w.run.NextID(), w.run.Dir), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w.files = append(w.files, f)
	if _, err := f.Write(w.buf); err != nil {
		return err
	}
	beginWriteback(f)
	return nil
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
