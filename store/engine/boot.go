package engine

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"

	"github.com/millrace/millrace/feed"
)

const (
	// bootName is a file that is there while the DB is open. It names the life of the
	// machine in which the DB was opened.
	bootName = "BOOT"

	// bootSource is where Linux tells the life of the machine.
	bootSource = "/proc/sys/kernel/random/boot_id"
)

// sameBoot tells whether the DB in dir was open in this life of the machine before: if it was
// not closed then, the process was killed, and the machine still had what had been written.
func sameBoot(dir string) bool {
	now, err := os.ReadFile(bootSource)
	if err != nil {
		return false // another system; nothing is known of it
	}
	before, err := os.ReadFile(filepath.Join(dir, bootName))
	return err == nil && bytes.Equal(before, now)
}

// noteBoot records in which life of the machine the DB is open. What partitions hold of an
// earlier life is noted as torn before: the next process finds this life in the file, and
// would take it for whole.
func (d *DB) noteBoot() {
	if d.kept {
		return
	}
	name := filepath.Join(d.dir, bootName)
	now, err := os.ReadFile(bootSource)
	if err == nil {
		err = d.noteTorn()
	}
	if err == nil {
		err = os.WriteFile(name, now, 0o600)
	}
	if err != nil {
		_ = os.Remove(name) // it must not tell of an earlier life
	}
}

// noteTorn opens all partitions, each of which then notes what it was found to hold.
func (d *DB) noteTorn() (err error) {
	defer func() {
		if wrong := d.Caught(recover()); wrong != nil {
			err = wrong
		}
	}()
	held, err := d.Partitions()
	if err != nil || len(held) == 0 {
		return err
	}
	for _, p := range held {
		if _, err := d.Partition(p); err != nil {
			return err
		}
	}
	return d.Sync()
}

// forgetBoot takes back what noteBoot recorded: what was written since the last good
// sync cannot be relied on.
func forgetBoot(dir string) { _ = os.Remove(filepath.Join(dir, bootName)) }

// Kept tells whether all that Found tells of is there though the partition was not
// closed in order: the process was killed and the machine went on, so what had been
// written is in its files or in its memory of them. After a loss of power, or a sync
// that failed, it is not known; after Clear nothing of it is there, and after any other
// write not all.
func (p *Partition) Kept() bool { return p.d.kept && !p.cleared.Load() && !p.torn.Load() }

// reached is how far a partition was applied once, where its state was set back to what was
// synced: after an unclean stop the log must reach that far, or it has lost its end. It is
// stored until the state is as far again, outside of what Clear empties, because else the
// second process after the stop would know nothing of it. Torn says that parts of it
// are not there any more.
//
//	synced 10, applied 20, kill -9    state 10, reached 20
//	the log is applied up to 15       state 15, reached 20, torn: what 11 wrote, 16 had written over
//	then up to 20                     state 20, nothing is stored
type reached struct {
	State
	base feed.LSN // what the state was set back to
	torn bool
}

func (p *Partition) reachedKey() []byte { return metaKey(metaReached, p.id.String()) }

// loadReached returns what is stored, nil if nothing is.
func (p *Partition) loadReached() (*reached, error) {
	var value []byte
	err := p.d.view(&p.w, func(txn *badger.Txn) (err error) {
		value, err = getValue(p.d, txn, p.reachedKey())
		return err
	})
	if err != nil || value == nil {
		return nil, err
	}
	if len(value) < 2 || value[0] != valueVersion {
		return nil, corrupt("reached %x", value)
	}
	base, n := binary.Uvarint(value[2:])
	if n <= 0 {
		return nil, corrupt("reached %x", value)
	}
	r := &reached{base: feed.LSN(base), torn: value[1] != 0}
	r.State, err = decodeState(value[2+n:])
	return r, err
}

// storeReached notes how far the partition was applied, nil if its state is as far.
func (p *Partition) storeReached(t *tx, r *reached) error {
	if r == nil {
		return t.delete(p.reachedKey())
	}
	torn := byte(0)
	if r.torn {
		torn = 1
	}
	value := binary.AppendUvarint([]byte{valueVersion, torn}, uint64(r.base))
	return t.set(p.reachedKey(), appendState(value, &r.State))
}

// setReached takes over what is stored. The caller holds p.mu.
func (p *Partition) setReached(r *reached) {
	p.reached = r
	p.torn.Store(r != nil && r.torn)
}

// tear returns what is reached behind a write.
func (r *reached) tear() *reached {
	if r == nil || r.torn {
		return r
	}
	torn := *r
	torn.torn = true
	return &torn
}

// passed says whether a state s is as far.
func (r *reached) passed(s *State) bool {
	return r != nil && s != nil && (r.Log != s.Log || r.Applied <= s.Applied)
}
