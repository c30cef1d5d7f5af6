package query

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed/document"
)

// scopeDefault are the names of the item.
var scopeDefault = scope{{"c", "item", "root"}}

// Expr is a compiled scalar expression. It is safe for concurrent use.
type Expr struct {
	root  node
	scope scope
	slots int  // roots and aliases of subqueries; 0 if there are no subqueries
	light bool // so little work that it needs no budget, and no frame
	old   bool // of MeaningTyped, which knows no budget
	eval  eval
	test  test
}

// ParseExpr reads a text of at most TextMax bytes as one scalar expression. The
// item may be called c, item or root. The error is a *SyntaxError.
func ParseExpr(text string) (*Expr, error) { return parseIn(text, scopeDefault, MeaningNow, false) }

// ParseExprAs is ParseExpr where the item may be called by the given names instead.
func ParseExprAs(text string, aliases ...string) (*Expr, error) {
	return parseIn(text, scope{aliases}, MeaningNow, true)
}

func parseIn(text string, s scope, m Meaning, strict bool) (*Expr, error) {
	root, err := parse(text, s, m, strict)
	if err != nil {
		return nil, err
	}
	return newExpr(root, s, m == MeaningTyped), nil
}

func newExpr(root node, s scope, old bool) *Expr {
	slots := slotsOf(root)
	return &Expr{root: root, scope: s, slots: slots, light: slots == 0 && (old || light(root)), old: old, eval: compile(root), test: compileTest(root)}
}

// slotsOf returns how many roots a frame for n needs, 0 if n has no subqueries.
func slotsOf(n node) int {
	slots := 0
	visit(n, func(n node) {
		if q, ok := n.(*subquery); ok {
			slots = max(slots, q.of.slots)
		}
	})
	return slots
}

// Eval returns the value of the expression for an item, which must be valid JSON. The value
// may share memory with item. An expression that takes more than WorkMax, or makes more than
// MadeMax, is undefined.
func (e *Expr) Eval(item []byte) Value {
	if e.light {
		return e.eval(item, nil)
	}
	return e.EvalIn(item)
}

// True reports whether the expression is true for an item: false and undefined are
// not. It allocates only for arithmetic, functions that make text, and text with
// escapes.
func (e *Expr) True(item []byte) bool {
	if e.light {
		return e.test(item, nil) == isTrue
	}
	return e.TrueIn(item)
}

// Holds is True with a time limit. The error is ErrTooMuch if the evaluation is not done by
// end, or if its subqueries try more rows than they may.
func (e *Expr) Holds(item []byte, end time.Time) (bool, error) {
	f := newFrame(max(e.slots, 1), [][]byte{item})
	f.end, f.madeMax = end, MadeMax
	holds, spent := e.test(item, f) == isTrue, f.spent
	// Behind the look at spent: the frame is another evaluation's then.
	f.free()
	if spent {
		return false, ErrTooMuch
	}
	return holds, nil
}

// Bind returns the expression with parameters replaced by raw JSON values, found
// by their names without @. The error names a parameter that has none, or whose
// value is no JSON or nested more than document.DepthMax deep, or with which the values
// have more than ParamsBytesMax.
func (e *Expr) Bind(params map[string][]byte) (*Expr, error) {
	b := binder{params: params}
	root := transform(e.root, b.bind)
	err := b.err
	if err == nil {
		err = checkRegexps(root)
	}
	if err != nil {
		return nil, err
	}
	return newExpr(root, e.scope, e.old), nil
}

// ParamsBytesMax bounds the bytes of the values that take the places of parameters. A value counts as
// often as its parameter is written, because paths and comparisons hold copies of it.
const ParamsBytesMax = 8 << 20

// binder replaces parameters by their values.
type binder struct {
	params map[string][]byte
	values map[string]*literal // each is read once
	size   int                 // bytes of the values that have taken places
	err    error               // the first
}

// bind returns what takes the place of n.
func (b *binder) bind(n node) node {
	switch n := n.(type) {
	case *access:
		// c[@name] becomes a path once @name has a value, so that indexes can serve it.
		// Children come first, so n.key has been replaced already.
		s, constant := stepOf(n.key)
		if of, ok := n.of.(*path); ok && constant {
			return of.child(s)
		}
	case *param:
		if b.err == nil {
			return b.value(n)
		}
	}
	return n
}

