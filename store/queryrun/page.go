package queryrun

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/queryplan"
	"github.com/millrace/millrace/store/rid"
)

// queryTick is after how many entries or items a query looks at the clock. An item
// counts again for each queryTickBytes of it.
const (
	queryTick      = 256
	queryTickBytes = 4 << 10
)

// Source is what the query is run over: one state of a partition.
type Source struct {
	// Snapshot shows the items and the entries of indexes.
	Snapshot *engine.Snapshot
	// Key is the container's partition key.
	Key []document.Path
	// Indexes are those of the container, also those that no query may use, and
	// Schema has each of them as the engine knows it.
	Indexes []store.IndexSetting
	Schema  *engine.Schema
	// Now is the time, in unix milliseconds, by which items are expired.
	Now int64
}

// Limits bound the time and the memory of a page.
type Limits struct {
	// PageTime is after how long a page ends with what it has, if its rows can be
	// given as they come.
	PageTime time.Duration
	// Time is after how long a page that cannot end early is refused.
	Time time.Duration
	// Share holds what the page holds in memory; nil is no bound but those of a query.
	Share *query.Share
	// Functions calls what a query names of the container; nil if it names nothing.
	Functions query.Functions
}

// Page answers a page of a query. The error is a *store.Error if the request is refused,
// and any other if the engine could not read.
func Page(ctx context.Context, source *Source, limits Limits, r *store.Query) (*store.QueryResult, error) {
	q, err := parse(r)
	if err != nil {
		return nil, err
	}
	e := &execution{Source: source, limits: limits, r: r, q: q, started: time.Now()}
	result, err := e.run(ctx)
	if err != nil {
		return nil, err
	}
	result.Metrics.Time = time.Since(e.started)
	return result, nil
}

// parse reads the text, binds the parameters and sets the clock.
func parse(r *store.Query) (*query.Query, error) {
	q, err := query.ParseQuery(r.Text)
	if err == nil && len(r.Params) > 0 {
		params := make(map[string][]byte, len(r.Params))
		for _, p := range r.Params {
			params[p.Name] = p.Value
		}
		q, err = q.Bind(params)
	}
	if err != nil {
		return nil, store.Refuse(store.StatusBadRequest, "query: %v", err)
	}
	return q.At(r.Now), nil
}

// execution is a page of a query under way. One goroutine runs it and owns all of it.
type execution struct {
	// What was asked, over what.
	*Source
	limits  Limits
	r       *store.Query
	q       *query.Query
	started time.Time

	// How it is answered: set by run and prepare, before the first item.

	access   *queryplan.Access
	on       *query.Run
	down     bool   // ranks descend
	filter   bool   // the condition is tested before system properties are composed
	composes bool   // system properties
	prefix   string // of encoded partition keys; "" for all

	// What changes from item to item.
	metrics store.QueryMetrics
	seen    int  // since the clock was looked at
	late    bool // the page is to end where it can
	body    []byte
}

func (e *execution) run(ctx context.Context) (*store.QueryResult, error) {
	t, err := e.table()
	if err != nil {
		return nil, err
	}
	access, ok, err := queryplan.Choose(e.q, t, counter{e.Snapshot})
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, store.Refuse(store.StatusBadRequest, "the index %s, in whose order the pages before came, is gone; begin the query again", e.r.Via)
	}
	e.access = access
	// The planner knows what indexes there are and not what is in them, so what it chose
	// may be given up here.
	if access.Kind == queryplan.Order {
		if err := e.checkOrder(); err != nil {
			return nil, err
		}
	}
	result := &store.QueryResult{Via: e.via()}
	if !e.r.Explain {
		if err := e.readPage(ctx, result); err != nil {
			return nil, err
		}
	}
	result.Metrics = e.metrics
	result.Metrics.Access = e.access.String()
	if e.access.Kind >= queryplan.Values {
		result.Metrics.Index = e.access.Index.Path
	}
	result.Metrics.Rows = int64(len(result.Rows))
	return result, nil
}

