package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"sort"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// Behind a block stand its checksum and, in the last four bytes, the length of that:
//
//	flipped                        Badger's error               how it is found
//	the block                      the checksum differs         the error is counted
//	the checksum                   it differs, or is none       the error is counted
//	its length, to less            it differs, or is none       the error is counted
//	its length, to more than all   the length cannot be         see below
//
// The last error is made of nothing that could be counted, and kept from whoever reads
// like the others. So who has scanned looks at the lengths behind the blocks in which Badger
// has looked, as they are then. A block that Badger could not read is still there, unless a
// merge has taken its table away meanwhile; and a merge looks before that, too. A get looks at them before it reads.

// checkScan looks at all blocks in which keys from lo to hi may be; a nil hi is the end.
// The DB is damaged if Badger cannot have read one of them.
func (d *DB) checkScan(lo, hi []byte) {
	var held [32]*table.Table
	for i := range d.levels.of {
		for _, t := range d.levels.of[i].hold(held[:0], lo, hi, i == 0) {
			at := checkRange(t, lo, hi)
			// To the end of the list, also behind one that is damaged: each table is held until it is let go.
			d.letGo(t)
			if at != nil {
				_ = d.fail(at.damage()) // Sound tells it
			}
		}
	}
}

// badTrailer is a block that Badger cannot read.
type badTrailer struct {
	table *table.Table
	block int // -1 is the index
}

func (at *badTrailer) damage() *DamagedError {
	if at.block < 0 {
		return &DamagedError{Reason: "the index of table " + at.table.Filename() + " is damaged"}
	}
	return &DamagedError{Reason: fmt.Sprintf("the end of block %d of table %s is damaged", at.block, at.table.Filename())}
}

// yieldBlocks is how many blocks of a table are looked at between two yields: behind a scan of a million items it takes a
// fifth of a second to look at all.
const yieldBlocks = 128

// checkRange looks at the blocks of one table in which keys from lo to hi may be, of any
// version, and at the one behind them: Badger goes on to it where a block ends.
//
//	blocks begin with    b1   d1   d7   f3
//	for keys d to d       x    x    x    x
//	for keys e to e                 x    x
func checkRange(t *table.Table, lo, hi []byte) *badTrailer {
	// Keys in a table end with their version, the newest first. They are compared without it: the versions
	// of one key may go on in the next block, and any of them may be the one that is read.
	index, ok := indexOf(t.Data)
	if !ok {
		return &badTrailer{table: t, block: -1}
	}
	var at fb.BlockOffset
	n := index.OffsetsLength()
	i := sort.Search(n, func(i int) bool {
		return index.Offsets(&at, i) && bytes.Compare(y.ParseKey(at.KeyBytes()), lo) >= 0
	})
	i = max(i-1, 0)
	for first := i; i < n; i++ {
		if (i-first)%yieldBlocks == yieldBlocks-1 {
			runtime.Gosched()
		}
		if !index.Offsets(&at, i) || unreadable(t.Data, int(at.Offset()), int(at.Len())) {
			return &badTrailer{table: t, block: i}
		}
		if hi != nil && bytes.Compare(y.ParseKey(at.KeyBytes()), hi) > 0 {
			return nil
		}
	}
	return nil
}

// unreadable tells whether Badger finds that the length of a block's checksum cannot be.
func unreadable(data []byte, offset, size int) bool {
	if size < 4 || offset < 0 || size > len(data)-offset {
		return true
	}
	// As Badger compares it, with the size of all of the block. A length that is only too long for what
	// stands before these four bytes makes Badger panic, and DB.Caught takes that.
	return uint64(binary.BigEndian.Uint32(data[offset+size-4:])) > uint64(size)
}

// indexOf returns the index at the end of a table.
func indexOf(data []byte) (index fb.TableIndex, ok bool) {
	raw, _, ok := rawIndex(data)
	if !ok {
		return index, false
	}
	return *fb.GetRootAsTableIndex(raw, 0), true
}

// rawIndex returns the bytes of the index at the end of a table, and its checksum.
func rawIndex(data []byte) (raw, sum []byte, ok bool) {
	sum, rest, ok := cutLast(data)
	if !ok || len(rest) < 4 {
		return nil, nil, false
	}
	size := uint64(binary.BigEndian.Uint32(rest[len(rest)-4:]))
	rest = rest[:len(rest)-4]
	if size < 8 || size > uint64(len(rest)) {
		return nil, nil, false
	}
	return rest[uint64(len(rest))-size:], sum, true
}

// checkAll looks at the index of a table and at what stands behind all of its blocks.
func checkAll(t *table.Table) *badTrailer {
	// Gets do not compare this checksum, which is over all of the index. Before a merge removes the table is
	// the last moment at which an index that lost entries can be found.
	raw, sum, ok := rawIndex(t.Data)
	if !ok || !bytes.Equal(sum, checksumOf(raw)) {
		return &badTrailer{table: t, block: -1}
	}
	return checkRange(t, nil, nil)
}

// iterator is one of Badger's, for which the DB is damaged once it is closed, or goes
// elsewhere, if Badger cannot have read all blocks that it came by.
type iterator struct {
	*badger.Iterator
	d   *DB
	opt badger.IteratorOptions

	began bool
	from  []byte // where it was sent
}

// iterate returns an iterator of a transaction. Close it.
func (d *DB) iterate(txn *badger.Txn, opt badger.IteratorOptions) *iterator {
	return &iterator{Iterator: txn.NewIterator(opt), d: d, opt: opt}
}

// Seek goes to a key, or to the first one behind it.
func (it *iterator) Seek(key []byte) {
	// Before it goes elsewhere: afterwards nobody knows how far it had come.
	it.check()
	it.began, it.from = true, append(it.from[:0], key...)
	it.Iterator.Seek(key)
}

// Rewind goes to the first key.
func (it *iterator) Rewind() { it.Seek(nil) }

// Close frees the iterator. It may be called twice.
func (it *iterator) Close() {
	defer it.Iterator.Close() // check may panic, over the index that it reads
	it.check()
	it.began = false
}

// check looks at all blocks between where the iterator was sent and where it is.
func (it *iterator) check() {
	if !it.began {
		return
	}
	// What Badger has read is from where it was sent to where it is, or to the end of the prefix if it has
	// found nothing more:
	//
	//	prefix p, sent to p3, stands at p7   p3 .. p7      backward, at p1   p1 .. p3
	//	prefix p, sent to p3, found no more  p3 .. end     backward          p  .. p3
	lo, hi := it.from, it.from
	switch valid := it.Valid(); {
	case !it.opt.Reverse && valid:
		hi = it.Iterator.Item().Key()
	case !it.opt.Reverse:
		hi = PrefixEnd(it.opt.Prefix)
	case valid:
		lo = it.Iterator.Item().Key()
	default:
		lo = it.opt.Prefix
	}
	if bytes.Compare(lo, it.opt.Prefix) < 0 {
		lo = it.opt.Prefix
	}
	// Backward, no key means the end and not the beginning.
	if it.opt.Reverse && len(it.from) == 0 {
		hi = nil
	}
	it.d.checkScan(lo, hi)
}
