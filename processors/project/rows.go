package project

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// ItemRowsMax bounds the rows of one item in one table. An item with more has one
// reject in their place.
const ItemRowsMax = 100_000

// itemShownMax bounds what all rejects of one item show.
const itemShownMax = 1 << 20

// RowsOf returns the rows of an item, which is valid JSON, and the rows that
// cannot be, table by table, elements in order. A nil body has none. The answer
// depends on nothing but the arguments, of which it keeps nothing.
func (p *Projection) RowsOf(key feed.PartitionKey, id string, body []byte) ([]Row, []Reject) {
	m := maker{p: p}
	return m.item(key, id, body)
}

// refusedKeys returns Table, Key and Source of the rows of an item that cannot be. The
// sink may have such a row if it was made before a column was added that refuses it.
func (p *Projection) refusedKeys(key feed.PartitionKey, id string, body []byte) []Row {
	m := maker{p: p, keep: true}
	m.item(key, id, body)
	return m.keys
}

// maker makes the rows of one item after the other.
type maker struct {
	p       *Projection
	many    bool // items will come; the rows of one are not kept until the next does
	key     feed.PartitionKey
	id      string
	body    []byte
	source  string // made when it is needed
	rows    []Row
	rejects []Reject
	keep    bool  // also the keys of refused rows
	keys    []Row // those

	t       *table
	kept    []Value        // of a row of the table, whose columns of the item are those of all
	first   int            // of the table's rows
	refused int            // of the table's rejects, the first
	told    int            // bytes that rejects show
	seen    map[string]int // keys of the table's rows, when they are many
	places  []int          // indexes of the element in the arrays
	roots   [rootCount][]byte
	where   [rootCount][]byte
	numbers [2][20]byte // indexes as JSON
	scratch []byte
	slab    []Value // of which rows are cut
}

// item makes the rows and rejects of an item.
func (m *maker) item(key feed.PartitionKey, id string, body []byte) ([]Row, []Reject) {
	if body == nil || m.p.sourceWhere != nil && !m.p.sourceWhere.True(body) {
		return nil, nil
	}
	m.body, m.key, m.id = body, key, id
	m.source, m.rows, m.rejects, m.told = "", m.rows[:0], nil, 0
	for i := range m.p.tables {
		m.table(&m.p.tables[i])
	}
	return m.rows, m.rejects
}

// slabValues is how many values of many items are allocated at once.
const slabValues = 512

// values returns the room for the values of a row.
func (m *maker) values(n int) []Value {
	if len(m.slab) < n {
		rows := 1
		switch {
		case m.many:
			rows = max(slabValues/n, 1)
		case len(m.t.each) > 0:
			rows = min(max(len(m.rows)-m.first, 4), 64)
		default:
		}
		m.slab = make([]Value, rows*n)
	}
	values := m.slab[:n:n]
	m.slab = m.slab[n:]
	return values
}

func (m *maker) table(t *table) {
	m.t, m.kept, m.first, m.refused, m.seen = t, nil, len(m.rows), len(m.rejects), nil
	if t.where != nil && t.perItem && !t.where.True(m.body) {
		return
	}
	if len(t.each) == 0 {
		m.roots = [rootCount][]byte{rootBare: m.body}
		m.row("")
		return
	}
	m.places = m.places[:0]
	if !m.walk(m.body, 0) {
		m.rows = m.rows[:m.first]
		m.rejects = append(m.rejects[:m.refused], m.reject("", "", fmt.Sprintf("the item has more than %d elements", ItemRowsMax)))
	}
}

// walk makes the rows of the arrays from level on, in the element parent. It is
// false if they are too many.
func (m *maker) walk(parent []byte, level int) bool {
	array, ok := document.Get(parent, m.t.each[level])
	if !ok {
		return true
	}
	switch kind := document.KindOf(array); kind {
	case document.Null:
		return true
	case document.Array:
	default:
		m.rejects = append(m.rejects, m.reject(m.element(), "", fmt.Sprintf("%s is %s, %s, where an array is expected",
			m.t.each[level].String(), kind, excerpt(string(array)))))
		return true
	}
	fits := true
	m.places = append(m.places, 0)
	document.Elements(array, func(i int, element []byte) bool {
		m.places[level] = i
		if level+1 < len(m.t.each) {
			fits = m.walk(element, level+1)
			return fits
		}
		m.elementRow(parent, element)
		fits = len(m.rows)-m.first+len(m.rejects)-m.refused <= ItemRowsMax
		return fits
	})
	m.places = m.places[:level]
	return fits
}

