package query

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
)

// nodeSet finds an expression among others. Of long expressions that differ deep within, as a+1+1+1 and b+1+1+1
// do, no two are compared: each has a hash, and each part of it is hashed once.
type nodeSet struct {
	list  []node
	sums  []uint64 // of list; nil if it has nothing but paths
	known map[node]uint64
	seed  maphash.Seed
}

func newNodeSet(list []node) *nodeSet {
	s := &nodeSet{list: list}
	if slices.ContainsFunc(list, func(n node) bool { _, ok := n.(*path); return !ok }) {
		s.known, s.seed = make(map[node]uint64), maphash.MakeSeed()
		for _, n := range list {
			s.sums = append(s.sums, s.sum(n))
		}
	}
	return s
}

// find returns the place of the first expression that n is the same as, or a path in; -1 if there is none.
func (s *nodeSet) find(n node) int {
	if p, ok := n.(*path); ok {
		return slices.IndexFunc(s.list, func(of node) bool {
			q, ok := of.(*path)
			return ok && p.root == q.root && len(p.steps) >= len(q.steps) && slices.Equal(p.steps[:len(q.steps)], q.steps)
		})
	}
	if s.sums == nil {
		return -1
	}
	sum := s.sum(n)
	for i, of := range s.list {
		if s.sums[i] == sum && reflect.DeepEqual(n, of) {
			return i
		}
	}
	return -1
}

// sum returns the hash of an expression, which equal ones share.
func (s *nodeSet) sum(n node) uint64 {
	if sum, ok := s.known[n]; ok {
		return sum
	}
	var h maphash.Hash
	h.SetSeed(s.seed)
	writeOwn(&h, n)
	for _, child := range n.children() {
		maphash.WriteComparable(&h, s.sum(child))
	}
	sum := h.Sum64()
	s.known[n] = sum
	return sum
}

// writeOwn writes what an expression is beside its children. Whatever it left out, a query could have many
// expressions that differ in that alone.
func writeOwn(h *maphash.Hash, n node) {
	h.WriteString(reflect.TypeOf(n).String())
	switch n := n.(type) {
	case *literal:
		fmt.Fprint(h, n.value.typ, n.value.b)
		h.Write(n.value.data)
	case *notFinite:
		fmt.Fprint(h, n.sign)
	case *path:
		fmt.Fprint(h, n.root, n.steps)
	case *param:
		h.WriteString(n.name)
	case *udf:
		h.WriteString(n.name)
	case *unary:
		h.WriteString(n.op)
	case *operation:
		h.WriteString(n.op)
	case *logical:
		h.WriteString(n.op)
	case *call:
		h.WriteString(n.name)
	case *random:
		fmt.Fprint(h, n.seed)
	case *object:
		fmt.Fprintf(h, "%q", n.names)
	case *subquery:
		o := n.of
		fmt.Fprint(h, n.kind, o.distinct, o.star, o.base, o.slots, o.top != nil, o.value != nil, o.where != nil, o.limit != nil, len(o.group))
		for _, f := range o.list {
			fmt.Fprintf(h, "%q %q", f.as, f.alias)
		}
		for _, f := range o.from {
			fmt.Fprintf(h, "%q %d %t %t", f.alias, f.slot, f.each, f.of != nil)
		}
		for _, by := range o.order {
			fmt.Fprint(h, by.desc, by.nearest)
		}
	}
}
