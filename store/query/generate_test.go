package query_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// gen makes random items and queries.
type gen struct{ *rand.Rand }

func pick[T any](g gen, list ...T) T { return list[g.IntN(len(list))] }

// scalar is a JSON scalar, of few values so that many are equal.
func (g gen) scalar() string {
	return pick(g, `null`, `true`, `false`, `0`, `1`, `2`, `1.0`, `2.50`, `-3`, `1e1`, `9007199254740993`, `9007199254740992`, `""`, `"a"`, `"ab"`, `"B"`, `"é\n"`)
}

func (g gen) item(id int) string {
	members := []string{fmt.Sprintf(`"id":"i%d"`, id)}
	add := func(name, raw string) {
		if g.IntN(5) > 0 {
			members = append(members, strconv.Quote(name)+": "+raw)
		}
	}
	add("a", g.scalar())
	add("b", g.scalar())
	add("n", pick(g, `1`, `2`, `3.5`, `-4`, `9007199254740993`))
	add("o", fmt.Sprintf(`{"x": %s, "y":{"z":%s}}`, g.scalar(), g.scalar()))
	var t, u []string
	for range g.IntN(4) {
		t = append(t, g.scalar())
	}
	for range g.IntN(4) {
		u = append(u, fmt.Sprintf(`{"k":%s,"n":%d}`, g.scalar(), g.IntN(4)))
	}
	add("t", "["+strings.Join(t, ", ")+"]")
	add("u", pick(g, "["+strings.Join(u, ",")+"]", "["+strings.Join(u, ",")+"]", `5`))
	g.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

// at is a path of an alias.
func at(alias string, steps ...string) nExpr {
	return nExpr{text: strings.Join(append([]string{alias}, steps...), "."), eval: func(e env) any {
		v := e[alias]
		for _, s := range steps {
			o, ok := v.(map[string]any)
			if !ok {
				return undefined{}
			}
			if v, ok = o[s]; !ok {
				return undefined{}
			}
		}
		return v
	}}
}

// path is a path that ends at a scalar, or at nothing.
func (g gen) path(aliases []string) nExpr {
	alias := pick(g, aliases...)
	if alias == "c" {
		return at("c", pick(g, []string{"a"}, []string{"b"}, []string{"n"}, []string{"o", "x"}, []string{"o", "y", "z"}, []string{"missing"}, []string{"id"})...)
	}
	if strings.HasPrefix(alias, "u") {
		return at(alias, pick(g, "k", "n"))
	}
	return at(alias)
}

func (g gen) literal() nExpr {
	raw := g.scalar()
	v := decode(raw)
	return nExpr{text: raw, eval: func(env) any { return v }}
}

// expr is any expression.
func (g gen) expr(aliases []string, depth int) nExpr {
	if depth == 0 || g.IntN(4) == 0 {
		if g.IntN(4) == 0 {
			return g.literal()
		}
		return g.path(aliases)
	}
	x, y := g.expr(aliases, depth-1), g.expr(aliases, depth-1)
	switch g.IntN(9) {
	case 0:
		op := pick(g, "+", "-", "*")
		return nExpr{text: "(" + x.text + " " + op + " " + y.text + ")", eval: func(e env) any { return arithOp(op, x.eval(e), y.eval(e)) }}
	case 1:
		return nExpr{text: "[" + x.text + ", " + y.text + "]", eval: func(e env) any {
			return slices.DeleteFunc([]any{x.eval(e), y.eval(e)}, func(v any) bool { return v == undefined{} })
		}}
	case 2:
		return nExpr{text: "{p: " + x.text + ", 'q r': " + y.text + "}", eval: func(e env) any {
			out := map[string]any{"p": x.eval(e), "q r": y.eval(e)}
			for k, v := range out {
				if v == (undefined{}) {
					delete(out, k)
				}
			}
			return out
		}}
	case 3:
		return nExpr{text: "(" + x.text + " ?? " + y.text + ")", eval: func(e env) any {
			if v := x.eval(e); v != (undefined{}) {
				return v
			}
			return y.eval(e)
		}}
	case 4:
		c := g.condition(aliases, depth-1)
		return nExpr{text: "(" + c.text + " ? " + x.text + " : " + y.text + ")", eval: func(e env) any {
			if c.eval(e) == true {
				return x.eval(e)
			}
			return y.eval(e)
		}}
	case 5:
		return nExpr{text: "LENGTH(" + x.text + ")", eval: func(e env) any {
			s, ok := x.eval(e).(string)
			if !ok {
				return undefined{}
			}
			return big.NewRat(int64(utf8.RuneCountInString(s)), 1)
		}}
	case 6:
		return g.subquery(aliases, depth-1)
	case 7:
		return nExpr{text: "(" + x.text + " || " + y.text + ")", eval: func(e env) any {
			s, okS := x.eval(e).(string)
			t, okT := y.eval(e).(string)
			if !okS || !okT {
				return undefined{}
			}
			return s + t
		}}
	}
	return g.condition(aliases, depth-1)
}

// condition is an expression that is a truth value.
func (g gen) condition(aliases []string, depth int) nExpr {
	x := g.expr(aliases, max(0, depth-1))
	y := g.expr(aliases, max(0, depth-1))
	if depth > 0 {
		p, q := g.condition(aliases, depth-1), g.condition(aliases, depth-1)
		switch g.IntN(6) {
		case 0:
			return nExpr{text: "(" + p.text + " AND " + q.text + ")", eval: func(e env) any { return andOp(false, p.eval(e), q.eval(e)) }}
		case 1:
			return nExpr{text: "(" + p.text + " or " + q.text + ")", eval: func(e env) any { return andOp(true, p.eval(e), q.eval(e)) }}
		case 2:
			return nExpr{text: "(NOT " + p.text + ")", eval: func(e env) any { return notOp(p.eval(e)) }}
		}
	}
	return g.predicate(aliases, x, y, depth)
}

// predicate is a condition on x, and perhaps y.
func (g gen) predicate(aliases []string, x, y nExpr, depth int) nExpr {
	switch g.IntN(11) {
	case 5:
		return nExpr{text: pick(g, `(%s LIKE "a%%")`, `STARTSWITH(%s, "a")`, `(NOT NOT STARTSWITH(%s, 'a', false))`), eval: func(e env) any {
			s, ok := x.eval(e).(string)
			if !ok {
				return undefined{}
			}
			return strings.HasPrefix(s, "a")
		}}.of(x.text)
	case 6:
		l := g.literal()
		return nExpr{text: `ARRAY_CONTAINS(c.u, {"k": ` + l.text + `}, true)`, eval: func(e env) any {
			list, ok := at("c", "u").eval(e).([]any)
			if !ok {
				return undefined{}
			}
			return slices.ContainsFunc(list, func(v any) bool { return compareOp("=", at("e", "k").eval(env{"e": v}), l.eval(e)) == true })
		}}
	case 7:
		l, m := g.literal(), g.literal()
		return nExpr{text: "ARRAY_CONTAINS([" + l.text + ", " + m.text + "], " + x.text + ")", eval: func(e env) any {
			v := x.eval(e)
			if v == (undefined{}) {
				return v
			}
			return compareOp("=", v, l.eval(e)) == true || compareOp("=", v, m.eval(e)) == true
		}}
	case 0:
		return nExpr{text: "IS_DEFINED(" + x.text + ")", eval: func(e env) any { return x.eval(e) != undefined{} }}
	case 8:
		var list []nExpr
		text := x.text + " NOT IN ("
		for i := range 9 {
			list = append(list, g.literal())
			text += []string{"", ", "}[min(i, 1)] + list[i].text
		}
		return nExpr{text: "(" + text + "))", eval: func(e env) any {
			var is []any
			for _, l := range list {
				is = append(is, compareOp("=", x.eval(e), l.eval(e)))
			}
			return notOp(andOp(true, is...))
		}}
	case 1:
		z := g.literal()
		return nExpr{text: "(" + x.text + " IN (" + z.text + ", " + y.text + "))", eval: func(e env) any {
			return andOp(true, compareOp("=", x.eval(e), z.eval(e)), compareOp("=", x.eval(e), y.eval(e)))
		}}
	case 2:
		z := g.literal()
		return nExpr{text: "(" + x.text + " BETWEEN " + z.text + " AND " + y.text + ")", eval: func(e env) any {
			return andOp(false, compareOp(">=", x.eval(e), z.eval(e)), compareOp("<=", x.eval(e), y.eval(e)))
		}}
	case 3:
		inner := g.inner(aliases, depth-1)
		return nExpr{text: "EXISTS(" + inner.text() + ")", eval: func(e env) any { return len(inner.window(inner.run([]env{e}))) > 0 }}
	case 4:
		l := g.literal()
		return nExpr{text: "ARRAY_CONTAINS(c.t, " + l.text + ")", eval: func(e env) any {
			list, ok := at("c", "t").eval(e).([]any)
			if !ok {
				return undefined{}
			}
			return slices.ContainsFunc(list, func(v any) bool { return canon(v) == canon(l.eval(e)) })
		}}
	}
	op := pick(g, "=", "!=", "<", "<=", ">", ">=", "=")
	return nExpr{text: "(" + x.text + " " + op + " " + y.text + ")", eval: func(e env) any { return compareOp(op, x.eval(e), y.eval(e)) }}
}

// inner is a subquery over an array of the item.
func (g gen) inner(aliases []string, depth int) *nQuery {
	depth = max(0, depth)
	name := pick(g, "t", "u")
	alias := name + strconv.Itoa(len(aliases))
	all := append(slices.Clip(aliases), alias)
	v := g.expr(all, depth)
	q := &nQuery{top: -1, limit: -1, value: &v, sources: []nSource{{alias, at("c", name)}}, distinct: g.IntN(4) == 0}
	if g.IntN(2) == 0 {
		w := g.condition(all, depth)
		q.where = &w
	}
	if g.IntN(4) == 0 && !q.distinct {
		q.order = []nOrder{{g.path([]string{alias}), g.IntN(2) == 0}}
	}
	if g.IntN(4) == 0 && (!q.distinct || q.order != nil) {
		q.offset, q.limit = g.IntN(2), g.IntN(3)
	}
	return q
}

// subquery is one that is a value.
func (g gen) subquery(aliases []string, depth int) nExpr {
	q := g.inner(aliases, depth)
	if g.IntN(2) == 0 {
		return nExpr{text: "ARRAY(" + q.text() + ")", eval: func(e env) any { return append([]any{}, q.window(q.run([]env{e}))...) }}
	}
	x := *q.value
	name := pick(g, "COUNT", "SUM", "MIN", "MAX")
	q.distinct, q.order, q.limit, q.offset, q.aggregated = false, nil, -1, 0, true
	q.value = &nExpr{text: name + "(" + x.text + ")", agg: aggregateFunc(name, x)}
	return nExpr{text: "(" + q.text() + ")", eval: func(e env) any {
		if rows := q.run([]env{e}); len(rows) > 0 {
			return rows[0]
		}
		return undefined{}
	}}
}

func aggregateFunc(name string, x nExpr) func(rows []env) any {
	return func(rows []env) any {
		var values []any
		for _, r := range rows {
			values = append(values, x.eval(r))
		}
		return aggregateOf(name, values)
	}
}

// query is one of the three kinds.
func (g gen) query() *nQuery {
	q := &nQuery{top: -1, limit: -1, from: "c"}
	aliases := []string{"c"}
	for g.IntN(3) == 0 && len(q.sources) < 2 {
		name := pick(g, "t", "u")
		alias := name + strconv.Itoa(len(aliases))
		q.sources = append(q.sources, nSource{alias, at("c", name)})
		aliases = append(aliases, alias)
	}
	if g.IntN(3) > 0 {
		w := g.condition(aliases, 2)
		q.where = &w
	}
	if g.IntN(3) == 0 {
		g.grouped(q, aliases)
	} else {
		g.selected(q, aliases)
	}
	switch g.IntN(4) {
	case 0:
		q.top = g.IntN(6)
	case 1:
		q.offset, q.limit = g.IntN(4), g.IntN(6)
	}
	return q
}

func (g gen) selected(q *nQuery, aliases []string) {
	switch {
	case g.IntN(4) == 0 && len(q.sources) == 0:
		q.star = true
	case g.IntN(2) == 0:
		v := g.expr(aliases, 2)
		q.value = &v
	default:
		for i := range 1 + g.IntN(3) {
			q.names = append(q.names, "f"+strconv.Itoa(i))
			q.list = append(q.list, g.expr(aliases, 2))
		}
	}
	switch g.IntN(5) {
	case 0:
		q.distinct = true
	case 1, 2:
		for range 1 + g.IntN(2) {
			by := g.path(aliases)
			if g.IntN(4) == 0 {
				x := g.path(aliases)
				by = nExpr{text: "LENGTH(" + x.text + ")", eval: func(e env) any {
					if s, ok := x.eval(e).(string); ok {
						return big.NewRat(int64(utf8.RuneCountInString(s)), 1)
					}
					return undefined{}
				}}
			}
			q.order = append(q.order, nOrder{by, g.IntN(2) == 0})
		}
	}
}

func (g gen) grouped(q *nQuery, aliases []string) {
	for range g.IntN(3) {
		q.group = append(q.group, g.path(aliases))
	}
	q.aggregated = len(q.group) == 0
	for i := range 1 + g.IntN(3) {
		q.names = append(q.names, "g"+strconv.Itoa(i))
		if len(q.group) > 0 && g.IntN(3) == 0 {
			q.list = append(q.list, pick(g, q.group...))
			continue
		}
		name := pick(g, "COUNT", "SUM", "AVG", "MIN", "MAX")
		x := g.path(aliases)
		if g.IntN(3) == 0 {
			x = g.expr(aliases, 1)
		}
		q.list = append(q.list, nExpr{text: name + "(" + x.text + ")", agg: aggregateFunc(name, x)})
	}
	if q.aggregated && !slices.ContainsFunc(q.list, func(x nExpr) bool { return x.agg != nil }) {
		panic("no aggregate")
	}
}

// of writes the text of another expression into this one's.
func (x nExpr) of(text string) nExpr {
	x.text = fmt.Sprintf(x.text, text)
	return x
}
