package query

import (
	"bytes"
	"math"

	"github.com/millrace/millrace/feed/document/decimal"
	"github.com/millrace/millrace/feed/document/scan"
)

// eval computes a value, test a truth value. item is root 0. The frame has all roots and the
// budget; it is nil for a light expression of root 0 alone, which needs neither. All
// methods of frame accept nil.
type (
	eval func(item []byte, f *frame) Value
	test func(item []byte, f *frame) tri
)

// constant returns the value of n if n is a literal, or an array or object of literals. Other
// expressions without a root, such as REPLICATE("a", 1000000), are not computed ahead,
// since their values may be large.
func constant(n node) (v Value, ok bool) {
	if l, ok := n.(*literal); ok {
		return l.value, true
	}
	switch n.(type) {
	case *array, *object:
		is := true
		visit(n, func(n node) {
			switch n.(type) {
			case *literal, *array, *object:
			default:
				is = false
			}
		})
		if is {
			// No item is read, and what is made is no larger than its text: no frame is needed.
			return compileValue(n)(nil, nil), true
		}
	}
	return Value{}, false
}

// compile returns the function that computes n.
func compile(n node) eval {
	if v, ok := constant(n); ok {
		return func([]byte, *frame) Value { return v }
	}
	switch n := n.(type) {
	case *logical, *in, *between, *like:
		t := compileTest(n)
		return func(item []byte, f *frame) Value { return t(item, f).value() }
	case *unary:
		if n.op == "NOT" {
			t := compileTest(n)
			return func(item []byte, f *frame) Value { return t(item, f).value() }
		}
	case *operation:
		if _, ok := comparisons[n.op]; ok {
			t := compileTest(n)
			return func(item []byte, f *frame) Value { return t(item, f).value() }
		}
	}
	return compileValue(n)
}

// compileValue is compile for expressions that are not computed as truth values.
func compileValue(n node) eval {
	switch n := n.(type) {
	case *path:
		return compilePath(n)
	case *access:
		return compileAccess(n)
	case *unary:
		x := compile(n.x)
		switch n.op {
		case "-": // 0 - x, exact as every subtraction
			return func(item []byte, f *frame) Value {
				return f.arith('-', Value{typ: Number, data: []byte{'0'}}, x(item, f))
			}
		case "~":
			return func(item []byte, f *frame) Value { return bitwise("^", x(item, f), intValue(-1)) }
		}
		return func(item []byte, f *frame) Value { return ofType(Number, x(item, f)) }
	case *operation:
		return compileBinary(n)
	case *choice:
		condition, yes, no := compileTest(n.condition), compile(n.yes), compile(n.no)
		return func(item []byte, f *frame) Value {
			if condition(item, f) == isTrue {
				return yes(item, f)
			}
			return no(item, f)
		}
	case *call:
		return compileCall(n)
	case *udf:
		return compileUDF(n)
	case *array:
		elements := compileAll(n.elements)
		return func(item []byte, f *frame) Value { return makeArray(item, f, elements) }
	case *random:
		return compileRandom(n)
	case *subquery:
		return compileSubquery(n)
	case *object:
		names, values := n.names, compileAll(n.values)
		return func(item []byte, f *frame) Value { return makeObject(item, f, names, values) }
	}
	// A parameter without a value.
	return func([]byte, *frame) Value { return Value{} }
}

// compilePath has a function for root 0 alone, which most paths read.
func compilePath(n *path) eval {
	steps := n.steps
	if n.root == 0 {
		return func(item []byte, f *frame) Value { return f.value(f.lookup(item, steps)) }
	}
	return func(item []byte, f *frame) Value { return f.value(f.lookup(n.in(item, f), steps)) }
}

func compileAll(nodes []node) []eval {
	list := make([]eval, len(nodes))
	for i, n := range nodes {
		list[i] = compile(n)
	}
	return list
}

// ofType returns v if it is of type t, else Undefined.
func ofType(t Type, v Value) Value {
	if v.typ != t {
		return Value{}
	}
	return v
}

func compileAccess(n *access) eval {
	of, key := compile(n.of), compile(n.key)
	return func(item []byte, f *frame) Value {
		v, k := of(item, f), key(item, f)
		// Types are ordered: only an array or an object, which come last, have something inside.
		if v.typ < Array {
			return Value{}
		}
		switch k.typ {
		case String:
			return f.value(f.lookup(v.data, []step{{name: string(k.data)}}))
		case Number:
			if i, ok := k.int(); ok && i >= 0 {
				return f.value(f.lookup(v.data, []step{{index: i, isIndex: true}}))
			}
		default:
		}
		return Value{}
	}
}

func compileBinary(n *operation) eval {
	x, y, op := compile(n.x), compile(n.y), n.op
	switch op {
	case "??":
		return func(item []byte, f *frame) Value {
			if v := x(item, f); v.typ != Undefined {
				return v
			}
			return y(item, f)
		}
	case "||":
		return func(item []byte, f *frame) Value { return f.concat(x(item, f), y(item, f)) }
	case "+", "-", "*":
		return func(item []byte, f *frame) Value { return f.arith(op[0], x(item, f), y(item, f)) }
	case "/", "%":
		return func(item []byte, f *frame) Value { return f.divide(op[0], x(item, f), y(item, f)) }
	}
	return func(item []byte, f *frame) Value { return bitwise(op, x(item, f), y(item, f)) }
}

// value is valueOf that counts the memory of a string which had to be decoded. Such a string
// is shorter than the text between the quotes.
func (f *frame) value(raw []byte) Value {
	v := valueOf(raw)
	if f != nil && v.typ == String && len(v.data)+2 != len(raw) {
		f.chargeMade(len(raw))
	}
	return v
}

