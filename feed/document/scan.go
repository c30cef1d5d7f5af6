package document

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"
)

// The functions in this file move through JSON without building anything. They
// trust that the text is valid and only promise not to panic if it is not:
// positions are indexes into b, and -1 means that there is nothing (more).

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// hasByte sets the high bit of the lowest byte of w that is c. Bytes above it may
// be marked falsely.
func hasByte(w uint64, c byte) uint64 {
	x := w ^ (lowBits * uint64(c))
	return (x - lowBits) &^ x & highBits
}

// skipSpace returns the index of the first byte from i that is not white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' {
		i++
	}
	return i
}

// skipString returns the index behind the closing quote of the string whose first
// byte behind the opening quote is b[i].
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
	switch b[i] {
	case '"':
		return skipString(b, i+1)
	case '{', '[':
		return skipContainer(b, i)
	}
	start := i
	for i < len(b) && b[i] > ' ' && b[i] != ',' && b[i] != '}' && b[i] != ']' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// skipContainer returns the index behind the object or array that begins at b[i].
func skipContainer(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			if i = skipString(b, i+1); i < 0 {
				return -1
			}
			continue
		case c|0x20 == '{': // [ and { differ in one bit
			depth++
		case c|0x20 == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// firstMember returns the index of the opening quote of the first name of the
// object that begins at b[i].
func firstMember(b []byte, i int) int {
	if i >= len(b) || b[i] != '{' {
		return -1
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == '"' {
		return i
	}
	return -1
}

// memberValue returns, for a name whose opening quote is b[i], the index of its
// closing quote and that of the value.
func memberValue(b []byte, i int) (quote, value int) {
	i = skipString(b, i+1)
	if i < 0 {
		return -1, -1
	}
	quote = i - 1
	i = skipSpace(b, i)
	if i >= len(b) || b[i] != ':' {
		return -1, -1
	}
	if i = skipSpace(b, i+1); i >= len(b) {
		return -1, -1
	}
	return quote, i
}

// next returns, for the end of a member or element, the index of the one that
// follows.
func next(b []byte, i int) int {
	i = skipSpace(b, i)
	if i >= len(b) || b[i] != ',' {
		return -1
	}
	if i = skipSpace(b, i+1); i >= len(b) {
		return -1
	}
	return i
}

// firstElement returns the index of the first element of the array that begins at
// b[i].
func firstElement(b []byte, i int) int {
	if i >= len(b) || b[i] != '[' {
		return -1
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] != ']' {
		return i
	}
	return -1
}

// findMember returns the index of the value of the member of that name in the
// object that begins at b[i].
func findMember(b []byte, i int, name string) int {
	for i = firstMember(b, i); i >= 0; i = next(b, i) {
		if b[i] != '"' {
			return -1
		}
		quote, value := memberValue(b, i)
		if quote < 0 {
			return -1
		}
		if sameName(b[i+1:quote], name) {
			return value
		}
		if i = skipValue(b, value); i < 0 {
			return -1
		}
	}
	return -1
}

// findElement returns the index of element n of the array that begins at b[i].
func findElement(b []byte, i, n int) int {
	for i = firstElement(b, i); i >= 0; i = next(b, i) {
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

// findKey returns the index of the first element of the array that begins at b[i]
// which is an object whose member name equals value, a raw scalar.
func findKey(b []byte, i int, name, value string) int {
	for i = firstElement(b, i); i >= 0; i = next(b, i) {
		end := skipValue(b, i)
		if end < 0 {
			return -1
		}
		if hasKey(b[:end], i, name, value) {
			return i
		}
		i = end
	}
	return -1
}

// hasKey tells whether the value that begins at b[i] is an object whose member
// name equals value.
func hasKey(b []byte, i int, name, value string) bool {
	v := findMember(b, i, name)
	if v < 0 {
		return false
	}
	end := skipValue(b, v)
	return end >= 0 && equalScalarText(b[v:end], value)
}

// sameName tells whether raw, a member name between its quotes, means name.
func sameName(raw []byte, name string) bool {
	if string(raw) == name {
		return strings.IndexByte(name, '\\') < 0
	}
	// An escape is longer than what it means, so few names need to be decoded.
	if len(raw) <= len(name) || name == "" || raw[0] != name[0] && raw[0] != '\\' || bytes.IndexByte(raw, '\\') < 0 {
		return false
	}
	return equalEscapedText(raw, name)
}

// trim returns raw without white space around it.
func trim(raw []byte) []byte {
	i, j := 0, len(raw)
	for i < j && raw[i] <= ' ' {
		i++
	}
	for j > i && raw[j-1] <= ' ' {
		j--
	}
	return raw[i:j]
}
