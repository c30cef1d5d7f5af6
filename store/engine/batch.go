package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/millrace/millrace/feed"
)

// errCleared says that a batch was made before Partition.Clear.
var errCleared = errors.New("engine: the partition was cleared since the batch was begun")

// Batch collects the writes of one or more commits. It does not read: what an item
// was before is told by the caller, as the log tells it. Later writes of a batch
// come after earlier ones.
type Batch struct {
	p      *Partition
	schema *Schema
	prefix uint32 // of the keys in buf
	buf    []byte // keys and values of ops
	ops    []op
	state  *State
	last   *State // that is among ops; nil if none is

	before, after values
	unique        []byte

	// The key of the last item: a fan-out writes many of one logical partition.
	key     feed.PartitionKey
	logical []byte // its LogicalPrefix
}

// op is one write; the offsets are those of buf.
type op struct {
	key, value, end int
	del             bool
}

// NewBatch returns an empty batch. The schema says which indexes, unique keys and
// expiries it maintains.
func (p *Partition) NewBatch(schema *Schema) *Batch { return &Batch{p: p, schema: schema} }

// SetSchema replaces the schema for what is written to the batch from now on.
func (b *Batch) SetSchema(schema *Schema) { b.schema = schema }

func (b *Batch) empty() {
	b.buf, b.ops, b.state, b.last = b.buf[:0], b.ops[:0], nil, nil
	if cap(b.buf) > 16<<20 {
		b.buf = nil
	}
	if cap(b.ops) > 1<<16 {
		b.ops = nil
	}
}

// Put writes an item in place of before, or a new one if before is nil. It sets
// after.Expires as the schema says. Both share key and id. Nothing is kept of them.
func (b *Batch) Put(after, before *Item) error {
	if b.passes(after) {
		return nil
	}
	after.Expires = b.schema.Expires(after.Body, after.Modified)
	at := b.item(after)
	b.putExpiry(at, after, before)
	b.putIndexes(at, after, before)
	b.putUnique(after, before)
	return nil
}

// PutBody writes an item of which neither indexed values, nor unique ones, nor
// Expires differ from what was before. It writes Expires as it is.
func (b *Batch) PutBody(after *Item) error {
	if b.passes(after) {
		return nil
	}
	b.item(after)
	return nil
}

// Delete removes an item.
func (b *Batch) Delete(before *Item) error {
	if b.passes(before) {
		return nil
	}
	o := b.begin(kindItem)
	b.appendItemKey(before)
	o.del = true
	at := b.finish(o)
	b.putExpiry(at, nil, before)
	b.putIndexes(at, nil, before)
	b.putUnique(nil, before)
	return nil
}

// PutRecord writes a record of the owner: kind and key name it.
func (b *Batch) PutRecord(kind byte, key, value []byte) error {
	if b.p.share != nil && !b.p.share.Record(kind, key) {
		return nil
	}
	o := b.begin(kindRecord)
	b.buf = append(append(b.buf, kind), key...)
	o.value = len(b.buf)
	b.buf = append(append(b.buf, valueVersion), value...)
	b.finish(o)
	return nil
}

// DeleteRecord removes a record, which need not be there.
func (b *Batch) DeleteRecord(kind byte, key []byte) error {
	if b.p.share != nil && !b.p.share.Record(kind, key) {
		return nil
	}
	o := b.begin(kindRecord)
	b.buf = append(append(b.buf, kind), key...)
	o.del = true
	b.finish(o)
	return nil
}

// passes says that the batch passes over an item, which is not of the partition's share.
func (b *Batch) passes(it *Item) bool { return b.p.share != nil && !b.p.share.holdsKey(it.Key) }

// SetState says what the partition's state is when the batch is committed.
func (b *Batch) SetState(s State) { b.state = &s }

// Commit writes the batch, so that snapshots see all of it or nothing, and empties
// it. It does not wait for the disk. After an error the batch is as it was and
// part of it may have been written: commit it again, or open the DB again, before
// anything else is written to the partition.
func (b *Batch) Commit() error {
	if b.state != nil {
		o := b.begin(kindState)
		o.value = len(b.buf)
		b.buf = appendState(b.buf, b.state)
		b.finish(o)
		b.state, b.last = nil, b.state
	}
	if len(b.ops) == 0 {
		return nil
	}
	b.p.mu.Lock()
	err := b.commitLocked()
	b.p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("commit to %s: %w", b.p.id, err)
	}
	b.empty()
	return nil
}

func (b *Batch) commitLocked() error {
	if b.p.prefix.Load() != b.prefix {
		return errCleared
	}
	passed := b.p.reached.passed(b.last)
	err := b.p.update(func(t *tx) error {
		for i := range b.ops {
			o := &b.ops[i]
			key := b.buf[o.key:o.value:o.value]
			var err error
			if o.del {
				err = b.p.deleteValue(t, key)
			} else {
				err = b.p.setValue(t, key, b.buf[o.value:o.end:o.end])
			}
			if err != nil {
				return err
			}
		}
		if passed { // last: the state is as far when this is written
			return b.p.storeReached(t, nil)
		}
		return nil
	})
	if err == nil && passed {
		b.p.setReached(nil)
	}
	return err
}

