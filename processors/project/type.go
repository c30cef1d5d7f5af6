package project

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is what a column of a table holds.
type Kind uint8

// The kinds of columns. The zero Kind is text of anything.
const (
	// KindAny takes every JSON value as text: a string as what it says, every
	// other value as its JSON.
	KindAny Kind = iota
	// KindString takes JSON strings.
	KindString
	// KindInt64 takes JSON numbers that are integers from -2^63 to 2^63-1; 12.0
	// and 1.2e1 are 12.
	KindInt64
	// KindDouble takes JSON numbers as the nearest double. Beyond the doubles is a
	// conflict.
	KindDouble
	// KindDecimal takes JSON numbers whose digits before the point it has. Digits
	// behind the point beyond its scale are rounded, half away from zero, as a cast
	// of SQL does.
	KindDecimal
	// KindBool takes true and false.
	KindBool
	// KindTimestamp takes strings of ISO 8601, such as 2024-01-31T08:30:00Z, as
	// instants. Without an offset the time is UTC; without a time it is midnight.
	// What is finer than a microsecond is cut off.
	KindTimestamp
	// KindDate takes strings such as 2024-01-31, and timestamps that are midnight
	// without an offset.
	KindDate
	// KindJSON takes every JSON value as it is.
	KindJSON
)

// Limits of decimals.
const (
	DecimalPrecisionMax = 38 // digits in all
	DecimalScaleMax     = 38 // of them behind the point
)

// Type is the type of a column. The zero Type is text of anything. Types are
// comparable.
type Type struct {
	Kind Kind
	// Precision is how many digits a decimal has, Scale how many of them behind the
	// point; zero for other kinds.
	Precision, Scale int
}

var kindNames = [...]string{"", "string", "int64", "double", "decimal", "bool", "timestamp", "date", "json"}

// ParseType reads a type as pipelines write it: string, int64, double,
// decimal(p,s), bool, timestamp, date, json; "" is the zero Type. The error says
// what was expected.
func ParseType(text string) (Type, error) {
	s := strings.TrimSpace(text)
	name, args, ok := strings.Cut(s, "(")
	if name = strings.TrimSpace(name); name == "decimal" {
		return parseDecimalType(text, args, ok)
	}
	for kind, known := range kindNames {
		if s == known {
			return Type{Kind: Kind(kind)}, nil
		}
	}
	return Type{}, fmt.Errorf("type %q is none of string, int64, double, decimal(p,s), bool, timestamp, date, json", text)
}

func parseDecimalType(text, args string, ok bool) (Type, error) {
	args, closed := strings.CutSuffix(args, ")")
	p, s, two := strings.Cut(args, ",")
	precision, errP := strconv.Atoi(strings.TrimSpace(p))
	scale, errS := strconv.Atoi(strings.TrimSpace(s))
	if !ok || !closed || !two || errP != nil || errS != nil {
		return Type{}, fmt.Errorf("type %q: write decimal(p,s) with p digits, s of them behind the point, such as decimal(12,2)", text)
	}
	t := Type{Kind: KindDecimal, Precision: precision, Scale: scale}
	return t, t.check()
}

// check returns what is wrong with a type that ParseType did not make.
func (t Type) check() error {
	if int(t.Kind) >= len(kindNames) {
		return fmt.Errorf("kind %d of a column is not known", t.Kind)
	}
	if t.Kind != KindDecimal {
		return nil
	}
	if t.Precision < 1 || t.Precision > DecimalPrecisionMax || t.Scale < 0 || t.Scale > t.Precision {
		return fmt.Errorf("type %s: a decimal has 1 to %d digits, 0 to all of them behind the point", t, DecimalPrecisionMax)
	}
	return nil
}

// String returns the type as ParseType reads it; "" for the zero Type.
func (t Type) String() string {
	if t.Kind == KindDecimal {
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	}
	if int(t.Kind) >= len(kindNames) {
		return fmt.Sprintf("kind(%d)", t.Kind)
	}
	return kindNames[t.Kind]
}

// Holds is the kind of the values that a column of the type holds beside Null.
func (t Type) Holds() ValueKind {
	switch t.Kind {
	case KindInt64:
		return Int
	case KindDouble:
		return Float
	case KindDecimal:
		return Decimal
	case KindBool:
		return Bool
	case KindTimestamp:
		return Time
	case KindDate:
		return Date
	case KindJSON:
		return JSON
	default:
		return Text
	}
}
