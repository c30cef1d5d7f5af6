package query

import (
	"bytes"
	"math"
	"time"
)

// Part is what the first half found in a partition.
type Part struct {
	Rows []Row // in the order of their keys
	More bool  // there may be rows behind the last
	// Until is a key behind the last row up to which no further rows are; nil if the
	// last row is as far as the part goes.
	Until []byte
}

// end returns the key up to which the part is known.
func (p *Part) end() []byte {
	if p.Until != nil || len(p.Rows) == 0 {
		return p.Until
	}
	return p.Rows[len(p.Rows)-1].Key
}

// PageConfig says where a page stands in the query.
type PageConfig struct {
	// Passed is how many rows earlier pages have passed, as the page before said.
	Passed int64
	// Rows is how many rows are wanted at most; 0 for all that there are.
	Rows int
	// End and Done are those of RunConfig, for what is made of groups.
	End  time.Time
	Done <-chan struct{}
}

// Page is what a query gives at once.
type Page struct {
	// Rows are the rows as JSON.
	Rows [][]byte
	// After is the key behind which the next page goes on; nil if there is none.
	After []byte
	// Passed is how many rows of the query are done, those that OFFSET leaves out
	// included.
	Passed int64
}

// Merge is the second half of a query: it brings the parts of all partitions
// together, makes rows of groups, drops what DISTINCT has seen, applies TOP and OFFSET
// LIMIT, and stops where a partition has more rows than it gave. The parts must be of
// runs that went on behind the same key; a page may be empty although there is a next
// one. Rows of a Stream come in the order of their keys too, so ranks tell partitions
// apart.
func (q *Query) Merge(parts []Part, cfg PageConfig) (*Page, error) {
	offset, limit := q.Window()
	end := int64(math.MaxInt64)
	if limit <= math.MaxInt64-offset {
		end = offset + limit
	}
	m := merger{plan: q.plan, at: make([]int, len(parts)), parts: parts}
	if q.plan.group != nil {
		m.frame = &frame{roots: make([][]byte, max(1, q.plan.text.slots)), madeMax: MadeMax, end: cfg.End, done: cfg.Done}
	}
	page := &Page{Passed: cfg.Passed}
	var last []byte
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
		row, err := m.take(key)
		if err != nil {
			return nil, err
		}
		last = key
		if row == nil {
			continue
		}
		page.Passed++
		if page.Passed > offset {
			page.Rows = append(page.Rows, row)
		}
	}
	return page, nil
}

// merger goes through the rows of all parts in the order of their keys.
type merger struct {
	plan  *plan
	frame *frame
	parts []Part
	at    []int
	end   []byte // how far the parts are known, when they have no next row
}

// next returns the least key that is not taken. ok is false if there is none, or if
// a part that ended may have a lesser one.
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

// take returns the row of a key, made of all rows that have it; nil if it is
// undefined.
func (m *merger) take(key []byte) ([]byte, error) {
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
		m.frame.begin(nil)
		row = m.plan.group.result(group, m.frame).Raw()
		if m.frame.spent {
			return nil, ErrTooMuch
		}
	}
	return row, nil
}
