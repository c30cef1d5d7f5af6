package document

import (
	"errors"
	"strconv"

	"github.com/millrace/millrace/feed/document/decimal"
)

const (
	// ExponentMax bounds the exponent of a number: Check refuses 1e1000001. No number in use
	// comes near it, and exact arithmetic needs a bound.
	ExponentMax = 1_000_000

	// IncrDigitsMax bounds the digits that an exact sum may need: the largest
	// double has 309.
	IncrDigitsMax = 512
)

// errTooManyDigits says that a sum needs more than IncrDigitsMax digits.
var errTooManyDigits = errors.New("the exact sum would need more than " + strconv.Itoa(IncrDigitsMax) + " digits")

// isNumber reports whether a valid raw value is a number.
func isNumber(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// addNumbers returns the exact sum of two JSON numbers, in the shortest plain
// form, or with an exponent where that form would have many zeros.
func addNumbers(a, b []byte) ([]byte, error) {
	x, errX := strconv.ParseInt(string(a), 10, 64)
	y, errY := strconv.ParseInt(string(b), 10, 64)
	if errX == nil && errY == nil {
		// A sum that wraps around moves against the sign of y. It is computed exactly below.
		if sum := x + y; (sum > x) == (y > 0) {
			return strconv.AppendInt(nil, sum, 10), nil
		}
	}
	p, q := decimal.Parse(a), decimal.Parse(b)
	if max(len(p.Sig), len(q.Sig)) > IncrDigitsMax {
		return nil, errTooManyDigits
	}
	m, mScale := p.Mantissa()
	n, nScale := q.Mantissa()
	switch {
	case m.Sign() == 0:
		return decimal.Append(nil, n, nScale), nil
	case n.Sign() == 0:
		return decimal.Append(nil, m, mScale), nil
	}
	// Both are written with the smaller scale, which is the place of the sum's last digit:
	//
	//	1e600 + 1   601 digits: refused before any is computed
	scale := min(mScale, nScale)
	if max(p.Exp, q.Exp)-scale > IncrDigitsMax {
		return nil, errTooManyDigits
	}
	m.Mul(m, decimal.Pow10(mScale-scale))
	n.Mul(n, decimal.Pow10(nScale-scale))
	return decimal.Append(nil, m.Add(m, n), scale), nil
}
