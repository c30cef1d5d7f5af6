package engine

import (
	"bytes"
	"fmt"
	"reflect"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/millrace/millrace/store/engine/internal/inside"
)

// levels are the tables that Badger reads, as it reads them. Badger shows them to
// nobody. DB.Tables makes a list with all keys each time, which takes longer than many
// reads do.
type levels struct {
	of         []level
	controller unsafe.Pointer // Badger's, as is manifest
	manifest   unsafe.Pointer
	nextID     *atomic.Uint64 // of a table
}

// level is one of Badger's levels. The tables of the first may overlap; those of another
// follow each other by their keys.
type level struct {
	mu      *sync.RWMutex // held by whoever looks at tables
	tables  *[]*table.Table
	handler unsafe.Pointer // Badger's
}

// levelsOf finds the levels of b, which are the same as long as it is open. The error
// says that this is another Badger than the one that this was written for.
func levelsOf(b *badger.DB) (*levels, error) {
	controller, err := inside.Target(reflect.ValueOf(b).Elem(), "lc")
	if err != nil {
		return nil, err
	}
	manifest, err := inside.Target(reflect.ValueOf(b).Elem(), "manifest")
	if err != nil {
		return nil, err
	}
	l := &levels{controller: controller.Addr().UnsafePointer(), manifest: manifest.Addr().UnsafePointer()}
	if l.nextID, err = inside.Field[atomic.Uint64](controller, "nextFileID"); err != nil {
		return nil, err
	}
	handlers := controller.FieldByName("levels")
	if handlers.Kind() != reflect.Slice || handlers.Len() == 0 {
		return nil, fmt.Errorf("engine: Badger's %s has no levels", controller.Type())
	}
	l.of = make([]level, handlers.Len())
	for i := range l.of {
		handler := reflect.Indirect(handlers.Index(i))
		l.of[i].handler = handlers.Index(i).UnsafePointer()
		if l.of[i].mu, err = inside.Field[sync.RWMutex](handler, "RWMutex"); err != nil {
			return nil, err
		}
		if l.of[i].tables, err = inside.Field[[]*table.Table](handler, "tables"); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// hold appends the tables that may have keys from lo to hi. They stay until letGo: to read many
// blocks takes longer than anybody can wait for the lock.
func (l *level) hold(held []*table.Table, lo, hi []byte, first bool) []*table.Table {
	l.mu.RLock()
	defer l.mu.RUnlock()
	tables := *l.tables
	if !first {
		tables = overlapping(tables, lo, hi)
	}
	for _, t := range tables {
		if overlaps(t, lo, hi) {
			t.IncrRef()
			held = append(held, t)
		}
	}
	return held
}

// letGo ends the hold of a table, and removes it if nobody needs it any more.
func (d *DB) letGo(t *table.Table) {
	if err := t.DecrRef(); err != nil {
		d.log.Warn("a merged table could not be removed", "table", t.Filename(), "error", err)
	}
}

// overlaps tells whether a table may have keys from lo to hi.
func overlaps(t *table.Table, lo, hi []byte) bool {
	return bytes.Compare(y.ParseKey(t.Biggest()), lo) >= 0 &&
		(hi == nil || bytes.Compare(y.ParseKey(t.Smallest()), hi) <= 0)
}

// overlapping returns those of tables, which follow each other, that overlap lo to hi.
func overlapping(tables []*table.Table, lo, hi []byte) []*table.Table {
	begin := sort.Search(len(tables), func(i int) bool { return bytes.Compare(y.ParseKey(tables[i].Biggest()), lo) >= 0 })
	end := begin
	for end < len(tables) && (hi == nil || bytes.Compare(y.ParseKey(tables[end].Smallest()), hi) <= 0) {
		end++
	}
	return tables[begin:end]
}