// elementRow makes the row of an element in the innermost array.
func (m *maker) elementRow(parent, element []byte) {
	depth := len(m.places)
	m.roots[rootBare], m.roots[rootOther], m.roots[rootParent] = element, m.body, parent
	m.roots[rootIndex] = strconv.AppendInt(m.numbers[0][:0], int64(m.places[depth-1]), 10)
	m.roots[rootParentIndex] = nil
	if depth > 1 {
		m.roots[rootParentIndex] = strconv.AppendInt(m.numbers[1][:0], int64(m.places[depth-2]), 10)
	}
	if !m.t.perItem {
		m.where = m.roots
		m.where[rootBare], m.where[rootOther] = m.body, element
		if !m.t.where.TrueIn(m.where[:]...) {
			return
		}
	}
	m.row(m.element())
}

// element writes the place of the element.
func (m *maker) element() string {
	var buf [40]byte
	b := buf[:0]
	for i, n := range m.places {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(b)
}

// row makes the row of which the roots are set, or its reject.
func (m *maker) row(element string) {
	t := m.t
	values := m.values(len(t.columns))
	for i := range t.columns {
		c := &t.columns[i]
		if m.kept != nil && c.path != nil && c.root == rootOther {
			values[i] = m.kept[i]
			continue
		}
		var err error
		if values[i], m.scratch, err = c.typ.convert(m.eval(c), m.scratch); err != nil {
			m.refuse(element, t.Columns[i].Name, err.Error())
			return
		}
	}
	m.kept = values
	for _, k := range t.Key {
		if values[k].IsNull() {
			m.refuse(element, t.Columns[k].Name, "is missing or null, and is part of the key")
			return
		}
	}
	r := Row{Table: t.index, Key: t.key(values), Values: values, Source: m.sourceName(), Element: element}
	if m.p.limiter != nil {
		if column, reason := m.p.limiter.CannotHold(&m.p.schema, &r); reason != "" {
			m.refuse(element, column, reason)
			return
		}
	}
	if first, taken := m.taken(r.Key); taken {
		m.refuse(element, "", "element "+m.rows[first].Element+" of the same item has the same key")
		return
	}
	m.rows = append(m.rows, r)
}

// eval returns what the expression of a column comes to.
func (m *maker) eval(c *column) query.Value {
	if c.path != nil {
		return c.path.Eval(m.roots[c.root])
	}
	return c.expr.EvalIn(m.roots[:]...)
}

// key returns the key of a row, which shares its memory if the columns allow.
func (t *table) key(values []Value) []Value {
	if t.keyFrom < 0 {
		return t.KeyOf(values)
	}
	end := t.keyFrom + len(t.Key)
	return values[t.keyFrom:end:end]
}

// seenMin is from how many rows on their keys are looked up in a map.
const seenMin = 16

// taken finds the row of the table with a key, and notes the key if there is none.
func (m *maker) taken(key []Value) (row int, ok bool) {
	if n := len(m.rows) - m.first; n < seenMin {
		for i := m.first; i < len(m.rows); i++ {
			if slices.Equal(m.rows[i].Key, key) {
				return i, true
			}
		}
		return 0, false
	}
	if m.seen == nil {
		m.seen = map[string]int{}
		for i := m.first; i < len(m.rows); i++ {
			m.seen[string(AppendKey(nil, m.rows[i].Key))] = i
		}
	}
	m.scratch = AppendKey(m.scratch[:0], key)
	if row, ok = m.seen[string(m.scratch)]; !ok {
		m.seen[string(m.scratch)] = len(m.rows)
	}
	return row, ok
}

func (m *maker) sourceName() string {
	if m.source == "" {
		m.source = SourceOf(m.p.container, m.key, m.id)
	}
	return m.source
}

func (m *maker) reject(element, column, reason string) Reject {
	return Reject{Table: m.t.index, Source: m.sourceName(), Element: element, Column: column, Reason: reason}
}

// refuse makes the reject of the row of which the roots are set.
func (m *maker) refuse(element, column, reason string) {
	r := m.reject(element, column, reason)
	if m.told < itemShownMax {
		r.Row = m.shown()
		m.told += len(r.Row)
	}
	m.rejects = append(m.rejects, r)
	if m.keep {
		m.keepKey()
	}
}

// keepKey keeps the key of the row of which the roots are set, if it has one.
func (m *maker) keepKey() {
	key := make([]Value, len(m.t.Key))
	for i, k := range m.t.Key {
		var err error
		c := &m.t.columns[k]
		if key[i], m.scratch, err = c.typ.convert(m.eval(c), m.scratch); err != nil || key[i].IsNull() {
			return
		}
	}
	m.keys = append(m.keys, Row{Table: m.t.index, Key: key, Source: m.sourceName()})
}

// shown returns what the columns came to, before they were converted.
func (m *maker) shown() []byte {
	out := []byte{'{'}
	for i := range m.t.columns {
		v := m.t.columns[i].expr.EvalIn(m.roots[:]...)
		raw := v.AppendJSON(m.scratch[:0])
		m.scratch = raw
		if len(raw) == 0 {
			continue
		}
		if len(out)+len(raw) > RejectRowBytesMax {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(document.AppendQuote(out, m.t.Columns[i].Name), ':'), raw...)
	}
	return append(out, '}')
}
