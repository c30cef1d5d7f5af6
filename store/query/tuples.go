package query

import (
	"slices"
)

// TuplesMax bounds the combinations that Tuples returns.
const TuplesMax = 1024

// Tuples returns combinations of values of the paths, as raw JSON, one of which every
// item has that gives rows: such as partition keys and ids, written as IN or as
// (a AND b) OR (c AND d). ok is false if they are not known or more than TuplesMax.
func (q *Query) Tuples(paths ...[]string) (tuples [][][]byte, ok bool) {
	r := newResolver(nil, q.text)
	tuples = r.tuples(q.text.where, paths)
	for _, t := range tuples {
		if slices.ContainsFunc(t, func(raw []byte) bool { return raw == nil }) {
			return nil, false
		}
	}
	return tuples, true
}

// tuples returns combinations for n to be true; a value that is not known is nil.
func (r *resolver) tuples(n node, paths [][]string) [][][]byte {
	open := [][][]byte{make([][]byte, len(paths))}
	l, ok := n.(*logical)
	if !ok {
		for _, b := range r.bounds(nil, n) {
			at := slices.IndexFunc(paths, func(p []string) bool { return slices.Equal(p, b.Path) })
			if at < 0 || b.Each || b.Values == nil || len(b.Values) > TuplesMax {
				continue
			}
			var all [][][]byte
			for _, v := range b.Values {
				t := make([][]byte, len(paths))
				t[at] = v
				all = append(all, t)
			}
			return all
		}
		return open
	}
	if l.op == "OR" {
		var all [][][]byte
		for _, t := range l.terms {
			if all = append(all, r.tuples(t, paths)...); len(all) > TuplesMax {
				return open
			}
		}
		return all
	}
	for _, t := range l.terms {
		open = combine(open, r.tuples(t, paths))
	}
	return open
}

// combine returns what both lists say; what the second says of values that the first
// knows is left out, and so is all of it if that would be too many.
func combine(a, b [][][]byte) [][][]byte {
	if len(a)*len(b) > TuplesMax {
		return a
	}
	all := [][][]byte{}
	for _, s := range a {
		for _, t := range b {
			sum := slices.Clone(s)
			for i := range sum {
				if sum[i] == nil {
					sum[i] = t[i]
				}
			}
			if !slices.ContainsFunc(all, func(o [][]byte) bool { return slices.EqualFunc(o, sum, slices.Equal[[]byte]) }) {
				all = append(all, sum)
			}
		}
	}
	return all
}
