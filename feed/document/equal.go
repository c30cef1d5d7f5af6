package document

import (
	"bytes"
	"strings"

	"github.com/millrace/millrace/feed/document/decimal"
	"github.com/millrace/millrace/feed/document/scan"
)

// Kind is the type of a JSON value. Kinds are ordered as Cosmos DB orders values
// of different types.
type Kind uint8

// The kinds of values. Absent is the kind of no value at all.
const (
	Absent Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

func (k Kind) String() string {
	return [...]string{"absent", "null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// KindOf returns the kind of a valid raw value, white space before it allowed.
func KindOf(raw []byte) Kind {
	i := scan.Space(raw, 0)
	if i == len(raw) {
		return Absent
	}
	switch raw[i] {
	case 'n':
		return Null
	case 't', 'f':
		return Bool
	case '"':
		return String
	case '[':
		return Array
	case '{':
		return Object
	}
	return Number
}

// Equal reports whether two raw values are the same: numbers as exact decimals (1.0 and 1e0
// are 1; 9007199254740993 is not 9007199254740992), strings by their text whatever its
// escapes, arrays element by element, objects in any order of their members. It allocates
// only for objects whose members are in another order.
func Equal(a, b []byte) bool {
	a, b = scan.Trim(a), scan.Trim(b)
	if bytes.Equal(a, b) {
		return true
	}
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	switch {
	case a[0] == '"':
		return b[0] == '"' && len(a) > 1 && len(b) > 1 && scan.EqualTexts(a[1:len(a)-1], b[1:len(b)-1])
	case a[0] == '{':
		return b[0] == '{' && equalObjects(a, b)
	case a[0] == '[':
		return b[0] == '[' && equalArrays(a, b)
	case isNumber(a):
		return isNumber(b) && decimal.Equal(a, b)
	}
	return false // true, false and null are written in one way
}

// equalScalarText is Equal where b is a trimmed scalar in a string.
func equalScalarText(a []byte, b string) bool {
	if string(a) == b {
		return true
	}
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	if (a[0] == '"') != (b[0] == '"') {
		return false
	}
	// Two strings without escapes are equal only if their bytes are, and those differ. That
	// is nearly always so, and spares the copy of b.
	if a[0] == '"' && bytes.IndexByte(a, '\\') < 0 && strings.IndexByte(b, '\\') < 0 {
		return false
	}
	return Equal(a, []byte(b))
}

func equalArrays(a, b []byte) bool {
	i, j := scan.FirstElement(a, 0), scan.FirstElement(b, 0)
	for i >= 0 && j >= 0 {
		endA, endB := scan.Value(a, i), scan.Value(b, j)
		if endA < 0 || endB < 0 || !Equal(a[i:endA], b[j:endB]) {
			return false
		}
		i, j = scan.Next(a, endA), scan.Next(b, endB)
	}
	return i < 0 && j < 0
}

// equalObjects walks both objects side by side, and allocates nothing while their members are
// in the same order. From the first name that differs, equalUnordered compares the rest.
func equalObjects(a, b []byte) bool {
	i, j := scan.FirstMember(a, 0), scan.FirstMember(b, 0)
	for i >= 0 && j >= 0 {
		quoteA, valueA := scan.MemberValue(a, i)
		quoteB, valueB := scan.MemberValue(b, j)
		if quoteA < 0 || quoteB < 0 {
			return false
		}
		if !scan.EqualTexts(a[i+1:quoteA], b[j+1:quoteB]) {
			return equalUnordered(a, i, b, j)
		}
		endA, endB := scan.Value(a, valueA), scan.Value(b, valueB)
		if endA < 0 || endB < 0 || !Equal(a[valueA:endA], b[valueB:endB]) {
			return false
		}
		i, j = scan.Next(a, endA), scan.Next(b, endB)
	}
	return i < 0 && j < 0
}

// equalUnordered reports whether the members of a from i on are those of b from j
// on, in any order.
func equalUnordered(a []byte, i int, b []byte, j int) bool {
	// A name occurs once in an object, so equal counts and a partner for each member of a
	// make the objects equal.
	members := make(map[string][]byte)
	count := 0
	for ; j >= 0; j = scan.Next(b, j) {
		quote, value := scan.MemberValue(b, j)
		if quote < 0 {
			return false
		}
		name := string(scan.AppendText(nil, b[j+1:quote]))
		if j = scan.Value(b, value); j < 0 {
			return false
		}
		members[name] = b[value:j]
		count++
	}
	for ; i >= 0; i = scan.Next(a, i) {
		quote, value := scan.MemberValue(a, i)
		if quote < 0 {
			return false
		}
		name := scan.AppendText(nil, a[i+1:quote])
		if i = scan.Value(a, value); i < 0 {
			return false
		}
		raw, ok := members[string(name)]
		if !ok || !Equal(a[value:i], raw) {
			return false
		}
		count--
	}
	return count == 0
}
