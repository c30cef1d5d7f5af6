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

// ItemRowsBytesMax bounds what the rows of one item in one table take in memory, estimated; a
// text that many of them have counts for each, since a sink writes it as often. An item with
// more has one reject in their place.
const ItemRowsBytesMax = 64 << 20

// itemShownMax bounds what all rejects of one item show.
const itemShownMax = 1 << 20

// RowsOf returns the rows of an item, which is valid JSON, and the rows that
// cannot be, table by table, elements in order. A nil body has none. The answer
// depends on nothing but the arguments, of which it keeps nothing.
func (p *Projection) RowsOf(key feed.PartitionKey, id string, body []byte) ([]Row, []Reject) {
	m := rowBuilder{p: p}
	return m.buildItem(key, id, body)
}

// refusedKeys returns Table, Key and Source of the rows of an item that cannot be, all of them where
// they are too large together. The sink may have such a row if it was made before a column was added
// that refuses it, or makes it larger.
func (p *Projection) refusedKeys(key feed.PartitionKey, id string, body []byte) []Row {
	m := rowBuilder{p: p, wantRefused: true}
	m.buildItem(key, id, body)
	return m.refusedKeys
}

// rowBuilder makes the rows of one item after the other. One goroutine uses it.
type rowBuilder struct {
	// Set by whoever makes it.
	p           *Projection
	reuse       bool // many items will come: the slice of rows of one is good until the next
	passing     bool // and their values, too
	wantRefused bool // also the keys of refused rows
	keysAlone   bool // no rows, and these keys of all elements; addKeysOfElements sets it for a while

	// Of the item at hand; buildItem sets them.
	key         feed.PartitionKey
	id          string
	body        []byte
	source      string // made when it is needed first
	rows        []Row
	rejects     []Reject
	refusedKeys []Row // with wantRefused
	shownBytes  int   // of rows that rejects show

	// Of the table at hand; buildTable sets them.
	t           *table
	itemValues  []Value        // of the table's last row: columns of the item are alike in all
	rowsFrom    int            // the table's first in rows
	rejectsFrom int            // and in rejects
	rowsBytes   int            // of its rows, of a table of elements; or of their keys
	keysFrom    int            // with keysAlone, the first of them in refusedKeys
	seen        map[string]int // keys of the table's rows, when they are many

	// Of the element at hand.
	indexes []int             // in the arrays, the outer first
	roots   [rootCount][]byte // what names in columns mean
	where   [rootCount][]byte // what names in the table's where mean
	numbers [2][20]byte       // the last two indexes as JSON

	scratch []byte
	slab    []Value // of which rows are cut
	whole   []Value // the slab before any was cut
}

// buildItem makes the rows and rejects of an item.
func (m *rowBuilder) buildItem(key feed.PartitionKey, id string, body []byte) ([]Row, []Reject) {
	if body == nil || m.p.sourceWhere != nil && !m.p.sourceWhere.True(body) {
		return nil, nil
	}
	m.body, m.key, m.id = body, key, id
	m.source, m.rows, m.rejects, m.shownBytes = "", m.rows[:0], nil, 0
	if m.passing {
		m.slab = m.whole
	}
	for i := range m.p.tables {
		m.buildTable(&m.p.tables[i])
	}
	return m.rows, m.rejects
}

// How many values of many items are allocated at once: at first, and later.
const (
	slabValuesMin = 64
	slabValuesMax = 512
)

// allocValues returns the room for the values of a row. Rows outlive the builder, in
// batches, so the room is used again only where they pass; it is cut from slabs to save an
// allocation for each row.
func (m *rowBuilder) allocValues(n int) []Value {
	if len(m.slab) < n {
		// How many rows are to come is not known. A slab for many items is twice as large as
		// the one before, because most batches of a quiet feed have a few changes; that of a
		// single item grows with the rows it has had.
		rows := 1
		switch {
		case m.reuse:
			rows = max(min(max(2*len(m.whole), slabValuesMin), slabValuesMax)/n, 1)
		case len(m.t.each) > 0:
			rows = min(max(len(m.rows)-m.rowsFrom, 4), 64)
		default:
		}
		m.slab = make([]Value, rows*n)
		m.whole = m.slab
	}
	values := m.slab[:n:n]
	m.slab = m.slab[n:]
	return values
}

