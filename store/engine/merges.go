package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
)

const (
	// mergeRead is what Badger says when a merge has read all that it reads, or a part of it
	// that is read at once, and before its tables are replaced. Badger says it to the log for
	// debugging, in the goroutine of the merge, which waits for the log.
	mergeRead = "Discard stats: %v"

	// openFails is what Badger says before it waits for merges, in order to fail to open.
	openFails = "Received err: %v. Cleaning up..."

	// memtableFails is what Badger says when it cannot make a memtable, under the lock that whoever
	// reads needs too. It has none when it lets go of the lock.
	memtableFails = "Got error: %v for id: %d\n"

	// openMax bounds how long a merge waits until the DB is open. Badger can wait for
	// the merge, while it writes what was in memory before a crash.
	openMax = 10 * time.Second
)

// merges looks at the tables that Badger merges. A merge leaves out what it cannot read, and
// removes the tables: nobody would find it later. So the DB is damaged before that.
type merges struct {
	dir string
	opt badger.Options
	log *slog.Logger

	retry time.Duration // how long a compactor waits after a merge that failed

	db     atomic.Pointer[DB] // nil unless it was opened
	opened chan struct{}      // closed when opening has ended
	once   sync.Once
}

func newMerges(dir string, log *slog.Logger) *merges {
	return &merges{dir: dir, log: log, retry: mergeRetry, opened: make(chan struct{})}
}

// watch has Badger tell its merges to m.
func (m *merges) watch(opt badger.Options) badger.Options {
	m.opt = opt
	return opt.WithLogger(badgerLog{m.log, m})
}

// end ends opening; d is nil if it has failed.
func (m *merges) end(d *DB) {
	m.once.Do(func() {
		m.db.Store(d)
		close(m.opened)
	})
}

// read looks at the tables that a merge has read.
func (m *merges) read() {
	select {
	case <-m.opened:
	case <-time.After(openMax):
	}
	if d := m.db.Load(); d != nil {
		d.checkMerged()
		return
	}
	if err := m.checkFiles(); err != nil {
		m.log.Error("tables were merged of which one is damaged", "dir", m.dir, "error", err)
		// Without it the next process would not know.
		_ = os.WriteFile(filepath.Join(m.dir, damagedName), []byte(strings.TrimPrefix(err.Error(), "engine: ")+"\n"), 0o600)
	}
}

// unwritten tells the DB that Badger is without a memtable, before a read comes upon it and takes
// it for damage of the files.
func (m *merges) unwritten(args []any) {
	if d := m.db.Load(); d != nil && len(args) > 0 {
		_ = d.unwritten(args[0]) // the commit is told
	}
}

// checkFiles reads all tables of a DB that is not open yet: which of them are merged is not to be
// known then.
func (m *merges) checkFiles() error {
	tables, err := tablesOf(m.dir, m.opt)
	if err != nil {
		return err
	}
	for _, id := range tables {
		if _, err := scrubTable(table.NewFilename(id, m.dir), nil); errors.Is(err, ErrCorrupt) {
			return err
		}
	}
	return nil
}

// show begins to look at the tables of b, which has just been opened. Nobody reads meanwhile.
func (d *DB) show(b *badger.DB, m *merges) (err error) {
	if d.levels, err = levelsOf(b); err == nil {
		m.end(d)
	}
	return err
}

// checkMerged finds that Badger cannot have read all blocks of the tables that it merges.
func (d *DB) checkMerged() {
	defer func() {
		if r := recover(); r != nil {
			_ = d.fail(&DamagedError{Reason: fmt.Sprintf("a table in %s cannot be read: %v", d.dir, r)}) // Sound tells it
		}
	}()
	// A block may have been counted that nobody has looked for yet. Sound may look when the tables
	// are gone.
	counted := mismatches.Load() != d.health.judged.Load()
	for _, t := range d.levels.merged() {
		at := checkAll(t)
		if at == nil && counted {
			at = checkBlocks(t)
		}
		d.letGo(t)
		if at != nil {
			_ = d.fail(at.damage()) // Sound tells it
		}
	}
}

// merged holds the tables that are being merged.
func (l *levels) merged() (held []*table.Table) {
	l.merging.mu.RLock()
	ids := make(map[uint64]bool, len(*l.merging.ids))
	for id := range *l.merging.ids {
		ids[id] = true
	}
	l.merging.mu.RUnlock()
	for i := range l.of {
		held = l.of[i].holdThose(held, ids)
	}
	return held
}

func (l *level) holdThose(held []*table.Table, ids map[uint64]bool) []*table.Table {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, t := range *l.tables {
		if ids[t.ID()] {
			t.IncrRef()
			held = append(held, t)
		}
	}
	return held
}
