package accumulator

import (
	"encoding/binary"
	"fmt"
	"math/big"
)

// formatVersion is the first byte of every form; STATE.md describes them.
const formatVersion = 1

// The first byte of an encoded decimal.
const (
	decimalZero  = 0
	decimalSmall = 1
	decimalWide  = 2
	decimalMinus = 3 // wide and negative
)

// wideBytesMax bounds the integer of an encoded decimal: a sum of 2^63 numbers of
// twice DecimalDigitsMax digits has 341 bytes.
const wideBytesMax = 341

// appendDecimal appends d in its normal form.
func appendDecimal(dst []byte, d decimal) []byte {
	d = d.normal()
	switch {
	case d.wide != nil && d.wide.Sign() < 0:
		dst = append(dst, decimalMinus)
	case d.wide != nil:
		dst = append(dst, decimalWide)
	case d.small == 0:
		return append(dst, decimalZero)
	default:
		dst = append(dst, decimalSmall)
	}
	dst = binary.AppendVarint(dst, int64(d.exp))
	if d.wide == nil {
		return binary.AppendVarint(dst, d.small)
	}
	return appendBytes(dst, d.wide.Bytes())
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// reader reads the parts of a form. After its first error every read returns zero, so callers
// may check err late.
type reader struct {
	b   []byte
	all int
	err error
}

// read begins with the version of a form, which what names.
func read(data []byte, what string) reader {
	r := reader{b: data, all: len(data)}
	switch v := r.byte(what); {
	case r.err == nil && v > formatVersion:
		r.err = fmt.Errorf("%w %s: it has version %d, this build reads up to %d: upgrade this process", ErrFormat, what, v, formatVersion)
	case v == 0:
		r.fail(what + ": no version")
	}
	return r
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: byte %d: %s", ErrFormat, r.all-len(r.b), what)
	}
	r.b = nil
}

func (r *reader) byte(what string) byte {
	if len(r.b) == 0 {
		r.fail(what + " is cut short")
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint(what string) uint64 {
	v, n := binary.Uvarint(r.b)
	// A number has one encoding: no zero byte at its end. Equal states have equal bytes.
	if n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.fail(what + " is no number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint(what string) int64 {
	v := r.uvarint(what)
	return int64(v>>1) ^ -int64(v&1)
}

// count reads how many things follow, each of at least size bytes.
func (r *reader) count(what string, size int) int {
	n := r.uvarint(what)
	if n > uint64(len(r.b)/size) {
		r.fail(what + ": as many do not fit")
		return 0
	}
	return int(n)
}

// bytes reads bytes, which alias the form.
func (r *reader) bytes(what string) []byte {
	n := r.uvarint(what)
	if n > uint64(len(r.b)) {
		r.fail(what + " is cut short")
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) decimal(what string) (d decimal) {
	kind := r.byte(what)
	if kind == decimalZero {
		return d
	}
	exp := r.varint(what)
	switch kind {
	case decimalSmall:
		d.small = r.varint(what)
	case decimalWide, decimalMinus:
		b := r.bytes(what)
		if len(b) > wideBytesMax || len(b) > 0 && b[0] == 0 {
			r.fail(what + " is too long")
			return decimal{}
		}
		d.wide = new(big.Int).SetBytes(b)
		if kind == decimalMinus {
			d.wide.Neg(d.wide)
		}
	default:
		r.fail(what + " is no number")
		return decimal{}
	}
	d.exp = int32(exp)
	if exp < -DecimalDigitsMax || exp > wideBytesMax*3+DecimalDigitsMax {
		r.fail(what + " has an exponent beyond what is added up")
		return decimal{}
	}
	if n := d.normal(); n.exp != d.exp || n.sign() == 0 || (n.wide == nil) != (d.wide == nil) {
		r.fail(what + " is not in its normal form")
		return decimal{}
	}
	return d
}

// end checks that nothing follows, and returns the first error.
func (r *reader) end() error {
	if len(r.b) > 0 {
		r.fail("something follows")
	}
	return r.err
}
