package query

import (
	"bytes"

	"github.com/millrace/millrace/feed/document"
)

// setFunctions are the functions that treat arrays as sets, and those of objects.
var setFunctions = map[string]*function{
	"ARRAY_AVG": ofElements("AVG"),
	"ARRAY_MAX": ofElements("MAX"),
	"ARRAY_MIN": ofElements("MIN"),
	"ARRAY_SUM": ofElements("SUM"),
	"CHOOSE": {least: 2, most: argsMax, many: func(args []Value) Value {
		if n, ok := args[0].int(); ok && n >= 1 && n < len(args) {
			return args[n]
		}
		return Value{}
	}},
	"OBJECTTOARRAY": {least: 1, most: 3, three: objectToArray},
	"SETINTERSECT": {least: 2, most: 2, framed: func(f *frame, a, b, _ Value) Value {
		in := f.membersOf(b)
		return f.setOf(a, b, []Value{a}, func(key string) bool { return in[key] })
	}},
	"SETDIFFERENCE": {least: 2, most: 2, framed: func(f *frame, a, b, _ Value) Value {
		in := f.membersOf(b)
		return f.setOf(a, b, []Value{a}, func(key string) bool { return !in[key] })
	}},
	"SETUNION": {least: 2, most: 2, framed: func(f *frame, a, b, _ Value) Value {
		return f.setOf(a, b, []Value{a, b}, func(string) bool { return true })
	}},
	"STRINGJOIN":  {least: 2, most: 2, two: stringJoin},
	"STRINGSPLIT": {least: 2, most: 2, two: stringSplit},
}

// ofElements returns a function that computes an aggregate over an array.
func ofElements(name string) *function {
	return &function{least: 1, most: 1, framed: func(f *frame, arr, _, _ Value) Value {
		if arr.typ != Array {
			return Value{}
		}
		// The state of the aggregate over rows, so both have the same rules.
		var s state
		document.Elements(arr.data, func(_ int, raw []byte) bool {
			v := valueOf(raw)
			f.chargeNumbers(v, v)
			s.add(name, v)
			return f.charge(workMember + len(raw))
		})
		return s.value(name)
	}}
}

// membersOf returns the sort keys of the elements of an array. Equal values have equal sort
// keys, so looking a key up is a comparison: comparing each element with each of the other
// array took the product of their lengths.
func (f *frame) membersOf(arr Value) map[string]bool {
	in := make(map[string]bool)
	document.Elements(arr.data, func(_ int, raw []byte) bool {
		in[string(f.appendSortKey(nil, valueOf(raw), false))] = true
		return f.charge(workMember)
	})
	return in
}

// setOf returns the elements of the arrays in from whose sort keys are wanted, each once, as
// the first of them is written. It is undefined unless a and b are arrays.
func (f *frame) setOf(a, b Value, from []Value, want func(key string) bool) Value {
	if a.typ != Array || b.typ != Array {
		return Value{}
	}
	out := []byte{'['}
	seen := make(map[string]bool)
	for _, arr := range from {
		document.Elements(arr.data, func(_ int, raw []byte) bool {
			if key := string(f.appendSortKey(nil, valueOf(raw), false)); !seen[key] && want(key) {
				seen[key] = true
				if len(out) > 1 {
					out = append(out, ',')
				}
				out = append(out, raw...)
			}
			return f.charge(workMember)
		})
	}
	return Value{typ: Array, data: append(out, ']')}
}

// objectToArray returns [{"k": name, "v": value}, …], with other names if they are
// given.
func objectToArray(v, k, val Value) Value {
	names := [2][]byte{[]byte("k"), []byte("v")}
	for i, name := range []Value{k, val} {
		switch name.typ {
		case String:
			names[i] = name.data
		case Undefined:
		default:
			return Value{}
		}
	}
	// With equal names each element would have one property twice.
	if v.typ != Object || bytes.Equal(names[0], names[1]) {
		return Value{}
	}
	out := []byte{'['}
	document.Members(v.data, func(name, raw []byte) bool {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(appendQuoted(append(out, '{'), names[0]), ':')
		out = append(appendQuoted(out, name), ',')
		out = append(appendQuoted(out, names[1]), ':')
		out = append(append(out, raw...), '}')
		return len(out) <= TextMadeMax
	})
	if len(out) > TextMadeMax {
		return Value{}
	}
	return Value{typ: Array, data: append(out, ']')}
}

func stringJoin(arr, separator Value) Value {
	if arr.typ != Array || separator.typ != String {
		return Value{}
	}
	out, ok, some := []byte{}, true, false // some: not the first; an empty string counts too
	document.Elements(arr.data, func(_ int, raw []byte) bool {
		v := valueOf(raw)
		if some {
			out = append(out, separator.data...)
		}
		out, some = append(out, v.data...), true
		ok = v.typ == String && len(out) <= TextMadeMax
		return ok
	})
	if !ok {
		return Value{}
	}
	return stringValue(out)
}

func stringSplit(s, separator Value) Value {
	if s.typ != String || separator.typ != String || len(separator.data) == 0 {
		return Value{}
	}
	out := []byte{'['}
	for rest, more := s.data, true; more; {
		var piece []byte
		if len(out) > 1 {
			out = append(out, ',')
		}
		piece, rest, more = bytes.Cut(rest, separator.data)
		if out = appendQuoted(out, piece); len(out) > TextMadeMax {
			return Value{}
		}
	}
	return Value{typ: Array, data: append(out, ']')}
}
