package store

import (
	"context"

	"github.com/millrace/millrace/feed"
)

// PatchMany carries out one page of a fan-out in one commit. The owner keeps the
// cursor, under the producer and Source, in the log: the same request again goes
// on where the last page ended, so two may be under way at once. No two answers are
// the same then: the error is ErrUnknown where a page may have been carried out whose
// answer is lost, and with it the items that refused.
type PatchMany struct {
	Producer feed.Producer
	Epoch    uint64
	// Source identifies the source item, Position the version of it that Copy
	// carries. A request with an older Position than the recorded one changes
	// nothing and is answered Superseded. A newer one goes on from the cursor with
	// the newer Copy and ends when it has come round to where it took over.
	Source   string
	Position feed.Position
	// FinishedBelow lets the owner forget records of this producer's finished
	// fan-outs whose Position lies below it.
	FinishedBelow feed.Position
	// Plant records Epoch and Position in the log and touches no item; the
	// answer's LSN is then the planting commit.
	Plant bool
	Scope Scope
	Copy  Copy
	// Digest identifies the values that Copy sets; it is written to the feed.
	Digest uint64
	// NotAfter, if set, leaves items alone that a client wrote after it.
	NotAfter feed.LSN
	// Until, if set, leaves items alone that a client wrote at a later time, in unix
	// milliseconds.
	Until int64
	// ItemsMax bounds the items patched by the page, default and limit 2000. The
	// owner makes pages smaller while clients write.
	ItemsMax int
}

// PatchManyResult is the outcome of one page.
type PatchManyResult struct {
	LSN        feed.LSN // of the page's commit, or of the last commit if it needed none
	Scanned    int      // candidates looked at
	Patched    int      // items changed
	Refused    []Refusal
	Done       bool
	Superseded bool
	Position   feed.Position // recorded
	Cursor     []byte
}

var patchManyKind = kind{
	name: "patch-many", writes: always, goesOn: true,
	asked:        func(r *Request) bool { return r.PatchMany != nil && r.PatchMany.Until == 0 },
	encode:       func(w *wireWriter, r *Request) { w.patchMany(r.PatchMany) },
	decode:       func(d *wireReader, r *Request) { r.PatchMany = d.patchMany() },
	encodeAnswer: func(w *wireWriter, r *Response) { w.patchManyResult(r.PatchMany) },
	decodeAnswer: func(d *wireReader, r *Response) { r.PatchMany = d.patchManyResult() },
}

// patchUntilKind is a PatchMany with a time. Its number is its own, so that an owner of a
// version that knows no times refuses it by name.
var patchUntilKind = kind{
	name: "patch-many", writes: always, goesOn: true,
	asked: func(r *Request) bool { return r.PatchMany != nil && r.PatchMany.Until != 0 },
	encode: func(w *wireWriter, r *Request) {
		w.patchMany(r.PatchMany)
		w.uint(uint64(r.PatchMany.Until))
	},
	decode: func(d *wireReader, r *Request) {
		r.PatchMany = d.patchMany()
		r.PatchMany.Until = int64(d.uint())
	},
	encodeAnswer: patchManyKind.encodeAnswer,
	decodeAnswer: patchManyKind.decodeAnswer,
}

// PatchMany carries out one page of a fan-out in one physical partition.
func (c *Container) PatchMany(ctx context.Context, p feed.Partition, m *PatchMany) (*PatchManyResult, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, PatchMany: m})
	if err != nil {
		return nil, err
	}
	return resp.PatchMany, nil
}

func (w *wireWriter) patchMany(p *PatchMany) {
	w.producer(p.Producer)
	w.uint(p.Epoch)
	w.str(p.Source)
	w.position(p.Position)
	w.position(p.FinishedBelow)
	w.bool(p.Plant)
	w.scope(&p.Scope)
	w.copy(&p.Copy)
	w.uint(p.Digest)
	w.uint(uint64(p.NotAfter))
	w.uint(uint64(p.ItemsMax))
}

func (d *wireReader) patchMany() *PatchMany {
	return &PatchMany{
		Producer: d.producer(), Epoch: d.uint(), Source: d.str(), Position: d.position(), FinishedBelow: d.position(),
		Plant: d.bool(), Scope: d.scope(), Copy: d.copy(), Digest: d.uint(), NotAfter: feed.LSN(d.uint()), ItemsMax: d.int(),
	}
}

func (w *wireWriter) patchManyResult(p *PatchManyResult) {
	w.uint(uint64(p.LSN))
	w.uint(uint64(p.Scanned))
	w.uint(uint64(p.Patched))
	w.bool(p.Done)
	w.bool(p.Superseded)
	w.position(p.Position)
	w.bytes(p.Cursor)
	w.refusals(p.Refused)
}

func (d *wireReader) patchManyResult() *PatchManyResult {
	return &PatchManyResult{
		LSN: feed.LSN(d.uint()), Scanned: d.int(), Patched: d.int(), Done: d.bool(), Superseded: d.bool(),
		Position: d.position(), Cursor: d.bytes(), Refused: d.refusals(),
	}
}
