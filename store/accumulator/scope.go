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
// named reports whether it does.
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

// cursor is the position of a walk through an item: the elements of the arrays around it. Its
// slices alias the item.
type cursor struct {
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

func (c *cursor) start(item []byte) {
	c.item = item
	c.levels[0].element = item
}

// enter notes element i of the array at a depth.
func (c *cursor) enter(depth, i int, element []byte) {
	l := &c.levels[depth]
	l.element = element
	l.n = len(strconv.AppendInt(l.digits[:0], int64(i), 10))
}

// rootsAt returns the roots depth arrays deep. They are valid until rootsAt is called again.
func (c *cursor) rootsAt(depth int) [][]byte {
	if depth == 0 {
		c.roots[0] = c.item
		return c.roots[:1]
	}
	own, parent := &c.levels[depth], &c.levels[depth-1]
	c.roots[rootElement] = own.element
	c.roots[rootParent] = parent.element
	c.roots[rootItem] = c.item
	c.roots[rootIndex] = own.digits[:own.n]
	c.roots[rootParentIndex] = nil
	if depth > 1 {
		c.roots[rootParentIndex] = parent.digits[:parent.n]
	}
	return c.roots[:]
}

// release drops the item.
func (c *cursor) release() {
	c.item = nil
	clear(c.roots[:])
	for i := range c.levels {
		c.levels[i].element = nil
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

// reads collects the paths of an item that a rule reads, each once.
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

// expr adds the paths that an expression within the elements of levels reads.
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

// ref adds the path that a reference within the elements of levels reads.
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

// elements adds the number of elements of the innermost array. It is not the path of the array,
// which a change of any field of an element touches. It is a path below the elements with
// a name that no field has, which only a change of the array itself touches.
func (r *reads) elements(levels []document.Path) {
	if len(levels) > 0 {
		r.add(append(elementPath(levels), document.Step{}))
	}
}
