package project

import "github.com/millrace/millrace/feed/document/decimal"

// smallDecimal is parseDecimal for most numbers there are.
func (t Type) smallDecimal(raw []byte) (Value, bool) {
	n, behind, ok := decimal.Small(raw)
	up := t.Scale - behind
	if !ok || up < 0 {
		return Value{}, false
	}
	if n, ok = decimal.Shift(n, up); !ok {
		return Value{}, false
	}
	if limit, ok := decimal.Shift(1, t.Precision); ok && (n >= limit || n <= -limit) {
		return Value{}, false
	}
	return SmallDecimalOf(n, t.Scale), true
}

// digitsKept is how many significant digits of a number are kept: more than any
// type holds, and room for the zeros of a scale.
const digitsKept = 96

// number is a decimal.Number to be rounded to what a column holds, which decimal does
// not know: 0.digits times ten to the power exp. digits are the first of count
// significant ones.
type number struct {
	neg    bool
	digits []byte
	count  int
	exp    int64
}

// numberOf reads a valid JSON number; its digits go behind buf.
func numberOf(raw, buf []byte) number {
	d := decimal.Parse(raw)
	n := number{neg: d.Neg, digits: buf, count: int(d.Digits()), exp: d.Exp}
	for _, c := range d.Sig[:min(len(d.Sig), digitsKept/2)] { // no type holds as many
		if c != '.' {
			n.digits = append(n.digits, c)
		}
	}
	return n
}

// round leaves at most scale digits behind the point: the nearest number, half
// away from zero.
func (d *number) round(scale int) {
	keep := d.exp + int64(scale) // digits
	if int64(d.count) <= keep {
		return
	}
	up := keep >= 0 && keep < int64(len(d.digits)) && d.digits[keep] >= '5'
	d.digits = d.digits[:min(max(keep, 0), int64(len(d.digits)))]
	for up && len(d.digits) > 0 && d.digits[len(d.digits)-1] == '9' {
		d.digits = d.digits[:len(d.digits)-1]
	}
	switch last := len(d.digits) - 1; {
	case up && last >= 0:
		d.digits[last]++
	case up:
		d.digits = append(d.digits, '1')
		d.exp++
	}
	for !up && len(d.digits) > 0 && d.digits[len(d.digits)-1] == '0' {
		d.digits = d.digits[:len(d.digits)-1]
	}
	d.count = len(d.digits)
}

// unscaled returns the number, which is not zero, times ten to the power scale in
// decimal digits; it must be an integer then, of less than digitsKept digits.
func (d *number) unscaled(scale int) []byte {
	out := make([]byte, 0, digitsKept)
	if d.neg {
		out = append(out, '-')
	}
	out = append(out, d.digits...)
	for range d.exp + int64(scale) - int64(d.count) {
		out = append(out, '0')
	}
	return out
}
