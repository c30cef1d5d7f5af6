package query

import "fmt"

// sources reads the sources of FROM and JOIN.
func (p *parser) sources(s *selection, container *string) {
	at := p.tok
	p.source(s, container)
	for p.err == nil && p.acceptWord("JOIN") {
		if p.source(s, nil); len(s.from) > SourcesMax {
			p.fail(at, fmt.Sprintf("more than %d JOINs", SourcesMax-1))
		}
	}
	if p.err == nil && p.tok.is(",") {
		p.fail(p.tok, "want JOIN between what FROM names")
	}
}

// source reads one source: a path or a subquery with an alias, or an alias IN one of them.
func (p *parser) source(s *selection, container *string) {
	at := p.tok
	f := source{}
	// A name may be an alias before IN or the begin of a path. The word behind it tells, so
	// the parser looks one token ahead, and goes back if it is not IN.
	if p.tok.kind == tokenName {
		lexer, tok := p.lexer, p.tok
		p.advance()
		if p.tok.word() == "IN" && !p.reserved(tok.text) {
			p.advance()
			f.alias, f.each = tok.text, true
		} else if p.err == nil {
			p.lexer, p.tok = lexer, tok
		}
	}
	implied := ""
	if open := p.tok; p.accept("(") {
		if p.tok.word() != "SELECT" {
			p.fail(p.tok, "want SELECT")
			return
		}
		f.of = p.relation(container)
		p.expect(")", "want ) behind the subquery")
		p.perItem(open, f.of, container)
	} else {
		f.of, implied = p.sourcePath(container)
	}
	if !f.each {
		f.alias = implied
		if p.acceptWord("AS") || p.tok.kind == tokenName && !p.endsSource() {
			f.alias = p.alias(true)
		}
	}
	if p.err != nil {
		return
	}
	// FROM c names the item itself, which is root 0 and needs no slot.
	if to, ok := f.of.(*path); ok && container != nil && !f.each && len(to.steps) == 0 {
		f.of = nil
	} else {
		f.slot = p.slots
		p.slots++
	}
	p.bind(s, f, at)
}

// relation reads the selection of a subquery in FROM, which may give many rows. One
// in the FROM of the query itself names the container.
func (p *parser) relation(container *string) node {
	if p.depth++; p.depth > NestingMax {
		return p.fail(p.tok, fmt.Sprintf("nested more than %d deep", NestingMax))
	}
	n := &subquery{"", p.selection(container)}
	p.depth--
	return n
}

// perItem refuses a subquery in the FROM of the query itself that would have to see all items:
// FROM is evaluated for each item alone.
func (p *parser) perItem(at token, of node, container *string) {
	q, ok := of.(*subquery)
	if !ok || container == nil || p.err != nil {
		return
	}
	s := q.of
	if s.distinct && s.wholeItems() {
		s.distinct = false // no two items are equal
	}
	if len(s.from) > 0 && (s.distinct || s.grouped() || s.order != nil || s.top != nil || s.limit != nil) {
		p.fail(at, "a subquery over the container is not supported with DISTINCT, TOP, GROUP BY, ORDER BY, OFFSET LIMIT or aggregates")
	}
}

// wholeItems reports whether the rows of the selection are items of the container.
func (s *selection) wholeItems() bool {
	if len(s.from) != 1 || s.from[0].of != nil {
		return false
	}
	p, ok := s.value.(*path)
	return s.star || ok && p.root == s.from[0].slot && len(p.steps) == 0
}

// endsSource reports whether the next word ends a source, and so is not an alias.
func (p *parser) endsSource() bool {
	return p.reserved(p.tok.text) || refusedClauses[p.tok.word()]
}

// sourcePath reads a path. In the first source of a query it begins with the container, whose
// name may be any. implied is the alias of a source without one: the last property of its
// path.
func (p *parser) sourcePath(container *string) (of node, implied string) {
	tok := p.tok
	if tok.kind != tokenName || p.reserved(tok.text) {
		return p.fail(tok, "want the name of what to read"), ""
	}
	p.advance()
	var n node
	if container != nil {
		*container, n = tok.text, &path{}
	} else {
		n = p.named(tok)
	}
	n = p.postfix(n)
	to, ok := n.(*path)
	if !ok {
		return p.fail(tok, "want a path; ARRAY and other expressions stand in (SELECT VALUE …)"), ""
	}
	if len(to.steps) == 0 {
		return to, tok.text
	}
	if last := to.steps[len(to.steps)-1]; !last.isIndex && plain(last.name) && !p.reserved(last.name) {
		implied = last.name
	}
	return to, implied
}

// bind makes the alias of a source visible to the rest of the selection.
func (p *parser) bind(s *selection, f source, at token) {
	for _, other := range s.from {
		if other.alias == f.alias && f.alias != "" {
			p.fail(at, fmt.Sprintf("FROM has two %s; give one of them another alias", f.alias))
			return
		}
	}
	if _, is := p.scope.root(f.alias); is {
		p.fail(at, f.alias+" has a meaning already; take another alias")
		return
	}
	s.from = append(s.from, f)
	if f.alias != "" {
		p.bindings = append(p.bindings, binding{f.alias, f.slot})
	}
}

// aggregate reads the argument of COUNT, SUM, AVG, MIN or MAX.
func (p *parser) aggregate(name token) node {
	word := name.word()
	switch p.aggregates {
	case aggregatesRefused:
		return p.fail(name, word+" stands in a SELECT list only; nest a subquery to compute it elsewhere")
	case aggregatesNested:
		return p.fail(name, word+" stands within another aggregate")
	}
	p.advance()
	if p.tok.is("*") {
		return p.fail(p.tok, fmt.Sprintf("want an expression; all rows are %s(1)", word))
	}
	p.aggregates = aggregatesNested
	args := p.list(")")
	p.aggregates = aggregatesAllowed
	if len(args) != 1 {
		return p.fail(name, fmt.Sprintf("%s takes 1 argument, not %d", word, len(args)))
	}
	return &call{word, args}
}
