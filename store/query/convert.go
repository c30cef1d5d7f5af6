package query

import (
	"math"
	"math/big"
	"strconv"

	"github.com/millrace/millrace/feed/document/decimal"
)

// ValueOf returns the value of raw, valid JSON, with which it shares memory;
// Undefined for nil.
func ValueOf(raw []byte) Value { return valueOf(lookup(raw, nil)) }

// Raw returns v as JSON; nil for Undefined. It may share memory with what v was read
// from and must not be changed. A Number is as it was written.
func (v Value) Raw() []byte {
	switch v.typ {
	case Number, Array, Object:
		return v.data
	default:
		return v.AppendJSON(nil)
	}
}

// Int64 returns a Number that is an integer of 64 bits, such as 12, 12.0 and 1.2e1;
// ok is false for every other value.
func (v Value) Int64() (n int64, ok bool) {
	if v.typ != Number {
		return 0, false
	}
	if n, ok = decimal.Integer(v.data); ok {
		return n, true
	}
	const digitsMax = 19 // of 64 bits with a sign; as many fit without one
	d := decimal.Parse(v.data)
	digits := d.Digits()
	if digits == 0 {
		return 0, true
	}
	if digits > d.Exp || d.Exp > digitsMax {
		return 0, false
	}
	var u uint64
	for _, c := range d.Sig {
		if c != '.' {
			u = u*10 + uint64(c-'0')
		}
	}
	for range d.Exp - digits {
		u *= 10
	}
	switch {
	case !d.Neg && u <= math.MaxInt64:
		return int64(u), true
	case d.Neg && u <= -math.MinInt64:
		return int64(-u), true
	}
	return 0, false
}

// Float64 returns a Number as the nearest double; ok is false for every other value
// and for a Number that is beyond doubles.
func (v Value) Float64() (f float64, ok bool) {
	if v.typ != Number {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v.data), 64)
	return f, err == nil
}

// Decimal returns a Number exactly as unscaled divided by ten to the power scale.
// unscaled has no zeros at its end, so equal numbers have equal parts: 1.50 is 15
// with scale 1, 200 is 2 with scale -2, and zero is 0 with scale 0. ok is false for
// every other value, for more than DigitsMax digits and for a scale beyond 999000 in
// either direction. Whoever fills in zeros must bound them, as Fixed does.
func (v Value) Decimal() (unscaled *big.Int, scale int, ok bool) {
	if v.typ != Number {
		return nil, 0, false
	}
	if m, frac, ok := decimal.Small(v.data); ok {
		for m != 0 && m%10 == 0 {
			m /= 10
			frac--
		}
		if m == 0 {
			frac = 0
		}
		return big.NewInt(m), frac, true
	}
	s, ok := scaledOf(v.data)
	if !ok || s.scale < -exponentMax || s.scale > exponentMax {
		return nil, 0, false
	}
	return s.m, int(-s.scale), true
}

// Fixed returns a Number as a multiple of ten to the power -scale, as a column of
// type decimal(precision, scale) holds it: 1.5 with scale 2 is 150. ok is false for
// every other value, for a Number that is no such multiple, since nothing is
// rounded, and for more than precision digits.
func (v Value) Fixed(precision, scale int) (unscaled *big.Int, ok bool) {
	if v.typ != Number {
		return nil, false
	}
	d := decimal.Parse(v.data)
	digits := d.Digits()
	if digits == 0 {
		return new(big.Int), true
	}
	zeros := d.Exp - digits + int64(scale) // to be filled in
	if zeros < 0 || digits+zeros > int64(precision) {
		return nil, false
	}
	text := make([]byte, 0, 1+digits+zeros)
	if d.Neg {
		text = append(text, '-')
	}
	for _, c := range d.Sig {
		if c != '.' {
			text = append(text, c)
		}
	}
	for range zeros {
		text = append(text, '0')
	}
	if n, ok := decimal.Integer(text); ok {
		return big.NewInt(n), true
	}
	return new(big.Int).SetString(string(text), 10)
}
