package decimal

import (
	"math/big"
	"strconv"
)

// Append appends m times ten to the power scale as a JSON number: plain, or with an
// exponent where that would have many zeros.
func Append(dst []byte, m *big.Int, scale int64) []byte {
	const zerosMax = 20 // a number with more zeros is written with an exponent
	if m.Sign() == 0 {
		return append(dst, '0')
	}
	// Zeros at the end move into the scale, so equal numbers have one form.
	digits := new(big.Int).Abs(m).Append(nil, 10)
	for digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		scale++
	}
	point := int64(len(digits)) + scale
	return AppendDigits(dst, m.Sign() < 0, digits, point, scale <= zerosMax && point >= -zerosMax)
}

// AppendDigits appends 0.digits times ten to the power exp as a JSON number: plain, or with an
// exponent. digits neither begin nor end with 0, or are 0 alone with the exponent 1. The
// caller decides which form, because numbers that are stored keep theirs:
//
//	digits  exp  plain   with an exponent
//	12       4   1200    1.2e3
//	12       1   1.2     1.2
//	12      -1   0.012   1.2e-2
func AppendDigits(dst []byte, neg bool, digits []byte, exp int64, plain bool) []byte {
	if neg {
		dst = append(dst, '-')
	}
	// Three cases: the point lies within the digits, or with an exponent behind the first;
	// behind them, with zeros between; before them, with zeros between.
	n := int64(len(digits))
	switch {
	case !plain || exp > 0 && exp < n:
		point := exp
		if !plain {
			point = 1
		}
		dst = append(dst, digits[:point]...)
		if point < n {
			dst = append(append(dst, '.'), digits[point:]...)
		}
		if exp == point {
			return dst
		}
		return strconv.AppendInt(append(dst, 'e'), exp-1, 10)
	case exp > 0:
		return appendZeros(append(dst, digits...), exp-n)
	}
	return append(appendZeros(append(dst, '0', '.'), -exp), digits...)
}

func appendZeros(dst []byte, n int64) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}
