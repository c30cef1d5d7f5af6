package document

import (
	"bytes"

	"github.com/millrace/millrace/feed/document/decimal"
	"github.com/millrace/millrace/feed/document/scan"
)

// The first byte of a canonical value, in the order of types.
const (
	rankNull   = 0x01
	rankFalse  = 0x02
	rankTrue   = 0x03
	rankNumber = 0x05
	rankString = 0x08
)

// The second byte of a canonical number.
const (
	signNegative = 0x01
	signZero     = 0x02
	signPositive = 0x03
)

// AppendCanonical appends the canonical form of a raw scalar to dst, for keys of
// indexes. Values that are Equal have equal forms; bytes.Compare orders forms as
// their values are ordered: null, false, true, numbers by their exact value,
// strings by their UTF-8. No form is the beginning of another one, so others may
// follow it in a key. Arrays and objects have none: nothing is appended.
//
//	null, false, true   01, 02, 03
//	number              05 sign exponent digits 00
//	                    sign: 01 negative, 02 zero (and the end), 03 positive
//	                    exponent: of 0.digits, plus 2^31, four bytes, big-endian
//	                    digits: two a byte, plus one: 01 is "00", 64 is "99"
//	                    of a negative number all behind the sign is complemented
//	string              08 UTF-8 00 01, where 00 in the string is 00 FF
//
// The form of a number has at most 7 bytes and half a byte a digit; that of a
// string 3 bytes more than its UTF-8 and one for each NUL.
func AppendCanonical(dst, raw []byte) []byte {
	raw = scan.Trim(raw)
	if len(raw) == 0 {
		return dst
	}
	switch raw[0] {
	case 'n':
		return append(dst, rankNull)
	case 'f':
		return append(dst, rankFalse)
	case 't':
		return append(dst, rankTrue)
	case '"':
		if len(raw) < 2 {
			return dst
		}
		return appendCanonicalString(append(dst, rankString), raw[1:len(raw)-1])
	case '[', '{':
		return dst
	}
	return appendCanonicalNumber(append(dst, rankNumber), decimal.Parse(raw))
}

// appendCanonicalString appends what raw, the inside of a JSON string, says.
func appendCanonicalString(dst, raw []byte) []byte {
	// Nearly all strings have no escape and no NUL, and are their own text.
	if bytes.IndexByte(raw, '\\') < 0 && bytes.IndexByte(raw, 0) < 0 {
		return append(append(dst, raw...), 0, 1)
	}
	t := scan.Read(raw)
	for c, ok := t.Next(); ok; c, ok = t.Next() {
		dst = append(dst, c)
		if c == 0 {
			dst = append(dst, 0xFF)
		}
	}
	return append(dst, 0, 1)
}

func appendCanonicalNumber(dst []byte, d decimal.Number) []byte {
	if len(d.Sig) == 0 {
		return append(dst, signZero)
	}
	// A greater exponent is a greater amount, because the first digit is not 0. Adding 2^31
	// makes the order of the bytes that of signed exponents. The complement reverses the
	// order for negative numbers, the end mark included:
	//
	//	 1.2   03 80000001 0D 00
	//	 1.25  03 80000001 0D 33 00     greater, as the mark 00 is below every pair
	//	-1.25  01 7FFFFFFE F2 CC FF
	//	-1.2   01 7FFFFFFE F2 FF        greater
	const half = 1 << 31
	exp := uint32(min(max(d.Exp, -half), half-1) + half)
	sign, flip := byte(signPositive), byte(0)
	if d.Neg {
		sign, flip = signNegative, 0xFF
	}
	dst = append(dst, sign,
		byte(exp>>24)^flip, byte(exp>>16)^flip, byte(exp>>8)^flip, byte(exp)^flip)
	pair, odd := byte(0), false
	for _, c := range d.Sig {
		switch {
		case c == '.':
		case odd:
			dst = append(dst, (pair+c-'0'+1)^flip)
			odd = false
		default:
			pair, odd = (c-'0')*10, true
		}
	}
	if odd {
		dst = append(dst, (pair+1)^flip)
	}
	return append(dst, flip)
}
