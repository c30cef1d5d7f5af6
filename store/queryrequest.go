package store

import (
	"errors"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/rid"
)

// Limits of queries.
const (
	QueryRowsMax   = 1000    // rows of a page
	QueryBytesMax  = 4 << 20 // of the rows of a page; one larger row is a page
	QueryParamsMax = 2048    // parameters of a query
	QueryTokenMax  = 1024    // bytes of a continuation token
)

// RefuseParams refuses a query of n parameters.
func RefuseParams(n int) *Error {
	return Refuse(StatusBadRequest, "the query has %d parameters; at most %d are allowed", n, QueryParamsMax)
}

// queryRoomRetry is when a query that found no room is to be asked again.
const queryRoomRetry = 200 * time.Millisecond

// RefuseQuery refuses a query for an error of its run or its merge: with 429 where the queries under way
// hold as much memory as they may together, else with 400.
func RefuseQuery(err error) *Error {
	switch {
	case errors.Is(err, query.ErrNoRoom):
		return &Error{Status: StatusTooManyRequests, RetryAfter: queryRoomRetry, Message: err.Error() + " (store.queriesBytesMax); try again"}
	case errors.Is(err, query.ErrTooLarge):
		return Refuse(StatusBadRequest, "%v; ask for less at once, or raise store.queriesBytesMax", err)
	}
	return Refuse(StatusBadRequest, "%v", err)
}

// QueryItems is the Via of a query that reads items in the order of their keys.
const QueryItems = "items"

// Query asks the owner of a physical partition for its part of a page of a query, in
// one snapshot of the partition. What partitions answer is brought together by
// query.Query's Merge.
type Query struct {
	Text   string
	Params []QueryParam
	// Key restricts the query to a logical partition, or with fewer levels than the
	// container's keys have to all that begin with it; zero for none.
	Key feed.PartitionKey
	// Range restricts it to a range of effective partition keys; zero for none.
	Range feed.Range
	// Now is what the query's clock says, the same on all pages.
	Now time.Time
	// After is the key behind which rows are wanted; nil begins.
	After []byte
	// Via is the order in which a stream's rows come, QueryResult.Via of the page
	// before; "" lets the owner choose.
	Via string
	// RowsMax and BytesMax bound the rows of the answer; zero is the owner's limit.
	RowsMax, BytesMax int
	// Last says that the query has no use for more than RowsMax rows.
	Last bool
	// System gives items their system properties where the query reads them, with
	// rids that begin with RID.
	System bool
	RID    rid.Container
	// Explain asks for nothing but how the query would be answered.
	Explain bool
	// Functions are those of the container that the query calls. They take feature level featurelevel.Scripts.
	Functions []QueryFunction
}

// QueryFunction is a function of the container, in JavaScript.
type QueryFunction struct{ Name, Body string }

// QueryFunctionsMax bounds the functions that a query calls.
const QueryFunctionsMax = 20

// RefuseFunctions refuses a query that calls n functions.
func RefuseFunctions(n int) *Error {
	return Refuse(StatusBadRequest, "the query calls %d functions of the container; at most %d are allowed", n, QueryFunctionsMax)
}

// QueryParam is a parameter of a query.
type QueryParam struct {
	Name  string // without @
	Value []byte // raw JSON
}

// QueryRow is a row, or what is known of a group; see query.Row.
type QueryRow struct{ Key, Body []byte }

// QueryResult is what one physical partition has of a page.
type QueryResult struct {
	Rows []QueryRow // in the order of their keys
	// More says that rows may follow, and Reached is the key behind which: that of
	// the last row, or a later one.
	More    bool
	Reached []byte
	// Via is QueryItems, or the path of the index in whose order a stream comes; ""
	// where the keys of rows do not depend on how items are reached.
	Via     string
	Metrics QueryMetrics
	LSN     feed.LSN // of the state that was read
}

// QueryMetrics tell how a page came about.
type QueryMetrics struct {
	// Access is the access path in one line, and why it was chosen.
	Access string `json:"access"`
	// Index is the path of the index that was used; "" if none was.
	Index   string `json:"index,omitempty"`
	Entries int64  `json:"entries"` // of the index that were read
	Items   int64  `json:"items"`   // that were read
	Bytes   int64  `json:"bytes"`   // of those items
	Rows    int64  `json:"rows"`
	// Time is how long owners worked, all together.
	Time time.Duration `json:"time"`
	// Compile is how long it took to read and plan the query before owners were asked. Of a page
	// alone: owners do not tell theirs, which is in Time.
	Compile time.Duration `json:"compile,omitempty"`
}

