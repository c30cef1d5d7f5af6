package accumulator

import (
	"slices"
	"strconv"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// The roots of expressions. Where members are items there is only the first, which
// is the item then.
const (
	rootElement = iota
	rootParent
	rootItem
	rootIndex
	rootParentIndex
	rootCount
)

// itemNames are the names of an item in an expression.
var itemNames = []string{"item", "c", "root"}

// rootsOf returns the names of the roots depth arrays deep.
func rootsOf(depth int) [][]string {
	if depth == 0 {
		return [][]string{itemNames}
	}
	return [][]string{{"element"}, {"parent"}, itemNames, {"index"}, {"parentIndex"}}
}

// ref is a value at a path from a root.
type ref struct {
	root int
	path document.Path
}

// parseRef reads a path that may begin with the name of a root, depth arrays deep.
// named tells whether it does.
func parseRef(text string, depth int) (r ref, named bool, err error) {
	path, err := document.ParseField(text)
	if err != nil {
		return ref{}, false, err
	}
	if path[0].Name != "" {
		for root, names := range rootsOf(depth) {
			if slices.Contains(names, path[0].Name) {
				return ref{root, path[1:]}, true, nil
			}
		}
	}
	return ref{0, path}, false, nil
}

// splitEach returns the arrays that a path such as details[*].options leads
// through, each from an element of the one before.
func splitEach(path document.Path) []document.Path {
	levels, start := []document.Path{}, 0
	for i := range path {
		if path[i].All && path[i].Name == "" {
			levels = append(levels, path[start:i:i])
			start = i + 1
		}
	}
	return append(levels, path[start:])
}

// place is an item and the elements of arrays in it to which a walk has come. Its
// slices alias the item.
type place struct {
	item   []byte
	levels [2*EachDepthMax + 1]level // 0 is the item
	roots  [rootCount][]byte
}

// level is an element and its index.
type level struct {
	element []byte
	digits  [20]byte
	n       int // of digits
}

func (p *place) begin(item []byte) {
	p.item = item
	p.levels[0].element = item
}

// enter notes element i of the array at a depth.
func (p *place) enter(depth, i int, element []byte) {
	l := &p.levels[depth]
	l.element = element
	l.n = len(strconv.AppendInt(l.digits[:0], int64(i), 10))
}

// at returns the roots depth arrays deep. They are good until at is called again.
func (p *place) at(depth int) [][]byte {
	if depth == 0 {
		p.roots[0] = p.item
		return p.roots[:1]
	}
	own, parent := &p.levels[depth], &p.levels[depth-1]
	p.roots[rootElement] = own.element
	p.roots[rootParent] = parent.element
	p.roots[rootItem] = p.item
	p.roots[rootIndex] = own.digits[:own.n]
	p.roots[rootParentIndex] = nil
	if depth > 1 {
		p.roots[rootParentIndex] = parent.digits[:parent.n]
	}
	return p.roots[:]
}

// forget lets the item go.
func (p *place) forget() {
	p.item = nil
	clear(p.roots[:])
	for i := range p.levels {
		p.levels[i].element = nil
	}
}

// value returns the raw value that r leads to, or nil.
func (r *ref) value(roots [][]byte) []byte {
	root := roots[r.root]
	if root == nil {
		return nil
	}
	if len(r.path) == 0 {
		return root
	}
	raw, _ := document.Get(root, r.path)
	return raw
}

// reads collects the paths of an item that matter, each once.
type reads []document.Path

func (r *reads) add(path document.Path) {
	pointer := path.Pointer()
	for _, p := range *r {
		if p.Pointer() == pointer {
			return
		}
	}
	*r = append(*r, path)
}

// expr adds what an expression reads that stands in the elements of levels.
func (r *reads) expr(e *query.Expr, levels []document.Path) {
	if e == nil {
		return
	}
	for root := range rootsOf(len(levels)) {
		for _, names := range e.PathsIn(root) {
			r.ref(ref{root, document.PathOf(names)}, levels)
		}
	}
}

// ref adds what a reference reads that stands in the elements of levels.
func (r *reads) ref(at ref, levels []document.Path) {
	depth := len(levels)
	switch {
	case depth == 0, at.root == rootItem:
		r.add(at.path)
	case at.root == rootElement:
		r.add(append(elementPath(levels), at.path...))
	case at.root == rootParent:
		r.add(append(elementPath(levels[:depth-1]), at.path...))
	case at.root == rootIndex:
		r.elements(levels)
	case depth > 1:
		r.elements(levels[:depth-1])
	}
}

// elementPath is the path of the elements of the innermost array.
func elementPath(levels []document.Path) document.Path {
	var path document.Path
	for _, l := range levels {
		path = append(append(path, l...), document.Step{All: true})
	}
	return path
}

// elements adds how many elements the innermost array has. That is not the path of
// the array, which a change of any field of an element touches, but one below its
// elements that none of their fields has.
func (r *reads) elements(levels []document.Path) {
	if len(levels) > 0 {
		r.add(append(elementPath(levels), document.Step{}))
	}
}
