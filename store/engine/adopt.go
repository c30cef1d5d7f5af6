package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/dgraph-io/ristretto/v2/z"
)

// errNotAdopted says that tables could not be handed to Badger now, and that nothing changed.
var errNotAdopted = errors.New("engine: tables cannot be handed over now")

// adopt makes tables Badger's, all of them or none. Badger takes none from outside while it is
// open (its StreamWriter stops all writers from the first entry to the last, and merges
// everything first where there is anything), so it is closed and opened for it, at a moment at
// which nobody has a commit or a snapshot. That takes 0.1 to 0.2 s; who comes meanwhile waits.
//
// The error is errNotAdopted if there is no such moment, or no level for the tables.
func (d *DB) adopt(t *tables) error {
	d.loading.step("tables made")
	// Here and not in mayHand: nobody waits for it yet.
	if err := checkKeys(t); err != nil {
		return err
	}
	if err := d.Sound(); err != nil {
		return err
	}
	return d.o.alone(d.loading.wait, func() error {
		ranges, err := d.mayHand(t)
		if err != nil {
			return err
		}
		// Sync looks at files that go and come. It begins no commit and no snapshot, so one that is
		// at work ends. Taken before the moment has come, the lock would stop all syncs until then,
		// and for good where whoever keeps the moment from coming waits for a sync.
		d.swap.Lock()
		defer d.swap.Unlock()
		return d.hand(t, ranges)
	})
}

// checkKeys returns an error unless the keys of all tables are under their prefix, have their
// version, and follow each other. Any other key would take the place of one of another
// partition, or be a level's second.
func checkKeys(t *tables) error {
	want := binary.BigEndian.AppendUint32(nil, t.prefix)
	var before []byte
	for _, name := range t.files {
		r, err := rangeOf(name)
		if err != nil {
			return fmt.Errorf("engine: a table that was made cannot be read, load it again: %v", err) //nolint:errorlint // its cause would say that the DB is damaged
		}
		for _, key := range [][]byte{r.first, r.last} {
			switch {
			case len(key) < prefixLen+8 || !bytes.HasPrefix(key, want):
				return fmt.Errorf("engine: table %s has the key %.40x, which is not under prefix %x of its partition; load it again", name, key, want)
			case y.ParseTs(key) != t.version:
				return fmt.Errorf("engine: table %s has the key %.40x of version %d, want %d; load it again", name, key, y.ParseTs(key), t.version)
			}
		}
		if before != nil && y.CompareKeys(before, r.first) >= 0 {
			return fmt.Errorf("engine: table %s begins with %.40x, which is not behind %.40x; load it again", name, r.first, before)
		}
		before = r.last
	}
	return nil
}

// mayHand returns an error if it is known already that tables cannot be handed over: Badger then
// stays open as it is. It returns the ranges of Badger's tables. The caller is alone, so it
// must not read through a snapshot, as Sound may.
func (d *DB) mayHand(t *tables) (map[uint64]keyRange, error) {
	if wrong := d.health.wrong.Load(); wrong != nil {
		return nil, wrong
	}
	if err := d.faulted(); err != nil {
		return nil, err
	}
	if now := t.p.prefix.Load(); now != t.prefix {
		return nil, fmt.Errorf("engine: partition %s was emptied while it was loaded; load it again", t.p.id)
	}
	if err := t.room.ask(0); err != nil { // closing writes what is in memory
		return nil, err
	}
	all := d.b.Tables()
	ranges := make(map[uint64]keyRange, len(all))
	named := make(map[uint64]badger.TableManifest, len(all))
	for i := range all {
		ranges[all[i].ID] = keyRange{all[i].Left, all[i].Right}
		named[all[i].ID] = badger.TableManifest{Level: uint8(all[i].Level)}
	}
	// Closing may end a merge, so hand looks again.
	_, err := d.freeLevel(t.prefix, named, ranges, d.b.Opts().MaxLevels)
	return ranges, err
}

