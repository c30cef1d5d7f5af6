package feed

import (
	"strconv"
	"sync"

	"github.com/klauspost/compress/s2"
)

// transactionsMax bounds the bytes that the transactions of a compressed commit have when they
// are decompressed. A writer leaves larger ones as they are, and a reader refuses them: so no
// forged length makes anybody allocate more for them, and no count more than forty times as much,
// as in a commit that is not compressed. It is more than a commit of a store may have, which is 6 MiB.
const transactionsMax = 8 << 20

// AppendCompressed is AppendCommit for a log whose readers all know compressed commits. It
// compresses the transactions if they have at least bytesMin bytes and at most 8 MiB, and
// if an eighth of them is saved by it. Else it appends what AppendCommit does.
func AppendCompressed(dst []byte, c *Commit, bytesMin int) []byte {
	start := len(dst)
	dst, at := appendUnsealed(dst, c)
	if n := len(dst) - at; n >= bytesMin && n <= transactionsMax {
		dst = compressFrom(dst, start, at)
	}
	return seal(dst, start, c)
}

// packings are buffers of compressFrom. They are shared and not kept by each log that is
// written: one is needed for some ten microseconds a commit.
var packings = sync.Pool{New: func() any { return new([]byte) }}

// compressFrom puts an S2 block in the place of all that stands behind at, in the commit that
// begins at start, if the block saves an eighth.
func compressFrom(dst []byte, start, at int) []byte {
	buf := packings.Get().(*[]byte)
	defer packings.Put(buf)
	plain := dst[at:]
	packed := s2.Encode((*buf)[:cap(*buf)], plain)
	*buf = packed
	if len(packed) > len(plain)-len(plain)/8 {
		return dst
	}
	dst = append(dst[:at], packed...)
	dst[start] = formatCompressed
	dst[start+atFlags] |= commitCompressed
	return dst
}

// blockLength returns how many bytes the transactions of a compressed commit have, of which the
// block at the cursor is one. It leaves the cursor where it is: the length is a part of
// the block.
func (d *decoder) blockLength() int {
	at := d.at
	n := d.uvarint("length of the transactions")
	d.at = at
	if n > transactionsMax {
		d.fail("transactions of " + strconv.FormatUint(n, 10) + " bytes, at most " + strconv.Itoa(transactionsMax) + " are allowed")
		return 0
	}
	return int(n)
}

// decompress replaces the data by the transactions of a compressed commit. The checksum has been
// verified. The buffer is the commit's own, whose slices alias it.
func (d *decoder) decompress() {
	if d.err != nil {
		return
	}
	plain, err := s2.Decode(make([]byte, d.plainBytes), d.data[d.at:])
	if err != nil || len(plain) != d.plainBytes {
		d.fail("transactions cannot be decompressed")
		return
	}
	d.data, d.at, d.decompressed = plain, 0, true
}
