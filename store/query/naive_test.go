package query_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// This file is a second meaning of the language, written for the tests: queries are
// trees of Go values that print themselves, items are decoded whole, loops are plain.

// undefined is the value of what is not there.
type undefined struct{}

// env are the values of aliases.
type env map[string]any

func (e env) with(name string, v any) env {
	out := env{}
	maps.Copy(out, e)
	out[name] = v
	return out
}

// nExpr is an expression: how it is written and what it comes to.
type nExpr struct {
	text string
	eval func(e env) any
	// agg is set for an aggregate: what it comes to over the rows of a group.
	agg func(rows []env) any
}

// over returns the value of an expression for a group, of which e is a row.
func (x nExpr) over(rows []env) any {
	if x.agg != nil {
		return x.agg(rows)
	}
	if len(rows) == 0 {
		return undefined{}
	}
	return x.eval(rows[0])
}

func decode(raw string) any {
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic(err)
	}
	return exactly(v)
}

// exactly turns numbers into exact ones.
func exactly(v any) any {
	switch v := v.(type) {
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		if !ok {
			panic(v)
		}
		return r
	case []any:
		for i := range v {
			v[i] = exactly(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exactly(v[k])
		}
	}
	return v
}

// canon writes a value so that equal values are written equally; "" if undefined.
func canon(v any) string {
	switch v := v.(type) {
	case undefined:
		return ""
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case *big.Rat:
		return v.RatString()
	case string:
		return strconv.Quote(v)
	case []any:
		var list []string
		for _, e := range v {
			list = append(list, canon(e))
		}
		return "[" + strings.Join(list, ",") + "]"
	case map[string]any:
		var list []string
		for k, e := range v {
			list = append(list, strconv.Quote(k)+":"+canon(e))
		}
		sort.Strings(list)
		return "{" + strings.Join(list, ",") + "}"
	}
	panic(v)
}

// rankOf orders types.
func rankOf(v any) int {
	switch v := v.(type) {
	case undefined:
		return 0
	case nil:
		return 1
	case bool:
		if v {
			return 3
		}
		return 2
	case *big.Rat:
		return 4
	case string:
		return 5
	case []any:
		return 6
	}
	return 7
}

// compareAny orders values of all types, but not arrays and objects among
// themselves.
func compareAny(a, b any) int {
	if n := rankOf(a) - rankOf(b); n != 0 {
		return n
	}
	switch x := a.(type) {
	case *big.Rat:
		return x.Cmp(b.(*big.Rat))
	case string:
		return strings.Compare(x, b.(string))
	}
	return 0
}

func isBool(v any) bool { _, ok := v.(bool); return ok }

// compareOp is = and its kind.
func compareOp(op string, a, b any) any {
	kind := func(v any) int {
		if isBool(v) {
			return 2
		}
		return rankOf(v)
	}
	if kind(a) == 0 || kind(b) == 0 || kind(a) != kind(b) && op != "=" && op != "!=" {
		return undefined{}
	}
	if kind(a) != kind(b) {
		return op == "!="
	}
	switch op {
	case "=":
		return canon(a) == canon(b)
	case "!=":
		return canon(a) != canon(b)
	}
	if kind(a) >= 6 {
		return undefined{}
	}
	n := compareAny(a, b)
	switch op {
	case "<":
		return n < 0
	case "<=":
		return n <= 0
	case ">":
		return n > 0
	}
	return n >= 0
}

func notOp(a any) any {
	if b, ok := a.(bool); ok {
		return !b
	}
	return undefined{}
}

// andOp is AND if decides is false, OR if it is true.
func andOp(decides bool, list ...any) any {
	var all any = !decides
	for _, v := range list {
		b, ok := v.(bool)
		switch {
		case ok && b == decides:
			return decides
		case !ok:
			all = undefined{}
		}
	}
	return all
}

func arithOp(op string, a, b any) any {
	x, okX := a.(*big.Rat)
	y, okY := b.(*big.Rat)
	if !okX || !okY {
		return undefined{}
	}
	switch op {
	case "+":
		return new(big.Rat).Add(x, y)
	case "-":
		return new(big.Rat).Sub(x, y)
	}
	return new(big.Rat).Mul(x, y)
}

// doubleQuotient divides as doubles do, unless integers divide.
func doubleQuotient(x, y *big.Rat) any {
	if y.Sign() == 0 {
		return undefined{}
	}
	if q := new(big.Rat).Quo(x, y); x.IsInt() && q.IsInt() {
		return q
	}
	a, _ := x.Float64()
	b, _ := y.Float64()
	r, _ := new(big.Rat).SetString(strconv.FormatFloat(a/b, 'g', -1, 64))
	return r
}

// aggregateOf computes an aggregate over values.
func aggregateOf(name string, values []any) any {
	values = slices.DeleteFunc(slices.Clone(values), func(v any) bool { return v == undefined{} })
	sum := new(big.Rat)
	for _, v := range values {
		switch name {
		case "SUM", "AVG":
			r, ok := v.(*big.Rat)
			if !ok {
				return undefined{}
			}
			sum.Add(sum, r)
		case "MIN", "MAX":
			if rankOf(v) > 5 {
				return undefined{}
			}
		}
	}
	switch {
	case name == "COUNT":
		return big.NewRat(int64(len(values)), 1)
	case name == "SUM":
		return sum
	case len(values) == 0:
		return undefined{}
	case name == "AVG":
		return doubleQuotient(sum, big.NewRat(int64(len(values)), 1))
	case name == "MIN":
		return slices.MinFunc(values, compareAny)
	}
	return slices.MaxFunc(values, compareAny)
}

// nSource is JOIN alias IN path.
type nSource struct {
	alias string
	of    nExpr
}

// nOrder is an expression of ORDER BY.
type nOrder struct {
	by   nExpr
	desc bool
}

// nQuery is a query, or a subquery whose first source is an array.
type nQuery struct {
	distinct      bool
	top           int // -1 if there is none
	star          bool
	value         *nExpr
	names         []string
	list          []nExpr
	from          string // what stands behind FROM
	sources       []nSource
	where         *nExpr
	group         []nExpr
	order         []nOrder
	offset, limit int // limit is -1 if there is none
	aggregated    bool
}

func (q *nQuery) text() string {
	var b bytes.Buffer
	b.WriteString("SELECT ")
	if q.distinct {
		b.WriteString("DISTINCT ")
	}
	if q.top >= 0 {
		b.WriteString("TOP " + strconv.Itoa(q.top) + " ")
	}
	switch {
	case q.star:
		b.WriteString("*")
	case q.value != nil:
		b.WriteString("VALUE " + q.value.text)
	}
	for i, x := range q.list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(x.text + " AS " + q.names[i])
	}
	b.WriteString(" FROM " + q.from)
	for i, s := range q.sources {
		if i > 0 || q.from != "" {
			b.WriteString(" JOIN ")
		}
		b.WriteString(s.alias + " IN " + s.of.text)
	}
	if q.where != nil {
		b.WriteString(" WHERE " + q.where.text)
	}
	for i, x := range q.group {
		b.WriteString([]string{" GROUP BY ", ", "}[min(i, 1)] + x.text)
	}
	for i, o := range q.order {
		b.WriteString([]string{" ORDER BY ", ", "}[min(i, 1)] + o.by.text)
		if o.desc {
			b.WriteString(" DESC")
		}
	}
	if q.limit >= 0 {
		b.WriteString(" OFFSET " + strconv.Itoa(q.offset) + " LIMIT " + strconv.Itoa(q.limit))
	}
	return b.String()
}

