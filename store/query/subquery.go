package query

import (
	"bytes"
	"slices"
)

// compileSubquery returns the function that computes a subquery. If it tries too many rows, or
// makes too long an array, the budget is spent and the whole expression is undefined.
func compileSubquery(n *subquery) eval {
	p := newPlan(n.of)
	switch n.kind {
	case "EXISTS":
		return func(item []byte, f *frame) Value {
			found := false
			p.rows(item, f, func(Value) bool {
				found = true
				return false // one row is enough
			})
			return boolValue(found)
		}
	case "ARRAY":
		return func(item []byte, f *frame) Value {
			out := []byte{'['}
			p.rows(item, f, func(v Value) bool {
				if len(out) > 1 {
					out = append(out, ',')
				}
				out = v.AppendJSON(out)
				f.spent = f.spent || len(out) > TextMadeMax
				return f.charge(workNode + len(v.data))
			})
			return Value{typ: Array, data: append(out, ']')}
		}
	}
	if n.kind == "ALL" {
		return func(item []byte, f *frame) Value {
			all := true
			p.rows(item, f, func(v Value) bool {
				all = v.Bool()
				return all
			})
			return boolValue(all)
		}
	}
	last := n.kind == "LAST"
	return func(item []byte, f *frame) Value {
		var one Value
		p.rows(item, f, func(v Value) bool {
			one = v
			return last
		})
		return one
	}
}

// rows calls yield with the rows of a subquery that have a value, until it returns
// false. It returns false then, or if too many were tried.
func (p *plan) rows(item []byte, f *frame, yield func(Value) bool) bool {
	if p.limit == 0 {
		return true
	}
	var rows []subRow
	switch {
	case p.group != nil:
		var held int
		rows, held = p.groups(item, f)
		defer func() { f.hold(-held) }()
	case len(p.keys) > 0 || p.text.distinct:
		rows = p.sorted(item, f)
	default:
		return p.stream(item, f, yield)
	}
	if f.spent {
		return false
	}
	for i, r := range rows {
		if int64(i) < p.offset {
			continue
		}
		if int64(i)-p.offset >= p.limit {
			break
		}
		if !yield(r.v) {
			return false
		}
	}
	return true
}

// stream yields the rows as they come. It returns true when the limit is reached: that ends
// the subquery, and not the query around it.
func (p *plan) stream(item []byte, f *frame, yield func(Value) bool) bool {
	passed, on := int64(0), true
	p.each(item, f, func() bool {
		v := p.row(item, f)
		if v.typ == Undefined {
			return true
		}
		if passed++; passed <= p.offset {
			return true
		}
		on = yield(v)
		return on && passed-p.offset < p.limit
	})
	return on && !f.spent
}

// subRow is a row of a subquery and its sort key.
type subRow struct {
	key []byte
	v   Value
}

// sorted returns the rows in order; with DISTINCT, the first of equal rows. They are all in
// memory, since a subquery has the rows of one item.
func (p *plan) sorted(item []byte, f *frame) []subRow {
	var rows []subRow
	size := 0
	seen := make(map[string]bool)
	p.each(item, f, func() bool {
		v := p.row(item, f)
		if v.typ == Undefined {
			return true
		}
		if p.text.distinct {
			identity := string(f.appendSortKey(nil, v, false))
			if seen[identity] {
				return true
			}
			seen[identity] = true
		}
		r := subRow{v: v}
		for i, k := range p.keys {
			r.key = f.appendSortKey(r.key, k(item, f), p.descs[i])
		}
		rows = append(rows, r)
		size += len(r.key) + len(v.data)
		f.spent = f.spent || size > TextMadeMax
		return !f.spent
	})
	slices.SortStableFunc(rows, func(a, b subRow) int {
		if !f.charge(workNode + min(len(a.key), len(b.key))/workScan) {
			return 0 // so that it ends soon
		}
		return bytes.Compare(a.key, b.key)
	})
	return rows
}

// groups returns a row for each group, in the order of their first rows. held is how many bytes the groups
// and rows have, which the frame holds.
func (p *plan) groups(item []byte, f *frame) (rows []subRow, held int) {
	hold := func(bytes int) {
		held += bytes
		f.hold(bytes)
	}
	index := make(map[string]*groupState)
	var order []*groupState
	// Without GROUP BY there is one group, also of no rows: COUNT is 0.
	if len(p.group.keys) == 0 {
		order = append(order, p.group.newGroup(item, f))
		index[""] = order[0]
	}
	var key []byte
	values, size := make([]Value, len(p.group.keys)), 0
	p.each(item, f, func() bool {
		key = p.group.key(key[:0], values, item, f)
		g := index[string(key)]
		if g == nil {
			g = p.group.newGroup(item, f)
			index[string(key)] = g
			order = append(order, g)
			size += len(key)
			f.spent = f.spent || size > TextMadeMax
			hold(rowOverhead + len(key))
		}
		p.group.add(g, item, f)
		was := g.size
		g.size = g.measure()
		hold(g.size - was)
		return !f.spent
	})
	for i := 0; i < len(order) && !f.spent; i++ {
		if v := p.group.result(order[i], f); v.typ != Undefined {
			rows = append(rows, subRow{v: v})
			hold(rowOverhead + len(v.data))
		}
	}
	return rows, held
}
