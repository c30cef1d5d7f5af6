package accumulator

import (
	"math/big"
	"math/bits"
	"strconv"

	number "github.com/millrace/millrace/feed/document/decimal"
)

// avgDigits are the significant digits of a mean.
const avgDigits = 17

// quotient returns d / n for n above zero, rounded half to even to avgDigits digits.
func (d decimal) quotient(n int64) decimal {
	neg := d.sign() < 0
	if neg {
		d = d.neg()
	}
	q, ok := d.smallQuotient(uint64(n))
	if !ok {
		q = d.wideQuotient(big.NewInt(n))
	}
	if neg {
		q.small = -q.small
	}
	return q
}

// smallQuotient is quotient on 128 bits, for d that is not negative; ok is false if
// they do not suffice.
func (d decimal) smallQuotient(n uint64) (q decimal, ok bool) {
	if d.wide != nil || d.small < 0 {
		return q, false
	}
	m := uint64(d.small)
	if m%n == 0 && m/n < number.Power(avgDigits) {
		return decimal{small: int64(m / n), exp: d.exp}, true
	}
	// So many zeros are appended to m that the quotient has one or two digits more than
	// avgDigits, which are rounded off:
	//
	//	2 / 3   2*10^18 / 3 = 666666666666666666, rest 2  ->  0.66666666666666667
	more := avgDigits + 1 - digitsOf(m) + digitsOf(n)
	if more < 0 || more > number.PowerMax {
		return q, false
	}
	high, low := bits.Mul64(m, number.Power(more))
	if high >= n {
		return q, false // bits.Div64 would panic: the quotient has more than 64 bits
	}
	quo, rest := bits.Div64(high, low, n)
	return roundTo(quo, d.exp-int32(more), rest != 0), true
}

// wideQuotient is quotient for any d that is not negative.
func (d decimal) wideQuotient(n *big.Int) decimal {
	m := d.widened(d.exp)
	more := max(0, int64(avgDigits+1-len(m.Text(10))+len(n.Text(10))))
	m.Mul(m, number.Pow10(more))
	exp := d.exp - int32(more)
	quo, rest := new(big.Int).QuoRem(m, n, new(big.Int))
	sticky := rest.Sign() != 0
	if over := len(quo.Text(10)) - 19; over > 0 {
		// roundTo takes at most 19 digits. What is cut off still counts for rounding.
		quo.QuoRem(quo, number.Pow10(int64(over)), rest)
		sticky = sticky || rest.Sign() != 0
		exp += int32(over)
	}
	return roundTo(quo.Uint64(), exp, sticky)
}

// roundTo rounds m to avgDigits digits, half to even. sticky says that the exact number is a
// little above m, so that a half is more than a half.
func roundTo(m uint64, exp int32, sticky bool) decimal {
	over := digitsOf(m) - avgDigits
	if over <= 0 {
		return decimal{small: int64(m), exp: exp}
	}
	unit := number.Power(over)
	q, rest := m/unit, m%unit
	if half := unit / 2; rest > half || rest == half && (sticky || q%2 == 1) {
		q++
	}
	return decimal{small: int64(q), exp: exp + int32(over)}
}

// digitsOf is the number of digits of m, 1 for zero.
func digitsOf(m uint64) int {
	n := 1
	for n <= number.PowerMax && m >= number.Power(n) {
		n++
	}
	return n
}

// plainDigitsMax is how many digits a number has at most that is written without
// an exponent, the zeros before and behind its own digits counted.
const plainDigitsMax = 34

// appendText appends d as a JSON number in the shortest form: plain, or with an
// exponent if that would have more than plainDigitsMax digits.
func (d decimal) appendText(dst []byte) []byte {
	d = d.normal()
	var scratch [24]byte
	digits := scratch[:0]
	if d.wide != nil {
		digits = d.wide.Append(digits, 10)
	} else {
		digits = strconv.AppendInt(digits, d.small, 10)
	}
	neg := digits[0] == '-'
	if neg {
		digits = digits[1:]
	}
	return appendNumber(dst, neg, digits, int64(len(digits))+int64(d.exp))
}

// appendNumber appends 0.digits times ten to the power exp, where digits neither
// begin nor end with 0, or are 0 alone.
func appendNumber(dst []byte, neg bool, digits []byte, exp int64) []byte {
	size := max(exp, int64(len(digits)))
	if exp <= 0 {
		size = 1 - exp + int64(len(digits))
	}
	return number.AppendDigits(dst, neg, digits, exp, size <= plainDigitsMax)
}
