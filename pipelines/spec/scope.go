package spec

import (
	"slices"
	"strconv"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// Scope is what the names in an expression mean. Without arrays, bare names, item,
// c and root read the item. With one or more, each from the element of the one
// before, bare names and element read the innermost element, parent the one that
// its array is in (the item, if there is one array), item, c and root the item,
// index and parentIndex say where the two elements stand.
type Scope struct {
	arrays []document.Path
	// bareItem says that bare names read the item in spite of the arrays.
	bareItem bool
}

// The roots of an expression that reads elements, in the order of
// query.ParseScoped.
const (
	rootElement = iota
	rootParent
	rootItem
	rootIndex
	rootParentIndex
)

var (
	itemRoots    = [][]string{{"item", "c", "root"}}
	elementRoots = [][]string{
		rootElement: {"element"}, rootParent: {"parent"}, rootItem: {"item", "c", "root"},
		rootIndex: {"index"}, rootParentIndex: {"parentIndex"},
	}
)

// scopeOf returns the scope of the arrays that each names, all of them written as
// one path such as details[*].options; zero means none.
func scopeOf(each ...document.Field) (s Scope) {
	for _, f := range each {
		if f.IsZero() {
			continue
		}
		path := f.Path()
		// details[*].options  ->  details, and from each element options
		for {
			all := slices.IndexFunc(path, func(step document.Step) bool { return step.All })
			if all < 0 {
				break
			}
			s.arrays = append(s.arrays, path[:all:all])
			path = path[all+1:]
		}
		s.arrays = append(s.arrays, path)
	}
	return s
}

// ofWhere returns the scope of a table's where: what an item is, is said of the item,
// type = "salesOrder" with each too.
func (s Scope) ofWhere() Scope { return Scope{s.arrays, true} }

// Parse reads an expression in the scope. The error is a *query.SyntaxError.
func (s Scope) Parse(text string) (*query.Expr, error) {
	switch {
	case len(s.arrays) == 0:
		return query.ParseScoped(text, itemRoots)
	case s.bareItem:
		return query.ParseScoped(text, append([][]string{elementRoots[rootItem]}, elementRoots...))
	}
	return query.ParseScoped(text, elementRoots)
}

// read returns the paths that e reads of one root, from that root.
func (s Scope) read(e *query.Expr, root int) [][]string {
	switch {
	case len(s.arrays) > 0 && s.bareItem && root == rootItem:
		return append(e.PathsIn(0), e.PathsIn(rootItem+1)...)
	case len(s.arrays) > 0 && s.bareItem:
		return e.PathsIn(root + 1)
	case len(s.arrays) > 0:
		return e.PathsIn(root)
	case root == rootItem:
		return e.PathsIn(0)
	}
	return nil
}

// elements returns the path in the item of the elements of the first n arrays.
func (s Scope) elements(n int) document.Path {
	var path document.Path
	for _, array := range s.arrays[:n] {
		path = append(slices.Concat(path, array), document.Step{All: true})
	}
	return path
}

// reads returns the paths in the item that an expression in the scope reads; none if
// there is no expression.
func (s Scope) reads(of Expression) []document.Path {
	e := of.expr
	if e == nil {
		return nil
	}
	var paths []document.Path
	for root := range elementRoots {
		for _, names := range s.read(e, root) {
			if path, ok := s.inItem(root, named(names)); ok {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// inItem returns the path in the item of a path that begins at a root; ok is false
// for what is never there.
func (s Scope) inItem(root int, path document.Path) (_ document.Path, ok bool) {
	depth := len(s.arrays)
	switch {
	case root == rootItem:
		return path, true
	case root == rootElement && depth > 0:
		return slices.Concat(s.elements(depth), path), true
	case root == rootParent && depth > 0:
		return slices.Concat(s.elements(depth-1), path), true
	// Where an element stands changes when elements come or go, not when a field
	// of one does.
	case root == rootIndex && depth > 0:
		return s.count(depth), true
	case root == rootParentIndex && depth > 1:
		return s.count(depth - 1), true
	}
	return nil, false
}

// count returns a path that stands for which elements there are in the nth array:
// one below them that no field of theirs has, so that it is touched with the
// array, and not with a field of an element.
func (s Scope) count(n int) document.Path { return append(s.elements(n), document.Step{}) }

// counts returns count of all arrays.
func (s Scope) counts() []document.Path {
	paths := make([]document.Path, len(s.arrays))
	for i := range s.arrays {
		paths[i] = s.count(i + 1)
	}
	return paths
}

// ref is where a path in the scope that computes nothing begins, such as customerId or
// item.customerId, and how it goes on. whole says that it leads to the item as such.
func (s Scope) ref(f document.Field) (root int, path document.Path, whole bool) {
	path = f.Path()
	names, bare := elementRoots, rootElement
	if len(s.arrays) == 0 {
		names, bare = [][]string{rootItem: itemRoots[0]}, rootItem
	}
	for root, names := range names {
		// A name of a root hides the field of that name: item.id is the item's id,
		// and a field called item is written element.item, or item.item.
		if path[0].Name == "" || !slices.Contains(names, path[0].Name) {
			continue
		}
		isItem := root == rootItem || root == rootParent && len(s.arrays) == 1
		return root, path[1:], isItem && len(path) == 1
	}
	return bare, path, false
}

// refReads returns the path in the item that ref leads to, if it does.
func (s Scope) refReads(f document.Field) []document.Path {
	root, path, _ := s.ref(f)
	if path, there := s.inItem(root, path); there {
		return []document.Path{path}
	}
	return nil
}

// named returns the path of properties and, written in digits, elements.
func named(names []string) document.Path {
	p := make(document.Path, len(names))
	for i, n := range names {
		p[i].Name = n
		if index, err := strconv.Atoi(n); err == nil && index >= 0 && strconv.Itoa(index) == n {
			p[i].Index, p[i].IsIndex = index, true
		}
	}
	return p
}
