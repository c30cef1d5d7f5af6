package query

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/feed/document/decimal"
)

// Sort keys are bytes whose order is that of the values, as FORMAT.md says.
const (
	keyUndefined = 1 + iota
	keyNull
	keyFalse
	keyTrue
	keyNumber
	keyString
	keyArray
	keyObject
)

// ErrKey says that bytes are not a key of the query, such as a continuation of another query.
var ErrKey = errors.New("query: no key of this query")

// appendSortKey is frame.appendSortKey without a budget.
func appendSortKey(dst []byte, v Value, desc bool) []byte {
	return (*frame)(nil).appendSortKey(dst, v, desc)
}

// appendSortKey appends the sort key of v. The first byte is that of the type, so that types
// have their order; desc reverses the order by complementing each byte. No key is the
// beginning of another, so several can follow each other.
func (f *frame) appendSortKey(dst []byte, v Value, desc bool) []byte {
	start := len(dst)
	f.charge(workNode + len(v.data))
	switch v.typ {
	case Undefined:
		dst = append(dst, keyUndefined)
	case Null:
		dst = append(dst, keyNull)
	case Bool:
		if v.b {
			dst = append(dst, keyTrue)
		} else {
			dst = append(dst, keyFalse)
		}
	case Number:
		dst = appendNumberKey(append(dst, keyNumber), v.data)
	case String:
		dst = appendEscaped(append(dst, keyString), v.data)
	case Array:
		dst = appendEscaped(append(dst, keyArray), f.appendCanonical(nil, v.data))
	case Object:
		dst = appendEscaped(append(dst, keyObject), f.appendCanonical(nil, v.data))
	}
	if desc {
		complement(dst[start:])
	}
	return dst
}

func complement(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// appendEscaped appends text so that a text orders before every longer one that begins with
// it: 0 becomes 0 255, and 0 1 ends it.
//
//	"a"      61 00 01
//	"a\x00"  61 00 FF 00 01
//	"ab"     61 62 00 01
func appendEscaped(dst, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, 0)
		if i < 0 {
			return append(append(dst, text...), 0, 1)
		}
		dst = append(append(dst, text[:i]...), 0, 0xFF)
		text = text[i+1:]
	}
}

// readEscaped reads what appendEscaped wrote.
func readEscaped(b []byte) (text, rest []byte, ok bool) {
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 || i+1 == len(b) {
			return nil, nil, false
		}
		text = append(text, b[:i]...)
		switch b[i+1] {
		case 1:
			return text, b[i+2:], true
		case 0xFF:
			text = append(text, 0)
		default:
			return nil, nil, false
		}
		b = b[i+2:]
	}
}

// The first bytes of a number's key, and of its exponent.
const (
	signNegative = 1 + iota
	signZero
	signPositive

	exponentNear = 100 // exponents up to it take one byte
	exponentZero = 128 // that of exponent 0
	exponentLow  = 1   // 8 bytes follow
	exponentHigh = 255
)

// appendNumberKey appends sign, exponent and digits, two of them in a byte; for
// negative numbers, the complement of exponent and digits:
//
//	-12.5   01  7D  F2 CC FF
//	 0      02
//	12      03  82  0D 00
//	12.5    03  82  0D 33 00     0.125 times 10^2: exponent 128+2, pairs 12+1 and 50+1
func appendNumberKey(dst, raw []byte) []byte {
	d := decimal.Parse(raw)
	switch d.Sign() {
	case 0:
		return append(dst, signZero)
	case 1:
		dst = append(dst, signPositive)
	default:
		dst = append(dst, signNegative)
	}
	// The exponent of 0.digits decides first: the digits do not begin with 0. Nearly all fit
	// in one byte, between the marks of those that need eight more.
	start := len(dst)
	switch {
	case d.Exp < -exponentNear:
		dst = binary.BigEndian.AppendUint64(append(dst, exponentLow), uint64(d.Exp)^1<<63)
	case d.Exp > exponentNear:
		dst = binary.BigEndian.AppendUint64(append(dst, exponentHigh), uint64(d.Exp)^1<<63)
	default:
		dst = append(dst, byte(exponentZero+d.Exp))
	}
	// Plus one, so that no pair is 0, which ends the digits and orders before all others:
	// 1.2 before 1.25.
	pair, half := byte(0), false
	for _, c := range d.Sig {
		switch {
		case c == '.':
		case half:
			dst, half = append(dst, pair+c-'0'+1), false
		default:
			pair, half = (c-'0')*10, true
		}
	}
	if half {
		dst = append(dst, pair+1)
	}
	dst = append(dst, 0)
	if d.Neg {
		complement(dst[start:])
	}
	return dst
}

