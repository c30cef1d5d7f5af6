package store

import (
	"context"

	"github.com/millrace/millrace/feed"
)

// Repair sets the copies of single items, each guarded by its ETag, in one
// transaction of a producer.
type Repair struct {
	// Producer is not that of fan-outs, of which the partition would forget where they are
	// finished: a part of it, see feed.Producer.Of, or another.
	Producer feed.Producer
	Epoch    uint64
	Items    []RepairItem // at most 1000
}

// RepairItem is one guarded repair.
type RepairItem struct {
	Ref     ItemRef
	IfMatch ETag
	Copies  []Copy
}

// RepairResult holds, for each item in order, 200 if it was changed, 304 if it
// already was as it should be, 404 if it is gone, 412 if it changed since, or why
// it was refused.
type RepairResult struct {
	LSN      feed.LSN
	Statuses []Status
	Reasons  []string // "" where the status says it all
}

var repairKind = kind{
	name: "repair", writes: always,
	asked:  func(r *Request) bool { return r.Repair != nil },
	encode: func(w *wireWriter, r *Request) { w.repair(r.Repair) },
	decode: func(d *wireReader, r *Request) { r.Repair = d.repair() },
	encodeAnswer: func(w *wireWriter, r *Response) {
		w.uint(uint64(r.Repair.LSN))
		w.uint(uint64(len(r.Repair.Statuses)))
		for i, s := range r.Repair.Statuses {
			w.uint(uint64(s))
			w.str(r.Repair.Reasons[i])
		}
	},
	decodeAnswer: func(d *wireReader, r *Response) {
		r.Repair = &RepairResult{LSN: feed.LSN(d.uint())}
		for range d.count() {
			r.Repair.Statuses = append(r.Repair.Statuses, Status(d.uint()))
			r.Repair.Reasons = append(r.Repair.Reasons, d.str())
		}
	},
}

// Repair sets the copies of single items of one physical partition.
func (c *Container) Repair(ctx context.Context, p feed.Partition, r *Repair) (*RepairResult, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, Repair: r})
	if err != nil {
		return nil, err
	}
	return resp.Repair, nil
}

func (w *wireWriter) repair(r *Repair) {
	w.producer(r.Producer)
	w.uint(r.Epoch)
	w.uint(uint64(len(r.Items)))
	for i := range r.Items {
		it := &r.Items[i]
		w.ref(it.Ref)
		w.etag(it.IfMatch)
		w.uint(uint64(len(it.Copies)))
		for j := range it.Copies {
			w.copy(&it.Copies[j])
		}
	}
}

func (d *wireReader) repair() *Repair {
	r := &Repair{Producer: d.producer(), Epoch: d.uint()}
	r.Items = make([]RepairItem, d.count())
	for i := range r.Items {
		r.Items[i] = RepairItem{Ref: d.ref(), IfMatch: d.etag()}
		for range d.count() {
			r.Items[i].Copies = append(r.Items[i].Copies, d.copy())
		}
	}
	return r
}
