package document

import (
	"errors"
	"math/big"
	"strconv"
)

const (
	// ExponentMax bounds the exponent of a number: Check refuses 1e1000001. No
	// number that means anything comes near, and exact arithmetic needs an end.
	ExponentMax = 1_000_000

	// IncrDigitsMax bounds the digits that an exact sum may need: the largest
	// double has 309.
	IncrDigitsMax = 512
)

// errTooManyDigits says that a sum needs more than IncrDigitsMax digits.
var errTooManyDigits = errors.New("the exact sum would need more than " + strconv.Itoa(IncrDigitsMax) + " digits")

// decimal is the exact value of a JSON number: 0.sig times ten to the power exp.
type decimal struct {
	neg bool
	sig []byte // first to last digit that is not 0, perhaps with a point between; empty for zero
	exp int64
}

// isNumber tells whether a valid raw value is a number.
func isNumber(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// parseDecimal reads a valid JSON number. It does not allocate.
func parseDecimal(raw []byte) decimal {
	var d decimal
	if len(raw) > 0 && raw[0] == '-' {
		d.neg, raw = true, raw[1:]
	}
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
		return decimal{} // -0 is 0
	}
	d.sig = raw[first : last+1]
	switch {
	case point < 0:
		d.exp = int64(end - first)
	case first < point:
		d.exp = int64(point - first)
	default:
		d.exp = int64(point + 1 - first)
	}
	if end < len(raw) {
		d.exp += parseExponent(raw[end+1:])
	}
	return d
}

// parseExponent reads the digits behind e. Beyond 2^40 they are not told apart.
func parseExponent(raw []byte) int64 {
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

// equalNumbers tells whether two JSON numbers have the same value.
func equalNumbers(a, b []byte) bool {
	x, y := parseDecimal(a), parseDecimal(b)
	if x.neg != y.neg || x.exp != y.exp {
		return false
	}
	i, j := 0, 0
	for {
		if i < len(x.sig) && x.sig[i] == '.' {
			i++
		}
		if j < len(y.sig) && y.sig[j] == '.' {
			j++
		}
		if i == len(x.sig) || j == len(y.sig) {
			return i == len(x.sig) && j == len(y.sig)
		}
		if x.sig[i] != y.sig[j] {
			return false
		}
		i, j = i+1, j+1
	}
}

// addNumbers returns the exact sum of two JSON numbers, in the shortest plain
// form, or with an exponent where that form would have many zeros.
func addNumbers(a, b []byte) ([]byte, error) {
	x, errX := strconv.ParseInt(string(a), 10, 64)
	y, errY := strconv.ParseInt(string(b), 10, 64)
	if errX == nil && errY == nil {
		if sum := x + y; (sum > x) == (y > 0) {
			return strconv.AppendInt(nil, sum, 10), nil
		}
	}
	p, q := parseDecimal(a), parseDecimal(b)
	if max(len(p.sig), len(q.sig)) > IncrDigitsMax {
		return nil, errTooManyDigits
	}
	m, mScale := p.mantissa()
	n, nScale := q.mantissa()
	switch {
	case m.Sign() == 0:
		return appendDecimal(nil, n, nScale), nil
	case n.Sign() == 0:
		return appendDecimal(nil, m, mScale), nil
	}
	scale := min(mScale, nScale)
	if max(p.exp, q.exp)-scale > IncrDigitsMax {
		return nil, errTooManyDigits
	}
	m.Mul(m, pow10(mScale-scale))
	n.Mul(n, pow10(nScale-scale))
	return appendDecimal(nil, m.Add(m, n), scale), nil
}

// pow10 returns ten to the power n.
func pow10(n int64) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil)
}

// mantissa returns d as an integer times ten to the power scale.
func (d decimal) mantissa() (m *big.Int, scale int64) {
	digits := make([]byte, 0, len(d.sig)+1)
	if d.neg {
		digits = append(digits, '-')
	}
	for _, c := range d.sig {
		if c != '.' {
			digits = append(digits, c)
			d.exp--
		}
	}
	m, ok := new(big.Int).SetString(string(digits), 10)
	if !ok {
		return new(big.Int), 0 // zero, which has no digits
	}
	return m, d.exp
}

// appendDecimal appends m times ten to the power scale as a JSON number.
func appendDecimal(dst []byte, m *big.Int, scale int64) []byte {
	const zerosMax = 20 // more are written as an exponent
	if m.Sign() < 0 {
		dst = append(dst, '-')
	}
	digits := new(big.Int).Abs(m).Append(nil, 10)
	for len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		scale++
	}
	point := int64(len(digits)) + scale // digits before the point
	switch {
	case m.Sign() == 0:
		return append(dst, '0')
	case scale > zerosMax || point < -zerosMax:
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		return strconv.AppendInt(append(dst, 'e'), point-1, 10)
	case scale >= 0:
		dst = append(dst, digits...)
		for range scale {
			dst = append(dst, '0')
		}
		return dst
	case point > 0:
		dst = append(dst, digits[:point]...)
		return append(append(dst, '.'), digits[point:]...)
	}
	dst = append(dst, '0', '.')
	for range -point {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}