// value returns the value of a parameter; on an error, the parameter.
func (b *binder) value(p *param) node {
	raw, ok := b.params[p.name]
	if !ok {
		b.err = fmt.Errorf("parameter @%s has no value", p.name)
		return p
	}
	if b.size += len(raw); b.size > ParamsBytesMax {
		b.err = fmt.Errorf("the values of the parameters have more than %d bytes, each counted as often as it is written; @%s has %d", ParamsBytesMax, p.name, len(raw))
		return p
	}
	if l := b.values[p.name]; l != nil {
		return l
	}
	l := &literal{parsed(raw)}
	if l.value.typ == Undefined {
		b.err = fmt.Errorf("the value of parameter @%s is no JSON", p.name)
		return p
	}
	// No deeper than what it is compared with: much of the work on a value grows with its size at each level.
	if deep := document.Depth(raw); deep > document.DepthMax {
		b.err = fmt.Errorf("the value of parameter @%s is nested %d deep, more than %d", p.name, deep, document.DepthMax)
		return p
	}
	if b.values == nil {
		b.values = map[string]*literal{}
	}
	b.values[p.name] = l
	return l
}

// Paths returns the paths of the item that the expression reads, each once, in the order in
// which they are written. An index is written in digits. The empty path is the whole item. A
// path stands for all values below it: before a computed index it ends.
func (e *Expr) Paths() [][]string { return e.PathsIn(0) }

// PathsIn is Paths of one root.
func (e *Expr) PathsIn(root int) [][]string {
	var paths pathSet
	visit(e.root, func(n node) {
		if p, ok := n.(*path); ok && p.root == root {
			paths.add(p)
		}
	})
	return paths.list
}

// pathSet are paths, each once, in the order in which they came.
type pathSet struct {
	list  [][]string
	known map[string]bool
}

func (s *pathSet) add(p *path) {
	names := p.names()
	key := identityOf(names)
	if s.known[key] {
		return
	}
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.known[key] = true
	s.list = append(s.list, names)
}

// identityOf returns a key that only equal lists of texts share. Each text follows its length,
// so "ab","c" and "a","bc" differ.
func identityOf[T ~string | ~[]byte](texts []T) string {
	var key []byte
	for _, text := range texts {
		key = append(binary.AppendUvarint(key, uint64(len(text))), text...)
	}
	return string(key)
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

// Constant returns the scalar that the expression is, as JSON; nil if it is anything
// else. A constant that is computed, such as 1 + 2, is anything else.
func (e *Expr) Constant() []byte {
	l, ok := e.root.(*literal)
	if !ok || l.value.typ == Undefined {
		return nil
	}
	return l.value.AppendJSON(nil)
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
		// 1 = a says the same as a = 1.
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
func (e *Expr) Params() []string { return paramsOf(e.root) }

func paramsOf(n node) []string {
	var names []string
	known := map[string]bool{}
	visit(n, func(n node) {
		if p, ok := n.(*param); ok && !known[p.name] {
			known[p.name] = true
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

// transform returns a copy of n in which every node is replaced by f's result for it, children
// before parents. n itself does not change: other goroutines may use it.
func transform(n node, f func(node) node) node {
	return f(rebuild(n, func(child node) node { return transform(child, f) }))
}

// rebuild returns a copy of n whose children are replaced by one's results for them.
func rebuild(n node, one func(node) node) node {
	all := func(list []node) []node {
		out := make([]node, len(list))
		for i := range list {
			out[i] = one(list[i])
		}
		return out
	}
	switch n := n.(type) {
	case *access:
		return &access{one(n.of), one(n.key)}
	case *unary:
		return &unary{n.op, one(n.x)}
	case *operation:
		return &operation{n.op, one(n.x), one(n.y), n.typed}
	case *logical:
		return &logical{n.op, all(n.terms)}
	case *in:
		return &in{one(n.x), all(n.list), n.typed}
	case *between:
		return &between{one(n.x), one(n.low), one(n.high)}
	case *like:
		out := &like{x: one(n.x), pattern: one(n.pattern)}
		if n.escape != nil {
			out.escape = one(n.escape)
		}
		return out
	case *choice:
		return &choice{one(n.condition), one(n.yes), one(n.no)}
	case *call:
		return &call{n.name, all(n.args)}
	case *udf:
		return &udf{n.name, all(n.args)}
	case *array:
		return &array{all(n.elements)}
	case *object:
		return &object{n.names, all(n.values)}
	case *subquery:
		return &subquery{n.kind, n.of.rebuild(one)}
	}
	return n
}
