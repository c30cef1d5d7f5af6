package store

import (
	"time"

	"github.com/millrace/millrace/feed"
)

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
	for range d.count() {
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
