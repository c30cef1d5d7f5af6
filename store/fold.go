package store

import (
	"context"

	"github.com/millrace/millrace/feed"
)

// FoldMany adds what changes of an aggregate's members mean to the accumulators of
// one physical partition, and sets the fields of their targets, in one commit. The
// aggregate's rule is found by the producer's pipeline and generation; while it
// is not active the answer is 503.
type FoldMany struct {
	Producer feed.Producer
	Epoch    uint64
	// After and UpTo bound the interval (After, UpTo] of source positions that
	// Delta folds. It is applied only if After is the position that the partition
	// has recorded for the producer, and UpTo is recorded with it.
	After, UpTo feed.Position
	// Ask answers the recorded position and records Epoch; nothing is folded.
	Ask bool
	// Delta is an accumulator.Delta.
	Delta []byte
	// Mend applies Delta whatever positions are recorded, and records none, if
	// the contents of its groups, as ReadGroups tells them, have the digest
	// Content; else 412.
	Mend    bool
	Content uint64
}

// FoldResult is the outcome of FoldMany.
type FoldResult struct {
	LSN     feed.LSN // of the commit, or of the last commit if none was needed
	Applied bool
	// Position is the one recorded for the producer now.
	Position feed.Position
	// Refused are targets that could not take their fields; their accumulators
	// are right.
	Refused []Refusal
}

var foldKind = kind{
	name: "fold", writes: always,
	asked:        func(r *Request) bool { return r.Fold != nil },
	encode:       func(w *wireWriter, r *Request) { w.fold(r.Fold) },
	decode:       func(d *wireReader, r *Request) { r.Fold = d.fold() },
	encodeAnswer: func(w *wireWriter, r *Response) { w.foldResult(r.Fold) },
	decodeAnswer: func(d *wireReader, r *Response) { r.Fold = d.foldResult() },
}

// Fold adds to accumulators of one physical partition.
func (c *Container) Fold(ctx context.Context, p feed.Partition, f *FoldMany) (*FoldResult, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, Fold: f})
	if err != nil {
		return nil, err
	}
	return resp.Fold, nil
}

func (w *wireWriter) fold(f *FoldMany) {
	w.producer(f.Producer)
	w.uint(f.Epoch)
	w.position(f.After)
	w.position(f.UpTo)
	w.bool(f.Ask)
	w.bytes(f.Delta)
	w.bool(f.Mend)
	w.uint(f.Content)
}

func (d *wireReader) fold() *FoldMany {
	return &FoldMany{
		Producer: d.producer(), Epoch: d.uint(), After: d.position(), UpTo: d.position(), Ask: d.bool(), Delta: d.bytes(),
		Mend: d.bool(), Content: d.uint(),
	}
}

func (w *wireWriter) foldResult(r *FoldResult) {
	w.uint(uint64(r.LSN))
	w.bool(r.Applied)
	w.position(r.Position)
	w.refusals(r.Refused)
}

func (d *wireReader) foldResult() *FoldResult {
	return &FoldResult{LSN: feed.LSN(d.uint()), Applied: d.bool(), Position: d.position(), Refused: d.refusals()}
}
