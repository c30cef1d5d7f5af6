package query

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/feed/document/scan"
)

// Limits of a run, which a RunConfig may lower.
const (
	RowsMax  = 100_000  // rows, or groups, that a run holds
	BytesMax = 64 << 20 // of these
)

// ErrTooMuch says that one item took too long, or that JOINs and subqueries try more
// rows of it than they may or make too much of it.
var ErrTooMuch = fmt.Errorf("query: one item took too long, or JOINs and subqueries tried more than %d rows of it, or made more than %d bytes at once or %d in all",
	stepsMax, TextMadeMax, MadeMax)

// RunConfig says which rows a Run is to find.
type RunConfig struct {
	// End is the time after which Item returns ErrTooMuch; zero for no limit.
	End time.Time
	// Done makes Item return ErrTooMuch when it is closed, because nobody waits for the
	// rows, such as the channel of a context; nil for never.
	Done <-chan struct{}
	// Share holds what the run does: its rows, and what it makes for one item. Item returns
	// ErrNoRoom or ErrTooLarge where it cannot grow. Nil is no bound but those of one run. The
	// caller frees it.
	Share *Share
	// Functions calls the functions that the query names; nil if it names none.
	Functions Functions
	// After is the key behind which rows are wanted; nil for the first page.
	After []byte
	// Rows is how many rows are wanted at most. Default and greatest value: RowsMax.
	Rows int
	// Bytes is how many bytes of rows are wanted at most, but at least one row is kept.
	// Default and greatest value: BytesMax.
	Bytes int
	// Ordered says that the items come in the order of the query, as from an index, and
	// items that are equal in it in the order of their ranks. It has no effect unless the
	// query is Sorted and not Distinct, and ORDER BY reads the item alone.
	Ordered bool
}

// Run is the first half of a query over the items of one partition. Call Item with items until
// it is Full, then Part. It holds the rows that are wanted and no others, whatever the
// number of items. It is not safe for concurrent use.
type Run struct {
	// Set once by Query.Run; the plan is shared with other runs of the query.
	plan   *plan
	config RunConfig
	stream bool        // rows are kept as they come
	emit   func() bool // adds a row of the present item

	// Owned by the goroutine that gives items, from Item to Part.
	frame *frame
	rows  []*runRow // a heap with the greatest key first unless stream
	known map[string]*runRow
	bytes int
	more  bool
	err   error

	body   []byte // the item
	rank   []byte
	number uint32 // rows of it so far
	paused bool

	key    []byte // scratch
	value  []byte
	values []Value
}

// Run returns a run of the query. The error names a parameter that is not bound, or says that
// the query asks for the time and At has not set it. It is that of Item for a query without FROM,
// whose row is made here.
func (q *Query) Run(cfg RunConfig) (*Run, error) {
	if params := q.Params(); len(params) > 0 {
		return nil, fmt.Errorf("parameter @%s has no value", params[0])
	}
	if cfg.Rows <= 0 || cfg.Rows > RowsMax {
		cfg.Rows = RowsMax
	}
	if cfg.Bytes <= 0 || cfg.Bytes > BytesMax {
		cfg.Bytes = BytesMax
	}
	if names := q.Functions(); len(names) > 0 && cfg.Functions == nil {
		return nil, fmt.Errorf("udf.%s: functions of a container are called in queries over its items, through the gateway", names[0])
	}
	if q.asksTime() {
		return nil, errors.New("the query asks for the time, which is not set")
	}
	p := q.plan
	r := &Run{plan: p, config: cfg}
	switch q.Kind() {
	case Stream:
		r.stream = true
	case Sorted:
		// Without an index the first row may come from the last item, so all are looked at
		// and the least are kept. A value of a JOIN in ORDER BY mixes the rows of items,
		// and a row that is distinct may have been seen long before.
		r.stream = cfg.Ordered && !q.Distinct() && p.ordersItem()
	case Grouped:
	}
	if q.Distinct() || q.Kind() == Grouped {
		r.known = make(map[string]*runRow)
	}
	r.frame = &frame{roots: make([][]byte, max(1, p.text.slots)), madeMax: MadeMax, end: cfg.End, done: cfg.Done, share: cfg.Share, functions: cfg.Functions}
	r.emit = r.addRow
	if p.group != nil {
		r.emit = r.addToGroup
		r.values = make([]Value, len(p.group.keys))
	}
	if len(p.text.from) == 0 {
		r.runWithoutItems()
		return r, r.err
	}
	// COUNT(1) of no items is 0 and not nothing: the one group is there before any item.
	// Behind a key there is no second one.
	if p.group != nil && len(p.group.keys) == 0 && cfg.After == nil {
		r.keep(&runRow{key: []byte{}, group: p.group.newGroup(nil, r.frame)})
	}
	return r, nil
}

