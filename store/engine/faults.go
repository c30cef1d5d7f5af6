package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/millrace/millrace/store/internal/mapguard"
)

// faultsName is a file that tells whether files of the DB lack pages, because the disk was full
// or failed under a mapping. The handler of the signal writes it.
const faultsName = "FAULTS"

// guardMappings keeps the process alive when a page of a mapped file cannot be had. It must have
// returned before anything of Badger runs.
func guardMappings(log *slog.Logger) {
	guardOnce.Do(func() {
		if err := mapguard.Install(); err != nil {
			log.Warn("mapped files are not guarded here: a full disk may end the process", "error", err)
		}
	})
}

var guardOnce sync.Once

// witness sees the faults that the process meets while a DB is open. They count for each DB that
// is: an address does not tell whose page it was.
type witness struct {
	dir    string
	record *mapguard.Record
	count  uint64 // when it was made
	met    mapguard.Faults
}

// newWitness sees what happens in dir from now on.
func newWitness(dir string) (*witness, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	r, err := mapguard.OpenRecord(filepath.Join(dir, faultsName))
	if err != nil {
		return nil, err
	}
	return &witness{dir: dir, record: r, count: mapguard.Count(), met: mapguard.Met()}, nil
}

// fileSystem is what the judgement of a fault rests on.
type fileSystem struct {
	// inPlace says that a page of a file is written where it stood before, so that only one that
	// has no place yet can find the disk full.
	inPlace bool
	// holesTakeRoom says that a page without a place takes one when it is read, too: a read that
	// finds the disk full has read nothing wrong.
	holesTakeRoom bool
}

// judge returns the faults as the file system of dir means them.
func judge(dir string, m mapguard.Faults) mapguard.Faults {
	if fileSystemOf(dir).holesTakeRoom {
		m.Writes += m.Reads
		m.Reads = 0
	}
	return m
}

// since returns the faults since the witness was made.
func (w *witness) since() mapguard.Faults {
	now := mapguard.Met()
	return judge(w.dir, mapguard.Faults{Reads: now.Reads - w.met.Reads, Writes: now.Writes - w.met.Writes})
}

// opened ends opening: it clears the faults that an earlier process told, which have been
// dealt with. The error says that there were new ones meanwhile.
func (w *witness) opened() error {
	told, err := mapguard.ReadRecord(filepath.Join(w.dir, faultsName))
	if err != nil {
		return err
	}
	// The file is one for the process before and for this one. So it is cleared only if this one has met
	// nothing since the witness was made: what it has met is told in the same two bytes.
	if told != (mapguard.Faults{}) && w.count == mapguard.Count() {
		if err := w.record.Clear(); err != nil {
			return err
		}
	}
	if w.count == mapguard.Count() {
		return nil
	}
	met := w.since()
	if err := w.record.Tell(met); err != nil { // Clear may have taken it back
		return err
	}
	if met.Reads > 0 {
		return corrupt("%d pages of files in %s cannot be read", met.Reads, w.dir)
	}
	return fmt.Errorf("%d pages of files cannot be written: %w", met.Writes, syscall.ENOSPC)
}

// openFreeMin is how much of a disk must be free for an error of opening to be the files'.
const openFreeMin = 1 << 20

// full tells whether the disk is full, or was since the witness was made.
func (w *witness) full() bool {
	free, err := freeBytes(w.dir)
	return w.since().Writes > 0 || err == nil && free < openFreeMin
}

// close ends the witness, which may be nil.
func (w *witness) close() {
	if w != nil {
		_ = w.record.Close() // each write went through
	}
}

