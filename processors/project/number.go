package project

import "github.com/millrace/millrace/feed/document/decimal"

// smallDecimal is parseDecimal for most numbers there are.
func (t Type) smallDecimal(raw []byte) (Value, bool) {
	n, behind, ok := decimal.Small(raw)
	up := t.Scale - behind
	if !ok || up < 0 || up+len(raw) > 18 {
		return Value{}, false
	}
	n *= powers[up]
	if t.Precision < len(powers) && (n >= powers[t.Precision] || n <= -powers[t.Precision]) {
		return Value{}, false
	}
	return SmallDecimalOf(n, t.Scale), true
}

// powers are the powers of ten that 64 bits hold.
var powers = func() (p [19]int64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

// digitsKept is how many significant digits of a number are kept: more than any
// type holds, and room for the zeros of a scale.
const digitsKept = 96

// number is the exact value of a JSON number: 0.digits times ten to the power
// exp. digits are the first of count significant ones, without zeros at their
// ends.
type number struct {
	neg    bool
	digits []byte
	count  int
	exp    int64
}

// scanNumber reads a valid JSON number; its digits go behind buf.
func scanNumber(raw, buf []byte) number {
	d := number{digits: buf}
	if len(raw) > 0 && raw[0] == '-' {
		d.neg, raw = true, raw[1:]
	}
	zeros, whole, behind := 0, true, false
	for i, c := range raw {
		switch {
		case c == '.':
			whole, behind = false, true
			continue
		case c|0x20 == 'e':
			d.exp += decimal.Exponent(raw[i+1:])
			return d
		case c == '0' && d.count == 0:
			if behind {
				d.exp--
			}
			continue
		case c == '0':
			zeros++
		default:
			d.add(zeros, c)
			zeros = 0
		}
		if whole {
			d.exp++
		}
	}
	return d
}

// add takes zeros and the digit c behind them.
func (d *number) add(zeros int, c byte) {
	d.count += zeros + 1
	if d.count > digitsKept/2 {
		return // no type holds as many
	}
	for range zeros {
		d.digits = append(d.digits, '0')
	}
	d.digits = append(d.digits, c)
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
