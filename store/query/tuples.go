package query

import (
	"slices"
)

// TuplesMax bounds the combinations that Tuples returns.
const TuplesMax = 1024

// Tuples returns combinations of values of the paths, as raw JSON. Every item that has rows has
// one of the combinations. A condition may write them as IN, or as (a AND b) OR (c AND d);
// the paths are such as the partition key and the id. ok is false if they are not known, or
// if there are more than TuplesMax.
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
	// open is one combination of which nothing is known, which holds for every n. For the
	// paths shop and id:
	//
	//	shop = "x" AND id IN (1, 2)                  (x, 1) (x, 2)
	//	shop = "x" AND id = 1 OR shop = "y"          (x, 1) (y, nil)
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
	// A term that is left out only makes the answer wider.
	for work, i := 0, 0; i < len(l.terms) && work < combineMax; i++ {
		next := r.tuples(l.terms[i], paths)
		if len(next) == 1 && !slices.ContainsFunc(next[0], func(raw []byte) bool { return raw != nil }) {
			continue // it says nothing
		}
		work += len(open) * len(next)
		open = combine(open, next)
	}
	return open
}

// combineMax bounds the combinations that are tried for one AND.
const combineMax = 8 * TuplesMax

// combine returns the combinations of both lists. Values that the first list knows stay as
// they are: the query tests its whole condition again, so the second list's may be ignored.
// The same holds for the whole second list if there would be too many combinations.
func combine(a, b [][][]byte) [][][]byte {
	if len(a)*len(b) > TuplesMax {
		return a
	}
	all := [][][]byte{}
	known := map[string]bool{}
	for _, s := range a {
		for _, t := range b {
			sum := slices.Clone(s)
			for i := range sum {
				if sum[i] == nil {
					sum[i] = t[i]
				}
			}
			if key := identityOf(sum); !known[key] {
				known[key] = true
				all = append(all, sum)
			}
		}
	}
	return all
}
