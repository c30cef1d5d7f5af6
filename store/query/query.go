package query

import (
	"fmt"
	"math"
	"slices"
)

// Query is a query as it was parsed. It is safe for concurrent use.
type Query struct {
	text      *selection
	container string
	plan      *plan
}

// ParseQuery reads a text of at most TextMax bytes as one query. The error is a
// *SyntaxError; it names the place of everything that is wrong or not supported.
func ParseQuery(text string) (*Query, error) { return parseAs(text, false) }

func parseAs(text string, service bool) (*Query, error) {
	s, container, err := parseQuery(text, service)
	if err != nil {
		return nil, err
	}
	return &Query{s, container, newPlan(s)}, nil
}

// String returns the query in one fixed form, which parses to the same query.
func (q *Query) String() string {
	p := printer{container: q.container}
	p.selection(q.text)
	return string(p.out)
}

// Container returns the name that FROM gives the container, such as c; "" without FROM.
func (q *Query) Container() string { return q.container }

// ReadsItems reports whether the query has a FROM. A query without one has one row, whatever
// items there are.
func (q *Query) ReadsItems() bool { return len(q.text.from) > 0 }

// Params returns the names of the parameters without @, each once.
func (q *Query) Params() []string { return paramsOf(&subquery{of: q.text}) }

// Functions returns the names of the functions of the container that the query calls, each once.
func (q *Query) Functions() []string {
	var names []string
	visit(&subquery{of: q.text}, func(n node) {
		if f, ok := n.(*udf); ok && !slices.Contains(names, f.name) {
			names = append(names, f.name)
		}
	})
	return names
}

// Bind returns the query with parameters replaced by raw JSON values, found by their
// names without @; values that the query does not name are ignored. The error names a
// parameter that has no value, or one that is no JSON or nested more than document.DepthMax
// deep, or no number of rows where TOP, OFFSET or LIMIT stand, or with which the values have
// more than ParamsBytesMax.
func (q *Query) Bind(params map[string][]byte) (*Query, error) {
	// What the parser has left open is judged here, because only now it is known: patterns, numbers of rows,
	// and names of properties, which a parameter may give.
	b := binder{params: params}
	n := transform(&subquery{of: q.text}, b.bind).(*subquery)
	err := b.err
	if err == nil {
		err = checkRegexps(n)
	}
	if err == nil {
		err = checkVectors(n)
	}
	if err != nil {
		return nil, err
	}
	visit(n, func(n node) {
		if q, ok := n.(*subquery); ok && err == nil {
			err = checkCounts(q.of)
		}
	})
	if err != nil {
		return nil, err
	}
	return &Query{n.of, q.container, newPlan(n.of)}, nil
}

func checkCounts(s *selection) error {
	for _, c := range []struct {
		of string
		n  node
	}{{"TOP", s.top}, {"OFFSET", s.offset}, {"LIMIT", s.limit}} {
		if msg := checkCount(c.n); msg != "" {
			return fmt.Errorf("%s %s", c.of, msg)
		}
	}
	if name := s.duplicateName(); name != "" {
		return fmt.Errorf("SELECT has two properties %q; name one of them by AS", name)
	}
	return nil
}

// Kind is the way in which a query makes rows of items. It decides how the query is run.
type Kind uint8

const (
	// Stream says that each item has its own rows, in the order of the items.
	Stream Kind = iota
	// Sorted says that only after the last item it is known which rows come first, because
	// of ORDER BY or DISTINCT, unless the items come in that order.
	Sorted
	// Grouped says that a row is made of many items, by GROUP BY or aggregates.
	Grouped
)

func (k Kind) String() string { return [...]string{"stream", "sorted", "grouped"}[k] }

// Kind returns the kind of the query.
func (q *Query) Kind() Kind {
	switch {
	case q.text.grouped():
		return Grouped
	case len(q.text.order) > 0 || q.text.distinct:
		return Sorted
	}
	return Stream
}

// Distinct reports whether equal rows are one.
func (q *Query) Distinct() bool { return q.text.distinct }

// Window returns how many rows TOP or OFFSET LIMIT leaves out first, and how many follow: 0 and
// math.MaxInt64 without them. Parameters that are not bound count as absent.
func (q *Query) Window() (offset, limit int64) { return q.text.window() }

func (s *selection) window() (offset, limit int64) {
	limit = math.MaxInt64
	// The parser takes one of the two at most. A parameter that is not bound is no literal.
	for _, n := range []node{s.top, s.limit} {
		if l, ok := n.(*literal); ok {
			k, _ := l.value.int()
			limit = int64(k)
		}
	}
	if l, ok := s.offset.(*literal); ok {
		k, _ := l.value.int()
		offset = int64(k)
	}
	return offset, limit
}

// Need returns how many more rows the query can use after passed rows, including those that
// OFFSET leaves out.
func (q *Query) Need(passed int64) int64 {
	offset, limit := q.Window()
	// Without TOP and LIMIT limit is the largest number, and the sum would be negative.
	if limit > math.MaxInt64-offset {
		return math.MaxInt64
	}
	return max(0, offset+limit-passed)
}

// Order is an expression of ORDER BY.
type Order struct {
	// Path are the properties of the item to sort by, from outside; nil for another
	// expression, or one of what JOIN and IN name.
	Path []string
	// Desc says that the greatest value comes first.
	Desc bool
}

// Order returns the expressions of ORDER BY; nil if there is none. A row of all items is in no order.
func (q *Query) Order() []Order {
	var list []Order
	r := newResolver(nil, q.text)
	for i, o := range q.plan.order {
		p, each, ok := r.resolve(o.by)
		// An element of what JOIN or IN names is none of the item's own: an index on the path does not have the
		// items in that order.
		if !ok || each != nil {
			p = nil
		}
		list = append(list, Order{p, q.plan.descs[i]})
	}
	return list
}

// Filter returns the terms of WHERE that read the item alone, and no alias of JOIN or IN. An
// item of which the filter is not true has no rows. It is nil if there are no such terms. A
// Run tests it too.
func (q *Query) Filter() *Expr {
	terms := q.plan.filter
	switch len(terms) {
	case 0:
		return nil
	case 1:
		return newExpr(terms[0], q.plan.scope, false)
	}
	return newExpr(&logical{"AND", terms}, q.plan.scope, false)
}

// Selects reports whether the rows depend on the content of items, and not only on which items
// pass WHERE. COUNT(1) does not.
func (q *Query) Selects() bool {
	// Of a copy, so that where can be left out and the query stays as it is.
	s, reads := *q.text, false
	s.where = nil
	visitSelection(&s, func(*path) { reads = true })
	return reads
}

// Paths returns the paths of the item that the query reads, as Expr.Paths does. The
// empty path is the whole item.
func (q *Query) Paths() [][]string {
	var paths pathSet
	q.plan.reads(func(p *path) {
		if p.root == 0 {
			paths.add(p)
		}
	})
	return paths.list
}

// Reads reports whether the query reads a property of the item, or the whole item.
func (q *Query) Reads(property string) bool {
	return slices.ContainsFunc(q.Paths(), func(p []string) bool { return len(p) == 0 || p[0] == property })
}
