package query

import (
	"cmp"
	"slices"
)

// comparisons are the comparison operators, each as a test of the order of its operands: n is
// negative if the left one is less.
var comparisons = map[string]func(n int) bool{
	"=":  func(n int) bool { return n == 0 },
	"!=": func(n int) bool { return n != 0 },
	"<":  func(n int) bool { return n < 0 },
	"<=": func(n int) bool { return n <= 0 },
	">":  func(n int) bool { return n > 0 },
	">=": func(n int) bool { return n >= 0 },
}

// compileTest returns the function that computes the truth of n.
func compileTest(n node) test {
	switch n := n.(type) {
	case *logical:
		return compileLogical(n)
	case *unary:
		if n.op == "NOT" {
			x := compileTest(n.x)
			return func(item []byte, f *frame) tri { return x(item, f).not() }
		}
	case *operation:
		if _, ok := comparisons[n.op]; ok {
			return compileComparison(n)
		}
	case *in:
		return compileIn(n)
	case *between:
		if isNotFinite(n.low) || isNotFinite(n.high) {
			low, high := compileComparison(&operation{op: ">=", x: n.x, y: n.low}), compileComparison(&operation{op: "<=", x: n.x, y: n.high})
			return func(item []byte, f *frame) tri { return and(low(item, f), high(item, f)) }
		}
		x, low, high := compile(n.x), compile(n.low), compile(n.high)
		return func(item []byte, f *frame) tri {
			v := x(item, f)
			return and(f.compareBy(">=", v, low(item, f)), f.compareBy("<=", v, high(item, f)))
		}
	case *like:
		return compileLike(n)
	}
	x := compile(n)
	return func(item []byte, f *frame) tri { return x(item, f).truth() }
}

func and(a, b tri) tri {
	switch {
	case a == isFalse || b == isFalse:
		return isFalse
	case a == isTrue && b == isTrue:
		return isTrue
	}
	return isUndefined
}

// compileLogical evaluates terms until one decides: false for AND, true for OR. An undefined
// term decides nothing, so the others are still evaluated:
//
//	undefined AND false   false
//	undefined AND true    undefined
func compileLogical(n *logical) test {
	terms := make([]test, len(n.terms))
	for i, t := range n.terms {
		terms[i] = compileTest(t)
	}
	decides := isFalse
	if n.op == "OR" {
		decides = isTrue
	}
	return func(item []byte, f *frame) tri {
		all := decides.not()
		for _, t := range terms {
			if !f.charge(workNode) {
				return isUndefined
			}
			is := t(item, f)
			if is == decides {
				return decides
			}
			if is == isUndefined {
				all = isUndefined
			}
		}
		return all
	}
}

func compileComparison(n *operation) test {
	// "a" = c.x is c.x = "a". A path compared with a constant string is the commonest
	// condition, and needs no Value at all.
	op := n.op
	x, y := n.x, n.y
	if isNotFinite(x) || isNotFinite(y) {
		return compileNotFinite(n)
	}
	if _, ok := constant(x); ok && op == "=" {
		x, y = y, x
	}
	if v, ok := constant(y); ok && (op == "=" || op == "!=") {
		if p, ok := x.(*path); ok && v.typ == String {
			return compileEqualText(p, v, op == "=", n.typed)
		}
	}
	a, b, typed := compile(x), compile(y), n.typed
	switch op {
	case "=":
		return func(item []byte, f *frame) tri { return f.equals(a(item, f), b(item, f), typed) }
	case "!=":
		return func(item []byte, f *frame) tri { return f.equals(a(item, f), b(item, f), typed).not() }
	}
	return func(item []byte, f *frame) tri { return f.compareBy(op, a(item, f), b(item, f)) }
}

func isNotFinite(n node) bool {
	_, is := n.(*notFinite)
	return is
}

