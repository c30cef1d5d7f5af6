package accumulator

import (
	"bytes"
	"unicode/utf8"

	"github.com/millrace/millrace/feed/document"
)

// The canonical form of a scalar is that of document.AppendCanonical, which tells
// its own end and is ordered as ORDER BY orders values. These are its first bytes,
// and the second ones of a number.
const (
	rankNull     = 0x01
	rankFalse    = 0x02
	rankTrue     = 0x03
	rankNumber   = 0x05
	rankString   = 0x08
	signNegative = 0x01
	signZero     = 0x02
	signPositive = 0x03
)

// flipped is the mask of a form that is stored complemented, so that the greatest
// comes first.
const flipped = 0xFF

// flip complements b in place.
func flip(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// appendScalar appends the canonical form of a raw scalar to dst. ok is false if raw
// is no scalar, or a number whose shortest form would have an exponent that no item
// may hold.
func appendScalar(dst, raw []byte) (form []byte, ok bool) {
	n := len(dst)
	form = document.AppendCanonical(dst, raw)
	switch {
	case len(form) == n:
		return form, false
	case form[n] == rankNumber && form[n+1] != signZero:
		mask := byte(0)
		if form[n+1] == signNegative {
			mask = flipped
		}
		return form, isExponent(exponentOf(form[n:], mask))
	}
	return form, true
}

// exponentOf returns the exponent of 0.digits in the form of a number that is not
// zero; mask is that of what stands behind the sign.
func exponentOf(b []byte, mask byte) int64 {
	const half = 1 << 31
	var exp int64
	for _, c := range b[2:6] {
		exp = exp<<8 | int64(c^mask)
	}
	return exp - half
}

// isExponent reports whether an item may hold 0.digits with that exponent.
func isExponent(exp int64) bool {
	return exp-1 >= -document.ExponentMax && exp-1 <= document.ExponentMax
}

// scanScalar returns the length of the canonical form at the beginning of b, whose
// bytes are masked; 0 if there is none.
func scanScalar(b []byte, mask byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] ^ mask {
	case rankNull, rankFalse, rankTrue:
		return 1
	case rankString:
		return scanText(b, mask)
	case rankNumber:
		return scanNumber(b, mask)
	}
	return 0
}

func scanText(b []byte, mask byte) int {
	start := 1
	for i := 1; ; i += 2 {
		n := bytes.IndexByte(b[i:], mask)
		if n < 0 || i+n+1 >= len(b) {
			return 0
		}
		i += n
		if mask == 0 && !utf8.Valid(b[start:i]) {
			return 0
		}
		switch b[i+1] ^ mask {
		case 0x01:
			return i + 2
		case 0xFF: // a NUL
			start = i + 2
		default:
			return 0
		}
	}
}

func scanNumber(b []byte, mask byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] ^ mask {
	case signZero:
		return 2
	case signNegative:
		mask ^= flipped
	case signPositive:
	default:
		return 0
	}
	const digitsAt = 6
	if len(b) < digitsAt || !isExponent(exponentOf(b, mask)) {
		return 0
	}
	for i := digitsAt; i < len(b); i++ {
		pair := b[i] ^ mask
		switch {
		case pair == 0:
			// A number has one form: neither its first digit nor its last pair is 0.
			if i == digitsAt || b[digitsAt]^mask <= 10 || b[i-1]^mask == 1 {
				return 0
			}
			return i + 1
		case pair > 100:
			return 0
		}
	}
	return 0
}

// appendScalarJSON appends the raw scalar whose canonical form, masked, begins b.
func appendScalarJSON(dst, b []byte, mask byte) []byte {
	n := scanScalar(b, mask)
	if n == 0 {
		return append(dst, "null"...)
	}
	switch b[0] ^ mask {
	case rankFalse:
		return append(dst, "false"...)
	case rankTrue:
		return append(dst, "true"...)
	case rankString:
		return appendScalarString(dst, b[:n], mask)
	case rankNumber:
		return appendScalarNumber(dst, b[:n], mask)
	}
	return append(dst, "null"...)
}

// appendScalarString appends a string; b is its whole form.
func appendScalarString(dst, b []byte, mask byte) []byte {
	start := len(dst)
	dst = append(dst, '"')
	// Nearly all strings need no escape and are copied. The first character that needs one
	// begins the string again, with escapes.
	for _, c := range b[1 : len(b)-2] {
		if c ^= mask; c < ' ' || c == '"' || c == '\\' {
			return document.AppendQuote(dst[:start], string(appendScalarText(nil, b, mask)))
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

// appendScalarText appends the text of a string; b is its whole form.
func appendScalarText(dst, b []byte, mask byte) []byte {
	for i := 1; i < len(b)-2; i++ {
		c := b[i] ^ mask
		dst = append(dst, c)
		if c == 0 {
			i++ // FF
		}
	}
	return dst
}

// appendScalarNumber appends a number in the form of appendNumber; b is its whole
// form.
func appendScalarNumber(dst, b []byte, mask byte) []byte {
	neg := b[1]^mask == signNegative
	switch {
	case neg:
		mask ^= flipped
	case b[1]^mask == signZero:
		return append(dst, '0')
	}
	var scratch [40]byte
	digits := scratch[:0]
	for _, c := range b[6 : len(b)-1] {
		pair := (c ^ mask) - 1
		digits = append(digits, '0'+pair/10, '0'+pair%10)
	}
	if digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	return appendNumber(dst, neg, digits, exponentOf(b, mask))
}

// isPlain reports whether a JSON number is written as appendNumber would write it,
// plain. It may answer false for one that is.
func isPlain(text []byte) bool {
	if len(text) > 0 && text[0] == '-' {
		if text = text[1:]; len(text) == 1 && text[0] == '0' {
			return false
		}
	}
	if len(text) > plainDigitsMax {
		return false
	}
	point := false
	for _, c := range text {
		switch {
		case c == '.':
			point = true
		case c < '0' || c > '9':
			return false
		}
	}
	return !point || text[len(text)-1] != '0'
}
