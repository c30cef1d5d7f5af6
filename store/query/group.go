package query

import (
	"fmt"
	"slices"
	"strconv"
)

// grouping is how the rows of a selection become groups: the keys that make groups different,
// the aggregates of each group, and the output, which reads both as roots.
type grouping struct {
	keys       []node
	aggregates []*call
	value      node   // or nil
	list       []node // of the fields
}

// regroup returns the grouping of a selection. In its output, keys and aggregates become roots
// from base on:
//
//	SELECT c.shop, SUM(c.n) * 2 FROM c GROUP BY c.shop     base 1
//	  output     root 1, root 2 * 2
//	  keys       c.shop     in root 1
//	  aggregates SUM(c.n)   in root 2
//
// alien is a path of the output that is neither, nil if there is none.
func regroup(s *selection) (g grouping, alien *path) {
	g.keys = s.group
	keys := newNodeSet(s.group)
	known := make(map[string]int)
	inner := make(map[int]bool)
	var walk func(n node, within bool) node
	walk = func(n node, within bool) node {
		if c, ok := n.(*call); ok && !within && aggregates[c.name] {
			// An aggregate that occurs twice is computed once. Its text tells, with the roots
			// by their numbers, because two roots may have one name.
			pr := printer{aliases: map[int]string{0: "r0"}}
			visit(c, func(n node) {
				if p, ok := n.(*path); ok {
					pr.aliases[p.root] = "r" + strconv.Itoa(p.root)
				}
			})
			pr.node(c, 0)
			at, ok := known[string(pr.out)]
			if !ok {
				at = len(g.aggregates)
				known[string(pr.out)] = at
				g.aggregates = append(g.aggregates, c)
			}
			return &path{root: s.base + len(s.group) + at}
		}
		// GROUP BY c.a makes c.a.b known too: the rest of the path is read in the key's root.
		if i := keys.find(n); i >= 0 {
			to := &path{root: s.base + i}
			if p, ok := n.(*path); ok {
				to.steps = p.steps[len(s.group[i].(*path).steps):]
			}
			return to
		}
		switch n := n.(type) {
		case *path:
			if !inner[n.root] && alien == nil {
				alien = n
			}
		case *subquery:
			for _, f := range n.of.from {
				inner[f.slot] = true
			}
			// An aggregate within a subquery is the subquery's own.
			return rebuild(n, func(n node) node { return walk(n, true) })
		}
		return rebuild(n, func(n node) node { return walk(n, within) })
	}
	if s.value != nil {
		g.value = walk(s.value, false)
	}
	for _, f := range s.list {
		g.list = append(g.list, walk(f.of, false))
	}
	return g, alien
}

// groupPlan is a compiled grouping.
type groupPlan struct {
	base  int
	keys  []eval
	names []string // of the aggregates
	args  []eval
	row   eval
}

func newGroupPlan(s *selection) *groupPlan {
	g, _ := regroup(s)
	p := &groupPlan{base: s.base, keys: compileAll(g.keys), row: compileRow(s, g.value, g.list)}
	for _, a := range g.aggregates {
		p.names = append(p.names, a.name)
		p.args = append(p.args, compile(a.args[0]))
	}
	return p
}

// groupState is a group: its keys as JSON, nil for undefined ones, and the states of its
// aggregates.
type groupState struct {
	keys   [][]byte
	states []state
	size   int // bytes, as measure returned them last; set in a subquery
}

// key appends the sort keys of the group's keys, which equal groups share, and stores the
// values of the keys in values.
func (p *groupPlan) key(dst []byte, values []Value, item []byte, f *frame) []byte {
	for i, k := range p.keys {
		values[i] = k(item, f)
		dst = f.appendSortKey(dst, values[i], false)
	}
	return dst
}

// keepPlainer keeps the plainer of two ways in which an equal key is written, so that the
// group does not depend on the order of its items.
func (g *groupState) keepPlainer(values []Value) {
	for i, v := range values {
		if v.typ >= Number && v.typ != String && plainer(v.data, g.keys[i]) {
			g.keys[i] = slices.Clone(v.data)
		}
	}
}

// newGroup returns a group with the keys of the present row. The row is not added. Keys are
// copied, since the item's memory is used again.
func (p *groupPlan) newGroup(item []byte, f *frame) *groupState {
	g := &groupState{states: make([]state, len(p.names))}
	for _, k := range p.keys {
		g.keys = append(g.keys, slices.Clone(k(item, f).Raw()))
	}
	return g
}

// add adds the present row.
func (p *groupPlan) add(g *groupState, item []byte, f *frame) {
	for i, arg := range p.args {
		v := arg(item, f)
		f.chargeNumbers(v, v)
		g.states[i].add(p.names[i], v)
	}
}

// result returns the row of a group.
func (p *groupPlan) result(g *groupState, f *frame) Value {
	for i, k := range g.keys {
		f.roots[p.base+i] = k
	}
	for i := range g.states {
		f.roots[p.base+len(p.keys)+i] = g.states[i].value(p.names[i]).Raw()
	}
	return p.row(nil, f)
}

// append appends a group: version, keys and states.
func (p *groupPlan) append(dst []byte, g *groupState) []byte {
	dst = append(dst, PartialVersion)
	for _, k := range g.keys {
		dst = appendBytes(dst, k)
	}
	for i := range g.states {
		dst = g.states[i].append(dst, p.names[i])
	}
	return dst
}

// read reads what append wrote.
func (p *groupPlan) read(b []byte) (*groupState, error) {
	if len(b) == 0 {
		return nil, ErrPartial
	}
	if b[0] != PartialVersion {
		return nil, fmt.Errorf("%w: version %d, want %d", ErrPartial, b[0], PartialVersion)
	}
	b = b[1:]
	g := &groupState{}
	for range p.keys {
		raw, rest, ok := readBytes(b)
		if !ok || len(raw) > 0 && parsed(raw).typ == Undefined {
			return nil, ErrPartial
		}
		if len(raw) == 0 {
			raw = nil
		}
		g.keys, b = append(g.keys, raw), rest
	}
	for _, name := range p.names {
		s, rest, err := readState(b, name)
		if err != nil {
			return nil, err
		}
		g.states, b = append(g.states, s), rest
	}
	if len(b) > 0 {
		return nil, ErrPartial
	}
	return g, nil
}

// merge adds another part of the same group.
func (p *groupPlan) merge(g, o *groupState) {
	for i, k := range o.keys {
		if plainer(k, g.keys[i]) {
			g.keys[i] = k
		}
	}
	for i := range g.states {
		g.states[i].merge(p.names[i], &o.states[i])
	}
}
