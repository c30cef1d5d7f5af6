package accumulator

import (
	"math"
	"math/big"
	"math/bits"
)

// decimal is an exact number: small, or wide if that is not nil, times ten to the
// power exp. The zero decimal is zero. Nothing of a wide one is changed in place.
type decimal struct {
	small int64
	exp   int32
	wide  *big.Int
}

// parseDecimal reads a JSON number. ok is false if a digit of it lies beyond
// DecimalDigitsMax. It does not allocate for up to 18 digits.
func parseDecimal(text []byte) (d decimal, ok bool) {
	neg := len(text) > 0 && text[0] == '-'
	if neg {
		text = text[1:]
	}
	digits, behind, point := 0, 0, false
	for i, c := range text {
		switch {
		case c == '.':
			point = true
			continue
		case c|0x20 == 'e':
			return parseLong(neg, text[:i], text[i+1:])
		}
		if digits++; digits > 18 {
			return parseLongPlain(neg, text)
		}
		if point {
			behind++
		}
		d.small = d.small*10 + int64(c-'0')
	}
	if neg {
		d.small = -d.small
	}
	d.exp = int32(-behind)
	return d, true
}

// parseLongPlain is parseLong for a number whose exponent was not looked for yet.
func parseLongPlain(neg bool, text []byte) (decimal, bool) {
	for i, c := range text {
		if c|0x20 == 'e' {
			return parseLong(neg, text[:i], text[i+1:])
		}
	}
	return parseLong(neg, text, nil)
}

// parseLong reads any number from its digits, a point perhaps among them, and its
// exponent.
func parseLong(neg bool, text, exponent []byte) (decimal, bool) {
	digits := make([]byte, 0, min(len(text), 2*DecimalDigitsMax))
	exp := parseExponent(exponent)
	point, zeros := false, 0 // zeros are those that no other digit has followed yet
	for _, c := range text {
		if c == '.' {
			point = true
			continue
		}
		if point {
			exp--
		}
		switch {
		case c == '0':
			zeros++
			continue
		case len(digits)+zeros >= 2*DecimalDigitsMax && len(digits) > 0:
			return decimal{}, false
		case len(digits) > 0:
			for range zeros {
				digits = append(digits, '0')
			}
		}
		zeros = 0
		digits = append(digits, c)
	}
	if len(digits) == 0 {
		return decimal{}, true
	}
	exp += int64(zeros)
	if exp < -DecimalDigitsMax || exp+int64(len(digits)) > DecimalDigitsMax {
		return decimal{}, false
	}
	m, ok := new(big.Int).SetString(string(digits), 10)
	if neg {
		m.Neg(m)
	}
	return decimal{exp: int32(exp), wide: m}.narrow(), ok
}

// parseExponent reads what stands behind e. Beyond a billion exponents are not
// told apart.
func parseExponent(text []byte) int64 {
	neg := len(text) > 0 && text[0] == '-'
	var n int64
	for _, c := range text {
		if c >= '0' && c <= '9' {
			n = min(n*10+int64(c-'0'), 1e9)
		}
	}
	if neg {
		return -n
	}
	return n
}

// sign is -1, 0 or 1.
func (d decimal) sign() int {
	switch {
	case d.wide != nil:
		return d.wide.Sign()
	case d.small < 0:
		return -1
	case d.small > 0:
		return 1
	}
	return 0
}

func (d decimal) neg() decimal {
	switch {
	case d.wide != nil:
		d.wide = new(big.Int).Neg(d.wide)
		return d.narrow()
	case d.small == math.MinInt64:
		d.wide, d.small = new(big.Int).Neg(big.NewInt(d.small)), 0
	default:
		d.small = -d.small
	}
	return d
}

// narrow returns d without its wide part if 64 bits hold it.
func (d decimal) narrow() decimal {
	if d.wide != nil && d.wide.IsInt64() {
		d.small, d.wide = d.wide.Int64(), nil
	}
	return d
}

// add returns d + e.
func (d decimal) add(e decimal) decimal {
	switch {
	case e.wide == nil && e.small == 0:
		return d
	case d.wide == nil && d.small == 0:
		return e
	}
	if d.wide == nil && e.wide == nil {
		a, b := d, e
		if a.exp < b.exp {
			a, b = b, a
		}
		if m, ok := shift(a.small, a.exp-b.exp); ok {
			if sum := m + b.small; (sum > m) == (b.small > 0) {
				return decimal{small: sum, exp: b.exp}
			}
		}
	}
	exp := min(d.exp, e.exp)
	sum := d.widened(exp)
	return decimal{exp: exp, wide: sum.Add(sum, e.widened(exp))}.narrow()
}

// widened returns a new integer that times ten to the power exp, which is not
// above d's, is d.
func (d decimal) widened(exp int32) *big.Int {
	m := new(big.Int)
	if d.wide != nil {
		m.Set(d.wide)
	} else {
		m.SetInt64(d.small)
	}
	if d.exp > exp {
		m.Mul(m, bigPow10(int64(d.exp-exp)))
	}
	return m
}

// normal returns d in the one form that equal numbers have in common: no zeros at
// the end, and zero is the zero decimal.
func (d decimal) normal() decimal {
	d = d.narrow()
	if d.wide == nil {
		if d.small == 0 {
			return decimal{}
		}
		for d.small%10 == 0 {
			d.small /= 10
			d.exp++
		}
		return d
	}
	ten, rest := big.NewInt(10), new(big.Int)
	for m := d.wide; ; {
		q := new(big.Int)
		if q.QuoRem(m, ten, rest); rest.Sign() != 0 {
			d.wide = m
			break
		}
		m = q
		d.exp++
	}
	if d.wide.IsInt64() {
		return d.narrow().normal()
	}
	return d
}

// pow10 are the powers of ten that 64 bits hold.
var pow10 = func() (p [20]uint64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

func bigPow10(n int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil) }

// shift returns m times ten to the power n, not negative, if 64 bits hold it.
func shift(m int64, n int32) (int64, bool) {
	if n == 0 {
		return m, true
	}
	if n >= 19 {
		return 0, m == 0
	}
	high, low := bits.Mul64(uint64(max(m, -m)), pow10[n])
	if high != 0 || low > math.MaxInt64 {
		return 0, false
	}
	if m < 0 {
		return -int64(low), true
	}
	return int64(low), true
}
