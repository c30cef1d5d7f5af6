package query

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
)

// Bound is a condition on a path of the item without which the item gives no rows,
// such as an index can serve. A query has more conditions than its bounds, so what an
// index finds is tested again. Of Values, Low, High and Prefix, as many are set as are
// known; with none of them the path is only not undefined.
type Bound struct {
	// Path are the properties of the item, from outside.
	Path []string
	// Each says that the value at Path is an array, and the rest is said of one of its
	// elements, or of what is in one at Element.
	Each bool
	// Element are the properties within an element, from outside; nil for the element.
	Element []string
	// Values are those one of which the value equals, as raw JSON.
	Values [][]byte
	// Low and High are what the value is not less and not greater than, as raw JSON;
	// the value is of their type. An open bound excludes the value itself.
	Low, High         []byte
	LowOpen, HighOpen bool
	// Prefix is what the value, a string, begins with.
	Prefix string
}

// boundsMax is about how many bounds of one AND are looked at. One that is left out
// only makes the choice of an index poorer.
const boundsMax = 64

// Bounds returns what is known of the items that give rows. Parameters that are not
// bound are not known.
func (q *Query) Bounds() []Bound {
	r := newResolver(nil, q.text)
	return r.bounds(nil, q.text.where)
}

// bound returns a bound of what n is a path of.
func (r *resolver) bound(n node) (b Bound, ok bool) {
	names, each, ok := r.resolve(n)
	if each != nil {
		return Bound{Path: each, Each: true, Element: names}, ok
	}
	return Bound{Path: names}, ok
}

// bounds appends what must hold for n to be true.
func (r *resolver) bounds(list []Bound, n node) []Bound {
	switch n := n.(type) {
	case *logical:
		if n.op == "OR" {
			return append(list, r.either(n.terms)...)
		}
		for i := 0; i < len(n.terms) && len(list) < boundsMax; i++ {
			list = r.bounds(list, n.terms[i])
		}
	case *path:
		return r.equals(list, n, boolValue(true))
	case *unary:
		if _, ok := n.x.(*path); ok && n.op == "NOT" {
			return r.equals(list, n.x, boolValue(false))
		}
	case *operation:
		return r.compares(list, n)
	case *in:
		var values []Value
		for _, e := range n.list {
			v, ok := constant(e)
			if !ok {
				return list
			}
			values = append(values, v)
		}
		return r.equals(list, n.x, values...)
	case *between:
		low, okLow := constant(n.low)
		high, okHigh := constant(n.high)
		if b, ok := r.bound(n.x); ok && okLow && okHigh && low.typ <= String && high.typ <= String {
			b.Low, b.High = low.Raw(), high.Raw()
			return append(list, b)
		}
	case *like:
		v, ok := constant(n.pattern)
		if prefix, exact := likePrefix(v); ok && n.escape == nil && v.typ == String {
			if exact {
				return r.equals(list, n.x, v)
			}
			return r.begins(list, n.x, prefix)
		}
	case *call:
		return r.calls(list, n)
	case *subquery:
		if n.kind == "EXISTS" && !n.of.grouped() {
			return newResolver(r, n.of).bounds(list, n.of.where)
		}
	}
	return list
}

// equals appends that n is one of the values. What is undefined equals nothing.
func (r *resolver) equals(list []Bound, n node, values ...Value) []Bound {
	b, ok := r.bound(n)
	if !ok {
		return list
	}
	b.Values = [][]byte{}
	for _, v := range values {
		if v.typ != Undefined {
			b.Values = append(b.Values, v.Raw())
		}
	}
	return append(list, b)
}

// begins appends that n begins with a text.
func (r *resolver) begins(list []Bound, n node, prefix string) []Bound {
	b, ok := r.bound(n)
	if !ok {
		return list
	}
	b.Prefix, b.Low = prefix, stringValue([]byte(prefix)).Raw()
	return append(list, b)
}

