package query

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/millrace/millrace/feed/document/decimal"
)

// An aggregate leaves out undefined values. Over nothing, COUNT and SUM are 0, and
// AVG, MIN and MAX are undefined. SUM and AVG of anything but numbers, and MIN and
// MAX of arrays and objects, are undefined.

// state is the state of an aggregate over the values so far.
type state struct {
	bad   bool // the result is undefined, whatever follows
	count int64
	sum   sum
	best  Value // of MIN and MAX
}

// sum is an exact sum of numbers: small/10^frac, plus rest for those that do not fit into 64
// bits. Nearly all numbers fit, and adding one of them allocates nothing.
type sum struct {
	small int64
	frac  int
	rest  []byte // a JSON number, or nil for 0
}

// sumMost bounds the small part, so that adding two does not overflow.
const sumMost = 1 << 61

// add adds a JSON number. It returns false if the sum is beyond numbers.
func (s *sum) add(raw []byte) bool {
	if m, frac, ok := decimal.Small(raw); ok {
		// Both get the same number of digits behind the point, as far as 64 bits allow:
		//
		//	sum 12.5, number 3.25    125/10 and 325/100  ->  1250/100 + 325/100 = 1575/100
		n, to := s.small, s.frac
		for to < frac && abs(n) < sumMost/10 {
			n, to = n*10, to+1
		}
		for frac < to && abs(m) < sumMost/10 {
			m, frac = m*10, frac+1
		}
		if frac == to && abs(m) < sumMost && abs(n+m) < sumMost {
			s.small, s.frac = n+m, to
			return true
		}
	}
	rest := s.rest
	if rest == nil {
		rest = []byte{'0'}
	}
	v := arith('+', Value{typ: Number, data: rest}, Value{typ: Number, data: raw})
	s.rest = v.data
	return v.typ == Number
}

// value returns the sum.
func (s *sum) value() Value {
	small := Value{typ: Number, data: decimal.AppendSmall(s.small, s.frac)}
	if s.rest == nil {
		return small
	}
	return arith('+', Value{typ: Number, data: s.rest}, small)
}

// add adds a value. A value that is kept is copied, because the item's memory is used again.
func (s *state) add(name string, v Value) {
	if v.typ == Undefined || s.bad {
		return
	}
	s.count++
	switch name {
	case "SUM", "AVG":
		if v.typ != Number || !s.sum.add(v.data) {
			s.bad = true
		}
	case "MIN", "MAX":
		if v.typ > String {
			s.bad = true
			return
		}
		// Equal values may be written in two ways, 1 and 1.0. The plainer one is kept, so
		// that the result does not depend on the order of the items.
		n := Compare(v, s.best)
		if s.best.typ == Undefined || name == "MIN" && n < 0 || name == "MAX" && n > 0 || n == 0 && plainer(v.data, s.best.data) {
			s.best = v
			s.best.data = slices.Clone(v.data)
		}
	}
}

// merge adds the state of another partition's part.
func (s *state) merge(name string, o *state) {
	s.bad = s.bad || o.bad
	if s.bad || o.count == 0 {
		return
	}
	count := s.count + o.count // add below counts one value; it stands for o.count of them
	switch name {
	case "SUM", "AVG":
		s.add(name, o.sum.value())
	case "MIN", "MAX":
		s.add(name, o.best)
	}
	s.count = count
}

// value returns the result.
func (s *state) value(name string) Value {
	switch {
	case s.bad:
		return Value{}
	case name == "COUNT":
		return intValue(int(s.count))
	case name == "SUM":
		return s.sum.value()
	case s.count == 0:
		return Value{}
	case name == "AVG":
		return divide('/', s.sum.value(), intValue(int(s.count)))
	}
	return s.best
}

// PartialVersion is the version of the form in which the rows of a Grouped query
// travel between its two halves.
const PartialVersion = 1

// ErrPartial says that the body of a row is no partial group of the query.
var ErrPartial = errors.New("query: no partial group of this query")

// The flags of a state's form.
const (
	flagBad = 1 << iota
	flagValue
)

// append appends the state: flags, count, and the sum or the best value as JSON.
func (s *state) append(dst []byte, name string) []byte {
	var raw []byte
	flags := byte(0)
	switch {
	case s.bad:
		flags = flagBad
	case s.count == 0 || name == "COUNT":
	case name == "SUM" || name == "AVG":
		// The parts of a sum may lie too far apart for any number: 1e600 and 1.
		if flags, raw = flagValue, s.sum.value().Raw(); raw == nil {
			flags = flagBad
		}
	default:
		flags, raw = flagValue, s.best.Raw()
	}
	dst = binary.AppendUvarint(append(dst, flags), uint64(s.count))
	if flags == flagValue {
		dst = appendBytes(dst, raw)
	}
	return dst
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// readState reads what append wrote.
func readState(b []byte, name string) (s state, rest []byte, err error) {
	if len(b) == 0 || b[0] > flagValue {
		return s, nil, ErrPartial
	}
	flags := b[0]
	count, n := binary.Uvarint(b[1:])
	if n <= 0 || count > 1<<62 {
		return s, nil, ErrPartial
	}
	b = b[1+n:]
	s.count, s.bad = int64(count), flags == flagBad
	if flags != flagValue {
		// A sum or a best of some values without the value: cut off, or of another query.
		if flags == 0 && count > 0 && name != "COUNT" {
			return s, nil, ErrPartial
		}
		return s, b, nil
	}
	raw, b, ok := readBytes(b)
	if !ok {
		return s, nil, ErrPartial
	}
	v := parsed(raw)
	switch {
	case count == 0 || v.typ == Undefined || name == "COUNT":
		return s, nil, ErrPartial
	case name == "MIN" || name == "MAX":
		s.best = v
		if v.typ > String {
			return s, nil, ErrPartial
		}
	case v.typ != Number || !s.sum.add(v.data):
		return s, nil, ErrPartial
	}
	return s, b, nil
}

func readBytes(b []byte) (data, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, false
	}
	return b[n : n+int(size) : n+int(size)], b[n+int(size):], true
}