func (m *rowBuilder) buildTable(t *table) {
	m.t, m.itemValues, m.rowsFrom, m.rejectsFrom, m.rowsBytes, m.seen = t, nil, len(m.rows), len(m.rejects), 0, nil
	if t.where != nil && t.perItem && !t.where.True(m.body) {
		return
	}
	if len(t.each) == 0 {
		m.roots = [rootCount][]byte{rootBare: m.body}
		m.buildRow("")
		return
	}
	m.indexes = m.indexes[:0]
	if !m.buildArrays(m.body, 0) {
		reason, large := fmt.Sprintf("the item has more than %d elements", ItemRowsMax), m.rowsBytes > ItemRowsBytesMax
		if large {
			reason = fmt.Sprintf("the rows of the item take more than %d MiB; select less of what its elements share", ItemRowsBytesMax>>20)
		}
		m.rows = m.rows[:m.rowsFrom]
		m.rejects = append(m.rejects[:m.rejectsFrom], m.reject("", "", reason))
		// One with too many elements had too many before any column was added.
		if large && m.wantRefused {
			m.addKeysOfElements()
		}
	}
}

// addKeysOfElements keeps the keys of all rows of the table at hand. They are bounded as rows are: where they
// alone are too many or too large, the sink has none of the rows.
func (m *rowBuilder) addKeysOfElements() {
	from := len(m.refusedKeys)
	m.keysAlone, m.keysFrom, m.rowsBytes, m.indexes = true, from, 0, m.indexes[:0]
	if !m.buildArrays(m.body, 0) {
		m.refusedKeys = m.refusedKeys[:from]
	}
	m.keysAlone = false
}

// buildArrays makes the rows of the arrays from level on, in the element parent. It is
// false if they are too many or too large; then one reject takes the place of all of them.
func (m *rowBuilder) buildArrays(parent []byte, level int) bool {
	array, ok := document.Get(parent, m.t.each[level])
	if !ok {
		return true
	}
	switch kind := document.KindOf(array); kind {
	case document.Null:
		return true
	case document.Array:
	default:
		if !m.keysAlone {
			m.rejects = append(m.rejects, m.reject(m.elementPath(), "", fmt.Sprintf("%s is %s, %s, where an array is expected",
				m.t.each[level].String(), kind, excerpt(string(array)))))
		}
		return true
	}
	fits := true
	m.indexes = append(m.indexes, 0)
	document.Elements(array, func(i int, element []byte) bool {
		m.indexes[level] = i
		if level+1 < len(m.t.each) {
			fits = m.buildArrays(element, level+1)
			return fits
		}
		m.buildElement(parent, element)
		made := len(m.rows) - m.rowsFrom + len(m.rejects) - m.rejectsFrom
		if m.keysAlone {
			made = len(m.refusedKeys) - m.keysFrom
		}
		fits = made <= ItemRowsMax && m.rowsBytes <= ItemRowsBytesMax
		return fits
	})
	m.indexes = m.indexes[:level]
	return fits
}

// buildElement makes the row of an element in the innermost array.
func (m *rowBuilder) buildElement(parent, element []byte) {
	depth := len(m.indexes)
	m.roots[rootBare], m.roots[rootOther], m.roots[rootParent] = element, m.body, parent
	m.roots[rootIndex] = strconv.AppendInt(m.numbers[0][:0], int64(m.indexes[depth-1]), 10)
	m.roots[rootParentIndex] = nil
	if depth > 1 {
		m.roots[rootParentIndex] = strconv.AppendInt(m.numbers[1][:0], int64(m.indexes[depth-2]), 10)
	}
	// Columns and where read bare names from different roots: price in a column is the
	// element's, status in where is the item's. A where that reads the item alone was
	// decided for all elements by buildTable.
	if !m.t.perItem {
		m.where = m.roots
		m.where[rootBare], m.where[rootOther] = m.body, element
		if !m.t.where.TrueIn(m.where[:]...) {
			return
		}
	}
	m.buildRow(m.elementPath())
}

