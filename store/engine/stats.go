package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Stats says how large a DB is.
type Stats struct {
	Partitions int   // open
	Snapshots  int   // open, commits in flight included
	Tables     int   // on disk
	TableBytes int64 // of all tables
	Level0     int   // tables that are not sorted in yet; many of them slow reads and then writes
	DiskBytes  int64 // of the directory, as allocated
}

// Stats returns the present figures. It reads the directory.
func (d *DB) Stats() (Stats, error) {
	var st Stats
	d.mu.Lock()
	st.Partitions = len(d.partitions)
	d.mu.Unlock()
	d.o.mu.Lock()
	st.Snapshots = d.o.open
	closed := d.o.closed
	d.o.mu.Unlock()
	if closed {
		return st, ErrClosed
	}
	for _, level := range d.b.Levels() {
		st.Tables += level.NumTables
		st.TableBytes += level.Size
		if level.Level == 0 {
			st.Level0 = level.NumTables
		}
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return st, err
	}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(d.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // merged into another table meanwhile
		}
		if err != nil {
			return st, err
		}
		st.DiskBytes += allocated(info)
	}
	return st, nil
}

// Verify reads all tables and compares checksums. The error has the cause
// ErrCorrupt if one differs: then the state is to be rebuilt from the log.
func (d *DB) Verify() error {
	_, err := d.Scrub(nil)
	return err
}
