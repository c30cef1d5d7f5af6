package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/y"
	"google.golang.org/protobuf/runtime/protoiface"
)

// damagedName is a file that says why the DB in its directory is not to be believed.
const damagedName = "DAMAGED"

// Badger compares the checksum of each block that it reads, but keeps to itself that
// one differs: a get then finds an older version or nothing, a scan leaves out what
// the block held, and a merge writes what is left into a new table. So the one thing
// that it cannot avoid is counted: making the error.
var (
	mismatches atomic.Uint64 // of all DBs of the process
	openDBs    atomic.Int64
	closedDBs  atomic.Uint64 // ever
	countOnce  sync.Once
)

// mismatch stands for Badger's error of a checksum that differs.
type mismatch struct{ err error }

func (m mismatch) Error() string {
	mismatches.Add(1)
	return m.err.Error()
}

func (m mismatch) Unwrap() error { return m.err }

// countMismatches makes Badger's errors counted. It must have returned before
// anything of Badger runs.
func countMismatches() {
	countOnce.Do(func() {
		y.ErrChecksumMismatch = mismatch{y.ErrChecksumMismatch}
		methods := (&pb.Checksum{}).ProtoReflect().ProtoMethods()
		methods.Unmarshal = countedUnmarshal(methods.Unmarshal)
	})
}

type unmarshalFunc = func(protoiface.UnmarshalInput) (protoiface.UnmarshalOutput, error)

// countedUnmarshal counts the checksums that are none. Badger ends the process for one of an
// algorithm that it does not know, so that is none either.
func countedUnmarshal(unmarshal unmarshalFunc) unmarshalFunc {
	return func(in protoiface.UnmarshalInput) (protoiface.UnmarshalOutput, error) {
		out, err := unmarshal(in)
		if err == nil {
			if sum, ok := in.Message.Interface().(*pb.Checksum); ok && sum.GetAlgo() == pb.Checksum_CRC32C {
				return out, nil
			}
			err = errAlgorithm
		}
		mismatches.Add(1)
		return out, err
	}
}

var errAlgorithm = errors.New("a checksum of no known algorithm")

// health is what a DB knows of itself.
type health struct {
	judged  atomic.Uint64 // mismatches that were not this DB's
	wrong   atomic.Pointer[DamagedError]
	damaged chan struct{} // closed with wrong
	mu      sync.Mutex    // held to judge
	gone    uint64        // closedDBs as of judged; guarded by mu

	unwritable atomic.Bool // nothing may be written any more; set after wrong
}

// DamagedError says that a DB is not to be believed any more. What it is the state of
// is to be made anew: see DB.Renew.
type DamagedError struct {
	// Reason is a sentence's end.
	Reason string
	// Unsynced says that the files are whole as far as is known, but what was written
	// since the last good sync may not reach the disk.
	Unsynced bool
	// Full says that the disk was full, or failed, when files were written.
	Full bool
}

func (e *DamagedError) Error() string { return "engine: " + e.Reason }

// Is makes the cause of damaged files ErrCorrupt.
func (e *DamagedError) Is(target error) bool { return target == ErrCorrupt && !e.Unsynced }

// Damaged is closed when the DB is found to be damaged.
func (d *DB) Damaged() <-chan struct{} { return d.health.damaged }

// Sound returns nil unless something that was read from the DB until now may be
// wrong: then the error is *DamagedError, for ever. Whoever has read asks before he
// lets anybody rely on it.
func (d *DB) Sound() error {
	if err := d.damage(); err != nil {
		return err
	}
	if err := d.faulted(); err != nil {
		return err
	}
	if mismatches.Load() == d.health.judged.Load() {
		return nil
	}
	return d.judge()
}

// damage returns what was found until now, nil if nothing was.
func (d *DB) damage() error {
	if wrong := d.health.wrong.Load(); wrong != nil {
		return wrong
	}
	return nil
}

