package query

import (
	"math/big"
	"strconv"
)

// PlainDigitsMax bounds the digits of a number that AppendDecimal writes without
// an exponent where it has to fill it up with zeros.
const PlainDigitsMax = 34

// AppendDecimal appends unscaled divided by ten to the power scale to dst as a JSON
// number, without zeros at the end of a fraction. It has an exponent only where
// zeros would have to fill it up to more than PlainDigitsMax digits.
func AppendDecimal(dst []byte, unscaled *big.Int, scale int) []byte {
	digits, exp := significant(unscaled, -int64(scale))
	point := int64(len(digits)) + exp
	far := exp > 0 && point > PlainDigitsMax || point < 0 && -exp > PlainDigitsMax
	return appendDigits(dst, unscaled.Sign() < 0, digits, exp, far)
}

// significant returns the digits of m times ten to the power scale up to the last
// that is not 0, and their scale; for zero, one digit.
func significant(m *big.Int, scale int64) (digits []byte, _ int64) {
	digits = new(big.Int).Abs(m).Append(nil, 10)
	if m.Sign() == 0 {
		return digits, 0
	}
	for digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		scale++
	}
	return digits, scale
}

// appendDigits appends digits times ten to the power scale as a JSON number, plain
// or with an exponent.
func appendDigits(dst []byte, neg bool, digits []byte, scale int64, exponent bool) []byte {
	if neg {
		dst = append(dst, '-')
	}
	point := int64(len(digits)) + scale // digits before the point
	switch {
	case exponent:
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		return strconv.AppendInt(append(dst, 'e'), point-1, 10)
	case scale >= 0:
		return appendZeros(append(dst, digits...), scale)
	case point > 0:
		dst = append(dst, digits[:point]...)
		return append(append(dst, '.'), digits[point:]...)
	}
	return append(appendZeros(append(dst, '0', '.'), -point), digits...)
}

func appendZeros(dst []byte, n int64) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}
