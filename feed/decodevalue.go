package feed

import (
	"encoding/binary"
	"math"
	"strconv"
	"unsafe"
)

func (d *decoder) byte(what string) byte {
	if d.err != nil || d.at >= len(d.data) {
		d.fail(what + " is cut short")
		return 0
	}
	d.at++
	return d.data[d.at-1]
}

func (d *decoder) uvarint(what string) uint64 {
	if d.err != nil {
		return 0
	}
	n, size := binary.Uvarint(d.data[d.at:])
	if size <= 0 {
		d.fail(what + " is cut short or too long")
		return 0
	}
	d.at += size
	return n
}

func (d *decoder) varint(what string) int64 {
	n := d.uvarint(what)
	return int64(n>>1) ^ -int64(n&1) // zigzag: 0 1 2 3 are 0 -1 1 -2
}

func (d *decoder) uint32(what string) uint32 {
	n := d.uvarint(what)
	if n > math.MaxUint32 {
		d.fail(what + " is beyond 32 bits")
		return 0
	}
	return uint32(n)
}

func (d *decoder) position(what string) Position {
	return Position{LSN: LSN(d.uvarint(what)), Index: d.uint32(what)}
}

// count reads how many things follow, each of at least size bytes.
func (d *decoder) count(what string, size int) int {
	return d.fit(what, d.uvarint(what), size, len(d.data)-d.at)
}

// fit returns n, the number of things of at least size bytes each that length bytes hold.
func (d *decoder) fit(what string, n uint64, size, length int) int {
	// Division, not n*size, which could overflow.
	if n > uint64(length/size) {
		d.fail(what + ": " + strconv.FormatUint(n, 10) + " do not fit")
		return 0
	}
	return int(n)
}

// present reads a byte string that is there even if it is empty.
func (d *decoder) present(what string) []byte {
	n := d.uvarint(what)
	if d.err != nil || n > uint64(len(d.data)-d.at) {
		d.fail(what + " is cut short")
		return nil
	}
	// The capacity ends with the slice, so an append to it cannot overwrite the next field.
	b := d.data[d.at : d.at+int(n) : d.at+int(n)]
	d.at += int(n)
	return b
}

// value reads a byte string that is there, whose length is written plus one.
func (d *decoder) value(what string) []byte {
	n := d.uvarint(what)
	if d.err != nil || n == 0 || n-1 > uint64(len(d.data)-d.at) {
		d.fail(what + " is cut short")
		return nil
	}
	end := d.at + int(n-1)
	b := d.data[d.at:end:end]
	d.at = end
	return b
}

// bytes reads a byte string, nil if it is empty.
func (d *decoder) bytes(what string) []byte {
	if b := d.present(what); len(b) > 0 {
		return b
	}
	return nil
}

func (d *decoder) string(what string) string { return d.strings.add(d.present(what)) }

// arena holds the strings of a commit in few allocations. Strings do not alias
// the message, so that one id kept in a map does not keep six megabytes.
type arena struct {
	free []byte
	want int
}

// arenaChunkMax bounds one allocation, and so what one string that is kept can
// keep besides.
const arenaChunkMax = 32 << 10

// expect says about how many bytes of strings will follow.
func (a *arena) expect(n int) { a.want = n }

func (a *arena) add(b []byte) string {
	n := len(b)
	if n == 0 {
		return ""
	}
	if n > 256 {
		return string(b) // a long string shares no chunk: it would waste the chunk's rest
	}
	if cap(a.free)-len(a.free) < n {
		// What expect announced, while any of it is left, and then small chunks: most commits
		// have one transaction, and a chunk lives as long as one of its strings.
		size := min(max(a.want, 64, n), arenaChunkMax)
		a.want -= size
		a.free = make([]byte, 0, size)
	}
	at := len(a.free)
	a.free = append(a.free, b...)
	// These bytes are written once, here, before the string exists.
	return unsafe.String(&a.free[at], n)
}