// makeArray returns the array of the elements' values, without the undefined ones. An array
// of more than TextMadeMax bytes is undefined.
func makeArray(item []byte, f *frame, elements []eval) Value {
	out := []byte{'['}
	for _, e := range elements {
		v := e(item, f)
		if v.typ == Undefined {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		// In the loop and not behind it: thousands of elements may each be as large as the item.
		if out = v.AppendJSON(out); len(out) > TextMadeMax || !f.chargeMade(workNode+len(v.data)) {
			return Value{}
		}
	}
	return Value{typ: Array, data: append(out, ']')}
}

// makeObject returns the object of the values, without the undefined ones. An object of more
// than TextMadeMax bytes is undefined.
func makeObject(item []byte, f *frame, names []string, values []eval) Value {
	out := []byte{'{'}
	for i, e := range values {
		v := e(item, f)
		if v.typ == Undefined {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(appendQuoted(out, []byte(names[i])), ':')
		if out = v.AppendJSON(out); len(out) > TextMadeMax || !f.chargeMade(workNode+len(v.data)) {
			return Value{}
		}
	}
	return Value{typ: Object, data: append(out, '}')}
}

func (f *frame) concat(x, y Value) Value {
	if !f.chargeMade(len(x.data)+len(y.data)) || x.typ != String || y.typ != String || len(x.data)+len(y.data) > TextMadeMax {
		return Value{}
	}
	return stringValue(append(append(make([]byte, 0, len(x.data)+len(y.data)), x.data...), y.data...))
}

// arith is frame.arith without a budget.
func arith(op byte, x, y Value) Value { return (*frame)(nil).arith(op, x, y) }

// chargeNumbers counts the work of an operation on two numbers. It returns false if they are
// none, or the budget is spent.
func (f *frame) chargeNumbers(x, y Value) bool {
	if x.typ != Number || y.typ != Number {
		return false
	}
	// Numbers that fit into 64 bits take nanoseconds, all others math/big.
	work := workNode + len(x.data) + len(y.data)
	if len(x.data) > decimal.SmallDigits || len(y.data) > decimal.SmallDigits || bytes.ContainsAny(x.data, "eE") || bytes.ContainsAny(y.data, "eE") {
		work += workBig
	}
	return f.charge(work)
}

// arith computes x op y for + - *.
func (f *frame) arith(op byte, x, y Value) Value {
	if !f.chargeNumbers(x, y) {
		return Value{}
	}
	// Exact first: 0.1 + 0.2 is 0.3, which no sum of doubles is.
	if data, ok := arithmetic(op, x.data, y.data); ok {
		return Value{typ: Number, data: data}
	}
	// The exact result would need more than DigitsMax digits: compute with doubles.
	a, b := x.Float(), y.Float()
	switch op {
	case '+':
		return floatValue(a + b)
	case '-':
		return floatValue(a - b)
	}
	return floatValue(a * b)
}

// divide is frame.divide without a budget.
func divide(op byte, x, y Value) Value { return (*frame)(nil).divide(op, x, y) }

// divide computes x / y and x % y: exactly for integers, if they divide, else with
// doubles. By zero it is undefined.
func (f *frame) divide(op byte, x, y Value) Value {
	if !f.chargeNumbers(x, y) {
		return Value{}
	}
	// Three ways, from the cheapest: integers of 64 bits, integers of up to DigitsMax digits,
	// doubles. The first two only if the result is an integer:
	//
	//	6 / 3   2        7 / 2   3.5, a double        10^30 / 10^10   10^20, exact
	a, okA := decimal.Integer(x.data)
	b, okB := decimal.Integer(y.data)
	if okA && okB && b != 0 && (op == '%' || a%b == 0) {
		if op == '%' {
			return intValue(int(a % b))
		}
		return intValue(int(a / b))
	}
	p, q := x.Float(), y.Float()
	if q == 0 {
		return Value{}
	}
	if !okA || !okB {
		if data, ok := divideLarge(op, x.data, y.data); ok {
			return Value{typ: Number, data: data}
		}
	}
	if op == '%' {
		return floatValue(math.Mod(p, q))
	}
	return floatValue(p / q)
}

// bitwise computes x op y on 32 bits, as JavaScript does.
func bitwise(op string, x, y Value) Value {
	if x.typ != Number || y.typ != Number {
		return Value{}
	}
	a, b := int32Of(x.Float()), int32Of(y.Float())
	switch op {
	case "&":
		a &= b
	case "|":
		a |= b
	case "^":
		a ^= b
	case "<<":
		a <<= uint32(b) & 31
	case ">>":
		a >>= uint32(b) & 31
	case ">>>":
		return intValue(int(uint32(a) >> (uint32(b) & 31)))
	}
	return intValue(int(a))
}

// int32Of returns the low 32 bits of the integer part of f.
func int32Of(f float64) int32 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	m := math.Mod(math.Trunc(f), 1<<32)
	if m < 0 {
		m += 1 << 32
	}
	return int32(uint32(m))
}

// equalText compares a raw value with a constant string, for = if want is true and for !=
// otherwise. text is the string, quoted the same as JSON. A raw value without escapes is
// not decoded.
func equalText(raw, quoted, text []byte, want, typed bool) tri {
	switch {
	case len(raw) == 0, raw[0] != '"' && typed:
		return isUndefined
	case raw[0] != '"':
		return triOf(!want)
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return triOf(bytes.Equal(raw[1:len(raw)-1], text) == want)
	}
	return triOf((bytes.Equal(raw, quoted) || bytes.Equal(scan.Unquote(raw), text)) == want)
}
