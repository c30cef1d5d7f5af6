package pgsink

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

// decodeValue reads what appendValue wrote; nil is null.
func decodeValue(t project.Type, data []byte) (project.Value, error) {
	if data == nil {
		return project.Value{}, nil
	}
	kind := t.Holds()
	if size, fixed := sizes[kind]; fixed && len(data) != size {
		return project.Value{}, fmt.Errorf("a %s of %d bytes, %d are expected", kind, len(data), size)
	}
	switch kind {
	case project.Int:
		return project.IntOf(int64(binary.BigEndian.Uint64(data))), nil
	case project.Float:
		f := math.Float64frombits(binary.BigEndian.Uint64(data))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return project.Value{}, fmt.Errorf("%v is no value of a projection", f)
		}
		return project.FloatOf(f), nil
	case project.Decimal:
		return decodeNumeric(t, data)
	case project.Bool:
		return project.BoolOf(data[0] != 0), nil
	case project.Time:
		return project.TimeOfMicros(int64(binary.BigEndian.Uint64(data)) + epochMicros), nil
	case project.Date:
		return project.DateOf(int(int32(binary.BigEndian.Uint32(data))) + epochDays), nil
	case project.JSON:
		if len(data) == 0 || data[0] != 1 {
			return project.Value{}, fmt.Errorf("jsonb of an unknown version %v", data[:min(len(data), 1)])
		}
		return project.JSONOf(string(data[1:])), nil
	default:
		return project.TextOf(string(data)), nil
	}
}

// sizes are the lengths of values that all have the same.
var sizes = map[project.ValueKind]int{project.Int: 8, project.Float: 8, project.Bool: 1, project.Time: 8, project.Date: 4}

// decodeNumeric reads what numeric_send wrote as a decimal of the type's scale.
func decodeNumeric(t project.Type, data []byte) (project.Value, error) {
	const header = 8
	if len(data) < header {
		return project.Value{}, fmt.Errorf("a numeric of %d bytes", len(data))
	}
	count := int(binary.BigEndian.Uint16(data))
	before := int(int16(binary.BigEndian.Uint16(data[2:]))) + 1
	sign := binary.BigEndian.Uint16(data[4:])
	if sign != 0 && sign != numericNegative || len(data) != header+2*count {
		return project.Value{}, fmt.Errorf("a numeric that is no number, or of %d bytes and %d digits", len(data), count)
	}
	// The digits of powers from the first, or the point, down to the type's scale.
	// A numeric(12,2) of 12345.60 comes as three digits to the base 10,000, two of them
	// before the point:
	//
	//	1 | 2345 | 6000    written out 0001 2345 6000, of which the last two are beyond
	//	                   the scale: 1234560
	behind := (t.Scale + numericDigits - 1) / numericDigits
	first, end := min(before, 0), before+behind
	digits := make([]byte, 0, 64)
	if sign == numericNegative {
		digits = append(digits, '-')
	}
	for i := first; i < max(end, count); i++ {
		var d uint16
		if i >= 0 && i < count {
			d = binary.BigEndian.Uint16(data[header+2*i:])
		}
		switch {
		case i < end:
			digits = append(digits, byte('0'+d/1000), byte('0'+d/100%10), byte('0'+d/10%10), byte('0'+d%10))
		case d != 0:
			return project.Value{}, errFiner(t)
		}
	}
	return scaled(t, string(digits), behind*numericDigits-t.Scale)
}

func errFiner(t project.Type) error {
	return fmt.Errorf("a numeric with more than %d digits behind the point", t.Scale)
}

// scaled makes a decimal of digits of which so many at the end are beyond its
// scale.
func scaled(t project.Type, digits string, beyond int) (project.Value, error) {
	digits, rest := digits[:len(digits)-beyond], digits[len(digits)-beyond:]
	if strings.Trim(rest, "0") != "" {
		return project.Value{}, errFiner(t)
	}
	if digits == "" || digits == "-" {
		return project.SmallDecimalOf(0, t.Scale), nil
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		return project.SmallDecimalOf(n, t.Scale), nil
	}
	n, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		return project.Value{}, fmt.Errorf("a numeric of the digits %q", digits)
	}
	return project.DecimalOf(n, t.Scale), nil
}