// mirrored are the operators with their sides exchanged.
var mirrored = map[string]string{"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}

func (r *resolver) compares(list []Bound, n *operation) []Bound {
	op, x, y := n.op, n.x, n.y
	if _, ok := constant(x); ok {
		op, x, y = mirrored[op], y, x
	}
	v, ok := constant(y)
	if !ok || op == "" {
		return list
	}
	if op == "=" {
		return r.equals(list, x, v)
	}
	b, ok := r.bound(x)
	if !ok || v.typ > String || v.typ == Undefined {
		return list
	}
	switch op {
	case "<", "<=":
		b.High, b.HighOpen = v.Raw(), op == "<"
	case ">", ">=":
		b.Low, b.LowOpen = v.Raw(), op == ">"
	case "!=":
	default:
		return list
	}
	return append(list, b)
}

// calls appends what must hold for a call to be true.
func (r *resolver) calls(list []Bound, n *call) []Bound {
	switch n.name {
	case "IS_DEFINED", "IS_NULL", "IS_BOOL", "IS_NUMBER", "IS_STRING", "IS_ARRAY", "IS_OBJECT", "IS_PRIMITIVE",
		"IS_FINITE_NUMBER", "IS_INTEGER", "CONTAINS", "ENDSWITH", "REGEXMATCH":
		if b, ok := r.bound(n.args[0]); ok {
			return append(list, b)
		}
	case "STARTSWITH", "STRINGEQUALS":
		v, ok := constant(n.args[1])
		if !ok || v.typ != String {
			return list
		}
		if len(n.args) > 2 {
			if without, ok := constant(n.args[2]); !ok || without.typ != Bool || without.b {
				return list
			}
		}
		if n.name == "STARTSWITH" {
			return r.begins(list, n.args[0], string(v.data))
		}
		return r.equals(list, n.args[0], v)
	case "ARRAY_CONTAINS":
		return r.contains(list, n)
	case "ARRAY_CONTAINS_ANY", "ARRAY_CONTAINS_ALL":
		var values []Value
		for _, arg := range n.args[1:] {
			v, ok := constant(arg)
			if !ok {
				return list
			}
			values = append(values, v)
		}
		if n.name == "ARRAY_CONTAINS_ANY" {
			return r.element(list, n.args[0], nil, values...)
		}
		for _, v := range values {
			list = r.element(list, n.args[0], nil, v)
		}
	}
	return list
}

// contains appends what ARRAY_CONTAINS says of an array of the item, or of the value
// that is looked for in a constant array.
func (r *resolver) contains(list []Bound, n *call) []Bound {
	if arr, ok := constant(n.args[0]); ok && arr.typ == Array && len(n.args) == 2 {
		var values []Value
		document.Elements(arr.data, func(_ int, raw []byte) bool {
			values = append(values, valueOf(raw))
			return true
		})
		return r.equals(list, n.args[1], values...)
	}
	if v, ok := constant(n.args[1]); ok {
		return r.leaves(list, n.args[0], nil, v)
	}
	return list
}

// leaves appends what an element that has the value has: its properties, if it is an
// object.
func (r *resolver) leaves(list []Bound, n node, names []string, v Value) []Bound {
	if v.typ != Object {
		return r.element(list, n, names, v)
	}
	document.Members(v.data, func(name, raw []byte) bool {
		list = r.leaves(list, n, append(slices.Clip(names), string(name)), valueOf(raw))
		return true
	})
	return list
}

// element appends that an element of the array n has one of the values.
func (r *resolver) element(list []Bound, n node, names []string, values ...Value) []Bound {
	array, each, ok := r.resolve(n)
	if !ok || each != nil {
		return list
	}
	b := Bound{Path: array, Each: true, Element: names, Values: [][]byte{}}
	for _, v := range values {
		if v.typ != Undefined {
			b.Values = append(b.Values, v.Raw())
		}
	}
	return append(list, b)
}

// either returns what every term says: of the same path, one of some values.
func (r *resolver) either(terms []node) []Bound {
	all := r.bounds(nil, terms[0])
	for _, t := range terms[1:] {
		if len(all) == 0 {
			return nil
		}
		next := r.bounds(nil, t)
		all = slices.DeleteFunc(all, func(b Bound) bool {
			return b.Values == nil || !slices.ContainsFunc(next, func(o Bound) bool { return o.Values != nil && sameBound(b, o) })
		})
		for i := range all {
			at := slices.IndexFunc(next, func(o Bound) bool { return o.Values != nil && sameBound(all[i], o) })
			all[i].Values = append(all[i].Values, next[at].Values...)
		}
	}
	return all
}

func sameBound(a, b Bound) bool {
	return a.Each == b.Each && slices.Equal(a.Path, b.Path) && slices.Equal(a.Element, b.Element)
}

// likePrefix returns what every string begins with that matches a pattern, and
// whether the pattern is nothing else.
func likePrefix(pattern Value) (prefix string, exact bool) {
	text := string(pattern.data)
	if i := strings.IndexAny(text, "%_["); i >= 0 {
		return text[:i], false
	}
	return text, true
}
