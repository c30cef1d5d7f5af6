package project

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/millrace/millrace/feed/document"
)

// ValueKind is what a Value is.
type ValueKind uint8

// The kinds of values. A column holds values of one kind and Null; see
// Type.Holds.
const (
	Null ValueKind = iota
	Text
	Int
	Float
	Decimal
	Bool
	Time
	Date
	JSON
)

// String returns the kind's name, such as text.
func (k ValueKind) String() string {
	names := [...]string{"null", "text", "int", "float", "decimal", "bool", "time", "date", "json"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", k)
}

// Value is one value of a row. The zero Value is Null. Values are comparable:
// equal ones are ==, except for JSON, which Equal compares. A method that reads
// another kind than the value's panics.
type Value struct {
	kind  ValueKind
	scale uint8  // of a Decimal
	n     int64  // Int, Bool, bits of Float, Time in microseconds, Date in days, small Decimal
	s     string // Text, JSON; the unscaled Decimal in decimal digits where n does not hold it
}

// TextOf returns a Text, which is UTF-8.
func TextOf(s string) Value { return Value{kind: Text, s: s} }

// IntOf returns an Int.
func IntOf(n int64) Value { return Value{kind: Int, n: n} }

// FloatOf returns a Float. It panics for what JSON cannot say: NaN and the
// infinities. Minus zero becomes zero.
func FloatOf(f float64) Value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		panic(fmt.Sprintf("project: %v is no value", f))
	}
	// -0 + 0 is 0. Without it two equal doubles would have other bits, and not be ==.
	return Value{kind: Float, n: int64(math.Float64bits(f + 0))}
}

// BoolOf returns a Bool.
func BoolOf(b bool) Value {
	if b {
		return Value{kind: Bool, n: 1}
	}
	return Value{kind: Bool}
}

// DecimalOf returns the Decimal unscaled / 10^scale. It keeps nothing of
// unscaled.
func DecimalOf(unscaled *big.Int, scale int) Value {
	// A decimal that 64 bits hold is always in n, so that equal ones are ==.
	if unscaled.IsInt64() {
		return SmallDecimalOf(unscaled.Int64(), scale)
	}
	return Value{kind: Decimal, scale: uint8(scale), s: unscaled.String()}
}

// SmallDecimalOf returns the Decimal unscaled / 10^scale.
func SmallDecimalOf(unscaled int64, scale int) Value {
	return Value{kind: Decimal, scale: uint8(scale), n: unscaled}
}

// TimeOf returns a Time: t cut to the microsecond.
func TimeOf(t time.Time) Value { return TimeOfMicros(t.UnixMicro()) }

// TimeOfMicros returns the Time so many microseconds after 1970 in UTC.
func TimeOfMicros(micros int64) Value { return Value{kind: Time, n: micros} }

// DateOf returns the Date so many days after 1970-01-01.
func DateOf(days int) Value { return Value{kind: Date, n: int64(days)} }

// JSONOf returns a JSON value, which must be valid.
func JSONOf(raw string) Value { return Value{kind: JSON, s: raw} }

// Kind returns what the value is.
func (v Value) Kind() ValueKind { return v.kind }

// IsNull says whether the value is Null.
func (v Value) IsNull() bool { return v.kind == Null }

func (v Value) must(kind ValueKind) {
	if v.kind != kind {
		panic(fmt.Sprintf("project: a %s is read as a %s", v.kind, kind))
	}
}

// Text returns what a Text says.
func (v Value) Text() string {
	v.must(Text)
	return v.s
}

// Int returns an Int.
func (v Value) Int() int64 {
	v.must(Int)
	return v.n
}

// Float returns a Float, which is finite.
func (v Value) Float() float64 {
	v.must(Float)
	return math.Float64frombits(uint64(v.n))
}

// Bool returns a Bool.
func (v Value) Bool() bool {
	v.must(Bool)
	return v.n != 0
}

