package query

import (
	"bytes"
	"math"
	"time"
)

// Part is the result of a Run: the rows of one partition that a page can use.
type Part struct {
	Rows []Row // in the order of their keys
	More bool  // there may be rows behind the last
	// Until is a key behind the last row up to which no further rows are; nil if the
	// last row is as far as the part goes.
	Until []byte
}

// end returns the key up to which the part has all rows.
func (p *Part) end() []byte {
	if p.Until != nil || len(p.Rows) == 0 {
		return p.Until
	}
	return p.Rows[len(p.Rows)-1].Key
}

// PageConfig says where a page begins in the query, and what bounds it.
type PageConfig struct {
	// Passed is Page.Passed of the page before; 0 for the first.
	Passed int64
	// Rows is how many rows are wanted at most; 0 for all of the parts.
	Rows int
	// Bytes bounds the bytes of the rows, of which there is one anyway; 0 for no bound.
	Bytes int
	// End and Done are as in RunConfig, for making rows of groups.
	End  time.Time
	Done <-chan struct{}
	// Share holds the rows of groups and what is made for one, as RunConfig.Share does. The rows of
	// the parts are not counted.
	Share *Share
}

// Page is the result of a query's page.
type Page struct {
	// Rows are the rows as JSON.
	Rows [][]byte
	// After is the key behind which the next page begins; nil if this is the last page.
	After []byte
	// Passed is how many rows of the query are done, including those that OFFSET leaves
	// out.
	Passed int64
	// Cut says that the page ends because the next row has too many bytes for it.
	Cut bool
}

// Merge is the second half of a query. It merges the parts of all partitions, makes rows of
// groups, drops the rows that DISTINCT has seen, applies TOP and OFFSET LIMIT, and stops
// where a partition has more rows than its part. The parts must be of runs with the same
// RunConfig.After. A page may be empty although there is a next one. The error is
// ErrPartial or one of Run.Item.
func (q *Query) Merge(parts []Part, cfg PageConfig) (*Page, error) {
	// Rows that OFFSET leaves out are merged like others: only the merged order tells which
	// rows they are.
	offset, limit := q.Window()
	end := int64(math.MaxInt64)
	if limit <= math.MaxInt64-offset {
		end = offset + limit
	}
	m := merger{plan: q.plan, at: make([]int, len(parts)), parts: parts}
	if q.plan.group != nil {
		m.frame = &frame{roots: make([][]byte, max(1, q.plan.text.slots)), madeMax: MadeMax, end: cfg.End, done: cfg.Done, share: cfg.Share}
	}
	page := &Page{Passed: cfg.Passed}
	var last []byte
	size := 0 // of the rows
	for page.Passed < end {
		key, ok := m.next()
		if !ok {
			page.After = m.end
			return page, nil
		}
		if cfg.Rows > 0 && len(page.Rows) == cfg.Rows {
			page.After = last
			return page, nil
		}
		row, err := m.takeRows(key)
		if err != nil {
			return nil, err
		}
		if row == nil {
			last = key
			continue // an undefined row of a group counts neither for OFFSET nor for LIMIT
		}
		if page.Passed >= offset {
			// The next page makes the row anew.
			if size += len(row); cfg.Bytes > 0 && size > cfg.Bytes && len(page.Rows) > 0 {
				page.After, page.Cut = last, true
				return page, nil
			}
			if page.Rows = append(page.Rows, row); m.frame != nil {
				m.frame.keep(size)
				if m.frame.spent {
					return nil, m.frame.fault()
				}
			}
		}
		last = key
		page.Passed++
	}
	return page, nil
}

// merger goes through the rows of all parts in the order of their keys.
type merger struct {
	plan  *plan
	frame *frame
	parts []Part
	at    []int
	end   []byte // the least key at which a part with more rows ends, if its rows are used up
}

// next returns the least key that was not taken yet. ok is false if there is none, or if a part
// that has ended may have a lesser key that it did not give:
//
//	part A   1 4 6   no more rows      next: 1, 2, 4, 5, then nothing:
//	part B   2 5     more rows      B may have a row between 5 and 6
func (m *merger) next() (key []byte, ok bool) {
	m.end = nil
	for i := range m.parts {
		p := &m.parts[i]
		if m.at[i] == len(p.Rows) {
			if end := p.end(); p.More && (m.end == nil || bytes.Compare(end, m.end) < 0) {
				m.end = end
			}
			continue
		}
		if k := p.Rows[m.at[i]].Key; !ok || bytes.Compare(k, key) < 0 {
			key, ok = k, true
		}
	}
	if ok && m.end != nil && bytes.Compare(key, m.end) > 0 {
		return nil, false
	}
	return key, ok
}

// takeRows takes all rows with a key, and returns the one row that they make; nil if it is
// undefined. Several parts have the same key for equal rows of DISTINCT, and for parts of
// one group.
func (m *merger) takeRows(key []byte) ([]byte, error) {
	var row []byte
	var group *groupState
	for i, p := range m.parts {
		if m.at[i] == len(p.Rows) || !bytes.Equal(p.Rows[m.at[i]].Key, key) {
			continue
		}
		body := p.Rows[m.at[i]].Body
		m.at[i]++
		if m.plan.group == nil {
			if row == nil || plainer(body, row) {
				row = body
			}
			continue
		}
		g, err := m.plan.group.read(body)
		if err != nil {
			return nil, err
		}
		if group == nil {
			group = g
		} else {
			m.plan.group.merge(group, g)
		}
	}
	if group != nil {
		m.frame.beginItem(nil, key)
		row = m.plan.group.result(group, m.frame).Raw()
		if m.frame.spent {
			return nil, m.frame.fault()
		}
	}
	return row, nil
}

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