// Sound is DB.Sound.
func (p *Partition) Sound() error { return p.d.Sound() }

// entered begins the count of the mismatches that may be this DB's.
func (h *health) entered() {
	// First those that have gone: a mismatch of one that goes after this counts as its own.
	h.gone = closedDBs.Load()
	h.judged.Store(mismatches.Load())
	openDBs.Add(1)
}

// left says that a DB reads no more.
func left() {
	closedDBs.Add(1) // first: whoever finds itself alone sees that another was there
	openDBs.Add(-1)
}

// judge decides whether a block whose checksum differs was this DB's. If it was alone in the
// process since it was judged last, it was. Otherwise all blocks are looked at:
//
//	DB a   opened ─────────────────── judged: alone now, and b has closed: looks
//	DB b        opened ── bad block ── closed
func (d *DB) judge() error {
	h := &d.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := d.damage(); err != nil {
		return err
	}
	gone, count := closedDBs.Load(), mismatches.Load()
	if count == h.judged.Load() {
		return nil
	}
	if openDBs.Load() > 1 || closedDBs.Load() != h.gone {
		if _, err := d.Scrub(nil); err != nil {
			return err // what it found, or that it could not look
		}
		h.gone = gone
		h.judged.Store(count)
		return d.damage() // a merge that has taken the table away has looked before
	}
	return d.fail(&DamagedError{Reason: "a block of a table in " + d.dir + " does not have its checksum"})
}

// Fail tells the DB of an error of what was read from it. One whose cause is not
// ErrCorrupt changes nothing.
func (d *DB) Fail(err error) {
	if errors.Is(err, ErrCorrupt) {
		_ = d.fail(&DamagedError{Reason: strings.TrimPrefix(err.Error(), "engine: ")}) // who asks is told
	}
}

// Fail is DB.Fail.
func (p *Partition) Fail(err error) { p.d.Fail(err) }

// Caught takes what recover returned. A panic of Badger, which trusts the bytes of a
// block, says that the DB is damaged; any other goes on.
func (d *DB) Caught(r any) error {
	if r == nil {
		return nil
	}
	if !bytes.Contains(debug.Stack(), []byte("dgraph-io/badger")) {
		panic(r)
	}
	text, _, _ := strings.Cut(strings.TrimSpace(fmt.Sprint(r)), "\n")
	return d.fail(&DamagedError{Reason: "a block of a table in " + d.dir + " cannot be read: " + text})
}

// Caught is DB.Caught.
func (p *Partition) Caught(r any) error { return p.d.Caught(r) }

// fail records that the DB is damaged, for this process and, if need be, for the next
// one. The first finding counts.
func (d *DB) fail(e *DamagedError) error {
	if !d.health.wrong.CompareAndSwap(nil, e) {
		return d.health.wrong.Load()
	}
	forgetBoot(d.dir)
	if !e.Unsynced {
		// Without it the next process would find out by itself, later.
		_ = os.WriteFile(filepath.Join(d.dir, damagedName), []byte(e.Reason+"\n"), 0o600)
	}
	close(d.health.damaged)
	return e
}

// unwritten records that what was committed could not be written to a log, or that there is no memtable for it. The
// files are whole.
func (d *DB) unwritten(cause error) error {
	err := d.fail(&DamagedError{Unsynced: true, Full: ofFullDisk(cause), Reason: fmt.Sprintf("a commit could not be written to %s, so what was written since the last good sync is not believed: %v", d.dir, cause)})
	d.health.unwritable.Store(true)
	return err
}

// ofFullDisk tells whether an error says that a disk is full.
func ofFullDisk(err error) bool {
	return isOrSays(err, syscall.ENOSPC) || isOrSays(err, syscall.EDQUOT)
}

// damageOf returns what an earlier process found, as an error.
func damageOf(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, damagedName))
	if err != nil {
		return nil //nolint:nilerr // it found nothing
	}
	return corrupt("%s", strings.TrimSpace(string(text)))
}
