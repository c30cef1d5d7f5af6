package query

import "slices"

// Meaning is a version of the meaning of expressions. An expression in a log or a record is
// read by the meaning that is stored with it, so that its results never change. Queries and
// conditions, which are not stored, have MeaningNow.
type Meaning uint8

// The meanings.
const (
	// MeaningTyped says that =, != and IN between values of two types are undefined, and
	// knows no bound of work. Logs and records that name no meaning have it.
	MeaningTyped Meaning = 1
	// MeaningUnequal says that values of two types are unequal, as the service does, and
	// that an expression of more than WorkMax is undefined.
	MeaningUnequal Meaning = 2

	// MeaningNow is the meaning of expressions that are declared now.
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

// Refused returns why the expression must not be declared although it can be read: its regular
// expressions are too large, so that they are undefined. It is nil if nothing is wrong.
func (e *Expr) Refused() error { return checkRegexps(e.root) }

// Turns reports whether the expression could have another result by MeaningNow than by
// MeaningTyped. With condition, only whether it is true counts. It looks at the text alone;
// where that does not tell, it reports true:
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

// turns reports whether n could have the truth value is by one meaning and not by the other.
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

// compares reports whether an =, != or IN is in n, whose value counts.
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

// modest reports whether an expression cannot reach WorkMax, whatever the item: light
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
