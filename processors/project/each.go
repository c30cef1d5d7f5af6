package project

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// scope is what the names in the expressions of a table mean: the arrays whose
// elements are the rows, each from the element of the one before; none for a table
// of whole items.
type scope []document.Path

// scopeOf reads each, such as details[*].options.
func scopeOf(each string) (scope, error) {
	if strings.TrimSpace(each) == "" {
		return nil, nil
	}
	path, err := document.ParseField(each)
	if err != nil {
		return nil, err
	}
	var s scope
	for {
		all := slices.IndexFunc(path, func(step document.Step) bool { return step.All })
		if all < 0 {
			break
		}
		s = append(s, path[:all:all])
		path = path[all+1:]
	}
	if s = append(s, path); len(s) > EachMax {
		return nil, fmt.Errorf("%q has %d arrays within each other; at most %d are allowed", each, len(s), EachMax)
	}
	if len(path) == 0 || len(s[0]) == 0 {
		return nil, fmt.Errorf("%q ends with [*], which stands between two arrays, as in details[*].options; write the path of the array alone", each)
	}
	return s, nil
}

// The roots of expressions, in the order of query.ParseScoped: a table without
// each has the item alone.
const (
	rootBare = iota // bare names: in columns the element, in where the item
	rootOther
	rootParent
	rootIndex
	rootParentIndex
	rootCount
)

var (
	itemNames    = []string{"item", "c", "root"}
	elementNames = []string{"element"}
	indexRoots   = [][]string{{"parent"}, {"index"}, {"parentIndex"}}
)

// parseColumn reads the expression of a column, whose bare names are those of the
// element.
func (s scope) parseColumn(text string) (*query.Expr, error) {
	if len(s) == 0 {
		return query.ParseScoped(text, [][]string{itemNames})
	}
	return query.ParseScoped(text, append([][]string{elementNames, itemNames}, indexRoots...))
}

// path returns the expression of a column over one root alone, and that root, if it is
// nothing but a path, which most are; else nil.
func (s scope) path(e *query.Expr, text string) (alone *query.Expr, root int) {
	root, names, ok := e.Path()
	switch {
	case !ok:
		return nil, 0
	case root == rootBare:
		return e, root
	}
	alone, err := query.ParseScoped(text, append([][]string{elementNames, itemNames}, indexRoots...)[root:root+1])
	if err != nil {
		return nil, 0
	}
	if at, same, ok := alone.Path(); !ok || at != 0 || !slices.Equal(names, same) {
		return nil, 0
	}
	return alone, root
}

// parseWhere reads the condition of a table, whose bare names are those of the
// item.
func (s scope) parseWhere(text string) (*query.Expr, error) {
	if len(s) == 0 {
		return query.ParseScoped(text, [][]string{itemNames})
	}
	return query.ParseScoped(text, append([][]string{itemNames, elementNames}, indexRoots...))
}

// readsElement says whether a condition asks for more than the item.
func readsElement(where *query.Expr) bool {
	for root := rootOther; root < rootCount; root++ {
		if len(where.PathsIn(root)) > 0 {
			return true
		}
	}
	return false
}

// elements returns the path in the item of the elements of the first n arrays.
func (s scope) elements(n int) document.Path {
	var path document.Path
	for _, array := range s[:n] {
		path = append(slices.Concat(path, array), document.Step{All: true})
	}
	return path
}

// reads returns the paths in the item that an expression reads, whose bare names
// are those of the item or of the element. The arrays themselves are left out.
func (s scope) reads(e *query.Expr, bareItem bool) []document.Path {
	var paths []document.Path
	from := func(root int, prefix document.Path) {
		for _, names := range e.PathsIn(root) {
			paths = append(paths, slices.Concat(prefix, document.PathOf(names)))
		}
	}
	item, element := rootOther, rootBare
	if bareItem || len(s) == 0 {
		item, element = element, item
	}
	from(item, nil)
	if len(s) > 0 {
		from(element, s.elements(len(s)))
		from(rootParent, s.elements(len(s)-1))
	}
	return paths
}

// array returns the path in the item of the outermost array: every change of
// where an element stands is a change of it, or lies in it.
func (s scope) array() document.Path { return s[0] }