var queryKind = kind{
	name: "query", slow: true,
	asked:        func(r *Request) bool { return r.Query != nil && len(r.Query.Functions) == 0 },
	encode:       func(w *wireWriter, r *Request) { w.query(r.Query) },
	decode:       func(d *wireReader, r *Request) { r.Query = d.query() },
	encodeAnswer: func(w *wireWriter, r *Response) { w.queryResult(r.Query) },
	decodeAnswer: func(d *wireReader, r *Response) { r.Query = d.queryResult() },
}

// functionQueryKind is a query with the functions that it calls.
var functionQueryKind = kind{
	name: "query with functions", slow: true,
	asked: func(r *Request) bool { return r.Query != nil && len(r.Query.Functions) > 0 },
	encode: func(w *wireWriter, r *Request) {
		w.query(r.Query)
		w.uint(uint64(len(r.Query.Functions)))
		for _, f := range r.Query.Functions {
			w.str(f.Name)
			w.str(f.Body)
		}
	},
	decode: func(d *wireReader, r *Request) {
		r.Query = d.query()
		for range d.countMax(QueryFunctionsMax, RefuseFunctions) {
			r.Query.Functions = append(r.Query.Functions, QueryFunction{Name: d.str(), Body: d.str()})
		}
	},
	encodeAnswer: func(w *wireWriter, r *Response) { w.queryResult(r.Query) },
	decodeAnswer: func(d *wireReader, r *Response) { r.Query = d.queryResult() },
}

func (w *wireWriter) query(q *Query) {
	w.str(q.Text)
	w.uint(uint64(len(q.Params)))
	for _, p := range q.Params {
		w.str(p.Name)
		w.bytes(p.Value)
	}
	w.str(q.Key.Encoded())
	w.str(string(q.Range.Min))
	w.str(string(q.Range.Max))
	w.uint(uint64(max(q.Now.UnixMicro(), 0)))
	w.bytes(q.After)
	w.str(q.Via)
	w.uint(uint64(q.RowsMax))
	w.uint(uint64(q.BytesMax))
	w.bool(q.Last)
	w.bool(q.System)
	w.buf = append(w.buf, q.RID[:]...)
	w.bool(q.Explain)
}

func (d *wireReader) query() *Query {
	q := &Query{Text: d.str()}
	for range d.countMax(QueryParamsMax, RefuseParams) {
		q.Params = append(q.Params, QueryParam{Name: d.str(), Value: d.bytes()})
	}
	q.Key = d.key()
	q.Range = feed.Range{Min: feed.EPK(d.str()), Max: feed.EPK(d.str())}
	q.Now = time.UnixMicro(int64(d.int())).UTC()
	q.After, q.Via = d.bytes(), d.str()
	q.RowsMax, q.BytesMax, q.Last = d.int(), d.int(), d.bool()
	q.System = d.bool()
	copy(q.RID[:], d.take(uint64(len(q.RID))))
	q.Explain = d.bool()
	return q
}

func (w *wireWriter) queryResult(r *QueryResult) {
	w.uint(uint64(len(r.Rows)))
	for i := range r.Rows {
		w.bytes(r.Rows[i].Key)
		w.bytes(r.Rows[i].Body)
	}
	w.bool(r.More)
	w.bytes(r.Reached)
	w.str(r.Via)
	w.queryMetrics(&r.Metrics)
	w.uint(uint64(r.LSN))
}

func (d *wireReader) queryResult() *QueryResult {
	r := &QueryResult{}
	if n := d.count(); n > 0 {
		r.Rows = make([]QueryRow, n)
	}
	for i := range r.Rows {
		r.Rows[i] = QueryRow{Key: d.bytes(), Body: d.bytes()}
	}
	r.More, r.Reached, r.Via = d.bool(), d.bytes(), d.str()
	r.Metrics = d.queryMetrics()
	r.LSN = feed.LSN(d.uint())
	return r
}

func (w *wireWriter) queryMetrics(m *QueryMetrics) {
	w.str(m.Access)
	w.str(m.Index)
	for _, n := range [...]int64{m.Entries, m.Items, m.Bytes, m.Rows, int64(m.Time)} {
		w.uint(uint64(n))
	}
}

func (d *wireReader) queryMetrics() QueryMetrics {
	m := QueryMetrics{Access: d.str(), Index: d.str()}
	for _, n := range [...]*int64{&m.Entries, &m.Items, &m.Bytes, &m.Rows} {
		*n = int64(d.int())
	}
	m.Time = time.Duration(d.int())
	return m
}
