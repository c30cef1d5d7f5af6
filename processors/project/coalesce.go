package project

import (
	"encoding/binary"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

// coalescer collects what changes mean and keeps the newest state of each row and of each
// reject. One goroutine uses it, for one batch.
//
//	change      row o1          row o2          the batch says
//	12 of a     total 5         -               put o1 (total 7), drop o2
//	13 of a     total 7         -
//	14 of b     -               gone
//
// So a batch is as long as what it touched, not as its changes are many, and a sink that
// carries it out twice ends in the same state.
type coalescer struct {
	p       *Projection
	sources map[string]int // index in items
	items   []itemState
	bytes   int // of what was taken, estimated

	before, after rowBuilder
	slab          []rowState // of which those of items are cut
	slabRows      int        // the rows that it had before any was cut
	source        string     // of the row that was counted last

	// dropsRefused says that rows go whose place is a reject's, whether or not the body before had them. A backfill that
	// would have removed one may have been stopped, so it is true without one too, but where the row of
	// an item that has expired stays when the item is made again as a reject.
	dropsRefused bool
}

// itemState is what has become of one item's rows and rejects, in the order in
// which they were touched first.
type itemState struct {
	rows         []rowState
	rejects      []rejectState
	rowsByKey    map[string]int    // rows, when they are many
	rejectsByKey map[rejectKey]int // rejects, when they are many
}

// rejectKey identifies a reject of one item. A reject has no key of its own: often it is
// one because its key columns have no value.
type rejectKey struct {
	table   int
	element string
}

// rowState is a row as it is, or was before it went.
type rowState struct {
	Row
	gone bool
}

type rejectState struct {
	Reject
	gone bool
}

// newCoalescer returns an empty one. backfilling says that the sink may have rows from before columns were added which are
// rejects with them.
func newCoalescer(p *Projection, backfilling bool) *coalescer {
	return &coalescer{
		p: p, sources: map[string]int{}, dropsRefused: backfilling || !p.keepsLives(),
		before: rowBuilder{p: p, reuse: true, passing: true}, after: rowBuilder{p: p, reuse: true},
	}
}

// empty says whether nothing was taken.
func (g *coalescer) empty() bool { return len(g.items) == 0 }

// addChange adds what a change means. The error says that it cannot be understood.
func (g *coalescer) addChange(ch *feed.Change) error {
	switch {
	case ch.Op == feed.OpExpire && g.p.cfg.OnExpire != Delete:
		return nil // analytics keep what the store forgets
	case ch.Op == feed.OpReplace && !ch.Touches(g.p.touches):
		return nil
	}
	before, err := ch.BeforeBody()
	if err != nil {
		return processors.Reject(err)
	}
	oldRows, oldRejects := g.before.buildItem(ch.Key, ch.ID, before)
	rows, rejects := g.after.buildItem(ch.Key, ch.ID, ch.After)
	// A row that was fine before a column was added may be a reject since: the body before
	// the change makes the same reject now, so the difference does not say that the row
	// goes, and yet the sink has it from then.
	if g.dropsRefused && len(oldRejects) > 0 {
		g.dropRefused(ch.Key, ch.ID, before, rows)
	}
	if g.dropsRefused && len(rejects) > 0 {
		g.dropRefused(ch.Key, ch.ID, ch.After, rows)
	}
	g.diffRows(oldRows, rows)
	g.diffRejects(oldRejects, rejects)
	return nil
}

// addItem adds all rows and rejects that an item has, whatever the sink has of it. What the
// sink is known to have of it, and what the body before made, goes unless the item still has
// it: first all of that is set to gone, then what is there is set over it.
func (g *coalescer) addItem(was *ItemToRepair, before, body []byte) {
	oldRows, oldRejects := g.p.RowsOf(was.Key, was.ID, before)
	for _, rows := range [][]Row{was.Rows, oldRows} {
		for i := range rows {
			g.setRow(&rows[i], true)
		}
	}
	for _, rejects := range [][]Reject{was.Rejects, oldRejects} {
		for i := range rejects {
			g.setReject(&rejects[i], true)
		}
	}
	rows, rejects := g.p.RowsOf(was.Key, was.ID, body)
	// As in addChange: the sink may have, as rows, what is a reject now.
	if g.dropsRefused && len(rejects) > 0 {
		g.dropRefused(was.Key, was.ID, body, rows)
	}
	for i := range rows {
		g.setRow(&rows[i], false)
	}
	for i := range rejects {
		g.setReject(&rejects[i], false)
	}
}

// addKept adds the rows and rejects that stay of an item beside those that it has.
func (g *coalescer) addKept(was *ItemToRepair, body []byte) {
	if len(was.KeptRows)+len(was.KeptRejects) == 0 {
		return
	}
	rows, rejects := g.p.RowsOf(was.Key, was.ID, body)
	now := rowFinder{rows: rows}
	for i := range was.KeptRows {
		if now.find(&was.KeptRows[i]) == nil { // else the item has made it anew
			g.setRow(&was.KeptRows[i], false)
		}
	}
	for i := range was.KeptRejects {
		r := &was.KeptRejects[i]
		if !slices.ContainsFunc(rejects, func(o Reject) bool { return o.Table == r.Table && o.Element == r.Element }) {
			g.setReject(r, false)
		}
	}
}

// dropRefused sets rows that a body would have, were they not rejects, to gone, unless they
// are among rows.
func (g *coalescer) dropRefused(key feed.PartitionKey, id string, body []byte, rows []Row) {
	now := rowFinder{rows: rows}
	for _, r := range g.p.refusedKeys(key, id, body) {
		if now.find(&r) == nil {
			g.setRow(&r, true)
		}
	}
}

// diffRows adds the difference between the rows that one item had and has.
func (g *coalescer) diffRows(before, after []Row) {
	if len(before) == 0 && g.addNewItem(after) {
		return
	}
	// Rows that are the same before and after are not in the batch at all: a change of one
	// line of an order does not write the other lines again.
	old := rowFinder{rows: before}
	for i := range after {
		if was := old.find(&after[i]); was == nil || !EqualRows(was, &after[i]) {
			g.setRow(&after[i], false)
		}
	}
	if len(before) == 0 {
		return
	}
	now := rowFinder{rows: after}
	for i := range before {
		if now.find(&before[i]) == nil {
			g.setRow(&before[i], true)
		}
	}
}

// addNewItem adds all rows of an item that the batch has not touched before, and is false if
// it has. Rows of one item have different keys, so nothing has to be looked up: a backfill
// reads the log from its beginning and consists of little else.
func (g *coalescer) addNewItem(rows []Row) bool {
	if len(rows) == 0 {
		return true
	}
	if _, ok := g.sources[rows[0].Source]; ok {
		return false
	}
	// The full slice expression keeps a later append of one item from running into the
	// states of the next.
	if len(g.slab) < len(rows) {
		g.slabRows = min(max(2*g.slabRows, slabRowsMin), slabRowsMax)
		g.slab = make([]rowState, max(g.slabRows, len(rows)))
	}
	states := g.slab[:len(rows):len(rows)]
	g.slab = g.slab[len(rows):]
	for i := range rows {
		states[i].Row = rows[i]
		g.bytes += g.rowBytes(&rows[i])
	}
	g.stateOf(rows[0].Source).rows = states
	return true
}

// How many rows of items are allocated at once: at first, and later. See allocValues.
const (
	slabRowsMin = 8
	slabRowsMax = 128
)

// manyRows is from how many rows of one item on they are looked up in a map. Most items have
// a few, for which a map costs more than going through them; an order with 10,000 lines
// would take their square.
const manyRows = 16

// rowFinder finds rows of one item by table and key.
type rowFinder struct {
	rows  []Row
	byKey map[string]int
	key   []byte
}

func (f *rowFinder) find(r *Row) *Row {
	if len(f.rows) < manyRows {
		i := slices.IndexFunc(f.rows, func(x Row) bool { return x.Table == r.Table && slices.Equal(x.Key, r.Key) })
		if i < 0 {
			return nil
		}
		return &f.rows[i]
	}
	if f.byKey == nil {
		f.byKey = make(map[string]int, len(f.rows))
		for i := range f.rows {
			f.key = appendTableKey(f.key[:0], &f.rows[i])
			f.byKey[string(f.key)] = i
		}
	}
	f.key = appendTableKey(f.key[:0], r)
	if i, ok := f.byKey[string(f.key)]; ok {
		return &f.rows[i]
	}
	return nil
}

func appendTableKey(dst []byte, r *Row) []byte {
	return AppendKey(binary.AppendUvarint(dst, uint64(r.Table)), r.Key)
}

// diffRejects adds the difference between the rejects that one item had and has.
func (g *coalescer) diffRejects(before, after []Reject) {
	if len(before) == 0 && len(after) == 0 {
		return
	}
	// What is left in old at the end has gone.
	old := make(map[rejectKey]*Reject, len(before))
	for i := range before {
		old[rejectKey{before[i].Table, before[i].Element}] = &before[i]
	}
	for i := range after {
		r := &after[i]
		at := rejectKey{r.Table, r.Element}
		was := old[at]
		delete(old, at)
		if was == nil || was.Column != r.Column || was.Reason != r.Reason || string(was.Row) != string(r.Row) {
			g.setReject(r, false)
		}
	}
	for i := range before {
		if r := &before[i]; old[rejectKey{r.Table, r.Element}] != nil {
			g.setReject(r, true)
		}
	}
}

// stateOf returns what the batch says of an item so far. The pointer is good until the next
// item is added.
func (g *coalescer) stateOf(source string) *itemState {
	i, ok := g.sources[source]
	if !ok {
		i = len(g.items)
		g.sources[source] = i
		g.items = append(g.items, itemState{})
	}
	return &g.items[i]
}

// setRow says what a row is, or that it is gone. It replaces what was said of it before.
func (g *coalescer) setRow(r *Row, gone bool) {
	state := rowState{Row: *r, gone: gone}
	if gone {
		// The row was before the change, and the next one's takes its room.
		state.Key, state.Values = slices.Clone(r.Key), nil
	}
	g.bytes += g.rowBytes(&state.Row)
	t := g.stateOf(r.Source)
	if i := t.findRow(r); i >= 0 {
		t.rows[i] = state
		return
	}
	if t.rowsByKey != nil {
		t.rowsByKey[string(appendTableKey(nil, r))] = len(t.rows)
	}
	t.rows = append(t.rows, state)
}

// findRow returns the index of a row, -1 if it was not touched yet.
func (t *itemState) findRow(r *Row) int {
	if len(t.rows) < manyRows {
		return slices.IndexFunc(t.rows, func(x rowState) bool { return x.Table == r.Table && slices.Equal(x.Key, r.Key) })
	}
	if t.rowsByKey == nil {
		t.rowsByKey = make(map[string]int, 2*len(t.rows))
		for i := range t.rows {
			t.rowsByKey[string(appendTableKey(nil, &t.rows[i].Row))] = i
		}
	}
	if i, ok := t.rowsByKey[string(appendTableKey(nil, r))]; ok {
		return i
	}
	return -1
}

// setReject says what a reject is, or that it is gone.
func (g *coalescer) setReject(r *Reject, gone bool) {
	state := rejectState{Reject: *r, gone: gone}
	// Of one that goes only its identity counts. Its row may be large, and would be held
	// until the batch is written.
	if gone {
		state.Reject = Reject{Table: r.Table, Source: r.Source, Element: r.Element}
	}
	g.bytes += len(r.Row) + len(r.Reason) + len(r.Source)
	t := g.stateOf(r.Source)
	if i := t.findReject(r); i >= 0 {
		t.rejects[i] = state
		return
	}
	if t.rejectsByKey != nil {
		t.rejectsByKey[rejectKey{r.Table, r.Element}] = len(t.rejects)
	}
	t.rejects = append(t.rejects, state)
}

// findReject returns the index of a reject, -1 if it was not touched yet.
func (t *itemState) findReject(r *Reject) int {
	if len(t.rejects) < manyRows {
		return slices.IndexFunc(t.rejects, func(x rejectState) bool { return x.Table == r.Table && x.Element == r.Element })
	}
	if t.rejectsByKey == nil {
		t.rejectsByKey = make(map[rejectKey]int, 2*len(t.rejects))
		for i := range t.rejects {
			t.rejectsByKey[rejectKey{t.rejects[i].Table, t.rejects[i].Element}] = i
		}
	}
	if i, ok := t.rejectsByKey[rejectKey{r.Table, r.Element}]; ok {
		return i
	}
	return -1
}

// batch returns all that was added, in the order in which it was touched first: a repeated
// batch is the same batch, and the rows of one item stay together.
func (g *coalescer) batch(after, upTo feed.Position) *Batch {
	b := &Batch{After: after, UpTo: upTo}
	puts := 0
	for i := range g.items {
		puts += len(g.items[i].rows)
	}
	b.Put = make([]Row, 0, puts)
	for i := range g.items {
		t := &g.items[i]
		for j := range t.rows {
			if t.rows[j].gone {
				b.Drop = append(b.Drop, t.rows[j].Row)
			} else {
				b.Put = append(b.Put, t.rows[j].Row)
			}
		}
		for j := range t.rejects {
			if t.rejects[j].gone {
				b.Accept = append(b.Accept, t.rejects[j].Reject)
			} else {
				b.Reject = append(b.Reject, t.rejects[j].Reject)
			}
		}
	}
	return b
}

// rowBytes estimates what a row takes in memory. The rows of an item share one string with
// its name, so it counts for the first of them.
func (g *coalescer) rowBytes(r *Row) int {
	n := rowBytes(r)
	if g.source == r.Source {
		return n - len(r.Source)
	}
	g.source = r.Source
	return n
}

// rowBytes estimates what a row takes in memory.
func rowBytes(r *Row) int {
	n := 64 + len(r.Source)
	for i := range r.Values {
		n += 40 + len(r.Values[i].s)
	}
	return n
}
