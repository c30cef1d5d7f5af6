package query

import (
	"slices"
	"strconv"
	"strings"
)

// printer writes an expression in its fixed form.
type printer struct {
	out       []byte
	scope     scope
	container string         // the name that stands first in the FROM of a query
	aliases   map[int]string // of slots
	open      []string       // the aliases that are visible
}

func (p *printer) text(s string) { p.out = append(p.out, s...) }

// precedence returns how strongly n binds.
func precedence(n node) int {
	switch n := n.(type) {
	case *choice:
		return precChoice
	case *logical:
		if n.op == "OR" {
			return precOr
		}
		return precAnd
	case *unary:
		if n.op == "NOT" {
			return precNot
		}
		return precUnary
	case *operation:
		return binaryPrec[n.op]
	case *in, *between, *like:
		return precCompare
	case *literal:
		if n.value.typ == Number && n.value.data[0] == '-' {
			return precUnary
		}
	case *notFinite:
		if n.sign < 0 {
			return precUnary
		}
	}
	return precPrimary
}

// node writes n, in parentheses unless it binds stronger than least.
func (p *printer) node(n node, least int) {
	if precedence(n) <= least {
		p.text("(")
		defer p.text(")")
	}
	switch n := n.(type) {
	case *literal:
		p.literal(n.value)
	case *notFinite:
		p.text([]string{"-Infinity", "NaN", "Infinity"}[n.sign+1])
	case *path:
		p.path(n)
	case *param:
		p.text("@" + n.name)
	case *access:
		p.access(n)
	case *unary:
		p.unary(n)
	case *operation:
		// a - (b - c) needs its parentheses, (a - b) - c does not: operators associate to the
		// left, ?? to the right.
		prec := binaryPrec[n.op]
		left, right := prec-1, prec
		if n.op == "??" {
			left, right = prec, prec-1
		}
		p.node(n.x, left)
		p.text(" " + n.op + " ")
		p.node(n.y, right)
	case *logical:
		for i, t := range n.terms {
			if i > 0 {
				p.text(" " + n.op + " ")
			}
			p.node(t, precedence(n))
		}
	case *in, *between, *like:
		p.predicate(n)
	case *choice:
		p.node(n.condition, precChoice)
		p.text(" ? ")
		p.node(n.yes, precChoice-1)
		p.text(" : ")
		p.node(n.no, precChoice-1)
	case *call:
		p.text(n.name + "(")
		p.list(n.args)
		p.text(")")
	case *random:
		p.text(randomName + "()")
	case *udf:
		p.text("udf." + n.name + "(")
		p.list(n.args)
		p.text(")")
	case *array:
		p.text("[")
		p.list(n.elements)
		p.text("]")
	case *object:
		p.object(n)
	case *subquery:
		p.text(n.kind + "(")
		p.selection(n.of)
		p.text(")")
	}
}

func (p *printer) unary(n *unary) {
	if n.op == "NOT" {
		p.text("NOT ")
		p.node(n.x, precNot-1)
		return
	}
	p.text(n.op)
	// Two minus signs begin a comment, and one before a number belongs to it.
	l, isLiteral := n.x.(*literal)
	inner, isUnary := n.x.(*unary)
	if isUnary && inner.op == "-" || isLiteral && l.value.typ == Number {
		p.text("(")
		p.node(n.x, 0)
		p.text(")")
		return
	}
	p.node(n.x, precUnary-1)
}

func (p *printer) predicate(n node) {
	switch n := n.(type) {
	case *in:
		p.node(n.x, precCompare-1)
		p.text(" IN (")
		p.list(n.list)
		p.text(")")
	case *between:
		p.node(n.x, precCompare-1)
		p.text(" BETWEEN ")
		p.node(n.low, precCompare)
		p.text(" AND ")
		p.node(n.high, precCompare)
	case *like:
		p.node(n.x, precCompare-1)
		p.text(" LIKE ")
		p.node(n.pattern, precCompare)
		if n.escape != nil {
			p.text(" ESCAPE ")
			p.node(n.escape, precCompare)
		}
	}
}

func (p *printer) list(list []node) {
	for i, n := range list {
		if i > 0 {
			p.text(", ")
		}
		p.node(n, 0)
	}
}

func (p *printer) object(n *object) {
	p.text("{")
	for i, name := range n.names {
		if i > 0 {
			p.text(", ")
		}
		p.out = appendQuoted(p.out, []byte(name))
		p.text(": ")
		p.node(n.values[i], 0)
	}
	p.text("}")
}

func (p *printer) literal(v Value) {
	if v.typ == Undefined {
		p.text("undefined")
		return
	}
	p.out = v.AppendJSON(p.out)
}

// path writes the root's name and the steps. The name of root 0 is written only where it is
// needed: c["in"] and c.c, but price.
func (p *printer) path(n *path) {
	steps := n.steps
	if n.root == 0 && len(steps) > 0 && p.bare(steps[0]) {
		p.text(steps[0].name)
		steps = steps[1:]
	} else {
		p.text(p.root(n.root))
	}
	for _, s := range steps {
		switch {
		case s.isIndex:
			p.text("[" + strconv.Itoa(s.index) + "]")
		case plain(s.name):
			p.text("." + s.name)
		default:
			p.text("[")
			p.out = appendQuoted(p.out, []byte(s.name))
			p.text("]")
		}
	}
}

// bare reports whether a step may stand first, without its root: it would not be read as an
// alias, a root or a word of the language.
func (p *printer) bare(s step) bool {
	if p.container != "" || p.aliases[0] != "" || s.isIndex || !plain(s.name) || reserved(s.name) ||
		len(p.aliases) > 0 && clauseWords[strings.ToUpper(s.name)] || slices.Contains(p.open, s.name) {
		return false
	}
	_, hidden := p.scope.root(s.name)
	return !hidden
}

// access writes a property of something computed. A path is put in parentheses
// only where its next step would be read as part of it.
func (p *printer) access(n *access) {
	p.node(n.of, precPrimary-1)
	p.text("[")
	p.node(n.key, 0)
	p.text("]")
}

// plain reports whether a name may be written without quotes.
func plain(name string) bool { return name != "" && nameLen(name) == len(name) }
