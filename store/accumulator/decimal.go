package accumulator

import (
	"math"
	"math/big"

	number "github.com/millrace/millrace/feed/document/decimal"
)

// decimal is an exact number: small, or wide if that is not nil, times ten to the power exp.
// The zero decimal is zero. A wide integer is never changed in place, because copies of the
// decimal share it.
//
// Package feed/document/decimal reads and writes numbers. This type is for sums alone, which
// are added to a million times, mostly in 64 bits, and are stored in one normal form.
type decimal struct {
	small int64
	exp   int32
	wide  *big.Int
}

// parseDecimal reads a JSON number. ok is false if a digit of it lies beyond
// DecimalDigitsMax. It does not allocate for a plain number of up to 18 characters.
func parseDecimal(text []byte) (d decimal, ok bool) {
	if m, behind, ok := number.Small(text); ok {
		return decimal{small: m, exp: int32(-behind)}, true
	}
	n := number.Parse(text)
	if n.Sign() == 0 {
		return decimal{}, true
	}
	// Only now is a big integer made: a text of megabytes must not cost as much.
	if n.Exp > DecimalDigitsMax || n.Exp-n.Digits() < -DecimalDigitsMax {
		return decimal{}, false
	}
	m, scale := n.Mantissa()
	return decimal{exp: int32(scale), wide: m}.narrow(), true
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
		// The one with the greater exponent gets the exponent of the other:
		//
		//	3 + 0.25    3*10^0 + 25*10^-2  ->  300*10^-2 + 25*10^-2
		a, b := d, e
		if a.exp < b.exp {
			a, b = b, a
		}
		if m, ok := number.Shift(a.small, int(a.exp-b.exp)); ok {
			if sum := m + b.small; (sum > m) == (b.small > 0) {
				return decimal{small: sum, exp: b.exp}
			}
		}
	}
	exp := min(d.exp, e.exp)
	sum := d.widened(exp)
	return decimal{exp: exp, wide: sum.Add(sum, e.widened(exp))}.narrow()
}

// widened returns d as a new integer times ten to the power exp. exp must not be above d's.
func (d decimal) widened(exp int32) *big.Int {
	m := new(big.Int)
	if d.wide != nil {
		m.Set(d.wide)
	} else {
		m.SetInt64(d.small)
	}
	if d.exp > exp {
		m.Mul(m, number.Pow10(int64(d.exp-exp)))
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
	// Zeros at the end are taken off one by one.
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
