package engine

import (
	"bytes"

	"github.com/millrace/millrace/feed"
)

// The kinds of entries, as KEYS.md has them.
const (
	EntryExpiry = kindExpiry
	EntryItem   = kindItem
	EntryRecord = kindRecord
	EntryUnique = kindUnique
	EntryIndex  = kindIndex
)

// Of returns the kind of the entry, and the rest of its key. A chunk is of the kind of the value that it is a part of.
func (e DumpEntry) Of() (kind byte, rest []byte) {
	key := e.Key
	if len(key) > 1 && key[0] == kindChunk {
		key = key[1:]
	}
	if len(key) == 0 {
		return 0, nil
	}
	return key[0], key[1:]
}

// IsItem says whether the entry is that of an item. Items stand together, in the order of
// scans.
func (e DumpEntry) IsItem() bool { return len(e.Key) > 0 && e.Key[0] == kindItem }

// ItemDecoder reads items from entries of a dump. One goroutine uses it.
type ItemDecoder struct {
	// The key of the last item: items of one logical partition follow one another.
	key     feed.PartitionKey
	logical []byte // its LogicalPrefix
}

// Item returns the item of an entry for which IsItem is true. Its Body is part of
// the entry's value. A large item stands in chunks, entries of their own in front of all
// items: chunk returns the value of the one with a key. The error is that of chunk, or has the cause ErrCorrupt.
func (d *ItemDecoder) Item(e DumpEntry, chunk func(key []byte) ([]byte, error)) (Item, error) {
	value := e.Value
	if len(value) > 0 && value[0] == valueChunked {
		var err error
		if value, err = joinDumped(e.Key, value, chunk); err != nil {
			return Item{}, err
		}
	}
	var f fields
	if !f.decode(value) {
		return Item{}, corrupt("item %x", e.Key)
	}
	itemKey := e.Key[1:]
	if n := len(d.logical); n > 0 && len(itemKey) > n && bytes.Equal(itemKey[:n], d.logical) {
		return f.item(d.key, string(itemKey[n:])), nil
	}
	k, id, err := ParseItemKey(itemKey)
	if err != nil {
		return Item{}, corrupt("item key %x: %v", itemKey, err)
	}
	d.key, d.logical = k, append(d.logical[:0], itemKey[:len(itemKey)-len(id)]...)
	return f.item(k, id), nil
}

// joinDumped returns the value of a key whose stored form is head, from entries of a dump.
func joinDumped(key, head []byte, chunk func(key []byte) ([]byte, error)) ([]byte, error) {
	r := reader{b: head[1:]}
	n, size := r.uvarint(), r.uvarint()
	if r.bad || size > 1<<30 || uint64(chunks(int(size))) != n {
		return nil, corrupt("key %x has the value %x", key, head)
	}
	whole := append(make([]byte, prefixLen), key...) // as chunkKey takes it
	value := make([]byte, 0, size)
	for i := range uint32(n) {
		b, err := chunk(chunkKey(whole, i)[prefixLen:])
		if err != nil {
			return nil, err
		}
		if len(b) > 0 {
			value = append(value, b[1:]...)
		}
	}
	if uint64(len(value)) != size {
		return nil, corrupt("key %x has %d bytes in chunks, want %d", key, len(value), size)
	}
	return value, nil
}
