package engine

import (
	"encoding/binary"
	"fmt"
	"unsafe"

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
