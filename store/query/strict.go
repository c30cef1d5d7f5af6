package query

import (
	"fmt"
	"slices"
)

// serviceWords are the words that Cosmos DB takes for no name behind a point.
var serviceWords = map[string]bool{
	"AND": true, "ARRAY": true, "AS": true, "ASC": true, "BETWEEN": true, "BY": true, "DESC": true, "DISTINCT": true, "ESCAPE": true,
	"EXISTS": true, "FALSE": true, "FROM": true, "GROUP": true, "IN": true, "JOIN": true, "LIKE": true, "LIMIT": true, "NOT": true,
	"NULL": true, "OFFSET": true, "OR": true, "ORDER": true, "SELECT": true, "TOP": true, "TRUE": true, "UDF": true, "UNDEFINED": true,
	"VALUE": true, "WHERE": true,
}

// ParseStrict is ParseQuery that also refuses what Cosmos DB refuses of a text, whatever its container has: so that a text
// that is read here runs there. What it refuses is known from the recordings of its .NET SDK's tests and its
// documentation. It takes DISTINCT that is ordered by what is not selected, as the service does, where clients drop equal
// rows: such a query is for a plan alone, and no Run gives its rows.
func ParseStrict(text string) (*Query, error) { return parseAs(text, true) }

// strictly refuses what Cosmos DB refuses. It does nothing unless the text is read by ParseStrict.
func (p *parser) strictly(wrong bool, at token, format string, args ...any) {
	if p.service && wrong {
		p.fail(at, "Cosmos DB "+fmt.Sprintf(format, args...))
	}
}

// strictName looks at a name behind a point.
func (p *parser) strictName(name token) {
	p.strictly(serviceWords[name.word()], name, "takes no word of its language behind a point; write [%q]", name.text)
}

// strictKey looks at what stands in brackets behind n.
func (p *parser) strictKey(at token, key node) {
	_, constant := stepOf(key)
	_, isParam := key.(*param)
	p.strictly(!constant && !isParam, at, "takes a constant in brackets")
}

// strictSelect looks at the list of a SELECT that has been read.
func (p *parser) strictSelect(s *selection, at token) {
	p.strictly(p.selects > 1 && s.top != nil, at, "has no TOP in a subquery")
	composed := slices.ContainsFunc(s.outputs(), func(n node) bool { return aggregated(n) && !isAggregate(n) })
	p.strictly(p.selects == 1 && composed, at, "takes an aggregate by itself, and not within an expression")
}

func isAggregate(n node) bool {
	c, ok := n.(*call)
	return ok && aggregates[c.name]
}

// strictOrder looks at the expressions of ORDER BY.
func (p *parser) strictOrder(s *selection, at token) {
	p.strictly(p.selects > 1, at, "has no ORDER BY in a subquery")
	r, known := newResolver(nil, s), newNodeSet(nil)
	for _, o := range s.order {
		if o.nearest && len(s.order) == 1 {
			continue
		}
		names, each, ok := r.resolve(o.by)
		p.strictly(!ok, at, "orders by paths of the item, and by VectorDistance")
		p.strictly(ok && each != nil, at, "does not order by what JOIN and IN name")
		p.strictly(known.find(o.by) >= 0, at, "does not order by one path twice, %v", names)
		known.list = append(known.list, o.by)
	}
}

// strictLimit looks at OFFSET LIMIT.
func (p *parser) strictLimit(at token) {
	p.strictly(p.selects > 1, at, "has no OFFSET LIMIT in a subquery")
}
