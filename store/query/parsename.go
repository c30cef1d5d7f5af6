package query

import (
	"fmt"
	"slices"
	"strings"
)

// binding is an alias and the slot of its value.
type binding struct {
	name string
	slot int
}

// slotOf returns the slot of an alias. The innermost selection that has the alias counts.
func (p *parser) slotOf(name string) (slot int, ok bool) {
	for _, b := range slices.Backward(p.bindings) {
		if b.name == name {
			return b.slot, true
		}
	}
	return 0, false
}

// reserved reports whether a name is a word of the language here.
func (p *parser) reserved(name string) bool {
	return reserved(name) || p.selects > 0 && clauseWords[strings.ToUpper(name)]
}

// named reads an operand that begins with a name: a constant, a call or a path.
func (p *parser) named(tok token) node {
	// In this order: words of the language first, since no property hides them; an alias
	// before a root, and a root before a property of root 0.
	switch tok.word() {
	case "TRUE":
		return &literal{boolValue(true)}
	case "FALSE":
		return &literal{boolValue(false)}
	case "NULL":
		return &literal{Value{typ: Null}}
	case "UNDEFINED":
		return &literal{}
	}
	switch {
	case p.tok.is("("):
		return p.call(tok)
	case p.reserved(tok.text):
		return p.fail(tok, fmt.Sprintf("want an expression; %s is a word of the language", tok.word()))
	}
	if slot, ok := p.slotOf(tok.text); ok {
		return &path{root: slot}
	}
	// In this spelling alone, so that an alias of another one does not hide them.
	if p.query && (tok.text == "NaN" || tok.text == "Infinity") {
		p.strictly(true, tok, "has no %s in queries that are known", tok.text)
		if tok.text == "NaN" {
			return &notFinite{}
		}
		return &notFinite{1}
	}
	if p.query && tok.word() == "UDF" && p.tok.is(".") {
		return p.udf(tok)
	}
	if p.query {
		return p.fail(tok, p.unknownName(tok.text))
	}
	if root, ok := p.scope.root(tok.text); ok {
		return &path{root: root}
	}
	return &path{steps: []step{{name: tok.text}}}
}

// tryContains is how the service's SDKs write ARRAY_CONTAINS in some queries that they make.
const tryContains = "_TRY_ARRAY_CONTAINS"

func (p *parser) call(name token) node {
	word := name.word()
	// Logs have EXISTS and ARRAY alone; an expression of an earlier release cannot have the others.
	if word == "EXISTS" || word == "ARRAY" || p.query && (word == "ALL" || word == "FIRST" || word == "LAST") {
		p.strictly(word != "EXISTS" && word != "ARRAY", name, "has no %s in queries that are known", word)
		p.advance()
		if p.tok.word() != "SELECT" {
			return p.fail(p.tok, "want SELECT of "+word)
		}
		return p.subquery(name, word)
	}
	if aggregates[word] && p.selects > 0 {
		return p.aggregate(name)
	}
	if word == tryContains && p.query {
		word = "ARRAY_CONTAINS"
	}
	f, ok := p.function(word)
	if !ok {
		return p.fail(name, unknownFunction(word, p.query))
	}
	p.advance()
	var args []node
	if !p.accept(")") {
		args = p.list(")")
	}
	if len(args) < f.least || len(args) > f.most {
		return p.fail(name, f.arity(word, len(args)))
	}
	n := &call{word, args}
	if err := checkVector(n); err != nil {
		return p.fail(name, err.Error())
	}
	if p.strict && word == "REGEXMATCH" {
		if msg := p.regexp(n); msg != "" {
			return p.fail(name, msg)
		}
	}
	return n
}

// udf reads a call of a function that the container has, behind udf.
func (p *parser) udf(at token) node {
	p.advance()
	name := p.tok
	if name.kind != tokenName {
		return p.fail(name, "want the name of a function behind udf.")
	}
	p.advance()
	if !p.accept("(") {
		return p.fail(p.tok, "want ( behind udf."+name.text)
	}
	n := &udf{name: name.text}
	if !p.accept(")") {
		n.args = p.list(")")
	}
	if len(n.args) > argsMax {
		return p.fail(at, fmt.Sprintf("udf.%s has %d arguments; at most %d are allowed", n.name, len(n.args), argsMax))
	}
	return n
}

// regexp returns what is wrong with the size of a regular expression, or of all of the text so
// far; "" if nothing is.
func (p *parser) regexp(n *call) string {
	re, _, ok := regexpOf(n)
	if !ok {
		return ""
	}
	if p.regexps += len(re.data); p.regexps > regexpsTextMax {
		return fmt.Sprintf("the regular expressions of the text have more than %d bytes together", regexpsTextMax)
	}
	return checkRegexp(n)
}

// function returns the function of a name. Only queries have those that return the time and chance:
// an expression in a log must have the same result at each replay. Nor has it those that came later
// than the log.
func (p *parser) function(word string) (f *function, ok bool) {
	if f, ok = functions[word]; !ok && p.query {
		if f, ok = clockFunctions[word]; !ok {
			f, ok = queryFunctions[word]
		}
	}
	return f, ok
}

// unknownFunction returns the message that there is no such function, and which may be meant.
func unknownFunction(name string, query bool) string {
	msg := "there is no function " + name
	if reason, ok := refusedFunctions[name]; ok {
		return msg + "; " + reason
	}
	if _, ok := clockFunctions[name]; ok && !query {
		return msg + "; expressions do not depend on the time"
	}
	if _, ok := queryFunctions[name]; ok && !query {
		return msg + " in expressions; queries have it"
	}
	if aggregates[name] {
		return msg + " outside of SELECT; it takes all rows of one"
	}
	// The usual mistake is ARRAYCONTAINS for ARRAY_CONTAINS, or IS_DEFINED without its _.
	plain := func(s string) string { return strings.ReplaceAll(s, "_", "") }
	for _, known := range functionNames {
		if plain(known) == plain(name) {
			return msg + ", but " + known
		}
	}
	return msg
}
