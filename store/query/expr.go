package query

import (
	"fmt"
	"slices"
)

// scopeDefault are the names of the item.
var scopeDefault = scope{{"c", "item", "root"}}

// Expr is a compiled scalar expression. It is safe for concurrent use.
type Expr struct {
	root  node
	scope scope
	eval  eval
	test  test
}

// ParseExpr reads a text of at most TextMax bytes as one scalar expression. The
// item may be called c, item or root. The error is a *SyntaxError.
func ParseExpr(text string) (*Expr, error) { return parseIn(text, scopeDefault) }

// ParseExprAs is ParseExpr where the item may be called by the given names instead.
func ParseExprAs(text string, aliases ...string) (*Expr, error) {
	return parseIn(text, scope{aliases})
}

func parseIn(text string, s scope) (*Expr, error) {
	root, err := parse(text, s)
	if err != nil {
		return nil, err
	}
	return newExpr(root, s), nil
}

func newExpr(root node, s scope) *Expr {
	return &Expr{root: root, scope: s, eval: compile(root), test: compileTest(root)}
}

// Eval returns what the expression comes to for an item, which must be valid JSON.
// The value may share memory with item.
func (e *Expr) Eval(item []byte) Value { return e.eval(item, nil) }

// True tells whether the expression is true for an item: false and undefined are
// not. It allocates only for arithmetic, functions that make text, and text with
// escapes.
func (e *Expr) True(item []byte) bool { return e.test(item, nil) == isTrue }

// Bind returns the expression with parameters replaced by raw JSON values, found
// by their names without @. The error names a parameter that has none, or whose
// value is no JSON.
func (e *Expr) Bind(params map[string][]byte) (*Expr, error) {
	var err error
	root := transform(e.root, func(n node) node {
		if a, ok := n.(*access); ok {
			s, constant := stepOf(a.key)
			if of, ok := a.of.(*path); ok && constant {
				return of.child(s)
			}
		}
		p, ok := n.(*param)
		if !ok {
			return n
		}
		raw, ok := params[p.name]
		switch {
		case !ok:
			err = fmt.Errorf("parameter @%s has no value", p.name)
		case parsed(raw).typ == Undefined:
			err = fmt.Errorf("the value of parameter @%s is no JSON", p.name)
		default:
			return &literal{parsed(raw)}
		}
		return n
	})
	if err != nil {
		return nil, err
	}
	return newExpr(root, e.scope), nil
}

// Paths returns the paths of the item that the expression reads, each once, in the
// order in which they are written; an index is written in digits. The empty path
// is the whole item. A path covers what is below it: where an index is computed,
// the path ends before it.
func (e *Expr) Paths() [][]string { return e.PathsIn(0) }

// PathsIn is Paths of one root.
func (e *Expr) PathsIn(root int) [][]string {
	var paths [][]string
	visit(e.root, func(n node) {
		p, ok := n.(*path)
		if !ok || p.root != root {
			return
		}
		names := p.names()
		if !slices.ContainsFunc(paths, func(q []string) bool { return slices.Equal(names, q) }) {
			paths = append(paths, names)
		}
	})
	return paths
}

// Path returns the root and the path if the expression is nothing but one, written
// as Paths does; ok is false for everything else.
func (e *Expr) Path() (root int, names []string, ok bool) {
	p, ok := e.root.(*path)
	if !ok {
		return 0, nil, false
	}
	return p.root, p.names(), true
}

// Equality is a path of properties and the scalar that it must equal.
type Equality struct {
	Path  []string
	Value []byte // raw JSON
}

// Equalities returns the conditions of the form property = constant without all of
// which the expression cannot be true: the expression itself, or the terms of its
// outermost AND. Constants are scalars; paths have no indexes.
func (e *Expr) Equalities() []Equality { return e.EqualitiesIn(0) }

// EqualitiesIn is Equalities of the properties of one root.
func (e *Expr) EqualitiesIn(root int) []Equality { return equalities(nil, e.root, root) }

func equalities(list []Equality, n node, root int) []Equality {
	switch n := n.(type) {
	case *logical:
		if n.op == "AND" {
			for _, t := range n.terms {
				list = equalities(list, t, root)
			}
		}
	case *operation:
		x, y := n.x, n.y
		if _, ok := x.(*literal); ok {
			x, y = y, x
		}
		p, isPath := x.(*path)
		l, isLiteral := y.(*literal)
		if n.op != "=" || !isPath || p.root != root || !isLiteral || l.value.typ == Undefined || len(p.steps) == 0 {
			return list
		}
		var names []string
		for _, s := range p.steps {
			if s.isIndex {
				return list
			}
			names = append(names, s.name)
		}
		list = append(list, Equality{names, l.value.AppendJSON(nil)})
	}
	return list
}

// Params returns the names of the parameters without @, each once, in the order in
// which they are written.
func (e *Expr) Params() []string {
	var names []string
	visit(e.root, func(n node) {
		if p, ok := n.(*param); ok && !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	})
	return names
}

// String returns the expression in one fixed form, which parsing with the same
// names of the roots reads as an equal expression.
func (e *Expr) String() string {
	p := printer{scope: e.scope}
	p.node(e.root, 0)
	return string(p.out)
}

// visit calls f for n and all that is in it.
func visit(n node, f func(node)) {
	f(n)
	for _, child := range n.children() {
		visit(child, f)
	}
}

// transform returns a copy of n in which every node is replaced by what f makes of
// it, those within it first.
func transform(n node, f func(node) node) node {
	all := func(list []node) []node {
		out := make([]node, len(list))
		for i := range list {
			out[i] = transform(list[i], f)
		}
		return out
	}
	switch n := n.(type) {
	case *access:
		return f(&access{transform(n.of, f), transform(n.key, f)})
	case *unary:
		return f(&unary{n.op, transform(n.x, f)})
	case *operation:
		return f(&operation{n.op, transform(n.x, f), transform(n.y, f)})
	case *logical:
		return f(&logical{n.op, all(n.terms)})
	case *in:
		return f(&in{transform(n.x, f), all(n.list)})
	case *between:
		return f(&between{transform(n.x, f), transform(n.low, f), transform(n.high, f)})
	case *like:
		out := &like{x: transform(n.x, f), pattern: transform(n.pattern, f)}
		if n.escape != nil {
			out.escape = transform(n.escape, f)
		}
		return f(out)
	case *choice:
		return f(&choice{transform(n.condition, f), transform(n.yes, f), transform(n.no, f)})
	case *call:
		return f(&call{n.name, all(n.args)})
	case *array:
		return f(&array{all(n.elements)})
	case *object:
		return f(&object{n.names, all(n.values)})
	}
	return f(n)
}