// Micros returns a Time in microseconds after 1970 in UTC.
func (v Value) Micros() int64 {
	v.must(Time)
	return v.n
}

// Time returns a Time in UTC.
func (v Value) Time() time.Time { return time.UnixMicro(v.Micros()).UTC() }

// Days returns a Date in days after 1970-01-01.
func (v Value) Days() int {
	v.must(Date)
	return int(v.n)
}

// JSON returns the text of a JSON value.
func (v Value) JSON() string {
	v.must(JSON)
	return v.s
}

// Scale returns how many digits of a Decimal are behind the point.
func (v Value) Scale() int {
	v.must(Decimal)
	return int(v.scale)
}

// Unscaled returns a Decimal without its point, if 64 bits hold it.
func (v Value) Unscaled() (n int64, ok bool) {
	v.must(Decimal)
	return v.n, v.s == ""
}

// UnscaledBig returns a Decimal without its point.
func (v Value) UnscaledBig() *big.Int {
	v.must(Decimal)
	if v.s == "" {
		return big.NewInt(v.n)
	}
	n, ok := new(big.Int).SetString(v.s, 10)
	if !ok {
		panic(fmt.Sprintf("project: decimal %q", v.s))
	}
	return n
}

// Equal says whether two values are the same. JSON values are the same if they
// mean the same, whatever the order of members and the white space.
func (v Value) Equal(w Value) bool {
	if v == w {
		return true
	}
	return v.kind == JSON && w.kind == JSON && document.Equal([]byte(v.s), []byte(w.s))
}

// AppendJSON appends the value as JSON to dst: a Decimal as a plain number with
// all digits of its scale, a Time as RFC 3339 in UTC with as many digits behind
// the seconds as it has, a Date as YYYY-MM-DD.
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.kind {
	case Text:
		return document.AppendQuote(dst, v.s)
	case Time, Date:
		dst = append(dst, '"')
		dst = v.AppendText(dst)
		return append(dst, '"')
	default:
		return v.AppendText(dst)
	}
}

// AppendText appends what the value says to dst: as AppendJSON, but without
// quotes and escapes; null for Null.
func (v Value) AppendText(dst []byte) []byte {
	switch v.kind {
	case Text, JSON:
		return append(dst, v.s...)
	case Int:
		return strconv.AppendInt(dst, v.n, 10)
	case Float:
		return appendFloat(dst, v.Float())
	case Decimal:
		return v.appendDecimal(dst)
	case Bool:
		return strconv.AppendBool(dst, v.n != 0)
	case Time:
		return v.Time().AppendFormat(dst, time.RFC3339Nano)
	case Date:
		return time.Unix(v.n*secondsOfDay, 0).UTC().AppendFormat(dst, time.DateOnly)
	default:
		return append(dst, "null"...)
	}
}

// String returns what AppendText appends.
func (v Value) String() string { return string(v.AppendText(nil)) }

const secondsOfDay = 24 * 60 * 60

// appendFloat appends the shortest number that is the double f.
func appendFloat(dst []byte, f float64) []byte {
	// From where JavaScript and encoding/json write exponents too.
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}

// appendDecimal appends the plain form, such as -0.05.
func (v Value) appendDecimal(dst []byte) []byte {
	var buf [48]byte
	digits := append(buf[:0], v.s...)
	if v.s == "" {
		digits = strconv.AppendInt(digits, v.n, 10)
	}
	if digits[0] == '-' {
		dst = append(dst, '-')
		digits = digits[1:]
	}
	//	unscaled -5, scale 2      whole is -1: a 0, the point, one more 0    -0.05
	//	unscaled 1234, scale 2    whole is 2                                 12.34
	whole := len(digits) - int(v.scale)
	if whole > 0 {
		dst = append(dst, digits[:whole]...)
	} else {
		dst = append(dst, '0')
	}
	if v.scale == 0 {
		return dst
	}
	dst = append(dst, '.')
	for range -whole {
		dst = append(dst, '0')
	}
	return append(dst, digits[max(whole, 0):]...)
}
