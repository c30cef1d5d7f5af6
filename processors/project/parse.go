package project

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/feed/document/decimal"
	"github.com/millrace/millrace/store/query"
)

// excerptMax bounds what an error shows of a value, in bytes.
const excerptMax = 60

// parse returns a raw JSON value as one of the type; null is Null. The error
// says why the type does not hold it.
func (t Type) parse(raw []byte) (Value, error) {
	switch document.KindOf(raw) {
	case document.Absent, document.Null:
		return Value{}, nil
	case document.Bool:
		return t.ofBool(raw[0] == 't')
	case document.Number:
		return t.ofNumber(raw)
	case document.String:
		text, _ := document.Text(raw)
		return t.ofText(text)
	default:
		return t.ofJSON(raw)
	}
}

// convert returns what an expression came to as a value of the type, with which
// it shares nothing; undefined and null are Null. scratch is used and returned.
func (t Type) convert(v query.Value, scratch []byte) (Value, []byte, error) {
	var out Value
	var err error
	switch v.Type() {
	case query.Undefined, query.Null:
	case query.Bool:
		out, err = t.ofBool(v.Bool())
	case query.Number:
		scratch = v.AppendJSON(scratch[:0])
		out, err = t.ofNumber(scratch)
	case query.String:
		out, err = t.ofText(v.Text())
	default:
		scratch = v.AppendJSON(scratch[:0])
		out, err = t.ofJSON(scratch)
	}
	return out, scratch, err
}

func (t Type) ofBool(b bool) (Value, error) {
	switch t.Kind {
	case KindBool:
		return BoolOf(b), nil
	case KindAny:
		return TextOf(strconv.FormatBool(b)), nil
	case KindJSON:
		return JSONOf(strconv.FormatBool(b)), nil
	default:
		return Value{}, t.conflict("a boolean", strconv.FormatBool(b))
	}
}

func (t Type) ofText(s string) (Value, error) {
	switch t.Kind {
	case KindAny, KindString:
		return TextOf(s), nil
	case KindJSON:
		return JSONOf(string(document.AppendQuote(nil, s))), nil
	case KindTimestamp:
		return parseTimestamp(s)
	case KindDate:
		return parseDate(s)
	default:
		return Value{}, t.conflict("a string", quoted(s))
	}
}

func (t Type) ofJSON(raw []byte) (Value, error) {
	switch t.Kind {
	case KindAny:
		return TextOf(string(raw)), nil
	case KindJSON:
		return JSONOf(string(raw)), nil
	default:
		what := "an object"
		if document.KindOf(raw) == document.Array {
			what = "an array"
		}
		return Value{}, t.conflict(what, string(raw))
	}
}

func (t Type) ofNumber(raw []byte) (Value, error) {
	switch t.Kind {
	case KindAny:
		return TextOf(string(raw)), nil
	case KindJSON:
		return JSONOf(string(raw)), nil
	case KindInt64:
		return parseInt64(raw)
	case KindDouble:
		return parseDouble(raw)
	case KindDecimal:
		return t.parseDecimal(raw)
	default:
		return Value{}, t.conflict("a number", string(raw))
	}
}

// conflict says that the type does not take values of another.
func (t Type) conflict(what, text string) error {
	hint := ""
	if t.Kind == KindTimestamp && what == "a number" {
		hint = "; an expression can make one of it, such as TimestampToDateTime(_ts * 1000)"
	}
	return fmt.Errorf("is %s, %s, and the column takes %s%s", what, excerpt(text), t.wants(), hint)
}

// wants says what the type takes.
func (t Type) wants() string {
	switch t.Kind {
	case KindString:
		return "strings"
	case KindBool:
		return "true and false"
	case KindTimestamp:
		return "times such as 2024-01-31T08:30:00Z"
	case KindDate:
		return "dates such as 2024-01-31"
	default:
		return "numbers (" + t.String() + ")"
	}
}

// quoted returns the beginning of a text in quotes.
func quoted(s string) string { return strconv.Quote(excerpt(s)) }

// excerpt returns the beginning of a text.
func excerpt(text string) string { return document.Excerpt(text, excerptMax) }

func parseDouble(raw []byte) (Value, error) {
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.IsInf(f, 0) {
		return Value{}, fmt.Errorf("is %s, which is beyond the doubles", excerpt(string(raw)))
	}
	return FloatOf(f), nil
}

var errInt64 = errors.New("is beyond 64 bits")

func parseInt64(raw []byte) (Value, error) {
	if n, ok := decimal.Int64(raw); ok {
		return IntOf(n), nil
	}
	if d := decimal.Parse(raw); !d.IsInteger() {
		return Value{}, fmt.Errorf("is %s, and the column takes integers", excerpt(string(raw)))
	}
	return Value{}, fmt.Errorf("is %s, and %w", excerpt(string(raw)), errInt64)
}

// parseDecimal reads a number as a decimal of the type.
func (t Type) parseDecimal(raw []byte) (Value, error) {
	if v, ok := t.smallDecimal(raw); ok {
		return v, nil
	}
	var buf [digitsKept]byte
	d := numberOf(raw, buf[:0])
	if d.count == 0 {
		return SmallDecimalOf(0, t.Scale), nil
	}
	tooLarge := func() (Value, error) {
		return Value{}, fmt.Errorf("is %s, and %s has %d digits before the point", excerpt(string(raw)), t, t.Precision-t.Scale)
	}
	// Looked at before rounding too: 1e100000 has one digit here, and unscaled would write out
	// all of its zeros. Behind it a carry may have made one digit more:
	//
	//	decimal(4, 2)   99.994 -> 99.99   99.996 -> 100.00, which is too large
	if d.exp > int64(t.Precision-t.Scale) {
		return tooLarge()
	}
	d.round(t.Scale)
	if d.count == 0 {
		return SmallDecimalOf(0, t.Scale), nil
	}
	if d.exp > int64(t.Precision-t.Scale) {
		return tooLarge()
	}
	digits := d.unscaled(t.Scale)
	if n, err := strconv.ParseInt(string(digits), 10, 64); err == nil {
		return SmallDecimalOf(n, t.Scale), nil
	}
	n, ok := new(big.Int).SetString(string(digits), 10)
	if !ok {
		panic(fmt.Sprintf("project: %q is no number", digits))
	}
	return DecimalOf(n, t.Scale), nil
}