// begin begins an op with a key of that kind.
func (b *Batch) begin(kind byte) op {
	// All keys have the prefix of the first op. A partition that is cleared meanwhile has
	// another one, and commitLocked refuses what was made for the one before.
	if len(b.ops) == 0 {
		b.prefix = b.p.prefix.Load()
	}
	o := op{key: len(b.buf)}
	b.buf = appendPrefix(b.buf, b.prefix, kind)
	return o
}

// finish appends the op and returns its index. What was appended to buf after
// o.value is the value; all of it is the key if o.value is zero.
func (b *Batch) finish(o op) int {
	o.end = len(b.buf)
	if o.value == 0 {
		o.value = o.end
	}
	b.ops = append(b.ops, o)
	return len(b.ops) - 1
}

// appendItemKey appends the key of an item to buf.
func (b *Batch) appendItemKey(it *Item) {
	if b.key != it.Key || b.logical == nil {
		b.key, b.logical = it.Key, AppendLogicalPrefix(b.logical[:0], it.Key)
	}
	b.buf = append(append(b.buf, b.logical...), it.ID...)
}

// item writes an item and returns the index of its op.
func (b *Batch) item(it *Item) int {
	o := b.begin(kindItem)
	b.appendItemKey(it)
	o.value = len(b.buf)
	b.buf = appendItem(b.buf, it)
	return b.finish(o)
}

// mark writes or removes an entry whose value says nothing but its version. Its
// key is what was appended to buf since begin and the item key of op at.
func (b *Batch) mark(o op, at int, del bool) {
	item := &b.ops[at]
	b.buf = append(b.buf, b.buf[item.key+prefixLen+1:item.value]...)
	if o.del = del; !del {
		o.value = len(b.buf)
		b.buf = append(b.buf, valueVersion)
	}
	b.finish(o)
}

// putExpiry moves the expiry entry of the item of op at.
func (b *Batch) putExpiry(at int, after, before *Item) {
	var old, stored, now int64
	if before != nil {
		// What is stored may come from a former default time to live, and the entry may stand
		// at either place. The item was written at 0, the default was 100 s and is 60 s now:
		//
		//	stored 100, by today's default 60, the item is written again at 10
		//	removed: the entries at 60 and at 100, whichever is there; written: the one at 70
		old, stored = b.schema.Expires(before.Body, before.Modified), before.Expires
	}
	if after != nil {
		now = after.Expires
	}
	if old != 0 && old != now {
		b.expiry(at, old, true)
	}
	if stored != 0 && stored != old && stored != now {
		b.expiry(at, stored, true)
	}
	if now != 0 && now != old {
		b.expiry(at, now, false)
	}
}

func (b *Batch) expiry(at int, expires int64, del bool) {
	o := b.begin(kindExpiry)
	b.buf = binary.BigEndian.AppendUint64(b.buf, uint64(expires))
	b.mark(o, at, del)
}

// putIndexes writes the index entries that after has and before had not, and
// removes those that before had and after has not.
func (b *Batch) putIndexes(at int, after, before *Item) {
	for i := range b.schema.Indexes {
		x := &b.schema.Indexes[i]
		b.before.reset()
		b.after.reset()
		if before != nil {
			b.before.of(x, before.Body)
		}
		if after != nil {
			b.after.of(x, after.Body)
		}
		// An index of the elements of an array has several values for one item. Those that stay
		// are not written again:
		//
		//	tags ["a", "b"] become ["b", "c"]: "a" is removed, "c" is written
		if bytes.Equal(b.before.buf, b.after.buf) {
			continue
		}
		for i := range b.before.len() {
			if value := b.before.get(i); !b.after.has(value) {
				b.entry(at, x.Number, value, true)
			}
		}
		for i := range b.after.len() {
			if value := b.after.get(i); !b.before.has(value) {
				b.entry(at, x.Number, value, false)
			}
		}
	}
}

func (b *Batch) entry(at int, index uint32, value []byte, del bool) {
	o := b.begin(kindIndex)
	b.buf = binary.BigEndian.AppendUint32(b.buf, index)
	b.buf = append(b.buf, value...)
	b.mark(o, at, del)
}

// putUnique moves the unique entries of an item.
func (b *Batch) putUnique(after, before *Item) {
	for i := range b.schema.UniqueKeys {
		u := &b.schema.UniqueKeys[i]
		b.unique = b.unique[:0]
		if after != nil {
			b.unique = u.appendKey(b.unique, after.Key, after.Body)
		}
		n := len(b.unique)
		if before != nil {
			b.unique = u.appendKey(b.unique, before.Key, before.Body)
		}
		now, old := b.unique[:n], b.unique[n:]
		if bytes.Equal(now, old) {
			continue
		}
		if before != nil {
			o := b.begin(kindUnique)
			b.buf = append(b.buf, old...)
			o.del = true
			b.finish(o)
		}
		if after != nil {
			o := b.begin(kindUnique)
			b.buf = append(b.buf, now...)
			o.value = len(b.buf)
			b.buf = append(append(b.buf, valueVersion), after.ID...)
			b.finish(o)
		}
	}
}

// ItemRef names an item and says when it expires.
type ItemRef struct {
	Key     feed.PartitionKey
	ID      string
	Expires int64 // unix ms
}
