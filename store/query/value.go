package query

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/millrace/millrace/feed/document/decimal"
	"github.com/millrace/millrace/feed/document/scan"
)

// Type is the type of a Value. Types are ordered as ORDER BY orders their values.
type Type uint8

// The types. The zero Value is Undefined.
const (
	Undefined Type = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

func (t Type) String() string {
	return [...]string{"undefined", "null", "boolean", "number", "string", "array", "object"}[t]
}

// Value is the value of an expression. It may share memory with the item.
type Value struct {
	typ  Type
	b    bool
	data []byte // a String's text without escapes, a Number's text, or an Array's or Object's JSON
}

// Type returns the type of v.
func (v Value) Type() Type { return v.typ }

// Bool reports whether v is the boolean true.
func (v Value) Bool() bool { return v.typ == Bool && v.b }

// Text returns the text of a String, the exact text of a Number, and the JSON of any other
// value; "" for Undefined.
func (v Value) Text() string {
	if v.typ == String {
		return string(v.data)
	}
	return string(v.AppendJSON(nil))
}

// Raw returns v as JSON; nil for Undefined. It may share memory with the item and must not be
// changed. A Number is as it was written.
func (v Value) Raw() []byte {
	switch v.typ {
	case Number, Array, Object:
		return v.data
	default:
		return v.AppendJSON(nil)
	}
}

// int64 returns a Number that is an integer of 64 bits, such as 12, 12.0 and 1.2e1;
// ok is false for every other value.
func (v Value) int64() (n int64, ok bool) {
	if v.typ != Number {
		return 0, false
	}
	return decimal.Int64(v.data)
}

// Float returns a Number as the nearest double, and 0 for every other value.
func (v Value) Float() float64 {
	if v.typ != Number {
		return 0
	}
	f, _ := strconv.ParseFloat(string(v.data), 64)
	return f
}

// AppendJSON appends v as JSON to dst; nothing for Undefined.
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.typ {
	case Null:
		return append(dst, "null"...)
	case Bool:
		return strconv.AppendBool(dst, v.b)
	case Number, Array, Object:
		return append(dst, v.data...)
	case String:
		return appendQuoted(dst, v.data)
	default:
		return dst
	}
}

// Compare orders values as ORDER BY does: by type, then by value; arrays and
// objects by their length and bytes. Equal values compare as 0.
func Compare(a, b Value) int {
	if a.typ != b.typ {
		return cmp.Compare(a.typ, b.typ)
	}
	if n, ok := order(a, b); ok {
		return n
	}
	// Before the bytes: {"a":1,"b":2} and {"b":2,"a":1.0} are equal, and have other bytes.
	if same(a, b) {
		return 0
	}
	if n := cmp.Compare(len(a.data), len(b.data)); n != 0 {
		return n
	}
	return bytes.Compare(a.data, b.data)
}

func boolValue(b bool) Value     { return Value{typ: Bool, b: b} }
func stringValue(s []byte) Value { return Value{typ: String, data: s} }

func intValue(n int) Value { return Value{typ: Number, data: strconv.AppendInt(nil, int64(n), 10)} }

// floatValue returns a Number; infinities and NaN are Undefined.
func floatValue(f float64) Value {
	switch abs := math.Abs(f); {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return Value{}
	// Negative zero too: -0 is no other number than 0, and is not to be another text.
	case f == 0:
		return Value{typ: Number, data: []byte{'0'}}
	case abs < 1e-6 || abs >= 1e21:
		return Value{typ: Number, data: strconv.AppendFloat(nil, f, 'e', -1, 64)}
	}
	return Value{typ: Number, data: strconv.AppendFloat(nil, f, 'f', -1, 64)}
}

// int returns a Number whose double is an integer up to 1e15. To the functions, TOP, OFFSET and
// LIMIT 1.00000000000000001 is 1, as it is to the service, whose numbers are doubles. Functions
// stand in stored expressions: to refuse it would take another Meaning.
func (v Value) int() (n int, ok bool) {
	if v.typ != Number {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v.data), 64)
	// Up to there a double has each integer.
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1e15 {
		return 0, false
	}
	return int(f), true
}

// valueOf returns the value of a raw JSON value, with which it shares memory.
func valueOf(raw []byte) Value {
	if len(raw) == 0 {
		return Value{}
	}
	switch c := raw[0]; {
	case c == '"':
		return stringValue(scan.Unquote(raw))
	case c == '{':
		return Value{typ: Object, data: raw}
	case c == '[':
		return Value{typ: Array, data: raw}
	case c == 't', c == 'f':
		return boolValue(c == 't')
	case c == 'n':
		return Value{typ: Null}
	case c == '-' || isDigit(c):
		return Value{typ: Number, data: raw}
	}
	return Value{}
}

// parsed returns the value of a JSON text, Undefined if the text is not JSON.
func parsed(text []byte) Value {
	text = bytes.TrimSpace(text)
	if !json.Valid(text) {
		return Value{}
	}
	return valueOf(slices.Clip(text))
}

// tri is a truth value.
type tri uint8

const (
	isUndefined tri = iota
	isFalse
	isTrue
)

func triOf(b bool) tri {
	if b {
		return isTrue
	}
	return isFalse
}

func (t tri) value() Value {
	if t == isUndefined {
		return Value{}
	}
	return boolValue(t == isTrue)
}

// truth returns the truth value of v: undefined unless v is a boolean.
func (v Value) truth() tri {
	if v.typ != Bool {
		return isUndefined
	}
	return triOf(v.b)
}

func (t tri) not() tri {
	switch t {
	case isTrue:
		return isFalse
	case isFalse:
		return isTrue
	default:
		return isUndefined
	}
}

// equals compares by =. By MeaningNow values of two types are unequal; if typed is true, which
// is MeaningTyped, comparing them is undefined. A comparison with undefined is undefined.
func (f *frame) equals(a, b Value, typed bool) tri {
	if a.typ != b.typ && a.typ != Undefined && b.typ != Undefined && !typed {
		return isFalse
	}
	return f.equal(a, b)
}

// equal compares two values of one type. For two types, and for undefined, it is undefined.
func (f *frame) equal(a, b Value) tri {
	if a.typ != b.typ || a.typ == Undefined {
		return isUndefined
	}
	switch a.typ {
	case Bool:
		return triOf(a.b == b.b)
	case Number:
		f.charge(len(a.data) + len(b.data))
		return triOf(decimal.Compare(a.data, b.data) == 0)
	case String:
		f.chargeScan(min(len(a.data), len(b.data)))
		return triOf(bytes.Equal(a.data, b.data))
	case Array:
		return triOf(f.equalArrays(a.data, b.data))
	case Object:
		return triOf(f.equalObjects(a.data, b.data))
	default:
		return isTrue // null
	}
}

// same reports whether a and b are of one type and equal.
func (f *frame) same(a, b Value) bool { return f.equal(a, b) == isTrue }

// same is frame.same without a budget.
func same(a, b Value) bool { return (*frame)(nil).same(a, b) }

// order compares two values of one type; ok is false for arrays and objects, which have no
// order, and for two types.
func order(a, b Value) (n int, ok bool) {
	if a.typ != b.typ {
		return 0, false
	}
	switch a.typ {
	case Null:
		return 0, true
	case Bool:
		switch {
		case a.b == b.b:
			return 0, true
		case a.b:
			return 1, true
		}
		return -1, true
	case Number:
		return decimal.Compare(a.data, b.data), true
	case String:
		return bytes.Compare(a.data, b.data), true
	default:
		return 0, false
	}
}
