package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"github.com/millrace/millrace/feed"
)

// Partition is the state of one physical partition.
type Partition struct {
	d      *DB
	id     feed.Partition
	prefix atomic.Uint32 // replaced by Clear
	found  State
	share  *Share // nil: all

	cleared atomic.Bool // since it was opened: nothing of what was found is there
	torn    atomic.Bool // parts of what was found are not there

	mu      sync.Mutex // held by whoever writes
	w       writer
	reached *reached          // as it is stored; nil if nothing is
	large   map[string]uint32 // keys whose values stand in chunks, and how many
}

// State returns what was applied; the zero State if nothing was. After an unclean
// stop it begins as the synced state, see DB.Partition.
func (p *Partition) State() (State, error) { return p.readState(kindState) }

// Synced returns the last commit that a sync covered, and its checksum: what a
// power loss cannot take away. Both are zero if there is none.
func (p *Partition) Synced() (feed.LSN, feed.Checksum, error) {
	s, err := p.SyncedState()
	return s.Applied, s.Sum, err
}

// SyncedState returns the state as of the commit that Synced names.
func (p *Partition) SyncedState() (State, error) { return p.readState(kindSynced) }

func (p *Partition) readState(kind byte) (s State, err error) {
	err = p.d.view(&p.w, func(txn *badger.Txn) error {
		value, err := getValue(p.d, txn, p.key(kind))
		if err != nil || value == nil {
			return err
		}
		s, err = decodeState(value)
		return err
	})
	if err != nil {
		return State{}, fmt.Errorf("state of %s: %w", p.id, err)
	}
	return s, nil
}

// Clear empties the partition, state included, at once: it takes a new prefix, and
// what is under the old one is deleted by and by. Open snapshots stay valid. When
// Clear returns nothing of the old state can come back, even after a power loss.
func (p *Partition) Clear() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Behind this nothing of what was reached is there. The note says so before: else the next process could
	// take it for kept.
	if p.reached != nil {
		if err := p.update(func(*tx) error { return nil }); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrNotCleared, p.id, err)
		}
	}
	prefix, err := p.d.newPrefix(p.id, p.prefix.Load())
	if prefix != 0 { // also where it could not be synced: the old one is garbage from now on
		p.prefix.Store(prefix)
		p.cleared.Store(true)
		clear(p.large)
		p.d.sweeper.wake()
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNotCleared, p.id, err)
	}
	return nil
}

// Found returns the state as it was found when the partition was opened, or by a process before
// this one, if the partition was never as far since. After an unclean stop it is later than
// State was, and parts of it may be lost; but it tells how far the log went, and cannot have
// gone back.
func (p *Partition) Found() State { return p.found }

// recover makes State what Synced is, if the partition was not closed in order,
// and finds the values that stand in chunks.
func (p *Partition) recover() (err error) {
	if p.found, err = p.State(); err != nil {
		return err
	}
	// What becomes of it:
	//
	//	state 20, synced 20           it was closed in order, and stays
	//	state 20, synced 10           10 again; that 20 was reached is noted
	//	state 20, nothing is synced   it is emptied
	//	state 20, synced 20 by an earlier release, the witness is at 10   the same
	//
	// found stays 20 in all of them. It is more if a process before this one has noted more.
	state := p.found
	if err := p.recoverReached(); err != nil {
		return err
	}
	synced, err := p.SyncedState()
	if err != nil {
		return err
	}
	if synced.Applied == 0 {
		return p.recoverEmpty()
	}
	another, err := p.appliedByAnother()
	if err != nil {
		return err
	}
	if another {
		p.d.log.Info("an earlier release has used the partition since this one; its state is made again",
			"partition", p.id.String(), "applied", uint64(p.found.Applied))
		return p.clearFound()
	}
	unclean := state.Applied != synced.Applied || state.Log != synced.Log || state.Sum != synced.Sum
	if unclean {
		p.d.log.Info("partition was not closed in order; its log is applied again from what was synced",
			"partition", p.id.String(), "applied", uint64(state.Applied), "synced", uint64(synced.Applied))
	}
	// Also what a process found that was killed itself, and whose machine has lost its power since.
	if unclean || p.found.Applied > state.Applied && !p.d.kept {
		err := p.noteReached(&reached{State: p.found, base: synced.Applied, torn: !p.d.kept || p.torn.Load()}, func(t *tx) error {
			return p.setValue(t, p.key(kindState), appendState(nil, &synced))
		})
		if err != nil {
			return err
		}
	}
	return p.findLarge()
}

