package pgsink

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

// arguments are the parameters of one statement in PostgreSQL's binary format. They
// are used again for the next statement.
type arguments struct {
	buf  []byte
	ends []int
	oids []uint32
}

func (a *arguments) reset() { a.buf, a.ends, a.oids = a.buf[:0], a.ends[:0], a.oids[:0] }

// values returns the parameters; they are valid until reset.
func (a *arguments) values() [][]byte {
	list := make([][]byte, len(a.ends))
	start := 0
	for i, end := range a.ends {
		list[i] = a.buf[start:end:end]
		start = end
	}
	return list
}

func (a *arguments) endArgument(oid uint32) {
	a.ends = append(a.ends, len(a.buf))
	a.oids = append(a.oids, oid)
}

func (a *arguments) text(s string) {
	a.buf = append(a.buf, s...)
	a.endArgument(oidText)
}

func (a *arguments) int(n int64) {
	a.buf = binary.BigEndian.AppendUint64(a.buf, uint64(n))
	a.endArgument(oidInt8)
}

// array adds an array of n elements, which put appends; it returns false for null.
// See array_send in PostgreSQL's arrayfuncs.c.
func (a *arguments) array(t columnType, n int, put func(i int, dst []byte) ([]byte, bool)) {
	b := a.buf
	for _, word := range [...]uint32{1 /* dimension */, 1 /* may hold nulls */, t.oid, uint32(n), 1 /* the first index */} {
		b = binary.BigEndian.AppendUint32(b, word)
	}
	for i := range n {
		at := len(b)
		b = append(b, 0xff, 0xff, 0xff, 0xff) // null
		var ok bool
		if b, ok = put(i, b); ok {
			binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
		}
	}
	a.buf = b
	a.endArgument(t.arrayID)
}

func (a *arguments) texts(n int, get func(i int) string) {
	a.array(columnType{oid: oidText, arrayID: oidTextArray}, n, func(i int, dst []byte) ([]byte, bool) { return append(dst, get(i)...), true })
}

func (a *arguments) ids(list []id) {
	a.array(columnType{oid: oidBytea, arrayID: oidByteaArray}, len(list), func(i int, dst []byte) ([]byte, bool) {
		return append(dst, list[i][:]...), true
	})
}

// column adds one column of rows, whose value get returns.
func (a *arguments) column(t project.Type, n int, get func(i int) project.Value) {
	a.array(typeOf(t), n, func(i int, dst []byte) ([]byte, bool) {
		v := get(i)
		return appendValue(dst, v), !v.IsNull()
	})
}

// Days and microseconds from 1970 to 2000, where PostgreSQL begins to count.
const (
	epochDays   = 10957
	epochMicros = epochDays * 24 * 60 * 60 * 1_000_000
)

// appendValue appends a value in binary; nothing for Null.
func appendValue(dst []byte, v project.Value) []byte {
	switch v.Kind() {
	case project.Text:
		return append(dst, v.Text()...)
	case project.Int:
		return binary.BigEndian.AppendUint64(dst, uint64(v.Int()))
	case project.Float:
		return binary.BigEndian.AppendUint64(dst, math.Float64bits(v.Float()))
	case project.Decimal:
		return appendNumeric(dst, v)
	case project.Bool:
		if v.Bool() {
			return append(dst, 1)
		}
		return append(dst, 0)
	case project.Time:
		return binary.BigEndian.AppendUint64(dst, uint64(v.Micros()-epochMicros))
	case project.Date:
		return binary.BigEndian.AppendUint32(dst, uint32(int32(v.Days()-epochDays)))
	case project.JSON:
		return append(append(dst, 1 /* version */), v.JSON()...)
	default:
		return dst
	}
}

// What numeric_send of PostgreSQL's numeric.c writes: digits to the base 10,000,
// the power of the first, the sign, how many decimal digits stand behind the point.
const (
	numericBase     = 10_000
	numericDigits   = 4 // decimal digits of one digit
	numericNegative = 0x4000
	numericSmall    = 16 // up to this scale 64 bits hold the fraction
)

// appendNumeric appends a decimal as numeric. Digits go to the base 10,000, counted from the
// point, so whole and fraction are cut apart first:
//
//	-1234560 of scale 2   whole 12345   fraction 60
//	                      1 | 2345      6000          sign 0x4000, first power 1
//
// What does not fit into 64 bits goes by its decimal text, which costs an allocation or two.
func appendNumeric(dst []byte, v project.Value) []byte {
	n, small := v.Unscaled()
	scale := v.Scale()
	if !small || scale > numericSmall {
		return appendNumericText(dst, v.UnscaledBig().String(), scale)
	}
	sign, u := uint16(0), uint64(n)
	if n < 0 {
		sign, u = numericNegative, -u
	}
	var digits [12]uint16 // 5 before the point, 4 behind
	power := uint64(1)
	for range scale {
		power *= 10
	}
	whole, fraction := u/power, u%power
	first := 5
	for at := first; whole > 0; whole /= numericBase {
		at--
		digits[at] = uint16(whole % numericBase)
		first = at
	}
	behind := (scale + numericDigits - 1) / numericDigits
	for range behind*numericDigits - scale {
		fraction *= 10
	}
	for at := 5 + behind; at > 5; fraction /= numericBase {
		at--
		digits[at] = uint16(fraction % numericBase)
	}
	return appendDigits(dst, digits[first:5+behind], 5-first, sign, scale)
}

// appendNumericText does the same from the unscaled decimal digits.
func appendNumericText(dst []byte, unscaled string, scale int) []byte {
	sign := uint16(0)
	if text, negative := strings.CutPrefix(unscaled, "-"); negative {
		sign, unscaled = numericNegative, text
	}
	if len(unscaled) < scale {
		unscaled = strings.Repeat("0", scale-len(unscaled)) + unscaled
	}
	whole := len(unscaled) - scale
	before := (whole + numericDigits - 1) / numericDigits
	behind := (scale + numericDigits - 1) / numericDigits
	padded := strings.Repeat("0", before*numericDigits-whole) + unscaled + strings.Repeat("0", behind*numericDigits-scale)
	digits := make([]uint16, before+behind)
	for i := range digits {
		for _, c := range padded[i*numericDigits : (i+1)*numericDigits] {
			digits[i] = digits[i]*10 + uint16(c-'0')
		}
	}
	return appendDigits(dst, digits, before, sign, scale)
}

// appendDigits appends the header and the digits, before of them in front of the
// point, without the zeros at both ends.
func appendDigits(dst []byte, digits []uint16, before int, sign uint16, scale int) []byte {
	for len(digits) > 0 && digits[0] == 0 {
		digits, before = digits[1:], before-1
	}
	for len(digits) > 0 && digits[len(digits)-1] == 0 {
		digits = digits[:len(digits)-1]
	}
	if len(digits) == 0 {
		before, sign = 1, 0
	}
	for _, word := range [...]uint16{uint16(len(digits)), uint16(int16(before - 1)), sign, uint16(scale)} {
		dst = binary.BigEndian.AppendUint16(dst, word)
	}
	for _, d := range digits {
		dst = binary.BigEndian.AppendUint16(dst, d)
	}
	return dst
}