// faulted finds that pages of mapped files could not be had since the DB was opened. It costs an
// atomic load if they could.
//
// A reader that another thread's fault has left zeros to read sees that it is counted, because
// it is counted before the page can be seen, and because he closes his snapshot, which releases
// a lock, before he asks.
func (d *DB) faulted() error {
	w := d.witness
	if mapguard.Count() == w.count {
		return nil
	}
	met := w.since()
	_ = w.record.Tell(met) // mostly it tells already
	if met.Reads > 0 {
		return d.fail(&DamagedError{Reason: fmt.Sprintf("the disk could not read %d pages of files in %s", met.Reads, w.dir)})
	}
	return d.fail(&DamagedError{
		Full: true, Unsynced: fileSystemOf(w.dir).inPlace,
		Reason: fmt.Sprintf("the disk was full, or failed, under mapped files in %s: %d pages were not written, so what was written since the last good sync is not believed",
			w.dir, met.Writes),
	})
}

// tooFull tells whether the DB is damaged by a full disk that has no room yet.
func (d *DB) tooFull() bool {
	wrong := d.health.wrong.Load()
	return wrong != nil && wrong.Full && room(d.dir, d.cfg.openRoom()) != nil
}

// worse tells whether more is wrong with a DB whose files were not written.
func (d *DB) worse() bool {
	return mismatches.Load() != d.health.judged.Load() || d.witness.since().Reads > 0
}

// lacksPages tells whether files in dir may lack what was written to them, as an earlier process
// told: then all of them are to be compared with their checksums. The error has the cause
// ErrCorrupt if that is not enough.
//
// A page that was not written was a hole in its file, so what the process read there was what it
// had written, and what it wrote of that elsewhere is right. Not so where a page that exists can
// need a new place: there the process may have read zeros. It may always after a page that could
// not be read: a merge of tables leaves out what it cannot read.
func lacksPages(dir string) (bool, error) {
	told, err := mapguard.ReadRecord(filepath.Join(dir, faultsName))
	told = judge(dir, told)
	switch {
	case err != nil:
		return false, openError(dir, err)
	case told.Reads > 0:
		return false, corrupt("the disk could not read pages of files in %s", dir)
	case told.Writes > 0 && !fileSystemOf(dir).inPlace:
		return false, corrupt("the disk was full, or failed, under mapped files in %s", dir)
	case told.Writes > 0:
		// Not all that was written since the last good sync is there, though the machine may still be in the
		// same life: partitions must not take what they find for kept.
		forgetBoot(dir)
		return true, nil
	}
	return false, nil
}

// NoRoomError says that there is not enough free space for a DB to be opened anew, or for a
// partition to be loaded. Nothing was lost, and it may be tried again.
type NoRoomError struct {
	Dir        string
	Free, Need int64  // bytes; what a load had used is free, and is needed
	What       string // is needed for, such as "to open it anew"
}

func (e *NoRoomError) Error() string {
	const up = 1<<20 - 1 // not as much as is free
	return fmt.Sprintf("engine: %d MiB are free below %s, and %d MiB are needed %s; free some space", e.Free>>20, e.Dir, (e.Need+up)>>20, e.What)
}

// openRoom is how many bytes closing and opening a DB may need.
func (c Config) openRoom() int64 { return (int64(c.MemTables) + 2) * c.MemTableBytes }

// room returns a *NoRoomError if less than need is free below dir, where a DB is to be opened anew.
func room(dir string, need int64) error {
	free, err := freeBytes(dir)
	if errors.Is(err, os.ErrNotExist) { // it was moved aside already
		free, err = freeBytes(filepath.Dir(dir))
	}
	if err != nil {
		return fmt.Errorf("engine: free space below %s: %w", dir, err)
	}
	// Nothing is done before there is room: closing and opening write, and what finds the disk full on the
	// way is damage once more.
	if free < need {
		return &NoRoomError{Dir: dir, Free: free, Need: need, What: "to open it anew"}
	}
	return nil
}

// sizeOf is how many bytes the files in dir take.
func sizeOf(dir string) (size int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0 // it is gone
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else it has gone, or the disk fails, which the opening finds
			size += allocated(info)
		}
	}
	return size
}
