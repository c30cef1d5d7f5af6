package query

import "slices"

// Meaning is a version of what expressions mean. What a log or a record holds is read
// by the meaning that it names, so that it goes on to mean what it meant; queries and
// conditions, of which nothing is kept, have MeaningNow.
type Meaning uint8

// The meanings.
const (
	// MeaningTyped says that =, != and IN between values of two types are undefined, and
	// knows no bound of work. Logs and records that name no meaning have it.
	MeaningTyped Meaning = 1
	// MeaningUnequal says that values of two types are unequal, as the service does, and
	// that an expression of more than WorkMax is undefined.
	MeaningUnequal Meaning = 2

	// MeaningNow is that of what is made now.
	MeaningNow = MeaningUnequal
)

// ParseExpr is ParseExpr of a text of this meaning.
func (m Meaning) ParseExpr(text string) (*Expr, error) { return parseIn(text, scopeDefault, m, false) }

// ParseScoped is ParseScoped of a text of this meaning.
func (m Meaning) ParseScoped(text string, roots [][]string) (*Expr, error) {
	s := make(scope, len(roots))
	for i := range roots {
		s[i] = slices.Clone(roots[i])
	}
	return parseIn(text, s, m, false)
}

// Refused says why the expression must not be declared, although it can be read: its
// regular expressions are too large, and so undefined.
func (e *Expr) Refused() error { return checkRegexps(e.root) }

// Turns tells whether the expression could come to something else by MeaningNow than
// by MeaningTyped. With condition, only whether it is true counts. It looks at the
// text alone, and says so rather once too often:
//
//	type = "product" AND n IN (1, 2)   as a condition, no: of another type it is not
//	                                   true either way
//	type != "product"                  yes: true of a number now
//	NOT type = "product"               yes, likewise
//	(n = 1) ?? true                    yes: false of a text now, not undefined
//	REGEXMATCH(text, "…")              yes: undefined now if it takes too much
func (e *Expr) Turns(condition bool) bool {
	if !modest(e.root) {
		return true
	}
	if condition {
		return turns(e.root, isTrue)
	}
	return compares(e.root)
}

// turns tells whether it can change that n is such a truth value.
func turns(n node, is tri) bool {
	switch n := n.(type) {
	case *logical:
		return slices.ContainsFunc(n.terms, func(t node) bool { return turns(t, is) })
	case *unary:
		if n.op == "NOT" {
			return turns(n.x, is.not())
		}
	case *operation:
		// Between two types = became false and != true; it was undefined.
		if n.op == "=" || n.op == "!=" {
			became := isFalse
			if n.op == "!=" {
				became = isTrue
			}
			return is == became || compares(n.x) || compares(n.y)
		}
	case *in:
		return is == isFalse || compares(n.x) || slices.ContainsFunc(n.list, compares)
	case *choice:
		return turns(n.condition, isTrue) || turns(n.yes, is) || turns(n.no, is)
	}
	return compares(n)
}

// compares tells whether an =, != or IN is in n, whose value counts.
func compares(n node) bool {
	found := false
	visit(n, func(n node) {
		switch n := n.(type) {
		case *operation:
			found = found || n.op == "=" || n.op == "!="
		case *in:
			found = true
		}
	})
	return found
}

// modest tells whether an expression cannot reach WorkMax, whatever the item: light
// ones, and those whose functions take no longer than reading and writing a text.
func modest(root node) bool {
	nodes, is := 0, true
	visit(root, func(n node) {
		nodes++
		switch n := n.(type) {
		case *subquery, *access:
			is = false
		case *like:
			is = is && light(n)
		case *call:
			f := functions[n.name]
			is = is && f != nil && f.framed == nil && f.manyFramed == nil && n.name != "REPLICATE" && n.name != "REPLACE"
		}
	})
	return is && nodes <= lightNodes
}