// hand closes Badger, adds the tables, and opens it. ranges are those of the tables that it has.
// Where Badger cannot be closed or opened the DB is damaged, and refuses everything until Renew.
func (d *DB) hand(t *tables, ranges map[uint64]keyRange) error {
	d.loading.step("closing")
	d.closing = true
	if err := within(d.loading.closing, d.shut); err != nil {
		return d.unopened(fmt.Errorf("close it: %w", err))
	}
	d.closing = false
	d.loading.step("closed")
	// Closing has written tables, through mappings.
	err := d.faulted()
	if err == nil {
		err = d.addTables(t, ranges)
	}
	d.loading.step("reopening")
	b, failed := openManaged(d.cfg.badgerOptions(d.dir, d.log))
	if failed == nil {
		d.b = b
		if failed = d.takeOver(b); failed != nil {
			failed = errors.Join(failed, within(d.loading.closing, b.Close))
		}
	}
	if failed != nil {
		return errors.Join(err, d.unopened(fmt.Errorf("open it: %w", failed)))
	}
	if err == nil {
		err = d.faulted()
	}
	return err
}

// within closes Badger by shut, and returns when that has taken too long: it waits for flushes
// and merges, and a flush that fails is tried again for ever. It goes on closing then, and
// Badger keeps the lock of its directory until it has.
func within(limit time.Duration, shut func() error) error {
	closed := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				closed <- fmt.Errorf("%v", r)
			}
		}()
		closed <- shut()
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case err := <-closed:
		return err
	case <-late.C:
		return fmt.Errorf("it takes longer than %s", limit)
	}
}

// endBadger closes Badger for Close. A Badger that did not close in time to hand tables over
// may never do.
func (d *DB) endBadger() error {
	if d.closing {
		return within(d.loading.closing, d.shut)
	}
	return d.shut()
}

// unopened records that Badger is closed, or may be, and why. Its files are whole, as far as is
// known. The caller holds swap.
func (d *DB) unopened(err error) error {
	d.o.refuse()
	d.gone = true // a sync may wait for swap
	return d.fail(&DamagedError{Unsynced: true, Reason: fmt.Sprintf("loaded tables could not be added to %s: %v", d.dir, err)})
}

// openManaged opens Badger, whose panics are errors.
func openManaged(opt badger.Options) (b *badger.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return badger.OpenManaged(opt)
}

// keyRange is the first and the last key of a table.
type keyRange struct{ first, last []byte }

// addTables adds tables to those that the manifest of the closed Badger names. Its steps, and
// what Open makes of a crash behind each:
//
//	the tables get numbers     Badger removes tables that its manifest does not name
//	the directory is synced    the same
//	a new manifest is written  beside the old one; Open removes it
//	it takes the old one's     all tables are Badger's, under a prefix whose partition has no
//	place                      State: it is emptied when it is opened
//	the directory is synced    the same
//
// After an error before the manifest has its name no table is Badger's, and the caller opens it
// with those that it had.
func (d *DB) addTables(t *tables, ranges map[uint64]keyRange) error {
	unlock, err := lockDir(d.dir)
	if err != nil {
		return err
	}
	defer unlock()
	opt := d.cfg.badgerOptions(d.dir, d.log)
	path := filepath.Join(d.dir, badger.ManifestFilename)
	manifest, text, err := readManifest(path, opt)
	if err != nil {
		return err
	}
	level, err := d.freeLevel(t.prefix, manifest.Tables, ranges, opt.MaxLevels)
	if err != nil {
		return err
	}
	next, err := d.nextTable(manifest.Tables)
	if err != nil {
		return err
	}
	for i, name := range t.files {
		if err := os.Rename(name, table.NewFilename(next+uint64(i), d.dir)); err != nil {
			return err
		}
		d.loading.step("table named")
	}
	if err := d.syncNames(); err != nil {
		return err
	}
	if err := d.replaceManifest(path, appendCreated(text, next, len(t.files), level)); err != nil {
		return err
	}
	d.loading.step("manifest named")
	// Or a power loss could bring the old one back when merges have removed what it names.
	return d.syncNames()
}

