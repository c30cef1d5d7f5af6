package accumulator

import "slices"

// Group is the values of match that members have in common: their canonical forms
// (document.AppendCanonical), one after the other. Groups with equal values are
// equal, and groups are ordered as their values. A Group has as many values as its
// rule has pairs, and at most GroupBytesMax bytes.
type Group string

// Values returns the raw JSON scalars in the order of Spec.Match. Numbers are in
// their shortest form.
func (g Group) Values() [][]byte {
	var values [][]byte
	for rest := []byte(g); len(rest) > 0; {
		n := scanScalar(rest, 0)
		if n == 0 {
			break
		}
		values = append(values, appendScalarJSON(nil, rest[:n], 0))
		rest = rest[n:]
	}
	return values
}

// String prints the values as a JSON array.
func (g Group) String() string {
	b := []byte{'['}
	for i, raw := range g.Values() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, raw...)
	}
	return string(append(b, ']'))
}

// value returns the canonical form of one value.
func (g Group) value(i int) []byte {
	rest := []byte(g)
	for ; i > 0 && len(rest) > 0; i-- {
		rest = rest[scanScalar(rest, 0):]
	}
	return rest[:scanScalar(rest, 0)]
}

// groupLen returns how many bytes of b its first n canonical forms have; ok is
// false if it does not begin with as many.
func groupLen(b []byte, n int) (length int, ok bool) {
	for range n {
		size := scanScalar(b[length:], 0)
		if size == 0 {
			return 0, false
		}
		length += size
	}
	return length, length <= GroupBytesMax
}

// sortedGroups returns the groups that have a share, in order.
func sortedGroups(shares map[Group]*Share) []Group {
	groups := make([]Group, 0, len(shares))
	for g, s := range shares {
		if !s.Zero() {
			groups = append(groups, g)
		}
	}
	slices.Sort(groups)
	return groups
}
