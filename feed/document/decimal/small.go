package decimal

import (
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// Integer reads an integer of at most 18 digits, which cannot overflow; ok is false for any
// other number, also for one with a fraction of zeros.
func Integer(raw []byte) (n int64, ok bool) {
	i := 0
	if len(raw) > 0 && raw[0] == '-' {
		i = 1
	}
	if len(raw) == i || len(raw) > SmallDigits+i {
		return 0, false
	}
	for _, c := range raw[i:] {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if i == 1 {
		n = -n
	}
	return n, true
}

// Int64 reads an integer of 64 bits, however it is written: 12, 12.0 and 1.2e1.
func Int64(raw []byte) (n int64, ok bool) {
	if n, ok = Integer(raw); ok {
		return n, true
	}
	d := Parse(raw)
	if !d.IsInteger() || d.Exp > PowerMax {
		return 0, false
	}
	// An amount of at most 19 digits fits 64 bits without a sign, so this does not overflow.
	var u uint64
	for _, c := range d.Sig {
		if c != '.' {
			u = u*10 + uint64(c-'0')
		}
	}
	u *= Power(int(d.Exp - d.Digits()))
	switch {
	case !d.Neg && u <= math.MaxInt64:
		return int64(u), true
	case d.Neg && u <= -math.MinInt64:
		return int64(-u), true
	}
	return 0, false
}

// SmallDigits is how many characters Integer and Small read, without the sign: every number of
// so many digits fits an int64.
const SmallDigits = 18

// Small reads a number without an exponent, of at most 18 digits or of 17 and a point, as
// m divided by ten to the power frac: -27.10 is -2710 and 2.
func Small(raw []byte) (m int64, frac int, ok bool) {
	digits := raw
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > SmallDigits {
		return 0, 0, false
	}
	for i, c := range digits {
		switch {
		case c >= '0' && c <= '9':
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

// AppendSmall returns m divided by ten to the power frac as a JSON number.
func AppendSmall(m int64, frac int) []byte {
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
	// Zeros in front until a digit stands before the point:  5, 2  ->  005  ->  0.05
	start := len(out)
	out = strconv.AppendInt(out, m, 10)
	for len(out)-start <= frac {
		out = slices.Insert(out, start, '0')
	}
	return slices.Insert(out, len(out)-frac, '.')
}

// PowerMax is the greatest power of ten that 64 bits hold, without a sign.
const PowerMax = 19

var powers = func() (p [PowerMax + 1]uint64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

// Power returns ten to the power n, from 0 to PowerMax.
func Power(n int) uint64 { return powers[n] }

// Shift returns m times ten to the power n, which is not negative; ok is false if an int64
// does not hold it.
func Shift(m int64, n int) (int64, bool) {
	if n == 0 {
		return m, true
	}
	if n >= PowerMax {
		return 0, m == 0
	}
	// max(m, -m) of the least int64 is itself, whose bits as uint64 are its amount.
	high, low := bits.Mul64(uint64(max(m, -m)), powers[n])
	if high != 0 || low > math.MaxInt64 {
		return 0, false
	}
	if m < 0 {
		return -int64(low), true
	}
	return int64(low), true
}
