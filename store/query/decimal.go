package query

import (
	"bytes"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
)

// DigitsMax bounds the digits of exact arithmetic; what needs more is computed
// with doubles.
const DigitsMax = 512

// exponentMax bounds the exponents of exact products.
const exponentMax = 999_000

// compareNumbers compares two JSON numbers by their exact values.
func compareNumbers(a, b []byte) int {
	x, okX := parseInt(a)
	y, okY := parseInt(b)
	if okX && okY {
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	p, q := parseDecimal(a), parseDecimal(b)
	if p.sign() != q.sign() || p.sign() == 0 {
		return p.sign() - q.sign()
	}
	n := p.compareAbs(q)
	if p.neg {
		return -n
	}
	return n
}

// parseInt reads an integer of at most 18 digits.
func parseInt(raw []byte) (n int64, ok bool) {
	i := 0
	if len(raw) > 0 && raw[0] == '-' {
		i = 1
	}
	if len(raw) == i || len(raw) > 18+i {
		return 0, false
	}
	for _, c := range raw[i:] {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if i == 1 {
		n = -n
	}
	return n, true
}

// decimal is the exact value of a JSON number: 0.sig times ten to the power exp.
type decimal struct {
	neg bool
	sig []byte // first to last digit that is not 0, perhaps with a point between; empty for zero
	exp int64
}

func (d *decimal) sign() int {
	switch {
	case len(d.sig) == 0:
		return 0
	case d.neg:
		return -1
	}
	return 1
}

// parseDecimal reads a valid JSON number.
func parseDecimal(raw []byte) decimal {
	var d decimal
	if len(raw) > 0 && raw[0] == '-' {
		d.neg, raw = true, raw[1:]
	}
	head, last, point, end := -1, -1, -1, len(raw)
	for i, c := range raw {
		if c|0x20 == 'e' {
			end = i
			break
		}
		switch {
		case c == '.':
			point = i
		case c != '0':
			if head < 0 {
				head = i
			}
			last = i
		}
	}
	if head < 0 {
		return decimal{} // -0 is 0
	}
	d.sig = raw[head : last+1]
	switch {
	case point < 0:
		d.exp = int64(end - head)
	case head < point:
		d.exp = int64(point - head)
	default:
		d.exp = int64(point + 1 - head)
	}
	if end < len(raw) {
		d.exp += parseExponent(raw[end+1:])
	}
	return d
}

// parseExponent reads the exponent of a JSON number. Beyond 1<<40 in either
// direction, exponents are not told apart.
func parseExponent(raw []byte) int64 {
	const most = 1 << 40
	neg := len(raw) > 0 && raw[0] == '-'
	if neg || len(raw) > 0 && raw[0] == '+' {
		raw = raw[1:]
	}
	n := int64(0)
	for _, c := range raw {
		n = min(n*10+int64(c-'0'), most)
	}
	if neg {
		return -n
	}
	return n
}

// digits returns how many digits sig has.
func (d *decimal) digits() int64 {
	if bytes.IndexByte(d.sig, '.') >= 0 {
		return int64(len(d.sig)) - 1
	}
	return int64(len(d.sig))
}

// compareAbs compares the amounts of two numbers that are not zero.
func (d *decimal) compareAbs(e decimal) int {
	if d.exp != e.exp {
		if d.exp < e.exp {
			return -1
		}
		return 1
	}
	i, j := 0, 0
	for {
		if i < len(d.sig) && d.sig[i] == '.' {
			i++
		}
		if j < len(e.sig) && e.sig[j] == '.' {
			j++
		}
		switch {
		case i == len(d.sig) && j == len(e.sig):
			return 0
		case i == len(d.sig):
			return -1
		case j == len(e.sig):
			return 1
		case d.sig[i] != e.sig[j]:
			return int(d.sig[i]) - int(e.sig[j])
		}
		i, j = i+1, j+1
	}
}

// scaled is an integer times ten to the power scale.
type scaled struct {
	m     *big.Int
	scale int64
}

// scaled returns d as a scaled integer. ok is false if it has too many digits.
func (d decimal) scaled() (s scaled, ok bool) {
	if len(d.sig) > DigitsMax {
		return s, false
	}
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
		return scaled{new(big.Int), 0}, true // zero has no digits
	}
	return scaled{m, d.exp}, true
}

// arithmetic computes a op b exactly for +, - and *. ok is false if the result
// would need too many digits.
func arithmetic(op byte, a, b []byte) (data []byte, ok bool) {
	if data, ok = smallArithmetic(op, a, b); ok {
		return data, true
	}
	x, okX := parseDecimal(a).scaled()
	y, okY := parseDecimal(b).scaled()
	if !okX || !okY {
		return nil, false
	}
	if op == '*' {
		scale := x.scale + y.scale
		return appendScaled(x.m.Mul(x.m, y.m), scale), scale > -exponentMax && scale < exponentMax
	}
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
	for _, s := range []scaled{x, y} {
		s.m.Mul(s.m, new(big.Int).Exp(big.NewInt(10), big.NewInt(s.scale-scale), nil))
	}
	if op == '-' {
		y.m.Neg(y.m)
	}
	return appendScaled(x.m.Add(x.m, y.m), scale), true
}

// divideLarge computes a / b, if b divides a, and a % b for integers of up to DigitsMax
// digits.
func divideLarge(op byte, a, b []byte) (data []byte, ok bool) {
	x, okX := parseDecimal(a).integer()
	y, okY := parseDecimal(b).integer()
	if !okX || !okY || y.Sign() == 0 {
		return nil, false
	}
	q, r := new(big.Int).QuoRem(x, y, new(big.Int))
	if op == '%' {
		return appendScaled(r, 0), true
	}
	return appendScaled(q, 0), r.Sign() == 0
}

// integer returns d if it is an integer of up to DigitsMax digits.
func (d decimal) integer() (n *big.Int, ok bool) {
	if d.exp > DigitsMax || d.exp < d.digits() {
		return nil, false
	}
	s, ok := d.scaled()
	if !ok {
		return nil, false
	}
	return s.m.Mul(s.m, new(big.Int).Exp(big.NewInt(10), big.NewInt(s.scale), nil)), true
}

// smallDigits is how many digits parseSmall reads.
const smallDigits = 18

// parseSmall reads a number of at most 18 digits without an exponent as an integer
// divided by ten to the power frac.
func parseSmall(raw []byte) (m int64, frac int, ok bool) {
	digits := raw
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > smallDigits {
		return 0, 0, false
	}
	for i, c := range digits {
		switch {
		case isDigit(c):
			m = m*10 + int64(c-'0')
		case c == '.':
			frac = len(digits) - i - 1
		default:
			return 0, 0, false
		}
	}
	if len(digits) < len(raw) {
		m = -m
	}
	return m, frac, true
}

// smallArithmetic is arithmetic on 64 bits; ok is false if they do not suffice.
func smallArithmetic(op byte, a, b []byte) (data []byte, ok bool) {
	const most = 1_000_000_000_000_000_000 // below a ninth of the largest integer
	x, fracX, okX := parseSmall(a)
	y, fracY, okY := parseSmall(b)
	if !okX || !okY {
		return nil, false
	}
	if op == '*' {
		high, low := bits.Mul64(uint64(abs(x)), uint64(abs(y)))
		if high != 0 || low > most {
			return nil, false
		}
		return appendSmall(x*y, fracX+fracY), true
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
	return appendSmall(x+y, fracX), true
}

// appendSmall returns m divided by ten to the power frac as a JSON number.
func appendSmall(m int64, frac int) []byte {
	for frac > 0 && m%10 == 0 {
		m /= 10
		frac--
	}
	out := make([]byte, 0, 24)
	if frac == 0 {
		return strconv.AppendInt(out, m, 10)
	}
	if m < 0 {
		out, m = append(out, '-'), -m
	}
	start := len(out)
	out = strconv.AppendInt(out, m, 10)
	for len(out)-start <= frac {
		out = slices.Insert(out, start, '0')
	}
	return slices.Insert(out, len(out)-frac, '.')
}

func abs(n int64) int64 { return max(n, -n) }
