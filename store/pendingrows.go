package store

import (
	"context"

	"github.com/millrace/millrace/feed"
)

// ReadPendingRows reads the rows of one projection that wait for a place in one physical
// partition, page by page, each in one view that waits for what is in flight.
type ReadPendingRows struct {
	Pipeline   string
	Generation uint32
	After      []byte // Last of the page before; nil at first
	Max        int    // rows of a page, default 100, at most 1000
}

// PendingRowsResult is what ReadPendingRows read.
type PendingRowsResult struct {
	LSN  feed.LSN
	Rows []PendingRow
	// Last is where the next page goes on; nil when nothing follows.
	Last []byte
}

// PendingRow is a row that waits: Body takes its place when the holder's row goes, unless
// another source that waits comes first.
type PendingRow struct {
	Source string
	Body   []byte
}

var pendingRowsKind = kind{
	name:         "pending-rows",
	asked:        func(r *Request) bool { return r.PendingRows != nil },
	encode:       func(w *wireWriter, r *Request) { w.readPendingRows(r.PendingRows) },
	decode:       func(d *wireReader, r *Request) { r.PendingRows = d.readPendingRows() },
	encodeAnswer: func(w *wireWriter, r *Response) { w.pendingRows(r.PendingRows) },
	decodeAnswer: func(d *wireReader, r *Response) { r.PendingRows = d.pendingRows() },
}

// ReadPendingRows reads the rows of a projection that wait in one physical partition.
func (c *Container) ReadPendingRows(ctx context.Context, p feed.Partition, r *ReadPendingRows) (*PendingRowsResult, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, PendingRows: r})
	if err != nil {
		return nil, err
	}
	return resp.PendingRows, nil
}

func (w *wireWriter) readPendingRows(r *ReadPendingRows) {
	w.str(r.Pipeline)
	w.uint(uint64(r.Generation))
	w.bytes(r.After)
	w.uint(uint64(r.Max))
}

func (d *wireReader) readPendingRows() *ReadPendingRows {
	return &ReadPendingRows{Pipeline: d.str(), Generation: uint32(d.uint()), After: d.bytes(), Max: d.int()}
}

func (w *wireWriter) pendingRows(r *PendingRowsResult) {
	w.uint(uint64(r.LSN))
	w.uint(uint64(len(r.Rows)))
	for i := range r.Rows {
		w.str(r.Rows[i].Source)
		w.bytes(r.Rows[i].Body)
	}
	w.bytes(r.Last)
}

func (d *wireReader) pendingRows() *PendingRowsResult {
	r := &PendingRowsResult{LSN: feed.LSN(d.uint())}
	for range d.count() {
		r.Rows = append(r.Rows, PendingRow{Source: d.str(), Body: d.bytes()})
	}
	r.Last = d.bytes()
	return r
}
