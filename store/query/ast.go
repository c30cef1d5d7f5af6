package query

import (
	"slices"
	"strconv"
)

// node is an expression. Two texts of the same expression have equal trees, because trees hold
// no positions.
type node interface {
	// children are the expressions in it, in the order in which they are written.
	children() []node
}

// literal is a constant, undefined included.
type literal struct{ value Value }

// notFinite is Infinity, -Infinity or NaN, which JSON has not. Numbers can be compared with it; as
// a value it is undefined. sign is 1, -1, or 0 of NaN.
type notFinite struct{ sign int }

// path is a root, or a property or element in it.
type path struct {
	root  int
	steps []step
}

// in returns the root at which the path begins; nil if that root is undefined.
func (n *path) in(item []byte, f *frame) []byte {
	if n.root == 0 {
		return item
	}
	if f != nil && n.root < len(f.roots) {
		return f.roots[n.root]
	}
	return nil
}

// child returns the path of a property or element of the value at n. Clip makes append copy,
// since several paths may grow from one.
func (n *path) child(s step) *path { return &path{n.root, append(slices.Clip(n.steps), s)} }

// names returns the steps as Paths does.
func (n *path) names() []string {
	names := make([]string, len(n.steps))
	for i, s := range n.steps {
		if names[i] = s.name; s.isIndex {
			names[i] = strconv.Itoa(s.index)
		}
	}
	return names
}

// step is the name of a property, or an index of an array.
type step struct {
	name    string
	index   int
	isIndex bool
}

// access is a property or element of something computed, or one whose name is
// computed.
type access struct{ of, key node }

// param is a parameter such as @name.
type param struct{ name string }

// unary is NOT x, -x, +x or ~x.
type unary struct {
	op string
	x  node
}

// operation is x op y for arithmetic, bits, comparisons, || and ??.
type operation struct {
	op    string
	x, y  node
	typed bool // of = and !=, by MeaningTyped: values of two types are not compared
}

// logical is two or more terms joined by AND, or by OR.
type logical struct {
	op    string
	terms []node
}

// in is x IN (list).
type in struct {
	x     node
	list  []node
	typed bool // by MeaningTyped
}

// between is x BETWEEN low AND high.
type between struct{ x, low, high node }

// like is x LIKE pattern ESCAPE escape; escape is nil if it is not written.
type like struct{ x, pattern, escape node }

// choice is condition ? yes : no.
type choice struct{ condition, yes, no node }

// call is a call of a function.
type call struct {
	name string // in capitals
	args []node
}

// udf is a call of a function that the container has: udf.name(args).
type udf struct {
	name string
	args []node
}

// array is [elements].
type array struct{ elements []node }

// object is {"name": value}.
type object struct {
	names  []string
	values []node
}

func (n *literal) children() []node   { return nil }
func (n *notFinite) children() []node { return nil }
func (n *path) children() []node      { return nil }
func (n *access) children() []node    { return []node{n.of, n.key} }
func (n *param) children() []node     { return nil }
func (n *unary) children() []node     { return []node{n.x} }
func (n *operation) children() []node { return []node{n.x, n.y} }
func (n *logical) children() []node   { return n.terms }
func (n *in) children() []node        { return append([]node{n.x}, n.list...) }
func (n *between) children() []node   { return []node{n.x, n.low, n.high} }
func (n *choice) children() []node    { return []node{n.condition, n.yes, n.no} }
func (n *call) children() []node      { return n.args }
func (n *udf) children() []node       { return n.args }
func (n *array) children() []node     { return n.elements }
func (n *object) children() []node    { return n.values }

func (n *like) children() []node {
	if n.escape == nil {
		return []node{n.x, n.pattern}
	}
	return []node{n.x, n.pattern, n.escape}
}

// The precedences of operators, from the weakest.
const (
	precChoice = iota + 1 // ?: and ??
	precOr
	precAnd
	precNot
	precCompare // and IN, BETWEEN, LIKE
	precConcat
	precBitOr
	precBitXor
	precBitAnd
	precShift
	precAdd
	precMultiply
	precUnary
	precPrimary
)

// binaryPrec are the precedences of the operators of operation.
var binaryPrec = map[string]int{
	"??": precChoice,
	"=":  precCompare, "!=": precCompare, "<>": precCompare, "<": precCompare, "<=": precCompare, ">": precCompare, ">=": precCompare,
	"||": precConcat,
	"|":  precBitOr, "^": precBitXor, "&": precBitAnd,
	"<<": precShift, ">>": precShift, ">>>": precShift,
	"+": precAdd, "-": precAdd,
	"*": precMultiply, "/": precMultiply, "%": precMultiply,
}

// keywords are the words that cannot be the first name of a path.
var keywords = map[string]bool{
	"AND": true, "OR": true, "NOT": true, "IN": true, "BETWEEN": true, "LIKE": true, "ESCAPE": true,
	"TRUE": true, "FALSE": true, "NULL": true, "UNDEFINED": true,
	"SELECT": true,
}

// clauseWords are the words that, within a SELECT, are no names either.
var clauseWords = map[string]bool{
	"FROM": true, "JOIN": true, "AS": true, "WHERE": true, "GROUP": true, "ORDER": true, "BY": true, "OFFSET": true, "LIMIT": true,
	"EXISTS": true,
}