// combos are the rows of FROM and WHERE.
func (q *nQuery) combos(e env) []env {
	rows := []env{e}
	for _, s := range q.sources {
		var next []env
		for _, r := range rows {
			list, _ := s.of.eval(r).([]any)
			for _, v := range list {
				next = append(next, r.with(s.alias, v))
			}
		}
		rows = next
	}
	return slices.DeleteFunc(rows, func(r env) bool { return q.where != nil && q.where.eval(r) != true })
}

// output is a row for one combination, or a group.
func (q *nQuery) output(group []env) any {
	switch {
	case q.star:
		return group[0]["c"]
	case q.value != nil:
		return q.value.over(group)
	}
	out := map[string]any{}
	for i, x := range q.list {
		if v := x.over(group); v != (undefined{}) {
			out[q.names[i]] = v
		}
	}
	return out
}

// run returns all rows before OFFSET, LIMIT and TOP.
func (q *nQuery) run(envs []env) []any {
	var combos []env
	for _, e := range envs {
		combos = append(combos, q.combos(e)...)
	}
	var groups [][]env
	if q.aggregated || len(q.group) > 0 {
		index := map[string]int{}
		if len(q.group) == 0 {
			groups, index[""] = [][]env{nil}, 0
		}
		for _, r := range combos {
			key := ""
			for _, x := range q.group {
				key += canon(x.eval(r)) + ";"
			}
			at, ok := index[key]
			if !ok {
				at = len(groups)
				index[key] = at
				groups = append(groups, nil)
			}
			groups[at] = append(groups[at], r)
		}
	} else {
		slices.SortStableFunc(combos, func(a, b env) int {
			for _, o := range q.order {
				if n := compareAny(o.by.eval(a), o.by.eval(b)); n != 0 {
					if o.desc {
						return -n
					}
					return n
				}
			}
			return 0
		})
		for _, r := range combos {
			groups = append(groups, []env{r})
		}
	}
	var rows []any
	seen := map[string]bool{}
	for _, g := range groups {
		v := q.output(g)
		if v == (undefined{}) || q.distinct && seen[canon(v)] {
			continue
		}
		seen[canon(v)] = true
		rows = append(rows, v)
	}
	return rows
}

// window cuts rows.
func (q *nQuery) window(rows []any) []any {
	rows = rows[min(len(rows), q.offset):]
	for _, n := range []int{q.top, q.limit} {
		if n >= 0 {
			rows = rows[:min(len(rows), n)]
		}
	}
	return rows
}
