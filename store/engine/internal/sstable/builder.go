// Package sstable writes tables as Badger reads them, without compression and encryption. Badger's own builder holds all of a table in
// memory and copies it twice, and takes 3 MiB for the index of each; merges build tables of 1 or 2 MiB, some hundred in a
// second of hard work. This one writes blocks as they are full, and keeps its buffers for the next table.
//
//	table    block ... block   index   its length   its checksum   the checksum's length
//	block    entry ... entry   offsets of entries   how many   checksum   the checksum's length
//	entry    bytes of the key that the block's first one has too, bytes behind them, those bytes, the value
//
// It is the engine's.
package sstable

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"

	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/y"
	flatbuffers "github.com/google/flatbuffers/go"
)

// Builder writes one table after the other. The zero Builder with its first two fields set is ready. Not safe for concurrent use.
type Builder struct {
	BlockBytes    int     // of a block, if its entries allow it
	FalsePositive float64 // of the filter; 0: the table has none

	to      io.Writer
	err     error  // of to
	buf     []byte // of the table, behind what was written
	written int    // bytes of the table
	at      int    // where in buf the block begins that gets entries
	first   []byte // its first key
	entries []uint32

	blocks     []block
	keys       []byte   // first ones of all blocks
	hashes     []uint32 // of all keys
	maxVersion uint64
	indexSize  int // about
	index      *flatbuffers.Builder
	offsets    []flatbuffers.UOffsetT
}

// block is one that has all its entries.
type block struct{ key, offset, size int } // where its first key ends in keys, and where it stands in the table

// bufBytes is from how much on a builder writes what it has.
const bufBytes = 256 << 10

// Begin begins a table, and forgets the one before.
func (b *Builder) Begin(to io.Writer) {
	if cap(b.buf) == 0 {
		b.buf = make([]byte, 0, bufBytes+64<<10)
	}
	b.to, b.err, b.written, b.at, b.maxVersion, b.indexSize = to, nil, 0, 0, 0, 0
	b.buf, b.first, b.entries = b.buf[:0], b.first[:0], b.entries[:0]
	b.blocks, b.keys, b.hashes = b.blocks[:0], b.keys[:0], b.hashes[:0]
}

// Empty tells whether nothing was added.
func (b *Builder) Empty() bool { return len(b.hashes) == 0 }

// Size is about how large the table is until now, in bytes, without the block that gets entries.
func (b *Builder) Size() int { return b.written + b.at + len(b.entries)*4 + b.indexSize }

const (
	entryHead = 4         // bytes before the key of an entry
	blockTail = 4 + 8 + 4 // and about those behind the offsets
)

// Add adds a key with its version, which comes behind all that were added, and its value.
func (b *Builder) Add(key []byte, value y.ValueStruct) {
	size := len(b.buf) - b.at + entryHead + 2 + len(key) + int(value.EncodedSize()) + (len(b.entries)+1)*4 + blockTail
	if len(b.entries) > 0 && size > b.BlockBytes {
		b.endBlock()
	}
	b.hashes = append(b.hashes, y.Hash(y.ParseKey(key)))
	b.maxVersion = max(b.maxVersion, y.ParseTs(key))
	shared := 0
	if len(b.entries) == 0 {
		b.first = append(b.first[:0], key...)
	} else {
		for shared < min(len(key), len(b.first)) && key[shared] == b.first[shared] {
			shared++
		}
	}
	b.entries = append(b.entries, uint32(len(b.buf)-b.at))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(shared))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(len(key)-shared))
	b.buf = append(b.buf, key[shared:]...)
	b.buf = append(b.buf, value.Meta, value.UserMeta)
	b.buf = binary.AppendUvarint(b.buf, value.ExpiresAt)
	b.buf = append(b.buf, value.Value...)
}

// Written is how large the table is, in bytes, when it is finished.
func (b *Builder) Written() int { return b.written }

// endBlock ends the block that gets entries.
func (b *Builder) endBlock() {
	for _, at := range b.entries {
		b.buf = binary.NativeEndian.AppendUint32(b.buf, at)
	}
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(b.entries)))
	b.buf = appendChecksum(b.buf, b.buf[b.at:])
	b.keys = append(b.keys, b.first...)
	b.blocks = append(b.blocks, block{key: len(b.keys), offset: b.written + b.at, size: len(b.buf) - b.at})
	b.indexSize += (len(b.first)+3)/4*4 + 40
	b.entries = b.entries[:0]
	if len(b.buf) >= bufBytes {
		b.write()
	}
	b.at = len(b.buf)
}

func (b *Builder) write() {
	if b.err == nil {
		_, b.err = b.to.Write(b.buf)
	}
	b.written += len(b.buf)
	b.buf = b.buf[:0]
}

// Finish writes the rest of the table, to which something was added. The error is the first of the writer's.
func (b *Builder) Finish() error {
	if len(b.entries) > 0 {
		b.endBlock()
	}
	index := b.makeIndex()
	b.buf = append(b.buf, index...)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(index)))
	b.buf = appendChecksum(b.buf, index)
	b.write()
	return b.err
}

// appendChecksum appends the checksum of data, as a message of Badger's, and the length of that.
func appendChecksum(dst, data []byte) []byte {
	sum := crc32.Checksum(data, y.CastagnoliCrcTable)
	before := len(dst)
	if sum != 0 { // protocol buffers leave out what is zero, as is the number of this kind of checksum
		dst = append(dst, 2<<3) // field 2, a varint
		dst = binary.AppendUvarint(dst, uint64(sum))
	}
	return binary.BigEndian.AppendUint32(dst, uint32(len(dst)-before))
}

// makeIndex returns the index, which stays until the next one is made.
func (b *Builder) makeIndex() []byte {
	if b.index == nil {
		b.index = flatbuffers.NewBuilder(64 << 10)
	}
	f := b.index
	f.Reset()
	b.offsets = b.offsets[:0]
	begin := 0
	for _, o := range b.blocks {
		key := f.CreateByteVector(b.keys[begin:o.key])
		begin = o.key
		fb.BlockOffsetStart(f)
		fb.BlockOffsetAddKey(f, key)
		fb.BlockOffsetAddOffset(f, uint32(o.offset))
		fb.BlockOffsetAddLen(f, uint32(o.size))
		b.offsets = append(b.offsets, fb.BlockOffsetEnd(f))
	}
	fb.TableIndexStartOffsetsVector(f, len(b.offsets))
	for _, o := range slices.Backward(b.offsets) { // a vector is made from its end on
		f.PrependUOffsetT(o)
	}
	blocks := f.EndVector(len(b.offsets))
	var filter flatbuffers.UOffsetT
	if b.FalsePositive > 0 {
		filter = f.CreateByteVector(y.NewFilter(b.hashes, y.BloomBitsPerKey(len(b.hashes), b.FalsePositive)))
	}
	size := uint32(b.written + b.at)
	fb.TableIndexStart(f)
	fb.TableIndexAddOffsets(f, blocks)
	fb.TableIndexAddBloomFilter(f, filter)
	fb.TableIndexAddMaxVersion(f, b.maxVersion)
	fb.TableIndexAddUncompressedSize(f, size)
	fb.TableIndexAddKeyCount(f, uint32(len(b.hashes)))
	fb.TableIndexAddOnDiskSize(f, size)
	fb.TableIndexAddStaleDataSize(f, 0)
	f.Finish(fb.TableIndexEnd(f))
	made := f.FinishedBytes()
	index := fb.GetRootAsTableIndex(made, 0)
	index.MutateOnDiskSize(size + uint32(len(made)))
	return made
}
