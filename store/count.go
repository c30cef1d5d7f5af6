package store

import (
	"context"

	"github.com/millrace/millrace/feed"
)

var countKind = kind{
	name:   "count",
	asked:  func(r *Request) bool { return r.Count != nil },
	encode: func(w *wireWriter, r *Request) { w.scope(r.Count) },
	decode: func(d *wireReader, r *Request) {
		scope := d.scope()
		r.Count = &scope
	},
	encodeAnswer: func(w *wireWriter, r *Response) { w.uint(uint64(r.Count)) },
	decodeAnswer: func(d *wireReader, r *Response) { r.Count = d.int() },
}

// Count counts the items in a scope of one physical partition.
func (c *Container) Count(ctx context.Context, p feed.Partition, s Scope) (int, error) {
	resp, err := c.client.Do(ctx, &Request{Partition: p, Count: &s})
	if err != nil {
		return 0, err
	}
	return resp.Count, nil
}
