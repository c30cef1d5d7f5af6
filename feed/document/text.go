package document

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns what a raw JSON string says. ok is false if raw is no string.
func Text(raw []byte) (text string, ok bool) {
	raw = trim(raw)
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), true
	}
	return string(appendText(make([]byte, 0, len(raw)), raw)), true
}

// ID returns the id of an item. ok is false if it has none or it is no string.
func ID(body []byte) (id string, ok bool) {
	i := findMember(body, skipSpace(body, 0), "id")
	if i < 0 {
		return "", false
	}
	end := skipValue(body, i)
	if end < 0 {
		return "", false
	}
	return Text(body[i:end])
}

// AppendQuote appends s as a JSON string to dst, escaping only what must be.
// What is not UTF-8 becomes U+FFFD.
func AppendQuote(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

// appendText appends what raw, the inside of a JSON string, says.
func appendText(dst, raw []byte) []byte {
	for len(raw) > 0 {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:n]...)
		r, size := decodeEscape(raw[n:])
		dst = utf8.AppendRune(dst, r)
		raw = raw[n+size:]
	}
	return dst
}

// decodeEscape returns the character of the escape at the beginning of raw, which
// begins with a backslash, and the escape's length. An unpaired surrogate and
// what is no escape become U+FFFD.
func decodeEscape(raw []byte) (r rune, size int) {
	if len(raw) < 2 {
		return utf8.RuneError, len(raw)
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
		r = hexRune(raw)
		if r < 0 {
			return utf8.RuneError, 2
		}
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
			if pair := utf16.DecodeRune(r, hexRune(raw[6:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return utf8.RuneError, 6
	}
	return utf8.RuneError, 2
}

// hexRune returns the number of an escape, \u and four hexadecimal digits, at the beginning of raw, or -1.
func hexRune(raw []byte) rune {
	if len(raw) < 6 {
		return -1
	}
	var r rune
	for _, c := range raw[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// equalEscapedText tells whether raw, the inside of a JSON string, says text.
func equalEscapedText(raw []byte, text string) bool {
	for len(raw) > 0 {
		if raw[0] != '\\' {
			if len(text) == 0 || raw[0] != text[0] {
				return false
			}
			raw, text = raw[1:], text[1:]
			continue
		}
		r, size := decodeEscape(raw)
		var buf [utf8.UTFMax]byte
		n := utf8.EncodeRune(buf[:], r)
		if len(text) < n || string(buf[:n]) != text[:n] {
			return false
		}
		raw, text = raw[size:], text[n:]
	}
	return text == ""
}

// textReader yields the bytes that the inside of a JSON string says.
type textReader struct {
	raw []byte
	buf [utf8.UTFMax]byte
	n   int // bytes of buf that are left, at its end
}

// next returns the next byte; ok is false at the end.
func (t *textReader) next() (c byte, ok bool) {
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
	r, size := decodeEscape(t.raw)
	t.raw = t.raw[size:]
	var buf [utf8.UTFMax]byte
	n := utf8.EncodeRune(buf[:], r)
	copy(t.buf[len(t.buf)-n:], buf[:n])
	t.n = n - 1
	return buf[0], true
}

// equalStrings tells whether a and b, the insides of JSON strings, say the same.
func equalStrings(a, b []byte) bool {
	if bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return bytes.Equal(a, b)
	}
	x, y := textReader{raw: a}, textReader{raw: b}
	for {
		c, ok := x.next()
		d, more := y.next()
		if c != d || ok != more {
			return false
		}
		if !ok {
			return true
		}
	}
}
