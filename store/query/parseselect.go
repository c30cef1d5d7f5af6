package query

import (
	"fmt"
	"slices"
)

// Limits of queries.
const (
	SelectsMax = 32   // SELECTs within each other
	SourcesMax = 11   // FROM and 10 JOINs, as the service has it
	OrderMax   = 32   // expressions of ORDER BY
	GroupMax   = 32   // expressions of GROUP BY
	FieldsMax  = 4096 // expressions of a SELECT list
	CountMax   = 1<<31 - 1
)

// Whether an aggregate may stand where the parser is.
const (
	aggregatesRefused = iota
	aggregatesAllowed
	aggregatesNested // within another one
)

// parseQuery reads a text as one query.
func parseQuery(text string, service bool) (*selection, string, error) {
	p := &parser{lexer: lexer{text: text}, query: true, service: service, slots: 1, strict: true}
	if len(text) > TextMax {
		return nil, "", p.lexer.fail(0, fmt.Sprintf("the text has %d bytes, more than %d", len(text), TextMax))
	}
	p.advance()
	if p.tok.word() != "SELECT" {
		p.fail(p.tok, "want SELECT")
	}
	container := ""
	s := p.selection(&container)
	if p.tok.kind != tokenEnd {
		p.fail(p.tok, "want another clause or the end")
	}
	if p.err != nil {
		return nil, "", p.err
	}
	return s, container, nil
}

// unknownName returns the message that a name stands for nothing.
func (p *parser) unknownName(name string) string {
	for _, b := range p.bindings {
		return fmt.Sprintf("there is no %s here; a property is written behind its alias, %s.%s", name, b.name, name)
	}
	return fmt.Sprintf("there is no %s here; FROM names what can be read", name)
}

// subquery reads SELECT … ) of a subquery.
func (p *parser) subquery(at token, kind string) node {
	if p.depth++; p.depth > NestingMax {
		return p.fail(p.tok, fmt.Sprintf("nested more than %d deep", NestingMax))
	}
	n := &subquery{kind, p.selection(nil)}
	p.depth--
	p.expect(")", "want ) behind the subquery")
	// Which of several rows would be the value is not defined, so the text is refused.
	if p.err == nil && kind == "" && !n.of.single() {
		return p.fail(at, "a subquery that may give several rows is no value; write ARRAY(SELECT …) or EXISTS(SELECT …)")
	}
	return n
}

// single reports whether the selection gives at most one row, which is known where
// FROM has no IN, all rows are aggregated, or TOP or LIMIT says 1.
func (s *selection) single() bool {
	if s.grouped() && len(s.group) == 0 {
		return true
	}
	for _, n := range []node{s.top, s.limit} {
		if l, ok := n.(*literal); ok && (string(l.value.data) == "1" || string(l.value.data) == "0") {
			return true
		}
	}
	return !slices.ContainsFunc(s.from, func(f source) bool {
		q, ok := f.of.(*subquery)
		return f.each || ok && !q.of.single()
	})
}

// selection reads a SELECT. container receives the name of the container; it is nil in a
// subquery. The list is read after FROM, which declares the names in it:
//
//	SELECT t.id FROM c JOIN t IN c.tags WHERE …
//	1      3    2                       4         the order of reading
func (p *parser) selection(container *string) *selection {
	if p.selects++; p.selects > SelectsMax {
		p.fail(p.tok, fmt.Sprintf("more than %d SELECTs within each other", SelectsMax))
	}
	// Aliases are visible in their selection and in its subqueries, and end with it.
	seen, state := len(p.bindings), p.aggregates
	defer func() {
		p.bindings, p.aggregates = p.bindings[:seen], state
		p.selects--
	}()
	p.aggregates = aggregatesRefused
	s := &selection{}
	at := p.tok
	p.advance()
	lexer, tok := p.lexer, p.tok
	p.skipList()
	from := p.tok
	if p.acceptWord("FROM") {
		p.sources(s, container)
	}
	if p.err != nil {
		return s
	}
	// Back to the list; lexer and tok now hold the place behind FROM.
	lexer, p.lexer = p.lexer, lexer
	tok, p.tok = p.tok, tok
	p.aggregates = aggregatesAllowed
	p.selectClause(s)
	p.strictSelect(s, at)
	p.aggregates = aggregatesRefused
	if p.err == nil && from.word() == "FROM" {
		if p.tok.start != from.start {
			p.fail(p.tok, "want , or FROM")
			return s
		}
		p.lexer, p.tok = lexer, tok
	}
	p.clauses(s, at)
	return s
}

// skipList goes to the FROM, or the end, of the SELECT whose list begins here.
func (p *parser) skipList() {
	depth := 0
	var before token
	for p.err == nil && p.tok.kind != tokenEnd {
		switch {
		case p.tok.is("("), p.tok.is("["), p.tok.is("{"):
			depth++
		case p.tok.is(")"), p.tok.is("]"), p.tok.is("}"):
			if depth--; depth < 0 {
				return
			}
		// c.from and AS from are names.
		case depth == 0 && p.tok.word() == "FROM" && !before.is(".") && before.word() != "AS":
			return
		}
		before = p.tok
		p.advance()
	}
}

// selectClause reads the list between SELECT and FROM, with DISTINCT and TOP in any order.
func (p *parser) selectClause(s *selection) {
	for p.err == nil {
		switch {
		case !s.distinct && p.acceptWord("DISTINCT"):
			s.distinct = true
			continue
		case s.top == nil && p.acceptWord("TOP"):
			s.top = p.count("TOP")
			continue
		}
		break
	}
	switch {
	case p.tok.is("*"):
		if len(s.from) != 1 {
			p.fail(p.tok, "* is the one thing that FROM names; name what you want of several, or of none")
		}
		p.advance()
		s.star = true
		return
	case p.acceptWord("VALUE"):
		s.value = p.expr(0)
		return
	}
	at := p.tok
	for p.err == nil {
		f := field{of: p.expr(0)}
		if to, ok := f.of.(*path); ok && len(to.steps) == 0 {
			f.alias = p.nameOf(to.root)
		}
		if p.acceptWord("AS") {
			f.as = p.alias(false)
		} else if p.tok.kind == tokenName && !p.reserved(p.tok.text) {
			f.as = p.alias(true)
		}
		s.list = append(s.list, f)
		if !p.accept(",") {
			break
		}
	}
	if len(s.list) > FieldsMax {
		p.fail(at, fmt.Sprintf("more than %d expressions of SELECT", FieldsMax))
	}
	if name := s.duplicateName(); name != "" {
		p.fail(at, fmt.Sprintf("SELECT has two properties %q; name one of them by AS", name))
	}
}

// duplicateName returns a name that two fields have, "" if there is none. An object with two
// members of one name could not be read back.
func (s *selection) duplicateName() string {
	names := s.names()
	slices.Sort(names)
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			return names[i]
		}
	}
	return ""
}

// nameOf returns the alias that a slot has.
func (p *parser) nameOf(slot int) string {
	for _, b := range p.bindings {
		if b.slot == slot {
			return b.name
		}
	}
	return p.scope.name(slot)
}

// alias reads a name. A strict one must not be a word of the language: behind AS any name may
// stand, without AS a word would begin the next clause.
func (p *parser) alias(strict bool) string {
	name := p.tok
	if name.kind != tokenName || strict && p.reserved(name.text) {
		p.fail(name, "want a name")
		return ""
	}
	p.advance()
	return name.text
}
