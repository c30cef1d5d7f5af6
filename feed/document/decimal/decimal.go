// Package decimal reads JSON numbers as exact decimals.
//
// A Number points into the text that it was read from, so reading and comparing allocate
// nothing. Most numbers fit in 64 bits: Integer and Small read those. Exact arithmetic on
// the others uses Mantissa, an integer and a scale:
//
//	text       Number            Small      Mantissa
//	-27.10     -0.271 * 10^2     -2710, 2   -271, -1
//	1.5e30     0.15 * 10^31      -          15, 29
//
// Functions take valid JSON numbers, and give unspecified results for other text.
//
// All of Millrace reads and writes decimals here. Three rules stay with the packages that
// need them, because they are no way of reading: how many digits a sum, a product or a
// patch may have (store/query, feed/document), how a mean is rounded (store/accumulator),
// and how a column rounds (processors/project).
//
// This package is no API for other programs.
package decimal

import (
	"bytes"
	"math/big"
)

// Number is the exact value of a JSON number: 0.Sig times ten to the power Exp.
type Number struct {
	Neg bool
	Sig []byte // first to last digit that is not 0, perhaps with a point between; empty for zero
	Exp int64
}

// Parse reads a JSON number; the result shares memory with raw. It does not allocate.
func Parse(raw []byte) Number {
	var d Number
	if len(raw) > 0 && raw[0] == '-' {
		d.Neg, raw = true, raw[1:]
	}
	// One pass finds the first and the last digit that is not 0, the point, and the e:
	//
	//	12.50e3   first 0, last 3, point 2, end 5    0.125 * 10^(2+3)
	first, last, point, end := -1, -1, -1, len(raw)
	for i, c := range raw {
		if c|0x20 == 'e' {
			end = i
			break
		}
		switch {
		case c == '.':
			point = i
		case c != '0':
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		return Number{} // -0 is 0
	}
	d.Sig = raw[first : last+1]
	// Exp counts the digits from the first to the point. If the first is behind the point it
	// is minus the zeros between.
	switch {
	case point < 0:
		d.Exp = int64(end - first)
	case first < point:
		d.Exp = int64(point - first)
	default:
		d.Exp = int64(point + 1 - first)
	}
	if end < len(raw) {
		d.Exp += Exponent(raw[end+1:])
	}
	return d
}

// Exponent reads the sign and the digits behind e. Amounts above 2^40 are returned as 2^40,
// so that adding to one cannot overflow.
func Exponent(raw []byte) int64 {
	neg := false
	if len(raw) > 0 && (raw[0] == '-' || raw[0] == '+') {
		neg, raw = raw[0] == '-', raw[1:]
	}
	var n int64
	for _, c := range raw {
		if n = n*10 + int64(c-'0'); n > 1<<40 {
			n = 1 << 40
			break
		}
	}
	if neg {
		return -n
	}
	return n
}

// Sign is -1, 0 or 1.
func (d *Number) Sign() int {
	switch {
	case len(d.Sig) == 0:
		return 0
	case d.Neg:
		return -1
	}
	return 1
}

// Digits returns how many digits Sig has.
func (d *Number) Digits() int64 {
	if bytes.IndexByte(d.Sig, '.') >= 0 {
		return int64(len(d.Sig)) - 1
	}
	return int64(len(d.Sig))
}

// IsInteger reports whether the number has no fraction: 1.0 and 1e2 have none.
func (d *Number) IsInteger() bool { return d.Exp >= d.Digits() }

// Equal reports whether two JSON numbers have the same value.
func Equal(a, b []byte) bool {
	x, y := Parse(a), Parse(b)
	return x.Neg == y.Neg && x.Exp == y.Exp && x.compareAbs(y) == 0
}

// Compare compares two JSON numbers by their exact values.
func Compare(a, b []byte) int {
	// Nearly all numbers in items are short integers.
	x, okX := Integer(a)
	y, okY := Integer(b)
	if okX && okY {
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	p, q := Parse(a), Parse(b)
	if p.Sign() != q.Sign() || p.Sign() == 0 {
		return p.Sign() - q.Sign()
	}
	n := p.compareAbs(q)
	if p.Neg {
		return -n
	}
	return n
}

// compareAbs compares the amounts of two numbers. Both must be zero, or neither. Sig begins
// with a digit that is not 0, so a greater Exp is a greater amount, and with equal Exp the
// digits decide from the left.
func (d *Number) compareAbs(e Number) int {
	if d.Exp != e.Exp {
		if d.Exp < e.Exp {
			return -1
		}
		return 1
	}
	i, j := 0, 0
	for {
		if i < len(d.Sig) && d.Sig[i] == '.' {
			i++
		}
		if j < len(e.Sig) && e.Sig[j] == '.' {
			j++
		}
		switch {
		case i == len(d.Sig) && j == len(e.Sig):
			return 0
		case i == len(d.Sig):
			return -1
		case j == len(e.Sig):
			return 1
		case d.Sig[i] != e.Sig[j]:
			return int(d.Sig[i]) - int(e.Sig[j])
		}
		i, j = i+1, j+1
	}
}

// Mantissa returns d as an integer times ten to the power scale.
func (d Number) Mantissa() (m *big.Int, scale int64) {
	digits := make([]byte, 0, len(d.Sig)+1)
	if d.Neg {
		digits = append(digits, '-')
	}
	for _, c := range d.Sig {
		if c != '.' {
			digits = append(digits, c)
			d.Exp--
		}
	}
	m, ok := new(big.Int).SetString(string(digits), 10)
	if !ok {
		return new(big.Int), 0 // zero, which has no digits
	}
	return m, d.Exp
}

// Pow10 returns ten to the power n, which is not negative.
func Pow10(n int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil) }
