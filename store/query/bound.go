package query

import (
	"fmt"
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

// Pointer returns the path that an index must have to serve b: a JSON pointer, with * for all
// elements.
func (b *Bound) Pointer() string {
	var path document.Path
	for _, name := range b.Path {
		path = append(path, document.Step{Name: name})
	}
	if b.Each {
		path = append(path, document.Step{All: true})
		for _, name := range b.Element {
			path = append(path, document.Step{Name: name})
		}
	}
	return path.Pointer()
}

// boundValuesShown is how many values String names, boundTextMax how many bytes of one.
const (
	boundValuesShown = 5
	boundTextMax     = 60
)

// String returns what b says, for people: /price > 3 and <= 9.
func (b *Bound) String() string {
	show := func(raw []byte) string {
		if len(raw) <= boundTextMax {
			return string(raw)
		}
		return strings.ToValidUTF8(string(raw[:boundTextMax]), "") + "…"
	}
	var says []string
	switch {
	case b.Values != nil && len(b.Values) == 0:
		says = append(says, "is none of any value")
	case len(b.Values) == 1:
		says = append(says, "= "+show(b.Values[0]))
	case b.Values != nil:
		var shown []string
		for _, v := range b.Values[:min(len(b.Values), boundValuesShown)] {
			shown = append(shown, show(v))
		}
		if more := len(b.Values) - len(shown); more > 0 {
			shown = append(shown, fmt.Sprintf("and %d more", more))
		}
		says = append(says, "is one of "+strings.Join(shown, ", "))
	}
	compare := func(open bool, sign string, raw []byte) {
		if raw == nil {
			return
		}
		if !open {
			sign += "="
		}
		says = append(says, sign+" "+show(raw))
	}
	if b.Prefix == "" { // which is Low too
		compare(b.LowOpen, ">", b.Low)
	}
	compare(b.HighOpen, "<", b.High)
	if b.Prefix != "" {
		says = append(says, "begins with "+show(document.AppendQuote(nil, b.Prefix)))
	}
	if says == nil {
		says = append(says, "is there")
	}
	return b.Pointer() + " " + strings.Join(says, " and ")
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
		// Each term alone must hold, so each may be left out: what an index finds is
		// tested against the whole WHERE again.
		for i := 0; i < len(n.terms) && len(list) < boundsMax; i++ {
			list = r.bounds(list, n.terms[i])
		}
	case *path:
		// A path by itself is true of the boolean only: WHERE c.active.
		return r.equals(list, n, boolValue(true))
	case *unary:
		// NOT of a path leaves one value. NOT of a condition leaves what it does not
		// say of: NOT (c.x = 3) is true of 4 and of "a", which no bound can say.
		if _, ok := n.x.(*path); ok && n.op == "NOT" {
			return r.equals(list, n.x, boolValue(false))
		}
	case *operation:
		return r.compares(list, n)
	case *in:
		var values []Value
		for _, e := range n.list {
			// c.x IN (1, c.y) may equal anything: one value that is not known makes
			// all of them useless.
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
		// After ESCAPE "!", the pattern "50!%" means a percent sign, and likePrefix
		// would end before it: no bound rather than a wrong one.
		if prefix, exact := likePrefix(v); ok && n.escape == nil && v.typ == String {
			if exact {
				return r.equals(list, n.x, v)
			}
			return r.begins(list, n.x, prefix)
		}
	case *call:
		return r.calls(list, n)
	case *subquery:
		// If a row exists, some element passed the inner WHERE:
		//
		//	EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.name = "x")  ->  tags, Each, Element name, Values "x"
		//
		// An aggregate without GROUP BY gives a row of no elements too, so it says nothing.
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
	// Not nil: c.x = undefined is true of no item, and empty Values say that. nil would
	// say that nothing is known, and all items would be read.
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
	// No string that begins with the prefix is less than it, so a reader of ranges that
	// knows no prefixes can begin there.
	b.Prefix, b.Low = prefix, stringValue([]byte(prefix)).Raw()
	return append(list, b)
}

// mirrored are the operators with their sides exchanged.
var mirrored = map[string]string{"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}

func (r *resolver) compares(list []Bound, n *operation) []Bound {
	op, x, y := n.op, n.x, n.y
	// 5 < c.x is c.x > 5. An operator that has no mirror, such as +, becomes "" and is
	// passed over below.
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
	// An undefined value is not unequal to anything either: the bound without a value
	// says that the path is there.
	case "!=":
	default:
		return list
	}
	return append(list, b)
}

// calls appends what must hold for a call to be true.
func (r *resolver) calls(list []Bound, n *call) []Bound {
	switch n.name {
	case "IS_DEFINED", "IS_NULL", "IS_BOOL", "IS_BOOLEAN", "IS_NUMBER", "IS_STRING", "IS_ARRAY", "IS_OBJECT", "IS_PRIMITIVE",
		"IS_FINITE_NUMBER", "IS_INTEGER", "CONTAINS", "ENDSWITH", "REGEXMATCH", "ST_INTERSECTS", "ST_ISVALID", "ST_WITHIN":
		// None of them is true of what is undefined. That is all that an index can
		// help with: CONTAINS may find its text anywhere.
		if b, ok := r.bound(n.args[0]); ok {
			return append(list, b)
		}
	case "STARTSWITH", "STRINGEQUALS":
		v, ok := constant(n.args[1])
		if !ok || v.typ != String {
			return list
		}
		if len(n.args) > 2 {
			// The third argument asks to ignore case. "abc" then begins "ABC" too, which
			// lies elsewhere in an index.
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
		// ANY is one bound with all values; ALL is a bound for each, of which one will do.
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
	// ARRAY_CONTAINS([1, 2], c.x) is c.x IN (1, 2). With a third argument objects need
	// only match in part, which is more than equality.
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
	// An index knows no objects, but what is in them:
	//
	//	{"a": 1, "b": {"c": 2}}  ->  element a is 1, and element b.c is 2
	//
	// Clip, because members at one level must not append into each other's names.
	document.Members(v.data, func(name, raw []byte) bool {
		list = r.leaves(list, n, append(slices.Clip(names), string(name)), valueOf(raw))
		return true
	})
	return list
}

// element appends that an element of the array n has one of the values.
func (r *resolver) element(list []Bound, n node, names []string, values ...Value) []Bound {
	array, each, ok := r.resolve(n)
	// An index has the elements of one array, not those of arrays in its elements.
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
	// Only what every term says of the same path can be said of all of them:
	//
	//	x = 1 AND y = 2  OR  x = 3   ->  x is 1 or 3; nothing of y
	//	x = 1            OR  x > 7   ->  nothing
	//
	// Ranges are not joined: what holds of two mostly reaches from one end to the other.
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
