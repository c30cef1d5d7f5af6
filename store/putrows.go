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
