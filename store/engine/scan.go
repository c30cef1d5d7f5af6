package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/millrace/millrace/feed"
)

// View is an item as a scan shows it. It and all that its methods return as bytes
// are valid until the scan goes on.
type View struct {
	Body     []byte
	Position feed.Position // of its last change
	Modified int64         // TTL clock, unix ms
	Written  feed.LSN      // of the last write that was not a pipeline's
	Expires  int64         // unix ms; 0 is never

	s     *Snapshot
	k     feed.PartitionKey
	key   []byte // whole
	split int    // where in key the id begins
}

// ItemKey returns the item's key, as ItemKey makes it: the cursor of the scan.
func (v *View) ItemKey() []byte { return v.key[prefixLen+1:] }

// ID returns the item's id.
func (v *View) ID() string { return string(v.key[v.split:]) }

// Key returns the item's partition key.
func (v *View) Key() feed.PartitionKey { return v.k }

// Item returns a copy of the item that is the caller's.
func (v *View) Item() Item {
	return Item{
		Key: v.k, ID: v.ID(), Body: bytes.Clone(v.Body),
		Position: v.Position, Modified: v.Modified, Written: v.Written, Expires: v.Expires,
	}
}

// set makes v show the item with that whole key and stored value.
func (v *View) set(key, value []byte) (err error) {
	if len(value) > 0 && value[0] == valueChunked {
		if value, err = joinChunks(v.s.p.d, v.s.txn, key, value); err != nil {
			return err
		}
	}
	var f fields
	if !f.decode(value) {
		return corrupt("item %x", key)
	}
	v.key = key
	v.Body, v.Position, v.Modified, v.Written, v.Expires = f.body, f.position, f.modified, f.written, f.expires
	itemKey := key[prefixLen+1:]
	// Items of one logical partition follow each other, so its key is decoded once.
	if n := len(v.s.logical); n > 0 && len(itemKey) > n && bytes.Equal(itemKey[:n], v.s.logical) {
		v.k, v.split = v.s.key, prefixLen+1+n
		return nil
	}
	n := logicalPrefixLen(itemKey)
	if n < 0 {
		return corrupt("item key %x", itemKey)
	}
	k, err := feed.PartitionKeyFromEncoded(string(itemKey[1+epkLen*int(itemKey[0]) : n]))
	if err != nil {
		return corrupt("item key %x: %v", itemKey, err)
	}
	v.s.key, v.s.logical = k, append(v.s.logical[:0], itemKey[:n]...)
	v.k, v.split = k, prefixLen+1+n
	return nil
}

