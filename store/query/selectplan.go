package query

import (
	"slices"

	"github.com/millrace/millrace/feed/document"
)

// plan is a compiled selection. newPlan sets its fields once, and all runs of the query
// share it.
type plan struct {
	text    *selection
	scope   scope // the item's alias
	filter  []node
	order   []ordering
	sources []planSource
	tests   []test // of the item alone
	late    []test // of the item and chance, so that they are no filter
	group   *groupPlan
	keys    []eval // of ORDER BY
	descs   []bool
	row     eval
	offset  int64
	limit   int64
}

// planSource is a compiled source, with the conditions that can be tested once it
// has a value.
type planSource struct {
	slot  int
	each  bool
	steps []step // of the path from, if of and rows are nil
	from  *path
	rows  *plan
	tests []test
}

func newPlan(s *selection) *plan {
	p := &plan{text: s}
	p.offset, p.limit = s.window()
	itself := ""
	for _, f := range s.from {
		if f.of == nil {
			itself = f.alias
			continue
		}
		c := planSource{slot: f.slot, each: f.each}
		if q, ok := f.of.(*subquery); ok {
			c.rows = newPlan(q.of)
		} else {
			c.from = f.of.(*path)
			c.steps = c.from.steps
		}
		p.sources = append(p.sources, c)
	}
	p.scope = scope{{itself}}
	if itself == "" {
		p.scope = scope{{}}
	}
	// Each term of WHERE is tested as soon as what it reads has a value, so that what
	// fails early costs no JOIN:
	//
	//	FROM c JOIN t IN c.tags JOIN s IN t.sizes WHERE c.on AND s.n > 3 AND t.id = "x"
	//
	//	of the item: c.on      at each t: t.id = "x"      at each s: s.n > 3
	//
	// Terms of the item alone are kept as nodes too, because Filter makes one expression
	// of them for those who look at an item before it is whole.
	for _, n := range conjuncts(nil, s.where) {
		t := compileTest(n)
		at := p.depthOf(n)
		if at < 0 && isRandom(n) {
			p.late = append(p.late, t)
			continue
		}
		if at < 0 {
			p.filter = append(p.filter, n)
			p.tests = append(p.tests, t)
			continue
		}
		p.sources[at].tests = append(p.sources[at].tests, t)
	}
	// One row of all needs no order.
	if s.grouped() {
		p.group = newGroupPlan(s)
		return p
	}
	p.order = s.order
	for _, o := range s.order {
		key, desc := o.compile()
		p.keys = append(p.keys, key)
		p.descs = append(p.descs, desc)
	}
	p.row = compileRow(s, s.value, s.fields())
	return p
}

// fields are the expressions of the SELECT list.
func (s *selection) fields() []node {
	var list []node
	for _, f := range s.list {
		list = append(list, f.of)
	}
	return list
}

// rowSize is room for a row of a few properties.
const rowSize = 128

// compileRow returns what computes a row, of VALUE or of a list.
func compileRow(s *selection, value node, list []node) eval {
	switch {
	case s.star:
		return compile(&path{root: s.from[0].slot})
	case value != nil:
		return compile(value)
	}
	names := s.names()
	quoted := make([][]byte, len(names))
	for i, name := range names {
		quoted[i] = append(appendQuoted(nil, []byte(name)), ':')
	}
	values := make([]rawEval, len(list))
	for i, n := range list {
		values[i] = compileRaw(n)
	}
	return func(item []byte, f *frame) Value {
		out := append(make([]byte, 0, rowSize), '{')
		for i, e := range values {
			size := len(out)
			if size > 1 {
				out = append(out, ',')
			}
			out = append(out, quoted[i]...)
			// An undefined value has no property in the row: its name, written already, is
			// taken back. To compute the value first would need memory for each.
			before := len(out)
			if out = e(out, item, f); len(out) == before {
				out = out[:size]
			}
			if len(out) > TextMadeMax {
				f.spent = true
			}
			// Spent makes this false as well; one place ends the row.
			if !f.charge(workNode + len(out) - before) {
				return Value{}
			}
		}
		return Value{typ: Object, data: append(out, '}')}
	}
}

// rawEval appends a value as JSON, nothing for Undefined.
type rawEval func(dst, item []byte, f *frame) []byte

