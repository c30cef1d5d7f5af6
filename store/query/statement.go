package query

import (
	"slices"
	"strconv"
)

// selection is SELECT … FROM … WHERE …, of a query or a subquery. The parser sets it once;
// afterwards goroutines share it and nobody changes it.
type selection struct {
	distinct bool
	top      node // or nil
	star     bool
	value    node // of SELECT VALUE, or nil
	list     []field
	from     []source
	where    node // or nil
	group    []node
	order    []ordering
	offset   node // or nil; with limit
	limit    node

	base  int // the first slot of a group's values: its keys, then its aggregates
	slots int // how many slots a frame needs for this selection and all around it
}

// field is an expression of a SELECT list. as is the name behind AS, "" without one; alias is
// the alias if the expression is nothing but an alias.
type field struct {
	of    node
	as    string
	alias string
}

// source is a source of FROM or JOIN. Its value, or with IN one element of it after the other,
// is in the root of its slot.
type source struct {
	alias string // "" if it cannot be named
	slot  int
	each  bool // IN
	of    node // a path or a subquery; nil for the container's item, which is slot 0
}

// ordering is an expression of ORDER BY. With nearest it is a call of VECTORDISTANCE that has the
// nearest vectors first, and desc is not set.
type ordering struct {
	by      node
	desc    bool
	nearest bool
}

// compile returns what computes the sort key, and whether the greatest comes first. Of nearest
// vectors it does: so items without a vector, whose keys are undefined, come last.
func (o *ordering) compile() (key eval, desc bool) {
	by := o.by
	if !o.nearest {
		return compile(by), o.desc
	}
	if !by.(*call).nearestIsGreatest() {
		by = &unary{"-", by}
	}
	return compile(by), true
}

// subquery is a selection in parentheses: EXISTS(…), ARRAY(…), ALL(…), FIRST(…), LAST(…), or a
// single value.
type subquery struct {
	kind string // "EXISTS" and so on, or ""
	of   *selection
}

func (n *subquery) children() []node { return n.of.children() }

// children are all expressions of the selection.
func (s *selection) children() []node {
	var all []node
	add := func(n node) {
		if n != nil {
			all = append(all, n)
		}
	}
	add(s.top)
	add(s.value)
	for _, f := range s.list {
		add(f.of)
	}
	for _, f := range s.from {
		add(f.of)
	}
	add(s.where)
	for _, n := range s.group {
		add(n)
	}
	for _, o := range s.order {
		add(o.by)
	}
	add(s.offset)
	add(s.limit)
	return all
}

// rebuild returns a copy whose expressions are replaced by what f makes of them.
func (s *selection) rebuild(f func(node) node) *selection {
	one := func(n node) node {
		if n == nil {
			return nil
		}
		return f(n)
	}
	out := *s
	out.top, out.value, out.where, out.offset, out.limit = one(s.top), one(s.value), one(s.where), one(s.offset), one(s.limit)
	out.list, out.from, out.group, out.order = nil, nil, nil, nil
	for _, e := range s.list {
		out.list = append(out.list, field{one(e.of), e.as, e.alias})
	}
	for _, e := range s.from {
		out.from = append(out.from, source{e.alias, e.slot, e.each, one(e.of)})
	}
	for _, e := range s.group {
		out.group = append(out.group, one(e))
	}
	for _, e := range s.order {
		out.order = append(out.order, ordering{one(e.by), e.desc, e.nearest})
	}
	return &out
}

// names returns the names of the SELECT list: the name behind AS, else the last property of a
// path, else $1, $2, …, as the service names them.
func (s *selection) names() []string {
	names := make([]string, len(s.list))
	unnamed := 0
	for i, f := range s.list {
		if names[i] = f.as; f.as != "" {
			continue
		}
		if names[i] = implicitName(f); names[i] == "" {
			unnamed++
			names[i] = "$" + strconv.Itoa(unnamed)
		}
	}
	return names
}

// implicitName returns the name that a field has without AS; "" if it has none.
func implicitName(f field) string {
	switch n := f.of.(type) {
	case *path:
		if len(n.steps) == 0 {
			return f.alias
		}
		return n.steps[len(n.steps)-1].name
	case *access:
		if s, ok := stepOf(n.key); ok {
			return s.name
		}
	}
	return ""
}

// aggregates are the functions over all rows of a group.
var aggregates = map[string]bool{"COUNT": true, "SUM": true, "AVG": true, "MIN": true, "MAX": true}

// aggregated reports whether an expression has an aggregate outside of its subqueries.
func aggregated(n node) bool {
	found := false
	visitOwn(n, func(n node) {
		if c, ok := n.(*call); ok && aggregates[c.name] {
			found = true
		}
	})
	return found
}

// visitOwn is visit without the inside of subqueries.
func visitOwn(n node, f func(node)) {
	f(n)
	if _, ok := n.(*subquery); ok {
		return
	}
	for _, child := range n.children() {
		visitOwn(child, f)
	}
}

// outputs are the expressions that make the rows.
func (s *selection) outputs() []node {
	if s.value != nil {
		return []node{s.value}
	}
	var all []node
	for _, f := range s.list {
		all = append(all, f.of)
	}
	return all
}

// grouped reports whether the rows are groups.
func (s *selection) grouped() bool {
	return len(s.group) > 0 || slices.ContainsFunc(s.outputs(), aggregated)
}