// recoverReached takes over what a process before this one found, if the state is not as far.
func (p *Partition) recoverReached() error {
	r, err := p.loadReached()
	if err != nil || r == nil {
		return err
	}
	if p.found.Applied != r.base {
		r = r.tear() // an earlier release has applied commits since, and notes nothing of it
	}
	p.setReached(r)
	if p.found.Applied == 0 || p.found.Log == r.Log && p.found.Applied < r.Applied {
		p.found = r.State
	}
	return nil
}

// noteReached notes what was found, in the transaction that sets the state back.
func (p *Partition) noteReached(r *reached, setBack func(*tx) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.d.update(&p.w, false, func(t *tx) error { return errors.Join(setBack(t), p.storeReached(t, r)) })
	if err == nil {
		p.setReached(r)
	}
	return err
}

// recoverEmpty empties a partition of which nothing was ever synced: applying its
// log from the start does not need what may be left, and might not touch all of it.
func (p *Partition) recoverEmpty() error {
	s := p.Snapshot()
	defer s.Close()
	if s.err != nil {
		return s.err
	}
	prefix := binary.BigEndian.AppendUint32(nil, s.prefix)
	left := func() bool {
		it := p.d.iterate(s.txn, badger.IteratorOptions{Prefix: prefix})
		defer it.Close()
		it.Rewind()
		return it.Valid()
	}()
	s.Close() // a load may be waiting until nothing is open, and Clear for that load
	if !left {
		return nil
	}
	p.d.log.Info("partition was not closed in order and nothing of it was synced; its log is applied from the start",
		"partition", p.id.String(), "applied", uint64(p.found.Applied))
	return p.clearFound()
}

// clearFound empties the partition, and notes what was found.
func (p *Partition) clearFound() error {
	if p.found.Applied > 0 {
		if err := p.noteReached(&reached{State: p.found, torn: true}, func(*tx) error { return nil }); err != nil {
			return err
		}
	}
	return p.Clear()
}

// findLarge fills p.large from the keys of chunks.
func (p *Partition) findLarge() error {
	clear(p.large)
	return p.d.view(&p.w, func(txn *badger.Txn) error {
		prefix := p.key(kindChunk)
		it := p.d.iterate(txn, badger.IteratorOptions{Prefix: prefix})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			rest := it.Item().Key()[len(prefix):]
			if len(rest) < 5 {
				return corrupt("chunk key %x", rest)
			}
			n := binary.BigEndian.Uint32(rest[len(rest)-4:])
			name := string(rest[:len(rest)-4])
			p.large[name] = max(p.large[name], n+1)
		}
		return nil
	})
}

// key returns the partition's prefix with a kind.
func (p *Partition) key(kind byte) []byte {
	return appendPrefix(make([]byte, 0, prefixLen+1), p.prefix.Load(), kind)
}

// update runs f in a write transaction. Of what is reached beyond the state not all is there any
// more then, which is written first: a large transaction is not one to a crash. The caller holds
// p.mu.
func (p *Partition) update(f func(*tx) error) error {
	r := p.reached.tear()
	err := p.d.update(&p.w, false, func(t *tx) error {
		if r != p.reached {
			if err := p.storeReached(t, r); err != nil {
				return err
			}
		}
		return f(t)
	})
	if err == nil {
		p.setReached(r)
	}
	return err
}

// setValue writes a value of any size and removes chunks of a former one. The
// caller holds p.mu.
func (p *Partition) setValue(t *tx, key, value []byte) error {
	if len(value) < inlineMax {
		if len(p.large) > 0 {
			if err := p.cutChunks(t, key, 0); err != nil {
				return err
			}
		}
		return t.set(key, value)
	}
	n := chunks(len(value))
	if err := p.cutChunks(t, key, n); err != nil {
		return err
	}
	for i := range n {
		part := value[int(i)*chunkBytes : min(int(i+1)*chunkBytes, len(value))]
		chunk := append(append(make([]byte, 0, 1+len(part)), valueVersion), part...)
		if err := t.set(chunkKey(key, i), chunk); err != nil {
			return err
		}
	}
	p.large[string(key[prefixLen:])] = n
	return t.set(bytes.Clone(key), chunkedValue(len(value)))
}

// deleteValue removes a key and its chunks. The caller holds p.mu.
func (p *Partition) deleteValue(t *tx, key []byte) error {
	if len(p.large) > 0 {
		if err := p.cutChunks(t, key, 0); err != nil {
			return err
		}
	}
	return t.delete(key)
}

// cutChunks removes the chunks of a key's value from number n on.
func (p *Partition) cutChunks(t *tx, key []byte, n uint32) error {
	had, ok := p.large[string(key[prefixLen:])]
	if !ok {
		return nil
	}
	for i := n; i < had; i++ {
		if err := t.delete(chunkKey(key, i)); err != nil {
			return err
		}
	}
	if n == 0 {
		delete(p.large, string(key[prefixLen:]))
	}
	return nil
}