// compileNotFinite compiles a comparison with Infinity, -Infinity or NaN.
func compileNotFinite(n *operation) test {
	is, op := comparisons[n.op], n.op
	// side returns what an operand is compared by, and of Infinity how far it lies beyond all numbers.
	side := func(n node) (of eval, sign int, isNaN bool) {
		if b, ok := n.(*notFinite); ok {
			return func([]byte, *frame) Value { return intValue(0) }, b.sign, b.sign == 0
		}
		return compile(n), 0, false
	}
	x, beyondX, isNaN := side(n.x)
	y, beyondY, alsoNaN := side(n.y)
	isNaN = isNaN || alsoNaN
	return func(item []byte, f *frame) tri {
		v, w := x(item, f), y(item, f)
		switch {
		case v.typ == Undefined || w.typ == Undefined, v.typ != w.typ && op != "=" && op != "!=":
			return isUndefined
		case v.typ != w.typ, isNaN: // unequal, and without an order
			return triOf(op == "!=")
		}
		return triOf(is(cmp.Compare(beyondX, beyondY)))
	}
}

// compileEqualText compares a path with a constant string. A single root has a
// function of its own, as most conditions are of this form.
func compileEqualText(p *path, v Value, want, typed bool) test {
	steps, text, quoted := p.steps, v.data, v.AppendJSON(nil)
	if p.root == 0 {
		return func(item []byte, f *frame) tri { return equalText(f.lookup(item, steps), quoted, text, want, typed) }
	}
	return func(item []byte, f *frame) tri {
		return equalText(f.lookup(p.in(item, f), steps), quoted, text, want, typed)
	}
}

// compareBy compares by <, <=, > or >=. It is undefined for values that have no order.
func (f *frame) compareBy(op string, a, b Value) tri {
	f.chargeScan(len(a.data) + len(b.data))
	n, ok := order(a, b)
	if !ok {
		return isUndefined
	}
	return triOf(comparisons[op](n))
}

// compileIn compiles x IN (list). It is true if an element equals x. If none does, it is
// undefined if x or an element is undefined, else false.
func compileIn(n *in) test {
	if t := compileInSet(n); t != nil {
		return t
	}
	x, list := compile(n.x), compileAll(n.list)
	return func(item []byte, f *frame) tri {
		v, found := x(item, f), isFalse
		for _, e := range list {
			switch f.equals(v, e(item, f), n.typed) {
			case isTrue:
				return isTrue
			case isUndefined:
				found = isUndefined
			case isFalse:
			}
		}
		return found
	}
}

// compileInSet looks a value up in a long list of constants; it returns nil for every
// other list.
func compileInSet(n *in) test {
	const long = 8
	// The canonical forms of arrays and objects are made here without a budget, and take a scan of
	// the rest at each level. What is written in a text is short; the value of a parameter is not.
	if len(n.list) < long || slices.ContainsFunc(n.list, bindsComposite) {
		return nil
	}
	// Strings are looked up as they are, without a copy; other values by their sort keys,
	// which equal values share.
	texts, others := make(map[string]bool), make(map[string]bool)
	only, mixed, gaps, typed := Undefined, false, false, n.typed
	for i, e := range n.list {
		v, ok := constant(e)
		if !ok {
			return nil
		}
		mixed = mixed || v.typ == Undefined || i > 0 && v.typ != only
		only, gaps = v.typ, gaps || v.typ == Undefined
		if v.typ == String {
			texts[string(v.data)] = true
		} else if v.typ != Undefined {
			others[string(appendSortKey(nil, v, false))] = true
		}
	}
	x := compile(n.x)
	return func(item []byte, f *frame) tri {
		v := x(item, f)
		switch {
		case v.typ == Undefined:
			return isUndefined
		case v.typ == String && texts[string(v.data)]:
			return isTrue
		case v.typ != String && others[string(f.appendSortKey(nil, v, false))]:
			return isTrue
		// Not found. By MeaningTyped it is undefined if any element has another type than v.
		case gaps, typed && (mixed || v.typ != only):
			return isUndefined
		}
		return isFalse
	}
}

// bindsComposite reports whether an array or object that a parameter stood for is in n. Those that
// a text writes are no literals: the work on them in stored expressions is part of their meaning.
func bindsComposite(n node) bool {
	found := false
	visit(n, func(n node) {
		l, ok := n.(*literal)
		found = found || ok && l.value.typ >= Array
	})
	return found
}