// compileRaw copies what a path finds as it is written.
func compileRaw(n node) rawEval {
	if p, ok := n.(*path); ok {
		// Not parsed and printed again: numbers come out as they went in, and most
		// columns of most queries are paths.
		return func(dst, item []byte, f *frame) []byte { return append(dst, f.lookup(p.in(item, f), p.steps)...) }
	}
	e := compile(n)
	return func(dst, item []byte, f *frame) []byte { return e(item, f).AppendJSON(dst) }
}

// conjuncts appends the terms that all must be true for n to be.
func conjuncts(list []node, n node) []node {
	if l, ok := n.(*logical); ok && l.op == "AND" {
		for _, t := range l.terms {
			list = conjuncts(list, t)
		}
		return list
	}
	if n == nil {
		return list
	}
	return append(list, n)
}

// depthOf returns the last source that n reads, -1 if it reads none.
func (p *plan) depthOf(n node) int {
	// Sources are entered in their order, so the last that is read decides when all of
	// them have values.
	depth := -1
	visit(n, func(n node) {
		to, ok := n.(*path)
		if !ok {
			return
		}
		at := slices.IndexFunc(p.sources, func(s planSource) bool { return s.slot == to.root })
		depth = max(depth, at)
	})
	return depth
}

// each calls emit for every row of FROM for which WHERE is true, until emit returns false or
// the budget is spent.
func (p *plan) each(item []byte, f *frame, emit func() bool) bool {
	// A test that fails ends this item, not the walk: true means that the next one is
	// wanted. A budget that is spent ends both, by f.spent.
	return !passes(p.tests, item, f) || !passes(p.late, item, f) || p.join(item, f, 0, emit)
}

// passes reports whether all tests are true.
func passes(tests []test, item []byte, f *frame) bool {
	for _, t := range tests {
		if !f.charge(workNode) || t(item, f) != isTrue {
			return false
		}
	}
	return true
}

// join goes through the values of the sources from one on.
func (p *plan) join(item []byte, f *frame, at int, emit func() bool) bool {
	if at == len(p.sources) {
		return emit()
	}
	s := &p.sources[at]
	value := func(raw []byte) bool {
		// Each value tried is counted, also those that fail: three JOINs over a thousand
		// elements try 10^9.
		if !f.countRow() {
			return false
		}
		f.roots[s.slot] = raw
		return !passes(s.tests, item, f) || p.join(item, f, at+1, emit)
	}
	found := value
	if s.each {
		found = func(raw []byte) bool { return eachElement(raw, value) }
	}
	// A subquery as a source gives rows, and with IN the elements of each row.
	if s.rows != nil {
		return s.rows.rows(item, f, func(v Value) bool { return found(v.Raw()) })
	}
	raw := f.lookup(s.from.in(item, f), s.steps)
	// JOIN of a path that is not there gives no rows, which is no error.
	if raw == nil {
		return true
	}
	return found(raw)
}

// eachElement calls f with the elements of an array until it returns false.
func eachElement(raw []byte, f func(raw []byte) bool) bool {
	on := true
	document.Elements(raw, func(_ int, raw []byte) bool {
		on = f(raw)
		return on
	})
	return on
}

// ordersItem reports whether ORDER BY speaks of the item alone.
func (p *plan) ordersItem() bool {
	return !slices.ContainsFunc(p.order, func(o ordering) bool { return p.depthOf(o.by) >= 0 })
}

// reads calls f with every path of the query.
func (p *plan) reads(f func(*path)) {
	visitSelection(p.text, f)
}

func visitSelection(s *selection, f func(*path)) {
	if s.star {
		f(&path{root: s.from[0].slot})
	}
	for _, n := range s.children() {
		visit(n, func(n node) {
			switch n := n.(type) {
			case *path:
				f(n)
			case *subquery:
				if n.of.star {
					f(&path{root: n.of.from[0].slot})
				}
			}
		})
	}
}

// owned returns a row as JSON, in memory of its own.
func (p *plan) owned(row Value) []byte {
	// A list was put together by compileRow. VALUE and * may point into the item, whose
	// memory the caller uses for the next one.
	if p.text.list != nil {
		return row.data // made for the row
	}
	return row.AppendJSON(nil)
}
