package engine

import (
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
)

// Trim takes the pages of tables out of the memory of the process. The tables
// stay mapped, and their content in the system's page cache as long as there is
// room: what is read again costs a minor fault. Without it every page that was ever
// read, by a merge or the scrub too, counts as the process's own for as long as its
// table exists. Nothing is done where the system is not Linux.
func (d *DB) Trim() error {
	dir, err := filepath.Abs(d.dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return err
	}
	// A mapping that goes away while it is trimmed might give its addresses to
	// memory of another kind, whose content would be lost. So an iterator holds the
	// tables, and only those are touched that were there before it and after it was
	// opened: numbers are not used twice, so it holds these.
	return d.view(&d.meta, func(txn *badger.Txn) error {
		before := d.tableNames(dir)
		it := txn.NewIterator(badger.IteratorOptions{})
		defer it.Close()
		held := d.tableNames(dir)
		for name := range held {
			if !before[name] {
				delete(held, name)
			}
		}
		return trimMapped(held)
	})
}

// tableNames returns the files of all tables.
func (d *DB) tableNames(dir string) map[string]bool {
	tables := d.b.Tables()
	names := make(map[string]bool, len(tables))
	for i := range tables {
		names[table.NewFilename(tables[i].ID, dir)] = true
	}
	return names
}
