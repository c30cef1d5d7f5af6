package scan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"
)

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// HasByte returns a word in which the high bit of the lowest byte of w that equals c is set;
// zero if no byte does. Bytes above that one may be marked falsely.
func HasByte(w uint64, c byte) uint64 {
	// A byte that is c becomes 0. Subtracting 1 from each byte borrows into the high bit where
	// the byte was 0, and a borrow can only disturb the bytes above.
	x := w ^ (lowBits * uint64(c))
	return (x - lowBits) &^ x & highBits
}

// HasControl does what HasByte does for the lowest byte of w that is below a space.
func HasControl(w uint64) uint64 { return (w - lowBits*' ') &^ w & highBits }

// Space returns the index of the first byte from i that is not white space, len(b) if there
// is none. Every byte up to a space counts, since valid JSON has no others between tokens.
func Space(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' {
		i++
	}
	return i
}

// String returns the index behind the closing quote of the string whose first
// byte behind the opening quote is b[i].
func String(b []byte, i int) int {
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		m := HasByte(w, '"') | HasByte(w, '\\')
		if m == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(m) >> 3
		if b[i] == '"' {
			return i + 1
		}
		i += 2 // a backslash, and what it escapes: the digits of \u need no care
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

// Value returns the index behind the value that begins at b[i].
func Value(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return String(b, i+1)
	case '{', '[':
		return container(b, i)
	}
	// A number, true, false or null reaches to white space or to what closes or goes on.
	start := i
	for i < len(b) && b[i] > ' ' && b[i] != ',' && b[i] != '}' && b[i] != ']' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// container returns the index behind the object or array that begins at b[i].
func container(b []byte, i int) int {
	// Members need not be told apart: only brackets outside of strings count, and in valid
	// JSON they match.
	depth := 0
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			if i = String(b, i+1); i < 0 {
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

// FirstMember returns the index of the opening quote of the first name of the
// object that begins at b[i].
func FirstMember(b []byte, i int) int {
	if i >= len(b) || b[i] != '{' {
		return -1
	}
	if i = Space(b, i+1); i < len(b) && b[i] == '"' {
		return i
	}
	return -1
}

// MemberValue returns, for a name whose opening quote is b[i], the index of its
// closing quote and that of the value.
func MemberValue(b []byte, i int) (quote, value int) {
	if b[i] != '"' {
		return -1, -1
	}
	i = String(b, i+1)
	if i < 0 {
		return -1, -1
	}
	quote = i - 1
	i = Space(b, i)
	if i >= len(b) || b[i] != ':' {
		return -1, -1
	}
	if i = Space(b, i+1); i >= len(b) {
		return -1, -1
	}
	return quote, i
}

// Next returns, for the end of a member or element, the index of the one that
// follows.
func Next(b []byte, i int) int {
	i = Space(b, i)
	if i >= len(b) || b[i] != ',' {
		return -1
	}
	if i = Space(b, i+1); i >= len(b) {
		return -1
	}
	return i
}

// FirstElement returns the index of the first element of the array that begins at
// b[i].
func FirstElement(b []byte, i int) int {
	if i >= len(b) || b[i] != '[' {
		return -1
	}
	if i = Space(b, i+1); i < len(b) && b[i] != ']' {
		return i
	}
	return -1
}

// Member returns the index of the value of the member of that name in the
// object that begins at b[i].
func Member(b []byte, i int, name string) int {
	for i = FirstMember(b, i); i >= 0; i = Next(b, i) {
		quote, value := MemberValue(b, i)
		if quote < 0 {
			return -1
		}
		if SameName(b[i+1:quote], name) {
			return value
		}
		if i = Value(b, value); i < 0 {
			return -1
		}
	}
	return -1
}

// Element returns the index of element n of the array that begins at b[i].
func Element(b []byte, i, n int) int {
	for i = FirstElement(b, i); i >= 0; i = Next(b, i) {
		if n == 0 {
			return i
		}
		n--
		if i = Value(b, i); i < 0 {
			return -1
		}
	}
	return -1
}

// SameName reports whether raw, a member's name between its quotes, is name once its escapes
// are decoded.
func SameName(raw []byte, name string) bool {
	if string(raw) == name {
		return strings.IndexByte(name, '\\') < 0 // raw \t is a tab, name \t is two characters
	}
	// An escape is longer than the character that it stands for, so a raw name which is not
	// longer than name cannot be it. Few names come to the decoding.
	if len(raw) <= len(name) || name == "" || raw[0] != name[0] && raw[0] != '\\' || bytes.IndexByte(raw, '\\') < 0 {
		return false
	}
	return equalText(raw, name)
}

// Trim returns raw without white space around it.
func Trim(raw []byte) []byte {
	i, j := 0, len(raw)
	for i < j && raw[i] <= ' ' {
		i++
	}
	for j > i && raw[j-1] <= ' ' {
		j--
	}
	return raw[i:j]
}
