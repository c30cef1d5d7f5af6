package store

import (
	"context"

	"github.com/millrace/millrace/feed"
)

// ReadClaims reads the rows of one projection that wait for a place in one physical
// partition, page by page, each in one view that waits for what is in flight.
type ReadClaims struct {
	Pipeline   string
	Generation uint32
	After      []byte // Last of the page before; nil at first
	Max        int    // claims of a page, default 100, at most 1000
}

// ClaimsResult is what ReadClaims read.
type ClaimsResult struct {
	LSN    feed.LSN
	Claims []Claim
	// Last is where the next page goes on; nil when nothing follows.
	Last []byte
}

// Claim is a row that waits: Body takes its place when the holder's row goes, unless
// another source that waits comes first.
type Claim struct {
	Source string
	Body   []byte
}

var claimsKind = kind{
	name:         "claims",
	asked:        func(r *Request) bool { return r.Claims != nil },
	encode:       func(w *wireWriter, r *Request) { w.readClaims(r.Claims) },
	decode:       func(d *wireReader, r *Request) { r.Claims = d.readClaims() },
	encodeAnswer: func(w *wireWriter, r *Response) { w.claims(r.Claims) },
	decodeAnswer: func(d *wireReader, r *Response) { r.Claims = d.claims() },
}

// ReadClaims reads the rows of a projection that wait in one physical partition.
func (c *Container) ReadClaims(ctx context.Context, p feed.Partition, r *ReadClaims) (*ClaimsResult, error) {
	resp, err := c.client.Do(ctx, &Request{Partition: p, Claims: r})
	if err != nil {
		return nil, err
	}
	return resp.Claims, nil
}

func (w *wireWriter) readClaims(r *ReadClaims) {
	w.str(r.Pipeline)
	w.uint(uint64(r.Generation))
	w.bytes(r.After)
	w.uint(uint64(r.Max))
}

func (d *wireReader) readClaims() *ReadClaims {
	return &ReadClaims{Pipeline: d.str(), Generation: uint32(d.uint()), After: d.bytes(), Max: d.int()}
}

func (w *wireWriter) claims(r *ClaimsResult) {
	w.uint(uint64(r.LSN))
	w.uint(uint64(len(r.Claims)))
	for i := range r.Claims {
		w.str(r.Claims[i].Source)
		w.bytes(r.Claims[i].Body)
	}
	w.bytes(r.Last)
}

func (d *wireReader) claims() *ClaimsResult {
	r := &ClaimsResult{LSN: feed.LSN(d.uint())}
	for range d.count() {
		r.Claims = append(r.Claims, Claim{Source: d.str(), Body: d.bytes()})
	}
	r.Last = d.bytes()
	return r
}