// table says what there is to choose from.
func (e *execution) table() (*queryplan.Table, error) {
	if e.r.Key.Levels() > len(e.Key) {
		return nil, store.Refuse(store.StatusBadRequest, "the partition key %s has %d levels, those of the container have %d",
			e.r.Key, e.r.Key.Levels(), len(e.Key))
	}
	t := &queryplan.Table{Key: e.r.Key, Hashes: e.r.Range, Keys: store.KeyOfValues, InOrder: e.r.Via == store.QueryItems}
	if e.r.Via != store.QueryItems {
		t.Via = e.r.Via
	}
	for _, path := range e.Key {
		var names []string
		for i := range path {
			names = append(names, path[i].Name)
		}
		t.Paths = append(t.Paths, names)
	}
	for i := range e.Indexes {
		x := &e.Indexes[i]
		// One that is being built lacks items, and one of a rule has only those that the
		// rule selects. One of a system property knows nothing of what is composed.
		if x.Ready && x.Rule == "" && (!e.r.System || !store.IsSystemPath(x.Path)) {
			t.Indexes = append(t.Indexes, queryplan.Index{Number: x.Number, Path: x.Path, Ordered: x.Ordered})
		}
	}
	if !e.r.Key.IsZero() && e.r.Key.Levels() < len(e.Key) {
		e.prefix = e.r.Key.Encoded()
	}
	return t, nil
}

// via returns what the keys of rows depend on.
func (e *execution) via() string {
	switch {
	case e.q.Kind() != query.Stream:
		return ""
	case e.access.Kind == queryplan.Range:
		return e.access.Index.Path
	}
	return store.QueryItems
}

// checkOrder gives up the order of an index that holds values whose order it does not
// have: arrays, objects and those that were cut.
func (e *execution) checkOrder() error {
	// One entry behind the plain values decides, however many items there are. Looking
	// at every page is right too: an array may have come since the page before.
	for _, span := range e.access.Spans {
		span = span.From(queryplan.PlainMax())
		if span.Empty() {
			continue
		}
		for _, err := range e.Snapshot.IndexSpan(e.access.Index.Number, span, false) {
			if err != nil {
				return err
			}
			e.sortInstead()
			return nil
		}
	}
	return nil
}

// sortInstead gives up the order of an index.
func (e *execution) sortInstead() {
	e.access = &queryplan.Access{
		Kind: queryplan.Items, Items: e.access.Items, What: "scan of all items",
		Why: "index " + e.access.Index.Path + " holds arrays, objects or values of more than 512 bytes, whose order it does not have; " +
			"each page reads them all and keeps the first rows in order",
	}
}

// readPage takes items in until the page is full.
func (e *execution) readPage(ctx context.Context, result *store.QueryResult) error {
	e.prepare()
	at, err := e.pageStart()
	if err != nil {
		return store.Refuse(store.StatusBadRequest, "the continuation is none of this query: %v", err)
	}
	e.on, err = e.q.Run(query.RunConfig{
		End: e.started.Add(e.limits.Time), Done: ctx.Done(), After: e.r.After, Ordered: e.access.Kind == queryplan.Order, Rows: bounded(e.r.RowsMax, store.QueryRowsMax),
		Bytes: bounded(e.r.BytesMax, store.QueryBytesMax), Share: e.limits.Share, Functions: e.limits.Functions,
	})
	if err != nil {
		return tooMuch(ctx, err)
	}
	part, err := e.fillPage(ctx, at)
	if err != nil {
		return err
	}
	result.More = part.More
	result.Rows = make([]store.QueryRow, len(part.Rows))
	for i, row := range part.Rows {
		result.Rows[i] = store.QueryRow{Key: row.Key, Body: row.Body}
		result.Reached = row.Key
	}
	if part.Until != nil {
		result.Reached = part.Until
	}
	return nil
}

// bounded returns n, or most if n is none or too many.
func bounded(n, most int) int {
	if n <= 0 || n > most {
		return most
	}
	return n
}

// prepare finds out whether items need their system properties, and what can be
// tested without.
func (e *execution) prepare() {
	if order := e.q.Order(); len(order) > 0 {
		e.down = order[0].Desc
	}
	if !e.r.System {
		return
	}
	for _, name := range store.SystemProperties {
		e.composes = e.composes || e.q.Reads(name)
	}
	filter := e.q.Filter()
	if !e.composes || filter == nil {
		return
	}
	// Composing copies the item. A filter that reads no system property is tested on the
	// item as it is stored, so that only what passes is copied.
	e.filter = !slices.ContainsFunc(filter.Paths(), func(path []string) bool {
		return len(path) == 0 || store.IsSystemProperty(path[0])
	})
}

