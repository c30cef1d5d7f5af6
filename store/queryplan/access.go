package queryplan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/engine"
)

// Kind is a way to reach items.
type Kind uint8

// The ways to reach items; see the package's documentation.
const (
	Nothing Kind = iota
	Items
	Values
	Range
	Order
)

func (k Kind) String() string {
	return [...]string{"nothing", "items", "values", "range", "order"}[k]
}

// Access is how the items of a query are reached.
type Access struct {
	Kind Kind
	// Items are the ranges of item keys in which the items can be, in order, without
	// overlaps. Items of an index outside of them are left out.
	Items []engine.Span
	// Exact says that each of Items has one item key, its Min.
	Exact bool
	// Index is the index that Values, Range and Order read, and Spans the ranges of it: one
	// for each value, or in order, without overlaps.
	Index Index
	Spans []engine.Span
	// Desc says that Order goes from the greatest value to the least.
	Desc bool
	// Undefined says that Order must find the items without a value too, which no index has.
	Undefined bool
	// Constant is, for Values with one value, that value as raw JSON.
	Constant []byte
	// What describes for people what is read, and Why gives the reason of the choice.
	What, Why string
}

// String is the access in one line.
func (a *Access) String() string {
	if a.Why == "" {
		return a.What
	}
	return a.What + ": " + a.Why
}

// Index is an index that is ready.
type Index struct {
	Number uint32
	Path   string // a JSON pointer, with * for all elements
	// Ordered says that arrays and objects have entries; see engine.Index.
	Ordered bool
}

// eachElement reports whether the index has entries for elements of an array.
func (x *Index) eachElement() bool {
	return strings.HasSuffix(x.Path, "/*") || strings.Contains(x.Path, "/*/")
}

// ofMembers reports whether a JSON pointer leads through members of objects alone, as the paths of a
// query do. An index on /sizes/0 has entries of the elements of arrays too, and one on /tags/* several
// of one item: what they find must be tested, and their order is not that of the member "0" or "*".
func ofMembers(pointer string) bool {
	path, err := document.ParsePointer(pointer)
	return err == nil && !slices.ContainsFunc(path, func(s document.Step) bool { return s != document.Step{Name: s.Name} })
}

// Counter counts without reading items. Counting stops at most, so that a count costs no more
// than reading a page.
type Counter interface {
	// CountItems counts items in ranges of item keys.
	CountItems(spans []engine.Span, most int) (int, error)
	// CountEntries counts entries in ranges of an index.
	CountEntries(index uint32, spans []engine.Span, most int) (int, error)
}

// plural returns one for 1, else n and many.
func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf("%d %s", n, many)
}