// replaceManifest puts text in the place of a manifest. Not appended to it: of a record that a
// crash cuts Badger may refuse the whole file.
func (d *DB) replaceManifest(path string, text []byte) error {
	beside := path + loadSuffix
	err := os.WriteFile(beside, text, 0o600)
	if err == nil {
		err = d.syncFile(beside)
	}
	if err == nil {
		d.loading.step("manifest written")
		err = os.Rename(beside, path)
	}
	if err != nil {
		_ = os.Remove(beside) // Open does it else
	}
	return err
}

// syncNames syncs the directory. After an error names of other files may be lost too.
func (d *DB) syncNames() error {
	err := d.syncFile(d.dir)
	if err != nil {
		return d.fail(&DamagedError{Unsynced: true, Reason: fmt.Sprintf("a sync failed when tables were added: %v", err)})
	}
	return nil
}

// readManifest reads a manifest and returns its bytes up to the last whole record.
func readManifest(path string, opt badger.Options) (m badger.Manifest, text []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	m, end, err := badger.ReplayManifestFile(f, opt.ExternalMagicVersion, opt)
	if err != nil {
		return m, nil, err
	}
	text = make([]byte, end)
	_, err = f.ReadAt(text, 0)
	return m, text, err
}

// appendCreated appends to a manifest the record that n tables from number first on are in a
// level: its length and CRC-32C, and a message whose first field, again and again, is a change:
// 1 the number, 3 the level.
func appendCreated(text []byte, first uint64, n, level int) []byte {
	var set []byte
	for i := range n {
		change := binary.AppendUvarint([]byte{1 << 3}, first+uint64(i))
		change = append(change, 3<<3, byte(level))
		set = append(append(set, 1<<3|2, byte(len(change))), change...)
	}
	text = binary.BigEndian.AppendUint32(text, uint32(len(set)))
	text = binary.BigEndian.AppendUint32(text, crc32.Checksum(set, y.CastagnoliCrcTable))
	return append(text, set...)
}

// nextTable returns a number above those of all tables.
func (d *DB) nextTable(named map[uint64]badger.TableManifest) (uint64, error) {
	var last uint64
	for id := range named {
		last = max(last, id)
	}
	files, err := filesOf(d.dir, tableSuffix)
	if err != nil {
		return 0, err
	}
	for _, name := range files {
		if id, ok := table.ParseFileID(filepath.Base(name)); ok {
			last = max(last, id)
		}
	}
	return last + 1, nil
}

// freeLevel returns the lowest level of which no table has keys on both sides of a prefix, or
// under it: tables of a level must not overlap. Which level it is makes no difference to what is
// read, because no other table has keys under the prefix; the lowest one is merged last. The
// error is errNotAdopted if there is none.
func (d *DB) freeLevel(prefix uint32, named map[uint64]badger.TableManifest, ranges map[uint64]keyRange, levels int) (int, error) {
	want := binary.BigEndian.AppendUint32(nil, prefix)
	taken := make([]bool, levels)
	for id, t := range named {
		r, ok := ranges[id]
		if !ok { // made while Badger was closed
			var err error
			if r, err = rangeOf(table.NewFilename(id, d.dir)); err != nil {
				return 0, err
			}
		}
		if string(r.first[:prefixLen]) <= string(want) && string(r.last[:prefixLen]) >= string(want) {
			taken[t.Level] = true
		}
	}
	for level := levels - 1; level > 0; level-- {
		if !taken[level] {
			return level, nil
		}
	}
	return 0, errNotAdopted
}

// rangeOf returns the first and the last key of a table, which may have any name.
func rangeOf(name string) (r keyRange, err error) {
	defer func() {
		if caught := recover(); caught != nil {
			text, _, _ := strings.Cut(strings.TrimSpace(fmt.Sprint(caught)), "\n")
			err = corrupt("table %s: %s", name, text)
		}
	}()
	file, err := z.OpenMmapFile(name, os.O_RDONLY, 0)
	if err != nil {
		return r, err
	}
	defer func() { _ = file.Close(-1) }() // it was only read
	// As OpenTable does it, which wants to see a number in the name.
	t, err := table.OpenInMemoryTable(file.Data, 0, &table.Options{ReadOnly: true})
	if err != nil {
		return r, corrupt("table %s: %v", name, err)
	}
	return keyRange{t.Smallest(), t.Biggest()}, nil
}