// fillPage gives items to the run until it has enough.
func (e *execution) fillPage(ctx context.Context, at *start) (part query.Part, err error) {
	for c, err := range e.candidates(at) {
		if err != nil {
			return part, err
		}
		// A run is full when it has seen one row more than it may give: only that tells a
		// page with more behind it from the last one.
		if e.on.Full() {
			break
		}
		if err := e.checkClock(ctx, c.view); err != nil {
			return part, err
		}
		given, err := e.giveItem(c)
		if err != nil {
			return part, tooMuch(ctx, err)
		}
		// Nobody asks for what lies behind the last page: it need not be looked for.
		if e.r.Last && e.streams() && e.on.Len() >= e.r.RowsMax {
			break
		}
		if e.late && e.pause(c, given) {
			return e.on.Part(), nil // while the item is valid
		}
	}
	return e.on.Part(), nil
}

// withoutValue stands for an item that has none of the values of ORDER BY.
var withoutValue = []byte("{}")

// pause ends the page at the item at hand, if it can end there. Also at one that has no rows: in
// millions of items of which a scan skips most, the next to be given may be far.
func (e *execution) pause(c candidate, given bool) bool {
	switch {
	case given:
		return e.on.Pause()
	case c.skip: // it is not where its value stands, but among the items without one
		return e.on.PauseAt(withoutValue, c.rank)
	default:
		return e.on.PauseAt(c.view.Body, c.rank)
	}
}

// streams tells whether rows are kept as they come.
func (e *execution) streams() bool {
	return e.q.Kind() == query.Stream || e.q.Kind() == query.Sorted && e.access.Kind == queryplan.Order
}

// checkClock looks at the clock now and then: a page that can end anywhere is to end when
// it took its time. One that cannot is refused.
func (e *execution) checkClock(ctx context.Context, v *engine.View) error {
	if e.seen++; v != nil {
		e.seen += len(v.Body) / queryTickBytes
	}
	if e.seen < queryTick {
		return nil
	}
	e.seen = 0
	// In this order: a query that nobody waits for is not worth a message about its time.
	if isOver(ctx) {
		return givenUp(ctx)
	}
	took := time.Since(e.started)
	e.late = e.streams() && took >= e.limits.PageTime
	if took < e.limits.Time {
		return nil
	}
	return store.Refuse(store.StatusBadRequest,
		"the query found no end of its page in %s, after %d items of one partition (%s); "+
			"ask with a partition key or a narrower WHERE, declare an index that serves it, or raise store.queryTime",
		e.limits.Time, e.metrics.Items, e.access)
}

// tooMuch blames the query for an error of its run, unless the request is over: the run has been told
// so, or its time has ended at the same moment.
func tooMuch(ctx context.Context, err error) error {
	if isOver(ctx) {
		return givenUp(ctx)
	}
	return store.RefuseQuery(err)
}

// isOver tells whether a request is over. A context ends some time after its deadline, on a busy machine
// some milliseconds; who sees that the deadline has passed waits for it.
func isOver(ctx context.Context) bool {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// givenUp says that nobody waits for the query any more.
func givenUp(ctx context.Context) error {
	return store.Refuse(store.StatusUnavailable, "the query was given up: %v", context.Cause(ctx))
}

// giveItem gives an item to the run, unless it cannot give rows.
func (e *execution) giveItem(c candidate) (given bool, err error) {
	if c.body != nil {
		return true, e.on.Item(c.body, nil)
	}
	e.metrics.Items++
	e.metrics.Bytes += int64(len(c.view.Body))
	if c.skip || c.view.Expires != 0 && c.view.Expires <= e.Now {
		return false, nil
	}
	body := c.view.Body
	// A late page ends at an item that the run has seen, whether it passes or not.
	if e.filter && !e.late && !e.on.Passes(body) {
		return false, nil
	}
	if e.composes {
		key, id := c.view.Key(), c.view.ID()
		self := rid.Item(e.r.RID, key, id)
		etag := store.ETag(c.view.Position)
		e.body = store.AppendSystem(e.body[:0], body, self.String(), self.ItemSelf(), etag, c.view.Modified)
		body = e.body
	}
	return true, e.on.Item(body, c.rank)
}

// counter counts for the planner.
type counter struct{ snap *engine.Snapshot }

func (c counter) CountItems(spans []engine.Span, most int) (n int, err error) {
	for _, span := range spans {
		for _, err := range c.snap.ItemKeys(span) {
			if err != nil || n == most {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

func (c counter) CountEntries(index uint32, spans []engine.Span, most int) (n int, err error) {
	for _, span := range spans {
		for _, err := range c.snap.IndexSpan(index, span, false) {
			if err != nil || n == most {
				return n, err
			}
			n++
		}
	}
	return n, nil
}
