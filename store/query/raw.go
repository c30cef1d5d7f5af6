package query

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions in this file move through valid JSON by scanning. They do not
// panic on what is not valid: -1 or nil means that there is nothing.

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// hasByte sets the high bit of the lowest byte of w that is c.
func hasByte(w uint64, c byte) uint64 {
	x := w ^ (lowBits * uint64(c))
	return (x - lowBits) &^ x & highBits
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' {
		i++
	}
	return i
}

// skipString returns the index behind the string whose first byte behind the
// quote is b[i].
func skipString(b []byte, i int) int {
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		m := hasByte(w, '"') | hasByte(w, '\\')
		if m == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(m) >> 3
		if b[i] == '"' {
			return i + 1
		}
		i += 2
	}
	for i < len(b) {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
		i++
	}
	return -1
}

// skipValue returns the index behind the value that begins at b[i].
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	if b[i] == '"' {
		return skipString(b, i+1)
	}
	start, depth := i, 0
	for i < len(b) {
		c := b[i]
		switch {
		case c == '"':
			if i = skipString(b, i+1); i < 0 {
				return -1
			}
			continue
		case c|0x20 == '{':
			depth++
		case c|0x20 == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		if depth <= 0 && (c <= ' ' || c == ',' || c|0x20 == '}') {
			break
		}
		i++
	}
	if i == start || depth > 0 {
		return -1
	}
	return i
}

// next returns the index of the member or element that follows one that ends at i.
func next(b []byte, i int) int {
	if i = skipSpace(b, i); i >= len(b) || b[i] != ',' {
		return -1
	}
	if i = skipSpace(b, i+1); i >= len(b) {
		return -1
	}
	return i
}

// first returns the index of the first member or element of the object or array
// at b[i], whose bracket is open.
func first(b []byte, i int, open byte) int {
	if i >= len(b) || b[i] != open {
		return -1
	}
	if i = skipSpace(b, i+1); i >= len(b) || b[i] == open+2 {
		return -1
	}
	return i
}

// memberValue returns the indexes of the closing quote of the name that begins at
// b[i] and of its value.
func memberValue(b []byte, i int) (quote, value int) {
	if b[i] != '"' {
		return -1, -1
	}
	if i = skipString(b, i+1); i < 0 {
		return -1, -1
	}
	quote = i - 1
	if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
		return -1, -1
	}
	if i = skipSpace(b, i+1); i >= len(b) {
		return -1, -1
	}
	return quote, i
}

// lookup returns the raw value at steps in item, or nil.
func lookup(item []byte, steps []step) []byte {
	i, end := locate(item, steps)
	if end < 0 {
		return nil
	}
	return item[i:end:end]
}

// lookup is lookup whose work is counted.
func (f *frame) lookup(item []byte, steps []step) []byte {
	i, end := locate(item, steps)
	if end < 0 {
		f.charge(workNode + len(item)/workScan)
		return nil
	}
	f.charge(workNode + end/workScan)
	return item[i:end:end]
}

// locate returns where the raw value at steps in item begins and ends; the end is -1 if
// there is none.
func locate(item []byte, steps []step) (i, end int) {
	i = skipSpace(item, 0)
	for n := range steps {
		if s := &steps[n]; s.isIndex {
			i = findElement(item, i, s.index)
		} else {
			i = findMember(item, i, s.name)
		}
		if i < 0 {
			return -1, -1
		}
	}
	return i, skipValue(item, i)
}

func findMember(b []byte, i int, name string) int {
	for i = first(b, i, '{'); i >= 0; i = next(b, i) {
		quote, value := memberValue(b, i)
		if quote < 0 {
			return -1
		}
		if sameName(b[i:quote+1], name) {
			return value
		}
		if i = skipValue(b, value); i < 0 {
			return -1
		}
	}
	return -1
}

// sameName tells whether raw, a JSON string, says name. An escape is longer than
// what it says, so few names need to be decoded.
func sameName(raw []byte, name string) bool {
	inside := raw[1 : len(raw)-1]
	if string(inside) == name {
		return strings.IndexByte(name, '\\') < 0
	}
	if len(inside) <= len(name) || name == "" || inside[0] != name[0] && inside[0] != '\\' || bytes.IndexByte(inside, '\\') < 0 {
		return false
	}
	return string(unquote(raw)) == name
}

func findElement(b []byte, i, n int) int {
	for i = first(b, i, '['); i >= 0; i = next(b, i) {
		if n == 0 {
			return i
		}
		n--
		if i = skipValue(b, i); i < 0 {
			return -1
		}
	}
	return -1
}

// elements calls f with every element of a raw array until f returns false.
func elements(arr []byte, f func(raw []byte) bool) {
	for i := first(arr, 0, '['); i >= 0; i = next(arr, i) {
		end := skipValue(arr, i)
		if end < 0 || !f(arr[i:end:end]) {
			return
		}
		i = end
	}
}

// members calls f with every member of a raw object until f returns false.
func members(obj []byte, f func(name, raw []byte) bool) {
	for i := first(obj, 0, '{'); i >= 0; i = next(obj, i) {
		quote, value := memberValue(obj, i)
		if quote < 0 {
			return
		}
		end := skipValue(obj, value)
		if end < 0 || !f(unquote(obj[i:quote+1]), obj[value:end:end]) {
			return
		}
		i = end
	}
}

// unquote returns what a raw JSON string says; it shares memory with raw if there
// are no escapes.
func unquote(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	inside := raw[1 : len(raw)-1 : len(raw)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return inside
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	return []byte(s)
}

// appendQuoted appends text as a JSON string.
func appendQuoted(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// unescape returns the character of the escape at the beginning of s, and its
// length: 0 if it is none.
func unescape(s string) (r rune, n int) {
	if len(s) < 2 {
		return 0, 0
	}
	switch s[1] {
	case '"', '\'', '\\', '/':
		return rune(s[1]), 2
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
		if r = hexRune(s); r < 0 {
			return 0, 0
		}
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if pair := utf16.DecodeRune(r, hexRune(s[6:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return 0, 0
}

// hexRune returns the number of an escape, \u and four hexadecimal digits, at the beginning of s, or -1.
func hexRune(s string) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range []byte(s[2:6]) {
		switch {
		case isDigit(c):
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

func (f *frame) equalArrays(a, b []byte) bool {
	i, j := first(a, 0, '['), first(b, 0, '[')
	for i >= 0 && j >= 0 {
		endA, endB := skipValue(a, i), skipValue(b, j)
		if endA < 0 || endB < 0 || !f.charge(workMember+(endA-i+endB-j)/workScan) || !f.same(valueOf(a[i:endA]), valueOf(b[j:endB])) {
			return false
		}
		i, j = next(a, endA), next(b, endB)
	}
	return i < 0 && j < 0
}

// equalObjects compares by name, whatever the order.
func (f *frame) equalObjects(a, b []byte) bool {
	f.scan(min(len(a), len(b)))
	if bytes.Equal(a, b) {
		return true
	}
	values := make(map[string][]byte)
	members(b, func(name, raw []byte) bool {
		values[string(name)] = raw
		return f.charge(workMember + len(raw)/workScan)
	})
	is := true
	n := 0
	members(a, func(name, raw []byte) bool {
		other, ok := values[string(name)]
		n++
		is = ok && f.charge(workMember+len(raw)/workScan) && f.same(valueOf(raw), valueOf(other))
		return is
	})
	return is && n == len(values)
}
