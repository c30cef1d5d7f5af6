package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"
	"golang.org/x/sync/errgroup"
)

// How the names of Badger's files end.
const (
	tableSuffix = ".sst"
	logSuffix   = ".mem"
	valueSuffix = ".vlog"
)

const (
	// uncleanName is a file that is there while the DB is open. It holds how many
	// times in a row the DB was not closed.
	uncleanName = "UNCLEAN"

	// uncleanMax is after how many unclean stops in a row Open verifies everything:
	// a block that makes Badger panic would do so again at every start.
	uncleanMax = 2
)

// checkFiles looks at files which Badger trusts before it opens them, and removes
// what it trips over, and what a load has left. Badger reads
// the index of a table in a goroutine of its own and panics there if it cannot; and
// where the manifest is missing it deletes all tables. With all it compares the
// checksums of all blocks too.
func checkFiles(dir string, all bool, opt badger.Options) error {
	// Badger takes the same lock when it opens. Without it the files of a DB that another process has open,
	// which change under the look, would count as damaged.
	unlock, err := lockDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return openError(dir, err)
	}
	defer unlock()
	// First: what an earlier process found still holds, and no file need be read for it.
	if err := damageOf(dir); err != nil {
		return err
	}
	lacking, err := lacksPages(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(removeEmptyLogs(dir), removeLoads(dir)); err != nil {
		return openError(dir, err)
	}
	if all = all || lacking || uncleanStops(dir) >= uncleanMax; all {
		opt.Logger.Infof("verifying all tables of %s", dir)
	}
	tables, err := tablesOf(dir, opt)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, id := range tables {
		g.Go(func() error { return checkTable(table.NewFilename(id, dir), all) })
	}
	return g.Wait()
}

// removeEmptyLogs removes logs of memtables, and of values, that have no bytes. Badger
// makes a file and then gives it its size, and empties one before it removes it; it
// refuses to start when it was stopped in between. No value is in a log of values, because
// none is as large as inlineMax.
func removeEmptyLogs(dir string) error {
	logs, err := filesOf(dir, logSuffix)
	if err != nil {
		return err
	}
	values, err := filesOf(dir, valueSuffix)
	if err != nil {
		return err
	}
	for _, name := range append(logs, values...) {
		if info, err := os.Stat(name); err != nil {
			return err
		} else if info.Size() > 0 {
			continue
		}
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// filesOf returns the files of dir whose names end with suffix.
func filesOf(dir, suffix string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

// tablesOf returns the tables that the manifest of dir names.
func tablesOf(dir string, opt badger.Options) ([]uint64, error) {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) {
		found, err := filesOf(dir, tableSuffix)
		if err != nil {
			return nil, openError(dir, err)
		}
		if len(found) > 0 {
			return nil, corrupt("%s has %d tables and no %s", dir, len(found), badger.ManifestFilename)
		}
		return nil, nil
	}
	if err != nil {
		return nil, openError(dir, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	manifest, _, err := badger.ReplayManifestFile(f, opt.ExternalMagicVersion, opt)
	if err != nil {
		return nil, corrupt("%s: %v", f.Name(), err)
	}
	ids := make([]uint64, 0, len(manifest.Tables))
	for id := range manifest.Tables {
		ids = append(ids, id)
	}
	return ids, nil
}

// checkTable reads the index of a table, and all of its blocks with all.
func checkTable(name string, all bool) (err error) {
	// OpenTable trusts the bytes of the index. Here its panic is an error that names the table; in Badger's
	// own goroutine it would end the process.
	defer func() {
		if r := recover(); r != nil {
			text, _, _ := strings.Cut(strings.TrimSpace(fmt.Sprint(r)), "\n")
			err = corrupt("table %s: %s", name, text)
		}
	}()
	file, err := z.OpenMmapFile(name, os.O_RDONLY, 0)
	if err != nil {
		return openError(name, err)
	}
	defer func() { _ = file.Close(-1) }() // it was only read
	_, err = table.OpenTable(file, table.Options{ReadOnly: true})
	if err != nil {
		return corrupt("table %s: %v", name, err)
	}
	if all {
		_, err = scrubTable(name, nil)
	}
	return err
}

// uncleanStops returns how many times in a row the DB in dir was not closed.
func uncleanStops(dir string) int {
	text, err := os.ReadFile(filepath.Join(dir, uncleanName))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		// It is there, so the DB was not closed. How often before is lost: a power loss may cut it, for it is
		// not synced. It decides what is verified, and nothing else: what must be applied again is told by
		// each partition's Synced.
		return 1
	}
	return n
}

// setUnclean records that the DB in dir is open: if it stays so, it was not closed
// n times in a row.
func setUnclean(dir string, n int) error {
	return os.WriteFile(filepath.Join(dir, uncleanName), strconv.AppendInt(nil, int64(n), 10), 0o644)
}

// setClean records that the DB in dir was closed.
func setClean(dir string) error { return os.Remove(filepath.Join(dir, uncleanName)) }
