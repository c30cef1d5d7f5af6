package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// buildPage is how many items or keys are looked at while commits wait.
const buildPage = 500

// BuildIndex adds the entries of an index of the schema for all items that are
// there. Commits go on between its pages; from its beginning their batches must
// have a schema with that index. It calls progress, if that is not nil, with the
// number of items seen so far. Building again is harmless; after an unclean stop
// it is necessary, unless the commit that relies on it was synced.
func (p *Partition) BuildIndex(schema *Schema, index uint32, progress func(n int)) error {
	n := 0
	for after := []byte(nil); ; {
		next, seen, err := p.buildIndexPage(schema, index, after, buildPage)
		if err != nil {
			return err
		}
		n += seen
		if progress != nil {
			progress(n)
		}
		if next == nil {
			return nil
		}
		after = next
	}
}

// BuildIndexStep is one step of BuildIndex for callers that put other work between
// the steps: it adds the entries of at most limit items after the item key after, or
// from the first if that is nil. It returns the item key from which to go on, nil
// when all are done.
func (p *Partition) BuildIndexStep(schema *Schema, index uint32, after []byte, limit int) (next []byte, err error) {
	next, _, err = p.buildIndexPage(schema, index, after, limit)
	return next, err
}

func (p *Partition) buildIndexPage(schema *Schema, index uint32, after []byte, limit int) (next []byte, seen int, err error) {
	i := slices.IndexFunc(schema.Indexes, func(x Index) bool { return x.Number == index })
	if i < 0 {
		return nil, 0, fmt.Errorf("engine: build index of %s: the schema has no index %d", p.id, index)
	}
	var found values
	next, more, err := p.rewritePage(kindItem, nil, after, limit, func(t *tx, s *Snapshot, key, value []byte) error {
		seen++
		v := View{s: s}
		if err := v.set(key, value); err != nil {
			return err
		}
		found.of(&schema.Indexes[i], v.Body)
		for i := range found.len() {
			// Each in memory of its own: the transaction keeps the key until it is committed.
			entry := binary.BigEndian.AppendUint32(p.key(kindIndex), index)
			entry = append(append(entry, found.get(i)...), v.ItemKey()...)
			if err := t.set(entry, markValue); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, seen, fmt.Errorf("build index %d of %s: %w", index, p.id, err)
	}
	if !more {
		next = nil
	}
	return next, seen, nil
}

// markValue is the value of entries that say all in their key.
var markValue = []byte{valueVersion}

// DropIndex removes all entries of an index. Batches must no longer have it in
// their schema, and its number must not be used for another one. Dropping again is
// harmless.
func (p *Partition) DropIndex(index uint32) error {
	number := binary.BigEndian.AppendUint32(nil, index)
	err := p.rewrite(kindIndex, number, func(t *tx, _ *Snapshot, key, _ []byte) error {
		return t.delete(bytes.Clone(key))
	})
	if err != nil {
		return fmt.Errorf("drop index %d of %s: %w", index, p.id, err)
	}
	return nil
}

// DropRecords removes all records of a kind whose keys begin with prefix. Nothing
// may write such records meanwhile. Dropping again is harmless.
func (p *Partition) DropRecords(kind byte, prefix []byte) error {
	err := p.rewrite(kindRecord, append([]byte{kind}, prefix...), func(t *tx, _ *Snapshot, key, _ []byte) error {
		return p.deleteValue(t, bytes.Clone(key))
	})
	if err != nil {
		return fmt.Errorf("drop records %c %q of %s: %w", kind, prefix, p.id, err)
	}
	return nil
}

// RebuildExpiries makes what expires when agree with a new default time to live.
// Call it before the batch of the commit which changes that is committed; batches
// after it have the new schema. Rebuilding again is harmless; after an unclean stop
// it is necessary.
func (p *Partition) RebuildExpiries(schema *Schema) error {
	err := p.rewrite(kindItem, nil, func(t *tx, s *Snapshot, key, value []byte) error {
		v := View{s: s}
		if err := v.set(key, value); err != nil {
			return err
		}
		it := v.Item()
		it.Expires = schema.Expires(it.Body, it.Modified)
		// Not only the entry: an item says itself when it expires, and by that an entry is found to be stale.
		if it.Expires != v.Expires {
			if err := p.setValue(t, bytes.Clone(key), appendItem(nil, &it)); err != nil {
				return err
			}
		}
		if it.Expires == 0 {
			return nil
		}
		return t.set(p.expiryKey(it.Expires, v.ItemKey()), markValue)
	})
	if err == nil {
		// Behind the items, which say now when they end. The other way round the entries would be compared with
		// the old default, by which all of them are right.
		err = p.rewrite(kindExpiry, nil, func(t *tx, s *Snapshot, key, _ []byte) error {
			return dropStaleExpiry(t, s, key)
		})
	}
	if err != nil {
		return fmt.Errorf("rebuild expiries of %s: %w", p.id, err)
	}
	return nil
}

// dropStaleExpiry removes an expiry entry with which its item does not agree.
func dropStaleExpiry(t *tx, s *Snapshot, key []byte) error {
	rest := key[prefixLen+1:]
	if len(rest) < 8 {
		return corrupt("expiry key %x", key)
	}
	k, id, err := ParseItemKey(rest[8:])
	if err != nil {
		return corrupt("expiry key %x: %v", key, err)
	}
	item, ok, err := s.get(k, id)
	if err != nil {
		return err
	}
	if ok && uint64(item.expires) == binary.BigEndian.Uint64(rest) {
		return nil
	}
	return t.delete(bytes.Clone(key))
}

// expiryKey returns the key of an expiry entry.
func (p *Partition) expiryKey(expires int64, itemKey []byte) []byte {
	return append(binary.BigEndian.AppendUint64(p.key(kindExpiry), uint64(expires)), itemKey...)
}

// rewriteFunc looks at one key and writes what follows from it.
type rewriteFunc func(t *tx, s *Snapshot, key, value []byte) error

// rewrite calls f for all keys of a kind that begin with rest. It goes through them
// page by page, holding p.mu for each, so that what f reads is what it changes.
func (p *Partition) rewrite(kind byte, rest []byte, f rewriteFunc) error {
	var after []byte // the last key seen, behind the kind
	for {
		last, more, err := p.rewritePage(kind, rest, after, buildPage, f)
		if err != nil || !more {
			return err
		}
		after = last
	}
}

func (p *Partition) rewritePage(kind byte, rest, after []byte, limit int, f rewriteFunc) (last []byte, more bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.Snapshot()
	defer s.Close()
	if s.err != nil {
		return nil, false, s.err
	}
	err = p.update(func(t *tx) error {
		it, start := s.scan(append(p.key(kind), rest...), prefixLen+1, after)
		defer it.Close()
		n := 0
		for it.Seek(start); it.Valid(); it.Next() {
			item := it.Item()
			if n++; n > limit {
				more = true
				return nil
			}
			if err := item.Value(func(value []byte) error { return f(t, s, item.Key(), value) }); err != nil {
				return wrapRead(err)
			}
			last = append(last[:0], item.Key()[prefixLen+1:]...)
		}
		return nil
	})
	return last, more, err
}
