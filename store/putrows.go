package store

import (
	"context"

	"github.com/millrace/millrace/feed"
)

// PutRows sets and removes rows of a projection in one commit. The interval means what it
// means in FoldMany.
type PutRows struct {
	Producer    feed.Producer
	Epoch       uint64
	After, UpTo feed.Position
	Ask         bool
	Rows        []Row
}

// Row is one row of a projection, kept as an item whose member _source names the item
// that it was made from. It does not replace the row of another source: it is answered
// with 409, waits as a pending row, and takes the place when the holder's row goes.
type Row struct {
	Ref    ItemRef
	Body   []byte // nil: the row, or the pending row, of Source goes
	Source string
}

// RowSource is the member of a row that names its source.
const RowSource = "_source"

// PutRowsResult is the outcome of PutRows.
type PutRowsResult struct {
	LSN      feed.LSN
	Applied  bool
	Position feed.Position // recorded for the producer now
	Refused  []Refusal     // rows that wait as pending rows (409), or that the partition cannot take
}

var putRowsKind = kind{
	name: "put-rows", writes: always,
	asked:        func(r *Request) bool { return r.PutRows != nil },
	encode:       func(w *wireWriter, r *Request) { w.putRows(r.PutRows) },
	decode:       func(d *wireReader, r *Request) { r.PutRows = d.putRows() },
	encodeAnswer: func(w *wireWriter, r *Response) { w.foldResult((*FoldResult)(r.PutRows)) },
	decodeAnswer: func(d *wireReader, r *Response) { r.PutRows = (*PutRowsResult)(d.foldResult()) },
}

// PutRows writes rows of a projection to one physical partition.
func (c *Container) PutRows(ctx context.Context, p feed.Partition, r *PutRows) (*PutRowsResult, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, PutRows: r})
	if err != nil {
		return nil, err
	}
	return resp.PutRows, nil
}

func (w *wireWriter) putRows(r *PutRows) {
	w.producer(r.Producer)
	w.uint(r.Epoch)
	w.position(r.After)
	w.position(r.UpTo)
	w.bool(r.Ask)
	w.uint(uint64(len(r.Rows)))
	for i := range r.Rows {
		w.ref(r.Rows[i].Ref)
		w.bytes(r.Rows[i].Body)
		w.str(r.Rows[i].Source)
	}
}

func (d *wireReader) putRows() *PutRows {
	r := &PutRows{Producer: d.producer(), Epoch: d.uint(), After: d.position(), UpTo: d.position(), Ask: d.bool()}
	for range d.count() {
		r.Rows = append(r.Rows, Row{Ref: d.ref(), Body: d.bytes(), Source: d.str()})
	}
	return r
}

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
