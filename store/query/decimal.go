package query

import (
	"math/big"
	"math/bits"

	"github.com/millrace/millrace/feed/document/decimal"
)

// DigitsMax bounds the digits of exact arithmetic. A result that needs more is computed with
// doubles.
const DigitsMax = 512

// exponentMax bounds the exponents of exact products.
const exponentMax = 999_000

// scaled is an integer times ten to the power scale.
type scaled struct {
	m     *big.Int
	scale int64
}

// scaledOf returns a JSON number as a scaled integer. ok is false if it has too many
// digits.
func scaledOf(raw []byte) (s scaled, ok bool) {
	d := decimal.Parse(raw)
	if len(d.Sig) > DigitsMax {
		return s, false
	}
	s.m, s.scale = d.Mantissa()
	return s, true
}

// arithmetic computes a op b exactly for +, - and *. ok is false if the result
// would need too many digits.
func arithmetic(op byte, a, b []byte) (data []byte, ok bool) {
	if data, ok = smallArithmetic(op, a, b); ok {
		return data, true
	}
	x, okX := scaledOf(a)
	y, okY := scaledOf(b)
	if !okX || !okY {
		return nil, false
	}
	if op == '*' {
		scale := x.scale + y.scale
		return decimal.Append(nil, x.m.Mul(x.m, y.m), scale), scale > -exponentMax && scale < exponentMax
	}
	// A zero takes the other's scale: 0 + 1e600 needs one digit and not 601.
	if x.m.Sign() == 0 {
		x.scale = y.scale
	}
	if y.m.Sign() == 0 {
		y.scale = x.scale
	}
	scale := min(x.scale, y.scale)
	if max(x.scale, y.scale)-scale > DigitsMax {
		return nil, false
	}
	for _, s := range []scaled{x, y} { // one of the two has the scale already
		s.m.Mul(s.m, decimal.Pow10(s.scale-scale))
	}
	if op == '-' {
		y.m.Neg(y.m)
	}
	return decimal.Append(nil, x.m.Add(x.m, y.m), scale), true
}

// divideLarge computes a / b, if b divides a, and a % b for integers of up to DigitsMax
// digits.
func divideLarge(op byte, a, b []byte) (data []byte, ok bool) {
	x, okX := integerOf(a)
	y, okY := integerOf(b)
	if !okX || !okY || y.Sign() == 0 {
		return nil, false
	}
	q, r := new(big.Int).QuoRem(x, y, new(big.Int))
	if op == '%' {
		return decimal.Append(nil, r, 0), true
	}
	return decimal.Append(nil, q, 0), r.Sign() == 0
}

// integerOf returns a JSON number if it is an integer of up to DigitsMax digits.
func integerOf(raw []byte) (n *big.Int, ok bool) {
	// Exp first: it is the number of digits, and 1e999999 must not be written out.
	if d := decimal.Parse(raw); d.Exp > DigitsMax || !d.IsInteger() {
		return nil, false
	}
	s, ok := scaledOf(raw)
	if !ok {
		return nil, false
	}
	return s.m.Mul(s.m, decimal.Pow10(s.scale)), true
}

// smallArithmetic is arithmetic on 64 bits; ok is false if they do not suffice.
func smallArithmetic(op byte, a, b []byte) (data []byte, ok bool) {
	const most = 1_000_000_000_000_000_000 // below a ninth of the largest integer
	x, fracX, okX := decimal.Small(a)
	y, fracY, okY := decimal.Small(b)
	if !okX || !okY {
		return nil, false
	}
	if op == '*' {
		high, low := bits.Mul64(uint64(abs(x)), uint64(abs(y)))
		if high != 0 || low > most {
			return nil, false
		}
		return decimal.AppendSmall(x*y, fracX+fracY), true
	}
	for ; fracX < fracY; fracX++ {
		if x *= 10; abs(x) >= most {
			return nil, false
		}
	}
	for ; fracY < fracX; fracY++ {
		if y *= 10; abs(y) >= most {
			return nil, false
		}
	}
	if op == '-' {
		y = -y
	}
	return decimal.AppendSmall(x+y, fracX), true
}

func abs(n int64) int64 { return max(n, -n) }
