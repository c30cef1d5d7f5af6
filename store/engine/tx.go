package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/dgraph-io/badger/v4"

	"github.com/millrace/millrace/store/engine/internal/memtable"
)

// tx writes keys at one timestamp. What exceeds the size of one of Badger's transactions goes to the log as several at the same
// timestamp, so readers see all of it or nothing; only a crash can leave a part, which applying the commit again makes whole.
type tx struct {
	to  *memtable.Tables
	ts  uint64
	max limits

	writes []memtable.Write
	at     map[string]int // where in writes a key is
	bytes  int64

	lost error // why what was committed may be there in part
}

// limits are those of a transaction of Badger.
type limits struct{ bytes, count int64 }

// txAt returns a transaction at a timestamp, which ends before the next one.
func (w *writer) txAt(d *DB, ts uint64) *tx {
	t := &w.tx
	if t.at == nil {
		t.at = make(map[string]int)
	}
	t.to, t.ts, t.lost = d.tables, ts, nil
	t.max = limits{d.b.MaxBatchSize(), d.b.MaxBatchCount()}
	return t
}

// set writes a key. Both slices must stay as they are until commit returns.
func (t *tx) set(key, value []byte) error { return t.add(memtable.Write{Key: key, Value: value}) }

// delete removes a key, which need not be there.
func (t *tx) delete(key []byte) error { return t.add(memtable.Write{Key: key, Delete: true}) }

// add adds a write, in the place of an earlier one of the same key.
func (t *tx) add(w memtable.Write) error {
	if len(w.Key) > keyMax {
		return fmt.Errorf("engine: write: a key has %d bytes, at most %d are possible", len(w.Key), keyMax)
	}
	// The map does not outlive the commit, and so not the key.
	key := unsafe.String(unsafe.SliceData(w.Key), len(w.Key))
	grows, more := w.Bytes(), int64(1)
	i, again := t.at[key]
	if again {
		grows, more = grows-t.writes[i].Bytes(), 0
	}
	switch {
	case w.Bytes() >= t.max.bytes:
		return fmt.Errorf("engine: write: key and value have %d bytes, less than %d are possible", len(w.Key)+len(w.Value), t.max.bytes)
	case t.bytes+grows >= t.max.bytes || int64(len(t.writes))+more > t.max.count:
		if err := t.commit(); err != nil {
			return err
		}
	case again:
		t.writes[i] = w
		t.bytes += grows
		return nil
	}
	t.at[key] = len(t.writes)
	t.writes = append(t.writes, w)
	t.bytes += w.Bytes()
	return nil
}

// commit writes what was added since the last commit.
func (t *tx) commit() error {
	if len(t.writes) == 0 {
		return nil
	}
	err := t.to.Write(t.ts, t.writes)
	t.forget()
	if err != nil {
		t.lost = err
		return fmt.Errorf("engine: write: %w", err)
	}
	return nil
}

// keptMax is of how many writes a transaction leaves the room to the next one of its partition.
const keptMax = 1000

func (t *tx) forget() {
	if len(t.writes) > keptMax {
		t.writes, t.at = nil, make(map[string]int)
	}
	clear(t.writes)
	clear(t.at)
	t.writes, t.bytes = t.writes[:0], 0
}

// get returns what a key has. No block in which it may stand was passed over.
func (d *DB) get(txn *badger.Txn, key []byte) (*badger.Item, error) {
	item, err := txn.Get(key)
	if wrong := d.checkGet(key); wrong != nil {
		return nil, wrong
	}
	return item, err
}

// getValue returns a copy of the value of a key, nil if there is none, put together
// from its chunks if it was cut.
func getValue(d *DB, txn *badger.Txn, key []byte) ([]byte, error) {
	item, err := d.get(txn, key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("engine: read: %w", err)
	}
	var value []byte
	// What Value passes is memory of this item alone: values never come from the
	// value log, whose memory is shared.
	err = item.Value(func(v []byte) error {
		value = v
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("engine: read: %w", err)
	}
	if len(value) == 0 {
		return nil, corrupt("key %x has no value", key)
	}
	if value[0] == valueChunked {
		return joinChunks(d, txn, key, value)
	}
	return value, nil
}

// A value of inlineMax or more stands in chunks: under its key only their number
// and its size are kept.

// chunkedValue returns what stands in place of a value of that size.
func chunkedValue(size int) []byte {
	b := binary.AppendUvarint([]byte{valueChunked}, uint64(chunks(size)))
	return binary.AppendUvarint(b, uint64(size))
}

// chunks is the number of chunks of a value.
func chunks(size int) uint32 { return uint32((size + chunkBytes - 1) / chunkBytes) }

// chunkKey returns the key of chunk n of the value of key.
func chunkKey(key []byte, n uint32) []byte {
	k := make([]byte, 0, len(key)+5)
	k = append(k, key[:prefixLen]...)
	k = append(k, kindChunk)
	k = append(k, key[prefixLen:]...)
	return binary.BigEndian.AppendUint32(k, n)
}

// joinChunks returns the value of a key whose stored form is head.
func joinChunks(d *DB, txn *badger.Txn, key, head []byte) ([]byte, error) {
	r := reader{b: head[1:]}
	n, size := r.uvarint(), r.uvarint()
	if r.bad || size > 1<<30 || uint64(chunks(int(size))) != n {
		return nil, corrupt("key %x has the value %x", key, head)
	}
	value := make([]byte, 0, size)
	for i := range uint32(n) {
		item, err := d.get(txn, chunkKey(key, i))
		if err != nil {
			return nil, corrupt("chunk %d of key %x: %v", i, key, err)
		}
		err = item.Value(func(v []byte) error {
			if len(v) > 0 {
				value = append(value, v[1:]...)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("engine: read: %w", err)
		}
	}
	if uint64(len(value)) != size {
		return nil, corrupt("key %x has %d bytes in chunks, want %d", key, len(value), size)
	}
	return value, nil
}
