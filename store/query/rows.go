package query

import (
	"bytes"
)

// Row is a row of a query between its two halves.
type Row struct {
	// Key orders the rows of all partitions, and is the position behind which a later page
	// begins: the sort keys, then the item's rank and the row's number in the item. For
	// DISTINCT and GROUP BY it has the identity of the row or group instead of a rank.
	Key []byte
	// Body is the row as JSON; for a Grouped query, a partial group.
	Body []byte
}

// runRow is a row, or a group, that a Run holds.
type runRow struct {
	key   []byte
	body  []byte
	group *groupState
	size  int // bytes, as measure returned them last
}

// rowOverhead is about how many bytes a row, or the state of an aggregate, takes beside its values.
const rowOverhead = 64

// measure returns about how many bytes of memory the row takes.
func (r *runRow) measure() int {
	n := rowOverhead + len(r.key) + len(r.body)
	if r.group != nil {
		n += r.group.measure()
	}
	return n
}

// measure returns about how many bytes of memory the group takes.
func (g *groupState) measure() int {
	n := 0
	for _, k := range g.keys {
		n += len(k)
	}
	for i := range g.states {
		n += rowOverhead + len(g.states[i].best.data) + len(g.states[i].sum.rest)
	}
	return n
}

// plainer reports whether a is the one to keep of two texts of equal values, such as 1 and 1.0:
// the shorter, else the lesser. So a result does not depend on which text comes first.
func plainer(a, b []byte) bool {
	return len(a) < len(b) || len(a) == len(b) && bytes.Compare(a, b) < 0
}

// rowHeap has the greatest key first.
type rowHeap []*runRow

func (h rowHeap) Len() int           { return len(h) }
func (h rowHeap) Less(i, j int) bool { return bytes.Compare(h[i].key, h[j].key) > 0 }
func (h rowHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *rowHeap) Push(x any)        { *h = append(*h, x.(*runRow)) }
func (h *rowHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
