package query

import (
	"math"
	"slices"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/feed/document/decimal"
	"github.com/millrace/millrace/feed/document/scan"
)

// mathFunctions compute with doubles, except for integers of up to 18 digits, for which they
// are exact.
var mathFunctions = map[string]*function{
	"ABS": onNumbers(math.Abs, func(n int64) int64 { return abs(n) }),
	"CEILING": onNumbers(math.Ceil, func(n int64) int64 {
		return n
	}),
	"EXP":   math1(math.Exp),
	"FLOOR": onNumbers(math.Floor, func(n int64) int64 { return n }),
	"LOG": {least: 1, most: 2, two: func(x, base Value) Value {
		switch {
		case x.typ != Number || base.typ != Undefined && base.typ != Number:
			return Value{}
		case base.typ == Number:
			return floatValue(math.Log(x.Float()) / math.Log(base.Float()))
		}
		return floatValue(math.Log(x.Float()))
	}},
	"LOG10": math1(math.Log10),
	"PI":    {least: 0, most: 0, many: func([]Value) Value { return floatValue(math.Pi) }},
	"POWER": {least: 2, most: 2, two: func(x, y Value) Value {
		if x.typ != Number || y.typ != Number {
			return Value{}
		}
		return floatValue(math.Pow(x.Float(), y.Float()))
	}},
	"ROUND": onNumbers(math.Round, func(n int64) int64 { return n }), // halves away from zero
	"SIGN": onNumbers(func(x float64) float64 {
		if x == 0 {
			return 0
		}
		return math.Copysign(1, x)
	}, func(n int64) int64 { return min(max(n, -1), 1) }),
	"SQRT":   math1(math.Sqrt),
	"SQUARE": {least: 1, most: 1, one: func(x Value) Value { return arith('*', x, x) }},
	"TRUNC":  onNumbers(math.Trunc, func(n int64) int64 { return n }),
}

// onNumbers returns a function of numbers: exact for integers of up to 18 digits, f for others.
func onNumbers(f func(x float64) float64, exact func(n int64) int64) *function {
	return &function{least: 1, most: 1, one: func(v Value) Value {
		if v.typ != Number {
			return Value{}
		}
		if n, ok := decimal.Integer(v.data); ok {
			return intValue(int(exact(n)))
		}
		return floatValue(f(v.Float()))
	}}
}

// arrayFunctions are the functions of arrays.
var arrayFunctions = map[string]*function{
	"ARRAY_CONCAT": {least: 2, most: argsMax, many: arrayConcat},
	"ARRAY_CONTAINS": {least: 2, most: 3, framed: func(f *frame, arr, v, partial Value) Value {
		if arr.typ != Array || v.typ == Undefined || partial.typ != Undefined && partial.typ != Bool {
			return Value{}
		}
		return boolValue(f.arrayContains(arr, v, partial.b))
	}},
	"ARRAY_CONTAINS_ALL": {least: 2, most: argsMax, manyFramed: func(f *frame, args []Value) Value {
		return f.containsEach(args, func(all bool, one bool) bool { return all && one }, true)
	}},
	"ARRAY_CONTAINS_ANY": {least: 2, most: argsMax, manyFramed: func(f *frame, args []Value) Value {
		return f.containsEach(args, func(some bool, one bool) bool { return some || one }, false)
	}},
	"ARRAY_LENGTH": {least: 1, most: 1, one: func(arr Value) Value {
		if arr.typ != Array {
			return Value{}
		}
		n := 0
		document.Elements(arr.data, func(int, []byte) bool { n++; return true })
		return intValue(n)
	}},
	"ARRAY_SLICE": {least: 2, most: 3, three: arraySlice},
}

// arrayContains reports whether an element equals v or, if partial is true and v is
// an object, is an object that has v's properties and perhaps others.
func (f *frame) arrayContains(arr, v Value, partial bool) bool {
	found := false
	document.Elements(arr.data, func(_ int, raw []byte) bool {
		e := valueOf(raw)
		if partial && v.typ == Object {
			found = f.hasMembers(e, v) // equal objects have each other's members, so no f.same
		} else {
			found = f.same(e, v)
		}
		return !found && f.charge(workMember)
	})
	return found
}

// hasMembers reports whether e is an object with all properties of the object v.
func (f *frame) hasMembers(e, v Value) bool {
	if e.typ != Object || v.typ != Object {
		return false
	}
	all := true
	document.Members(v.data, func(name, raw []byte) bool {
		// A member that is missing was looked for in the whole object.
		i := scan.Member(e.data, 0, string(name))
		if i < 0 {
			f.charge(len(e.data))
		}
		if all = i >= 0 && f.charge(workMember+i); all {
			end := scan.Value(e.data, i)
			have, want := valueOf(e.data[i:max(i, end)]), valueOf(raw)
			all = f.same(have, want) || f.hasMembers(have, want)
		}
		return all
	})
	return all
}

func (f *frame) containsEach(args []Value, join func(a, b bool) bool, result bool) Value {
	if args[0].typ != Array {
		return Value{}
	}
	for _, v := range args[1:] {
		result = join(result, f.arrayContains(args[0], v, false))
	}
	return boolValue(result)
}

func arrayConcat(args []Value) Value {
	out := []byte{'['}
	for _, a := range args {
		if a.typ != Array || len(out)+len(a.data) > TextMadeMax {
			return Value{}
		}
		document.Elements(a.data, func(_ int, raw []byte) bool {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, raw...)
			return true
		})
	}
	return Value{typ: Array, data: append(out, ']')}
}

// arraySlice returns the elements from start on, counted from the end if it is
// negative, at most length of them.
func arraySlice(arr, start, length Value) Value {
	from, ok := start.int()
	if arr.typ != Array || !ok {
		return Value{}
	}
	var all [][]byte
	document.Elements(arr.data, func(_ int, raw []byte) bool {
		all = append(all, raw)
		return true
	})
	// from and length may be any integers, so both are brought within the array.
	if from < 0 {
		from = max(0, len(all)+from)
	}
	n := len(all)
	if length.typ != Undefined {
		if n, ok = length.int(); !ok {
			return Value{}
		}
	}
	all = all[min(from, len(all)):]
	all = all[:min(max(0, n), len(all))]
	out := []byte{'['}
	for i, raw := range slices.Clip(all) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, raw...)
	}
	return Value{typ: Array, data: append(out, ']')}
}