// Items scans items in the order of their keys: those whose item key begins with
// prefix (LogicalPrefix, HashPrefix, or nil for all) and lies after the item key
// from, if that is not nil. A scan ends after its first error.
func (s *Snapshot) Items(from, prefix []byte) iter.Seq2[*View, error] {
	return func(yield func(*View, error) bool) {
		if s.err != nil {
			yield(nil, s.err)
			return
		}
		it, start := s.scan(append(appendPrefix(nil, s.prefix, kindItem), prefix...), prefixLen+1, from)
		defer it.Close()
		v := &View{s: s}
		var key []byte
		show := func(value []byte) error { return v.set(key, value) }
		for it.Seek(start); it.Valid(); it.Next() {
			item := it.Item()
			key = item.Key()
			if err := item.Value(show); err != nil {
				yield(nil, wrapRead(err))
				return
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

// scan returns an iterator over the keys with a prefix and where to seek: the
// first key after from, which follows the first keep bytes of prefix.
func (s *Snapshot) scan(prefix []byte, keep int, from []byte) (*iterator, []byte) {
	// Values are never elsewhere, so prefetching would only start goroutines.
	it := s.p.d.iterate(s.txn, badger.IteratorOptions{Prefix: prefix})
	start := prefix
	if from != nil {
		// No key lies between from and from with a 0 behind it.
		after := make([]byte, 0, keep+len(from)+1)
		after = append(append(append(after, prefix[:keep]...), from...), 0)
		if bytes.Compare(after, start) > 0 {
			start = after
		}
	}
	return it, start
}

// IndexEntries lists the item keys of the items that have a value, a raw JSON
// scalar, in an index: in the order of item keys, those after the item key after
// if that is not nil. The bytes are valid until the scan goes on.
//
// Values longer than IndexValueMax are told apart by their hash only, and a value
// that is no scalar has no entries.
func (s *Snapshot) IndexEntries(index uint32, value, after []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if s.err != nil {
			yield(nil, s.err)
			return
		}
		prefix, ok := s.entryPrefix(index, value)
		if !ok {
			return
		}
		it, start := s.scan(prefix, len(prefix), after)
		defer it.Close()
		for it.Seek(start); it.Valid(); it.Next() {
			if !yield(it.Item().Key()[len(prefix):], nil) {
				return
			}
		}
	}
}

// entryPrefix returns what the keys of the entries of a value begin with; false if
// the value cannot have entries.
func (s *Snapshot) entryPrefix(index uint32, value []byte) ([]byte, bool) {
	prefix := binary.BigEndian.AppendUint32(appendPrefix(nil, s.prefix, kindIndex), index)
	n := len(prefix)
	// A form ends itself, so that this is the beginning of the entries of no other value:
	//
	//	"ab" and "abc"   neither form begins with the other
	prefix = AppendIndexValue(prefix, value)
	return prefix, len(prefix) > n
}

// Count returns the number of items whose item key begins with prefix; nil counts
// all.
func (s *Snapshot) Count(prefix []byte) (int, error) {
	return s.count(append(appendPrefix(nil, s.prefix, kindItem), prefix...))
}

// CountIndex returns the number of items that have a value in an index, or of all
// entries of the index if value is nil.
func (s *Snapshot) CountIndex(index uint32, value []byte) (int, error) {
	prefix, ok := s.entryPrefix(index, value)
	// Without a value the prefix is that of the whole index.
	if !ok && value != nil {
		return 0, s.err
	}
	return s.count(prefix)
}

func (s *Snapshot) count(prefix []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	it, start := s.scan(prefix, 0, nil)
	defer it.Close()
	n := 0
	for it.Seek(start); it.Valid(); it.Next() {
		n++
	}
	return n, nil
}

// Record is one record of the owner. Key is without the kind.
type Record struct{ Key, Value []byte }

// Records lists the records of a kind whose key begins with prefix, in the order
// of their keys. The bytes are valid until the scan goes on.
func (s *Snapshot) Records(kind byte, prefix []byte) iter.Seq2[Record, error] {
	return s.RecordsFrom(kind, prefix, nil)
}

// RecordsFrom is Records from the record key from on, nil for the first.
func (s *Snapshot) RecordsFrom(kind byte, prefix, from []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if s.err != nil {
			yield(Record{}, s.err)
			return
		}
		head := append(appendPrefix(nil, s.prefix, kindRecord), kind)
		// Clipped, so that what is appended to head here and below has memory of its own: the
		// iterator keeps its prefix.
		it, start := s.scan(append(slices.Clip(head), prefix...), 0, nil)
		defer it.Close()
		if bytes.Compare(from, prefix) > 0 {
			start = append(slices.Clip(head), from...)
		}
		var r Record
		show := func(value []byte) (err error) {
			if len(value) > 0 && value[0] == valueChunked {
				if value, err = joinChunks(s.p.d, s.txn, append(slices.Clip(head), r.Key...), value); err != nil {
					return err
				}
			}
			if len(value) == 0 || value[0] != valueVersion {
				return corrupt("record %c %x", kind, r.Key)
			}
			r.Value = value[1:]
			return nil
		}
		for it.Seek(start); it.Valid(); it.Next() {
			r.Key = it.Item().Key()[len(head):]
			if err := it.Item().Value(show); err != nil {
				yield(Record{}, wrapRead(err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Expired lists items that have expired at the time before, in unix milliseconds:
// those with Expires at or below it, earliest first, at most limit.
func (s *Snapshot) Expired(before int64, limit int) ([]ItemRef, error) {
	var found []ItemRef
	err := s.expiries(func(ref ItemRef) bool {
		if ref.Expires > before || len(found) >= limit {
			return false
		}
		found = append(found, ref)
		return len(found) < limit
	}, before)
	return found, err
}

// expiries calls f for the items that expire until a time, earliest first, until f
// returns false. An entry counts only if the item agrees with it.
func (s *Snapshot) expiries(f func(ItemRef) bool, until int64) error {
	if s.err != nil {
		return s.err
	}
	prefix := appendPrefix(nil, s.prefix, kindExpiry)
	it, start := s.scan(prefix, 0, nil)
	defer it.Close()
	for it.Seek(start); it.Valid(); it.Next() {
		key := it.Item().Key()[len(prefix):]
		if len(key) < 8 {
			return corrupt("expiry key %x", key)
		}
		expires := int64(binary.BigEndian.Uint64(key))
		if expires > until {
			return nil
		}
		k, id, err := ParseItemKey(key[8:])
		if err != nil {
			return corrupt("expiry key %x: %v", key, err)
		}
		item, ok, err := s.get(k, id)
		if err != nil {
			return err
		}
		// An entry may be older than its item. After an unclean stop the engine may hold what later commits left,
		// and RebuildExpiries goes page by page, the items first.
		if ok && item.expires == expires && !f(ItemRef{Key: k, ID: id, Expires: expires}) {
			return nil
		}
	}
	return nil
}

func wrapRead(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return err
	}
	return fmt.Errorf("engine: read: %w", err)
}
