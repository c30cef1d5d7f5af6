package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// Scrub reads every block of every table past Badger, so that it disturbs nobody, and
// compares checksums. It calls pace, if that is not nil, after each block, and ends
// with its error. If a block is damaged the error is *DamagedError, and the DB is from
// then on.
func (d *DB) Scrub(pace func() error) (blocks uint64, err error) {
	ts, err := d.o.read(&d.meta) // the DB is not closed meanwhile
	if err != nil {
		return 0, err
	}
	tables := d.b.Tables()
	d.o.release(ts)
	for _, t := range tables {
		n, err := scrubTable(table.NewFilename(t.ID, d.dir), pace)
		blocks += n
		switch {
		case err == nil:
		case errors.Is(err, ErrCorrupt):
			if !d.has(t.ID) {
				continue // merged into others meanwhile, and removed
			}
			return blocks, d.fail(&DamagedError{Reason: err.Error()})
		default:
			return blocks, err
		}
	}
	return blocks, nil
}

// has tells whether a table is in use.
func (d *DB) has(id uint64) bool {
	ts, err := d.o.read(&d.meta)
	if err != nil {
		return false
	}
	defer d.o.release(ts)
	for _, t := range d.b.Tables() {
		if t.ID == id {
			return true
		}
	}
	return false
}

// scrubTable reads the blocks of one table. The cause of its error is ErrCorrupt if
// one is damaged; a table that is gone is none.
//
//	blocks | index | 4: its length | checksum of the index | 4: its length
func scrubTable(name string, pace func() error) (blocks uint64, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	index, err := readIndex(f)
	if err != nil {
		return 0, err
	}
	var buf []byte
	for i := range index.OffsetsLength() {
		var at fb.BlockOffset
		if !index.Offsets(&at, i) {
			return blocks, corrupt("table %s: block %d is not in its index", name, i)
		}
		if cap(buf) < int(at.Len()) {
			buf = make([]byte, at.Len())
		}
		buf = buf[:at.Len()]
		if _, err := f.ReadAt(buf, int64(at.Offset())); err != nil && !errors.Is(err, io.EOF) {
			return blocks, corrupt("table %s: block %d: %v", name, i, err) // the disk cannot read it
		} else if err != nil {
			return blocks, corrupt("table %s: block %d is cut", name, i)
		}
		if _, ok := checked(buf); !ok {
			return blocks, corrupt("table %s: block %d at %d does not have its checksum", name, i, at.Offset())
		}
		blocks++
		if pace != nil {
			if err := pace(); err != nil {
				return blocks, err
			}
		}
	}
	return blocks, nil
}

// readIndex reads the index at the end of a table.
func readIndex(f *os.File) (*fb.TableIndex, error) {
	name := f.Name()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	end := info.Size()
	// The checksum of the index takes some 15 bytes, and its length is at the end.
	tail := make([]byte, min(end, 64))
	if _, err := f.ReadAt(tail, end-int64(len(tail))); err != nil {
		return nil, corrupt("table %s: %v", name, err)
	}
	sum, rest, ok := cutLast(tail)
	if !ok || len(rest) < 4 {
		return nil, corrupt("table %s: its end is damaged", name)
	}
	size := int64(binary.BigEndian.Uint32(rest[len(rest)-4:]))
	start := end - int64(len(tail)-len(rest)) - 4 - size
	if start < 0 {
		return nil, corrupt("table %s: its end is damaged", name)
	}
	data := make([]byte, size)
	if _, err := f.ReadAt(data, start); err != nil {
		return nil, corrupt("table %s: %v", name, err)
	}
	if !bytes.Equal(sum, checksumOf(data)) {
		return nil, corrupt("table %s: its index does not have its checksum", name)
	}
	return fb.GetRootAsTableIndex(data, 0), nil
}

// checked returns what a block's checksum covers, if the checksum is right.
func checked(block []byte) ([]byte, bool) {
	sum, data, ok := cutLast(block)
	return data, ok && bytes.Equal(sum, checksumOf(data))
}

// cutLast cuts a checksum and its length from the end.
func cutLast(b []byte) (sum, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint32(b[len(b)-4:]))
	b = b[:len(b)-4]
	if n > len(b) {
		return nil, nil, false
	}
	return b[len(b)-n:], b[:len(b)-n], true
}

// checksumOf is what Badger stores as the checksum of data: a message whose second
// field is the CRC-32C; the first, the algorithm, is zero and left out.
func checksumOf(data []byte) []byte {
	crc := y.CalculateChecksum(data, pb.Checksum_CRC32C)
	if crc == 0 {
		return nil
	}
	return binary.AppendUvarint([]byte{2 << 3}, crc)
}
