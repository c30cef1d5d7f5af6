package query

import (
	"fmt"
	"strconv"
)

// Limits of texts, those of the service where it has one.
const (
	TextMax    = 512 << 10 // bytes of a text
	NestingMax = 256       // expressions within each other
)

// parser is a Pratt parser. After its first error it stands at the end of the text, and its
// results mean nothing; so loops end, and callers need not check each step. One call of
// parse or parseQuery owns it.
type parser struct {
	lexer lexer
	tok   token
	scope scope // of an expression; empty in a query
	depth int
	err   *SyntaxError

	query    bool      // the text is a query, so names are aliases
	service  bool      // what Cosmos DB refuses is an error
	selects  int       // how many selections are open
	bindings []binding // the aliases that are visible, inner ones last
	slots    int       // how many roots are used

	aggregates int // whether an aggregate may stand here

	typed   bool // the text has MeaningTyped
	strict  bool // regular expressions beyond their limits are errors; otherwise undefined
	regexps int  // bytes of all regular expressions so far
}

// parse reads a text as one expression.
func parse(text string, s scope, m Meaning, strict bool) (node, error) {
	p := &parser{lexer: lexer{text: text}, scope: s, slots: max(1, len(s)), typed: m == MeaningTyped, strict: strict}
	if len(text) > TextMax {
		return nil, p.lexer.fail(0, fmt.Sprintf("the text has %d bytes, more than %d", len(text), TextMax))
	}
	p.advance()
	n := p.expr(0)
	if p.tok.kind != tokenEnd {
		p.fail(p.tok, "want an operator or the end")
	}
	if p.err != nil {
		return nil, p.err
	}
	return n, nil
}

func (p *parser) advance() {
	if p.err != nil {
		return
	}
	tok, err := p.lexer.next()
	if err != nil {
		p.err = err
		tok = token{start: len(p.lexer.text), end: len(p.lexer.text)}
	}
	p.tok = tok
}

// fail records the first error and moves to the end of the text.
func (p *parser) fail(at token, msg string) node {
	if p.err == nil {
		p.err = p.lexer.fail(at.start, msg)
		p.tok = token{start: len(p.lexer.text), end: len(p.lexer.text)}
	}
	return &literal{}
}

// accept skips a sign if it is the next token.
func (p *parser) accept(sign string) bool {
	if !p.tok.is(sign) {
		return false
	}
	p.advance()
	return true
}

func (p *parser) expect(sign, msg string) {
	if !p.accept(sign) {
		p.fail(p.tok, msg)
	}
}

// acceptWord skips a keyword if it is the next token.
func (p *parser) acceptWord(keyword string) bool {
	if p.tok.word() != keyword {
		return false
	}
	p.advance()
	return true
}

// expr reads an expression whose operators bind stronger than least:
//
//	a + b * c   at b with least precAdd: * binds stronger, so b * c is read here
//	a * b + c   at b with least precMultiply: + does not, so b ends here
func (p *parser) expr(least int) node {
	if p.depth++; p.depth > NestingMax {
		return p.fail(p.tok, fmt.Sprintf("nested more than %d deep", NestingMax))
	}
	depth := p.depth
	left := p.prefix()
	for p.err == nil {
		n, ok := p.infix(left, least)
		if !ok {
			break
		}
		// A chain of operators nests to the left. Terms of AND and OR do not.
		if _, flat := n.(*logical); !flat {
			if p.depth++; p.depth > NestingMax {
				return p.fail(p.tok, fmt.Sprintf("nested more than %d deep", NestingMax))
			}
		}
		left = n
	}
	p.depth = depth - 1
	return left
}

// prefix reads an operand with the operators before it.
func (p *parser) prefix() node {
	tok := p.tok
	switch {
	case p.acceptWord("NOT"):
		return &unary{"NOT", p.expr(precNot - 1)}
	case tok.is("-"):
		p.advance()
		x := p.expr(precUnary - 1)
		// -1 is a constant, which indexes can serve, and not an operation.
		if n, ok := x.(*literal); ok && n.value.typ == Number && n.value.data[0] != '-' {
			return &literal{Value{typ: Number, data: append([]byte{'-'}, n.value.data...)}}
		}
		if n, ok := x.(*notFinite); ok {
			return &notFinite{-n.sign}
		}
		return &unary{"-", x}
	case tok.is("+"), tok.is("~"):
		p.advance()
		return &unary{tok.text, p.expr(precUnary - 1)}
	}
	return p.postfix(p.primary())
}