// runWithoutItems makes the one row of a query without FROM, which needs no item. All
// partitions give it the same key, so that it is one.
func (r *Run) runWithoutItems() {
	r.plan.each(nil, r.frame, r.emit)
	if r.frame.spent {
		r.err = r.frame.fault()
	}
}

// Item adds the rows of an item, which must be valid JSON. The caller may change body
// afterwards. rank orders the items of all partitions and is part of the keys: an item must
// have the same rank on all pages. A run must get each item at most once. After an error the
// run cannot be used any more.
func (r *Run) Item(body, rank []byte) error {
	if r.err != nil || r.Full() || len(r.plan.text.from) == 0 {
		return r.err
	}
	// Paths are looked up from the first byte of the value.
	body = body[scan.Space(body, 0):]
	f := r.frame
	f.beginItem(body, rank)
	r.body, r.rank, r.number = body, rank, 0
	r.plan.each(body, f, r.emit)
	if f.spent {
		r.err = r.frame.fault()
	}
	return r.err
}

// Passes reports whether an item can have rows: whether the terms of WHERE that read the item
// alone are true. body need not have the properties that these terms do not read.
func (r *Run) Passes(body []byte) bool {
	f := r.frame
	body = body[scan.Space(body, 0):]
	f.beginItem(body, nil)
	passed := passes(r.plan.tests, body, f)
	if f.spent {
		r.err = r.frame.fault()
	}
	return passed || f.spent // Item says so
}

// addRow adds a row of the present item. It returns false if no later row is wanted.
func (r *Run) addRow() bool {
	p, f, body := r.plan, r.frame, r.body
	r.number++
	// What the key ends with makes it unique, and the same on each page and partition:
	//
	//	ORDER BY values | rank of the item | number of the row
	//	ORDER BY values | identity of the row                    if DISTINCT
	//
	// With the second one, the other half finds equal rows of several partitions by their
	// keys alone.
	key := r.key[:0]
	for i, k := range p.keys {
		key = f.appendSortKey(key, k(body, f), p.descs[i])
	}
	var row Value
	if p.text.distinct {
		if row = p.row(body, f); row.typ == Undefined {
			return true
		}
		r.value = f.appendSortKey(r.value[:0], row, false)
		key = appendIdentity(key, r.value)
	} else {
		key = binary.BigEndian.AppendUint32(appendEscaped(key, r.rank), r.number)
	}
	r.key = key
	// 1 and 1.0 are one row, written in two ways. Which one is shown must not hang on the
	// order of the items, so the plainer one is.
	if same := r.known[string(key)]; same != nil && row.typ >= Number && row.typ != String && plainer(row.data, same.body) {
		r.bytes -= same.size
		same.body = slices.Clone(row.data)
		same.size = same.measure()
		r.bytes += same.size
	}
	// Only now is the row computed: of a million items and LIMIT 10, nearly all end
	// here.
	if !r.wants(key) {
		return true
	}
	if row.typ == Undefined {
		if row = p.row(body, f); row.typ == Undefined {
			return true
		}
	}
	if f.spent {
		return false
	}
	return r.keep(&runRow{key: slices.Clone(key), body: p.owned(row)})
}

// addToGroup adds a row to its group.
func (r *Run) addToGroup() bool {
	g, f, body := r.plan.group, r.frame, r.body
	r.key = r.key[:0]
	if len(g.keys) > 0 {
		r.value = g.key(r.value[:0], r.values, body, f)
		r.key = appendIdentity(r.key, r.value)
	}
	row := r.known[string(r.key)]
	if row == nil {
		// Run has made the group without keys, or it lies on an earlier page.
		if len(g.keys) == 0 || !r.wants(r.key) {
			return !f.spent
		}
		row = &runRow{key: slices.Clone(r.key), group: g.newGroup(body, f)}
		r.keep(row)
	}
	// keepPlainer takes the plainer of equal keys, as row does. What a group holds grows, so it
	// is measured again.
	row.group.keepPlainer(r.values)
	g.add(row.group, body, f)
	r.bytes -= row.size
	row.size = row.measure()
	r.bytes += row.size
	r.shrink()
	f.keep(r.bytes)
	return !f.spent
}

// wants reports whether a row of a key may be among those that are wanted.
func (r *Run) wants(key []byte) bool {
	if r.config.After != nil && bytes.Compare(key, r.config.After) <= 0 {
		return false
	}
	if r.stream {
		return true
	}
	if r.known[string(key)] != nil {
		return false
	}
	// rows[0] is the greatest of those that are kept, and all that were dropped were
	// greater. So a group that was dropped is never begun anew: it would lack the items
	// from before.
	if r.more && len(r.rows) > 0 && bytes.Compare(key, r.rows[0].key) > 0 {
		return false
	}
	if len(r.rows) == r.config.Rows && bytes.Compare(key, r.rows[0].key) > 0 {
		r.more = true
		return false
	}
	return true
}