// readNumberKey reads what appendNumberKey wrote, as a JSON number.
func readNumberKey(b []byte) (raw, rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, nil, false
	}
	sign := b[0]
	b = b[1:]
	if sign == signZero {
		return []byte{'0'}, b, true
	}
	flip := byte(0)
	if sign == signNegative {
		flip = 0xFF
		raw = append(raw, '-')
	}
	if sign != signNegative && sign != signPositive || len(b) == 0 {
		return nil, nil, false
	}
	e := b[0] ^ flip
	exp := int64(e) - exponentZero
	b = b[1:]
	if e == exponentLow || e == exponentHigh {
		if len(b) < 8 {
			return nil, nil, false
		}
		exp = int64(binary.BigEndian.Uint64(b) ^ 1<<63)
		if flip != 0 {
			exp = int64(^binary.BigEndian.Uint64(b) ^ 1<<63)
		}
		b = b[8:]
	}
	var digits []byte
	for i, c := range b {
		if c ^= flip; c == 0 {
			rest, ok = b[i+1:], true
			break
		}
		if c > 100 {
			return nil, nil, false
		}
		digits = append(digits, '0'+(c-1)/10, '0'+(c-1)%10)
	}
	// The last byte may stand for one digit, which was written as ten times it.
	digits = bytes.TrimRight(digits, "0")
	if !ok || len(digits) == 0 || digits[0] == '0' {
		return nil, nil, false
	}
	scale := exp - int64(len(digits))
	if scale >= -20 && scale <= 20 {
		return decimal.AppendDigits(nil, flip != 0, digits, exp, true), rest, true
	}
	raw = append(append(raw, digits...), 'e')
	return strconv.AppendInt(raw, scale, 10), rest, true
}

// readSortKey reads what appendSortKey wrote. Of arrays and objects, it returns their
// canonical form.
func readSortKey(b []byte, desc bool) (v Value, rest []byte, ok bool) {
	if desc {
		// Where the key ends shows only while it is read, so all of b is complemented, and
		// the rest back.
		b = slices.Clone(b)
		complement(b)
		v, rest, ok = readSortKey(b, false)
		rest = slices.Clone(rest)
		complement(rest)
		return v, rest, ok
	}
	if len(b) == 0 {
		return Value{}, nil, false
	}
	tag, b := b[0], b[1:]
	switch tag {
	case keyUndefined:
		return Value{}, b, true
	case keyNull:
		return Value{typ: Null}, b, true
	case keyFalse, keyTrue:
		return boolValue(tag == keyTrue), b, true
	case keyNumber:
		raw, rest, ok := readNumberKey(b)
		return Value{typ: Number, data: raw}, rest, ok
	case keyString:
		text, rest, ok := readEscaped(b)
		return stringValue(text), rest, ok
	case keyArray, keyObject:
		text, rest, ok := readEscaped(b)
		v = parsed(text)
		return v, rest, ok && v.typ == Array+Type(tag-keyArray)
	}
	return Value{}, nil, false
}

// appendCanonical appends JSON in the one form that equal values share: no space,
// members in the order of their names, numbers by their digits.
func (f *frame) appendCanonical(dst, raw []byte) []byte {
	v := valueOf(raw)
	if !f.charge(workMember + len(raw)) {
		return dst
	}
	switch v.typ {
	case Number:
		// Both ways give the shortest form of the value, so that 1.0 and 1 are one.
		if m, frac, ok := decimal.Small(v.data); ok {
			return append(dst, decimal.AppendSmall(m, frac)...)
		}
		if s, ok := scaledOf(v.data); ok {
			return decimal.Append(dst, s.m, s.scale)
		}
		return append(dst, v.data...)
	case Array:
		dst = append(dst, '[')
		size := len(dst)
		document.Elements(v.data, func(_ int, raw []byte) bool {
			if len(dst) > size {
				dst = append(dst, ',')
			}
			dst = f.appendCanonical(dst, raw)
			return f.charge(0)
		})
		return append(dst, ']')
	case Object:
		type member struct{ name, raw []byte }
		var all []member
		document.Members(v.data, func(name, raw []byte) bool {
			all = append(all, member{name, raw})
			return true
		})
		slices.SortStableFunc(all, func(a, b member) int { return bytes.Compare(a.name, b.name) })
		dst = append(dst, '{')
		for i, m := range all {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(dst, m.name), ':')
			dst = f.appendCanonical(dst, m.raw)
		}
		return append(dst, '}')
	default:
		return v.AppendJSON(dst)
	}
}

// identityMax bounds the bytes that a value's identity takes up to its digest.
const identityMax = 64

// appendIdentity appends bytes that only equal values share: the sort key, or, of a long one,
// its beginning and its digest. The beginning keeps rows roughly in order, and the digest
// keeps keys, which are in continuations, short.
func appendIdentity(dst, key []byte) []byte {
	// The two forms cannot meet: of two keys of one query neither is the beginning of the other,
	// so a key of just identityMax bytes is not how a longer one begins.
	if len(key) <= identityMax {
		return appendEscaped(dst, key)
	}
	sum := sha256.Sum256(key)
	return append(appendEscaped(dst, key[:identityMax]), sum[:16]...)
}
