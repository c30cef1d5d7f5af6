package scan

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote returns the text of a raw JSON string, escapes decoded. It shares memory with raw if
// there are no escapes.
func Unquote(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	raw = raw[1 : len(raw)-1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return AppendText(make([]byte, 0, len(raw)), raw)
}

// AppendText appends the text of raw, the inside of a JSON string, escapes decoded.
func AppendText(dst, raw []byte) []byte {
	for len(raw) > 0 {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:n]...)
		r, size := decode(raw[n:])
		dst = utf8.AppendRune(dst, r)
		raw = raw[n+size:]
	}
	return dst
}

// decode returns the character of the escape at the beginning of raw, which begins with a
// backslash, and the escape's length. An unpaired surrogate, and a backslash that begins no
// escape, become U+FFFD.
func decode(raw []byte) (r rune, size int) {
	if r, size = Escape(raw); size > 0 {
		return r, size
	}
	switch {
	case len(raw) < 2:
		return utf8.RuneError, len(raw)
	case HexRune(raw) >= 0:
		return utf8.RuneError, 6 // half of a pair
	}
	return utf8.RuneError, 2
}

// Escape returns the character of the escape at the beginning of raw, which begins
// with a backslash, and the escape's length: 0 if it is none, or half of a surrogate
// pair.
func Escape(raw []byte) (r rune, size int) {
	if len(raw) < 2 {
		return 0, 0
	}
	switch raw[1] {
	case '"', '\\', '/':
		return rune(raw[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = HexRune(raw)
		if r < 0 {
			return 0, 0
		}
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
			// Two escapes, \ud83d\ude00, are one character beyond the first 65,536.
			if pair := utf16.DecodeRune(r, HexRune(raw[6:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
	}
	return 0, 0
}

// HexRune returns the number of an escape, \u and four hexadecimal digits, at the beginning of
// raw, or -1 if there is none. Half of a surrogate pair is returned as its number.
func HexRune(raw []byte) rune {
	if len(raw) < 6 {
		return -1
	}
	var r rune
	for _, c := range raw[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f': // the bit makes capitals small
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// equalText reports whether raw, the inside of a JSON string, has the given text.
func equalText(raw []byte, text string) bool {
	for len(raw) > 0 {
		if raw[0] != '\\' {
			if len(text) == 0 || raw[0] != text[0] {
				return false
			}
			raw, text = raw[1:], text[1:]
			continue
		}
		r, size := decode(raw)
		var buf [utf8.UTFMax]byte
		n := utf8.EncodeRune(buf[:], r)
		if len(text) < n || string(buf[:n]) != text[:n] {
			return false
		}
		raw, text = raw[size:], text[n:]
	}
	return text == ""
}

// Read returns a reader of raw, the inside of a JSON string.
func Read(raw []byte) TextReader { return TextReader{raw: raw} }

// TextReader yields the bytes of the text of a JSON string, escapes decoded.
type TextReader struct {
	raw []byte
	buf [utf8.UTFMax]byte
	n   int // bytes of buf that are left, at its end
}

// Next returns the next byte; ok is false at the end.
func (t *TextReader) Next() (c byte, ok bool) {
	if t.n > 0 {
		t.n--
		return t.buf[len(t.buf)-1-t.n], true
	}
	if len(t.raw) == 0 {
		return 0, false
	}
	if c = t.raw[0]; c != '\\' {
		t.raw = t.raw[1:]
		return c, true
	}
	r, size := decode(t.raw)
	t.raw = t.raw[size:]
	// The character is kept at the end of t.buf, so that n alone tells the next byte.
	var buf [utf8.UTFMax]byte
	n := utf8.EncodeRune(buf[:], r)
	copy(t.buf[len(t.buf)-n:], buf[:n])
	t.n = n - 1
	return buf[0], true
}

// EqualTexts reports whether a and b, the insides of JSON strings, have the same text once
// their escapes are decoded. It does not allocate.
func EqualTexts(a, b []byte) bool {
	if bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return bytes.Equal(a, b)
	}
	x, y := Read(a), Read(b)
	for {
		c, ok := x.Next()
		d, more := y.Next()
		if c != d || ok != more {
			return false
		}
		if !ok {
			return true
		}
	}
}
