package query

import (
	"maps"
	"strings"
)

// root returns how a root is written.
func (p *printer) root(root int) string {
	if name := p.aliases[root]; name != "" {
		return name
	}
	if root == 0 && p.container != "" {
		return p.container
	}
	return p.scope.name(root)
}

// aside returns the text that f writes, without adding it to the output.
func (p *printer) aside(f func()) []byte {
	before := p.out
	p.out = nil
	f()
	out := p.out
	p.out = before
	return out
}

// selection writes a SELECT. FROM is written first, aside, because the list uses its aliases.
func (p *printer) selection(s *selection) {
	// A copy, so that the aliases of this selection do not outlive it.
	aliases, seen := p.aliases, len(p.open)
	p.aliases = maps.Clone(aliases)
	if p.aliases == nil {
		p.aliases = make(map[int]string)
	}
	from := p.aside(func() { p.from(s) })
	p.text("SELECT ")
	if s.distinct {
		p.text("DISTINCT ")
	}
	if s.top != nil {
		p.text("TOP ")
		p.node(s.top, 0)
		p.text(" ")
	}
	p.rows(s)
	p.out = append(p.out, from...)
	p.clauses(s)
	p.aliases, p.open = aliases, p.open[:seen]
}

// rows writes what the rows are made of.
func (p *printer) rows(s *selection) {
	switch {
	case s.star:
		p.text("*")
	case s.value != nil:
		p.text("VALUE ")
		p.node(s.value, 0)
	}
	for i, f := range s.list {
		if i > 0 {
			p.text(", ")
		}
		p.node(f.of, 0)
		if f.as != "" {
			p.text(" AS " + f.as)
		}
	}
}

func (p *printer) from(s *selection) {
	for i, f := range s.from {
		if i == 0 {
			p.text(" FROM ")
		} else {
			p.text(" JOIN ")
		}
		if f.each {
			p.text(f.alias + " IN ")
		}
		switch of := f.of.(type) {
		case nil:
			p.text(p.container)
		case *path:
			p.path(of)
		default:
			p.node(of, 0)
		}
		// FROM c.tags has the alias tags already, so it is not written.
		if !f.each && f.alias != "" && f.alias != p.implied(f.of) {
			p.text(" AS " + f.alias)
		}
		p.aliases[f.slot] = f.alias
		if f.alias != "" {
			p.open = append(p.open, f.alias)
		}
	}
}

// implied returns the alias that a source has if none is written.
func (p *printer) implied(of node) string {
	to, ok := of.(*path)
	switch {
	case of == nil:
		return p.container
	case !ok:
		return ""
	case len(to.steps) == 0:
		return p.root(to.root)
	}
	last := to.steps[len(to.steps)-1]
	if last.isIndex {
		return ""
	}
	return last.name
}

// Clauses are parts of a query in one fixed form, "" where the query lacks one.
type Clauses struct{ Where, GroupBy, OrderBy string }

// Clauses returns what stands behind WHERE, GROUP BY and ORDER BY.
func (q *Query) Clauses() Clauses {
	p := printer{container: q.container, aliases: map[int]string{}}
	p.aside(func() { p.from(q.text) }) // names the aliases
	var c Clauses
	if q.text.where != nil {
		c.Where = string(p.aside(func() { p.node(q.text.where, 0) }))
	}
	c.GroupBy = string(p.aside(func() { p.list(q.text.group) }))
	c.OrderBy = string(p.aside(func() { p.orders(q.text.order) }))
	return c
}

// Parts are the parts of a query as text, for who makes other queries of them. Parameters are in them as @name.
type Parts struct {
	Distinct bool
	Top      bool   // its window is that of TOP, not of OFFSET LIMIT
	Item     string // the alias of the item, "" if the item itself has none
	First    string // the alias of what FROM names first, which SELECT * stands for
	List     string // what stands between SELECT and FROM, without DISTINCT and TOP
	Star     bool   // SELECT *
	Value    bool   // SELECT VALUE, which has one output
	Outputs  []Output
	From     string // with FROM and JOIN, "" without
	Where    string
	Groups   []string
	Orders   []OrderText
	// Nearest says that the order is that of VectorDistance without ASC or DESC.
	Nearest bool
}

// Output is an expression that rows are made of.
type Output struct {
	Name string // of the property in the row, "" with SELECT VALUE
	Text string
	// Aggregate is COUNT, SUM, AVG, MIN or MAX if the expression is one of these by itself, and Argument what it takes.
	Aggregate, Argument string
	// Composed says that the expression has an aggregate in it and is none by itself.
	Composed bool
	// Defined says that the value is never undefined: it is a constant, an array or an object.
	Defined bool
}

// OrderText is an expression of ORDER BY.
type OrderText struct {
	Text string
	Desc bool
}

// Parts returns the parts of the query.
func (q *Query) Parts() Parts {
	s, p := q.text, printer{container: q.container, aliases: map[int]string{}}
	from := p.aside(func() { p.from(s) }) // names the aliases too
	text := func(n node) string { return string(p.aside(func() { p.node(n, 0) })) }
	parts := Parts{Distinct: s.distinct, Top: s.top != nil, Star: s.star, Value: s.value != nil, From: strings.TrimSpace(string(from))}
	parts.List = string(p.aside(func() { p.rows(s) }))
	for i, f := range s.from {
		if f.of == nil {
			parts.Item = f.alias
		}
		if i == 0 {
			parts.First = f.alias
		}
	}
	names := s.names()
	for i, n := range s.outputs() {
		o := Output{Text: text(n), Composed: aggregated(n)}
		if s.value == nil {
			o.Name = names[i]
		}
		if c, ok := n.(*call); ok && aggregates[c.name] {
			o.Aggregate, o.Argument, o.Composed = c.name, text(c.args[0]), false
		}
		switch n := n.(type) {
		case *literal:
			o.Defined = n.value.typ != Undefined
		case *array, *object:
			o.Defined = true
		}
		parts.Outputs = append(parts.Outputs, o)
	}
	if s.where != nil {
		parts.Where = text(s.where)
	}
	for _, n := range s.group {
		parts.Groups = append(parts.Groups, text(n))
	}
	for _, o := range s.order {
		parts.Orders = append(parts.Orders, OrderText{text(o.by), o.desc})
		parts.Nearest = parts.Nearest || o.nearest
	}
	return parts
}

// orders writes what stands behind ORDER BY.
func (p *printer) orders(list []ordering) {
	for i, o := range list {
		if i > 0 {
			p.text(", ")
		}
		p.node(o.by, 0)
		c, _ := o.by.(*call)
		switch {
		case o.desc:
			p.text(" DESC")
		case c != nil && c.name == "VECTORDISTANCE" && !o.nearest:
			p.text(" ASC") // without it the nearest come first
		}
	}
}

func (p *printer) clauses(s *selection) {
	if s.where != nil {
		p.text(" WHERE ")
		p.node(s.where, 0)
	}
	if len(s.group) > 0 {
		p.text(" GROUP BY ")
		p.list(s.group)
	}
	if len(s.order) > 0 {
		p.text(" ORDER BY ")
		p.orders(s.order)
	}
	if s.limit != nil {
		p.text(" OFFSET ")
		p.node(s.offset, 0)
		p.text(" LIMIT ")
		p.node(s.limit, 0)
	}
}