// infix reads an operator behind left and what belongs to it. ok is false if there
// is none that binds stronger than least.
func (p *parser) infix(left node, least int) (n node, ok bool) {
	op := p.tok
	if op.kind == tokenSign {
		prec := binaryPrec[op.text]
		switch {
		case op.text == "?" && least < precChoice:
			return p.choice(left), true
		case prec == 0 || prec <= least:
			return nil, false
		}
		p.advance()
		switch op.text {
		case "<>":
			op.text = "!="
		case "??":
			prec-- // a ?? b ?? c is a ?? (b ?? c)
		}
		// The right side ends at an operator that binds as strong as this one, so a - b - c is (a - b) - c.
		return &operation{op.text, left, p.expr(prec), p.typed && (op.text == "=" || op.text == "!=")}, true
	}
	switch word := op.word(); word {
	case "AND", "OR":
		prec := precAnd
		if word == "OR" {
			prec = precOr
		}
		if prec <= least {
			return nil, false
		}
		// One node for a whole chain: a condition of 30,000 terms must not nest so deep.
		terms := []node{left}
		for p.err == nil && p.acceptWord(word) {
			terms = append(terms, p.expr(prec))
		}
		return &logical{word, terms}, true
	case "NOT", "IN", "BETWEEN", "LIKE":
		// NOT behind an operand belongs to IN, BETWEEN or LIKE, and binds as they do; before one it is prefix's.
		if precCompare <= least {
			return nil, false
		}
		return p.predicate(left), true
	}
	return nil, false
}

func (p *parser) choice(condition node) node {
	p.advance()
	yes := p.expr(precChoice - 1)
	p.expect(":", "want : of the choice begun by ?")
	return &choice{condition, yes, p.expr(precChoice - 1)}
}

// predicate reads [NOT] IN, BETWEEN or LIKE behind x.
func (p *parser) predicate(x node) node {
	not := p.acceptWord("NOT")
	var n node
	switch {
	case p.acceptWord("IN"):
		p.expect("(", "want ( behind IN")
		n = &in{x, p.list(")"), p.typed}
	case p.acceptWord("BETWEEN"):
		low := p.expr(precCompare) // binds stronger than AND, which ends it
		if !p.acceptWord("AND") {
			p.fail(p.tok, "want AND of BETWEEN")
		}
		n = &between{x, low, p.expr(precCompare)}
	case p.acceptWord("LIKE"):
		l := &like{x: x, pattern: p.expr(precCompare)}
		if p.acceptWord("ESCAPE") {
			l.escape = p.expr(precCompare)
		}
		n = l
	default:
		return p.fail(p.tok, "want IN, BETWEEN or LIKE behind NOT")
	}
	if not {
		return &unary{"NOT", n}
	}
	return n
}

// list reads one or more expressions and the sign behind them.
func (p *parser) list(end string) []node {
	list := []node{p.expr(0)}
	for p.accept(",") {
		list = append(list, p.expr(0))
	}
	p.expect(end, "want , or "+end)
	return list
}

// primary reads an operand.
func (p *parser) primary() node {
	tok := p.tok
	p.advance()
	switch tok.kind {
	case tokenNumber:
		return &literal{Value{typ: Number, data: []byte(tok.text)}}
	case tokenString:
		return &literal{stringValue([]byte(tok.text))}
	case tokenParam:
		return &param{tok.text[1:]}
	case tokenName:
		return p.named(tok)
	case tokenSign:
		switch tok.text {
		case "(":
			if p.tok.word() == "SELECT" {
				return p.subquery(tok, "")
			}
			n := p.expr(0)
			p.expect(")", "want )")
			return n
		case "[":
			if p.accept("]") {
				return &array{}
			}
			return &array{p.list("]")}
		case "{":
			return p.object()
		}
	case tokenEnd:
	}
	return p.fail(tok, "want an expression")
}

func (p *parser) object() node {
	n := &object{}
	known := map[string]bool{}
	if p.accept("}") {
		return n
	}
	for p.err == nil {
		name := p.tok
		if name.kind != tokenString && name.kind != tokenName {
			return p.fail(name, "want the name of a property")
		}
		if known[name.text] {
			return p.fail(name, fmt.Sprintf("the object has a property %q already", name.text))
		}
		known[name.text] = true
		p.advance()
		p.expect(":", "want : behind the name of a property")
		n.names = append(n.names, name.text)
		n.values = append(n.values, p.expr(0))
		if !p.accept(",") {
			break
		}
	}
	p.expect("}", "want , or }")
	return n
}

// postfix reads .name and [key] behind n.
func (p *parser) postfix(n node) node {
	// A chain of accesses nests like parentheses do, so each counts until the chain ends.
	depth := p.depth
	for p.err == nil {
		var key node
		switch {
		case p.accept("."):
			if p.tok.kind != tokenName {
				return p.fail(p.tok, "want the name of a property behind the point")
			}
			key = &literal{stringValue([]byte(p.tok.text))}
			p.strictName(p.tok)
			p.advance()
		case p.accept("["):
			at := p.tok
			key = p.expr(0)
			p.expect("]", "want ]")
			p.strictKey(at, key)
		default:
			p.depth = depth
			return n
		}
		if p.depth++; p.depth > NestingMax {
			return p.fail(p.tok, fmt.Sprintf("nested more than %d deep", NestingMax))
		}
		s, constant := stepOf(key)
		if to, ok := n.(*path); ok && constant {
			n = to.child(s)
			continue
		}
		n = &access{n, key}
	}
	return n
}

// stepOf returns the step that a constant key is.
func stepOf(key node) (step, bool) {
	l, ok := key.(*literal)
	if !ok {
		return step{}, false
	}
	switch l.value.typ {
	case String:
		return step{name: string(l.value.data)}, true
	case Number:
		n, err := strconv.Atoi(string(l.value.data))
		return step{index: n, isIndex: true}, err == nil && n >= 0
	default:
		return step{}, false
	}
}