// keep keeps a row, and drops those that are too many. It returns false if no later
// row is wanted.
func (r *Run) keep(row *runRow) bool {
	row.size = row.measure()
	if r.stream {
		// Rows come in their order here: the first that does not fit is the end.
		if len(r.rows) == r.config.Rows || len(r.rows) > 0 && r.bytes+row.size > r.config.Bytes {
			r.more = true
			return false
		}
		r.rows = append(r.rows, row)
		r.bytes += row.size
		r.frame.keep(r.bytes)
		return !r.frame.spent
	}
	heap.Push((*rowHeap)(&r.rows), row)
	if r.known != nil {
		r.known[string(row.key)] = row
	}
	r.bytes += row.size
	r.shrink()
	r.frame.keep(r.bytes)
	return !r.frame.spent
}

// shrink drops the last rows until there are not too many.
func (r *Run) shrink() {
	// One row stays, however large it is: a page without a row would be asked for again
	// and again.
	for len(r.rows) > r.config.Rows || len(r.rows) > 1 && r.bytes > r.config.Bytes {
		last := heap.Pop((*rowHeap)(&r.rows)).(*runRow)
		delete(r.known, string(last.key))
		r.bytes -= last.size
		r.more = true
	}
}

// Full reports whether the run has all rows that it may have, whatever items follow.
func (r *Run) Full() bool { return r.stream && r.more || len(r.plan.text.from) == 0 }

// Len returns how many rows, or groups, the run holds. The caller of a run that keeps rows as
// they come can stop when it has as many as the query still needs.
func (r *Run) Len() int { return len(r.rows) }

// Pause tells the run that the caller stops after the present item although there are more. It
// returns false if the run cannot end there, because only the last item decides which rows
// come first.
func (r *Run) Pause() bool {
	// In a heap any item to come may have the least row, so nothing is final before the last.
	r.paused = r.stream && r.body != nil
	return r.paused
}

// PauseAt is Pause at an item that was not given to Item, since it has no rows. Of body what ORDER
// BY reads counts.
func (r *Run) PauseAt(body, rank []byte) bool {
	if !r.stream || r.err != nil || len(r.plan.text.from) == 0 {
		return false
	}
	body = body[scan.Space(body, 0):]
	r.frame.beginItem(body, rank)
	r.body, r.rank, r.number = body, rank, 0
	return r.Pause()
}

// lastKeyOfItem returns the key of the last row that the item at hand could have.
func (r *Run) lastKeyOfItem() []byte {
	var key []byte
	for i, k := range r.plan.keys {
		key = appendSortKey(key, k(r.body, r.frame), r.plan.descs[i])
	}
	// No row has this number: the next page begins behind all rows of the item.
	key = binary.BigEndian.AppendUint32(appendEscaped(key, r.rank), math.MaxUint32)
	if bytes.Compare(key, r.config.After) < 0 {
		return r.config.After // the item stands before
	}
	return key
}

// Part returns the rows so far in the order of their keys. The run must not be used
// afterwards.
func (r *Run) Part() Part {
	if !r.stream {
		slices.SortFunc(r.rows, func(a, b *runRow) int { return bytes.Compare(a.key, b.key) })
	}
	part := Part{More: r.more || r.paused, Rows: make([]Row, len(r.rows))}
	if r.paused && !r.more {
		part.Until = r.lastKeyOfItem()
	}
	for i, row := range r.rows {
		part.Rows[i] = Row{row.key, row.body}
		if row.group != nil {
			part.Rows[i].Body = r.plan.group.append(nil, row.group)
		}
	}
	return part
}

// Place splits a key into the values of ORDER BY, as raw JSON, nil where one is undefined, the
// item's rank, and the row's number in the item, from 1. A Distinct or Grouped query has
// only the values. The error is ErrKey if key is not a key of the query.
func (q *Query) Place(key []byte) (values [][]byte, rank []byte, number int, err error) {
	rest := key
	for _, desc := range q.plan.descs {
		v, behind, ok := readSortKey(rest, desc)
		if !ok {
			return nil, nil, 0, ErrKey
		}
		values, rest = append(values, v.Raw()), behind
	}
	if q.Distinct() || q.Kind() == Grouped {
		return values, nil, 0, nil
	}
	rank, rest, ok := readEscaped(rest)
	if !ok || len(rest) != 4 {
		return nil, nil, 0, ErrKey
	}
	return values, rank, int(binary.BigEndian.Uint32(rest)), nil
}
