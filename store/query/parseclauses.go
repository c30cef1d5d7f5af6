package query

import (
	"fmt"
	"slices"
)

// count reads the number of TOP, OFFSET or LIMIT.
func (p *parser) count(of string) node {
	tok := p.tok
	switch tok.kind {
	case tokenNumber, tokenParam:
		n := p.primary()
		if p.err == nil {
			if err := checkCount(n); err != "" {
				return p.fail(tok, of+" "+err)
			}
		}
		return n
	default:
		return p.fail(tok, "want a number or a parameter behind "+of)
	}
}

// checkCount returns why a constant cannot be a number of rows, "" if it can. A parameter is
// checked when it is bound.
func checkCount(n node) string {
	l, ok := n.(*literal)
	if !ok {
		return ""
	}
	if k, ok := l.value.int(); !ok || k < 0 || k > CountMax {
		return fmt.Sprintf("takes an integer from 0 to %d", CountMax)
	}
	return ""
}

// clauses reads the clauses behind FROM. Combinations that are not supported are errors at the
// clause that asks for them.
func (p *parser) clauses(s *selection, at token) {
	if p.acceptWord("WHERE") {
		s.where = p.expr(0)
	}
	if group := p.tok; p.acceptWord("GROUP") {
		p.expectBy("GROUP")
		s.group = p.exprs(GroupMax, "GROUP BY")
		if p.err == nil && s.distinct {
			p.fail(group, "GROUP BY is not supported together with DISTINCT")
		}
	}
	if order := p.tok; p.acceptWord("ORDER") {
		p.expectBy("ORDER")
		p.orderings(s)
		if p.err == nil && len(s.group) > 0 {
			p.fail(order, "ORDER BY is not supported together with GROUP BY")
		}
		// By the service's plan ranges keep equal rows and the client drops them, so that any order will do.
		if p.err == nil && s.distinct && !p.service && !s.ordersOutput() {
			p.fail(order, "ORDER BY of DISTINCT takes what is selected")
		}
		if !s.grouped() {
			p.strictOrder(s, order)
		}
	}
	if offset := p.tok; p.acceptWord("OFFSET") {
		p.strictLimit(offset)
		s.offset = p.count("OFFSET")
		if !p.acceptWord("LIMIT") {
			p.fail(p.tok, "want LIMIT behind OFFSET")
		}
		s.limit = p.count("LIMIT")
		if p.err == nil && s.top != nil {
			p.fail(offset, "OFFSET LIMIT is not supported together with TOP")
		}
	}
	if p.err != nil {
		return
	}
	if word := p.tok.word(); refusedClauses[word] {
		p.fail(p.tok, word+" is not supported here")
		return
	}
	// Keys and aggregates get slots behind all others. They are counted here already, since a
	// frame is made for the number of slots.
	if s.grouped() {
		s.base = p.slots
		g, alien := regroup(s)
		switch {
		case len(s.from) == 0:
			p.fail(at, "aggregates and GROUP BY want FROM")
		case s.star:
			p.fail(at, "SELECT * is not supported together with GROUP BY")
		case alien != nil:
			name := printer{scope: p.scope, aliases: map[int]string{alien.root: p.nameOf(alien.root)}}
			name.path(alien)
			p.fail(at, string(name.out)+" is neither in GROUP BY nor within an aggregate")
		}
		p.slots += len(g.keys) + len(g.aggregates)
	}
	s.slots = p.slots
}

// refusedClauses are clauses of SQL that the language does not have.
var refusedClauses = map[string]bool{
	"HAVING": true, "UNION": true, "INTERSECT": true, "EXCEPT": true, "LIMIT": true, "WITH": true, "FOR": true, "WINDOW": true,
	"LEFT": true, "RIGHT": true, "INNER": true, "OUTER": true, "CROSS": true, "FULL": true, "NATURAL": true, "ON": true, "USING": true,
	"FETCH": true, "TOP": true,
}

func (p *parser) expectBy(clause string) {
	if !p.acceptWord("BY") {
		p.fail(p.tok, "want BY behind "+clause)
	}
}

// exprs reads one or more expressions, at most most.
func (p *parser) exprs(most int, of string) []node {
	at := p.tok
	list := []node{p.expr(0)}
	for p.accept(",") {
		list = append(list, p.expr(0))
	}
	if len(list) > most {
		p.fail(at, fmt.Sprintf("more than %d expressions of %s", most, of))
	}
	return list
}

func (p *parser) orderings(s *selection) {
	at := p.tok
	if p.tok.word() == "RANK" {
		p.fail(p.tok, "ORDER BY RANK is not supported")
		return
	}
	for p.err == nil {
		o := ordering{by: p.expr(0)}
		switch c, _ := o.by.(*call); {
		case p.acceptWord("DESC"):
			o.desc = true
		case p.acceptWord("ASC"):
		case c != nil:
			o.nearest = c.name == "VECTORDISTANCE"
		}
		s.order = append(s.order, o)
		if !p.accept(",") {
			break
		}
	}
	if len(s.order) > OrderMax {
		p.fail(at, fmt.Sprintf("more than %d expressions of ORDER BY", OrderMax))
	}
}

// ordersOutput reports whether equal rows have equal sort keys: each expression of ORDER BY is
// selected, or is a path in a selected one. Otherwise DISTINCT would have to choose between
// the sort keys of equal rows:
//
//	SELECT DISTINCT c.a FROM c ORDER BY c.a.b   the order follows from the row
//	SELECT DISTINCT c.a FROM c ORDER BY c.b     two items with one a may have two b
func (s *selection) ordersOutput() bool {
	if s.star {
		return true
	}
	var leaves []node
	for _, n := range s.outputs() {
		leaves = append(leaves, leafNodes(n)...)
	}
	known := newNodeSet(leaves)
	return !slices.ContainsFunc(s.order, func(o ordering) bool { return known.find(o.by) < 0 })
}

// leafNodes returns the expressions that an object is made of, or n itself.
func leafNodes(n node) []node {
	o, ok := n.(*object)
	if !ok {
		return []node{n}
	}
	var all []node
	for _, v := range o.values {
		all = append(all, leafNodes(v)...)
	}
	return all
}
