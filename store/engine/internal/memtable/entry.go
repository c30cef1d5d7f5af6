package memtable

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"strconv"

	"github.com/dgraph-io/badger/v4/y"
)

// What Badger's logs and tables say of an entry.
const (
	metaDeleted = 1 << 0
	metaTxn     = 1 << 6 // of a transaction: it does not count without its end
	metaTxnEnd  = 1 << 7
)

// txnEndKey is the key of the entry that ends a transaction.
const txnEndKey = "!badger!txn"

// meta is what Badger says of the write, in a log and in a table.
func (w *Write) meta() byte {
	if w.Delete {
		return metaTxn | metaDeleted
	}
	return metaTxn
}

// appendTxn appends a transaction in the form of Badger's logs.
func appendTxn(dst []byte, ts uint64, writes []Write) []byte {
	for i := range writes {
		w := &writes[i]
		dst = appendEntry(dst, w.meta(), w.Key, ts, w.Value)
	}
	return appendEntry(dst, metaTxnEnd, []byte(txnEndKey), ts, strconv.AppendUint(nil, ts, 10))
}

func appendEntry(dst []byte, meta byte, key []byte, ts uint64, value []byte) []byte {
	begin := len(dst)
	dst = append(dst, meta, 0) // and no meta of a user's
	dst = binary.AppendUvarint(dst, uint64(len(key)+versionBytes))
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	dst = append(dst, 0) // it never expires
	dst = appendVersioned(dst, key, ts)
	dst = append(dst, value...)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[begin:], y.CastagnoliCrcTable))
}

const versionBytes = 8

// appendVersioned appends a key as Badger keeps it at a timestamp: newer ones come first.
func appendVersioned(dst, key []byte, ts uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, key...), math.MaxUint64-ts)
}