// elementPath writes the place of the element.
func (m *rowBuilder) elementPath() string {
	var buf [40]byte
	b := buf[:0]
	for i, n := range m.indexes {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(b)
}

// buildRow makes a row from the roots, or its reject.
func (m *rowBuilder) buildRow(element string) {
	if m.keysAlone {
		m.addRefusedKey()
		return
	}
	t := m.t
	values := m.allocValues(len(t.columns))
	for i := range t.columns {
		c := &t.columns[i]
		// An order with 1,000 lines has its customer in each of its rows: a column that is
		// nothing but a field of the item is read for the first row alone.
		if m.itemValues != nil && c.path != nil && c.root == rootOther {
			values[i] = m.itemValues[i]
			continue
		}
		var err error
		if values[i], m.scratch, err = c.typ.convert(m.eval(c), m.scratch); err != nil {
			m.refuse(element, t.Columns[i].Name, err.Error())
			return
		}
	}
	// Only behind the last column: a row that was refused half-way has no values to take.
	m.itemValues = values
	for _, k := range t.Key {
		if values[k].IsNull() {
			m.refuse(element, t.Columns[k].Name, "is missing or null, and is part of the key")
			return
		}
	}
	r := Row{Table: t.index, Key: t.key(values), Values: values, Source: m.sourceName(), Element: element}
	// The sink says what it cannot hold before it is written: it would refuse a batch of
	// 1,000 rows with one of them as a whole, and the Host would have to halve it.
	if m.p.limiter != nil {
		if column, reason := m.p.limiter.CannotHold(&m.p.schema, &r); reason != "" {
			m.refuse(element, column, reason)
			return
		}
	}
	if first, taken := m.findKey(r.Key); taken {
		m.refuse(element, "", "element "+m.rows[first].Element+" of the same item has the same key")
		return
	}
	m.rows = append(m.rows, r)
	if len(t.each) > 0 {
		m.rowsBytes += rowBytes(&r)
	}
}

// eval evaluates the expression of a column.
func (m *rowBuilder) eval(c *column) query.Value {
	if c.path != nil {
		return c.path.Eval(m.roots[c.root])
	}
	return c.expr.EvalIn(m.roots[:]...)
}

// key returns the key of a row. It shares the memory of values if the key's columns follow
// each other there, as in most tables.
func (t *table) key(values []Value) []Value {
	if t.keyFrom < 0 {
		return t.KeyOf(values)
	}
	end := t.keyFrom + len(t.Key)
	return values[t.keyFrom:end:end]
}

// seenMin is from how many rows on their keys are looked up in a map.
const seenMin = 16

// findKey finds the row of the table with a key, and notes the key if there is none.
func (m *rowBuilder) findKey(key []Value) (row int, ok bool) {
	if n := len(m.rows) - m.rowsFrom; n < seenMin {
		for i := m.rowsFrom; i < len(m.rows); i++ {
			if slices.Equal(m.rows[i].Key, key) {
				return i, true
			}
		}
		return 0, false
	}
	if m.seen == nil {
		m.seen = map[string]int{}
		for i := m.rowsFrom; i < len(m.rows); i++ {
			m.seen[string(AppendKey(nil, m.rows[i].Key))] = i
		}
	}
	m.scratch = AppendKey(m.scratch[:0], key)
	if row, ok = m.seen[string(m.scratch)]; !ok {
		m.seen[string(m.scratch)] = len(m.rows)
	}
	return row, ok
}

func (m *rowBuilder) sourceName() string {
	if m.source == "" {
		m.source = SourceOf(m.p.container, m.key, m.id)
	}
	return m.source
}

func (m *rowBuilder) reject(element, column, reason string) Reject {
	return Reject{Table: m.t.index, Source: m.sourceName(), Element: element, Column: column, Reason: reason}
}

// refuse makes the reject of the row at hand.
func (m *rowBuilder) refuse(element, column, reason string) {
	r := m.reject(element, column, reason)
	if m.shownBytes < itemShownMax {
		r.Row = m.rowJSON()
		m.shownBytes += len(r.Row)
	}
	m.rejects = append(m.rejects, r)
	if m.wantRefused {
		m.addRefusedKey()
	}
}

// addRefusedKey keeps the key of the row at hand, if it has one that the sink can hold.
func (m *rowBuilder) addRefusedKey() {
	values := make([]Value, len(m.t.columns))
	for _, k := range m.t.Key {
		var err error
		c := &m.t.columns[k]
		if values[k], m.scratch, err = c.typ.convert(m.eval(c), m.scratch); err != nil || values[k].IsNull() {
			return
		}
	}
	r := Row{Table: m.t.index, Key: m.t.KeyOf(values), Values: values, Source: m.sourceName()}
	// A row with a key that the sink cannot hold has never been there. Some sinks do not even take such
	// a key of a row that goes, and the change would end in the dead letters.
	if m.p.limiter != nil {
		if _, reason := m.p.limiter.CannotHold(&m.p.schema, &r); reason != "" {
			return
		}
	}
	r.Values = nil
	m.refusedKeys = append(m.refusedKeys, r)
	if m.keysAlone {
		m.rowsBytes += rowBytes(&Row{Source: r.Source, Values: r.Key})
	}
}

// rowJSON returns what the columns came to, before they were converted.
func (m *rowBuilder) rowJSON() []byte {
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
