package store

import (
	"context"

	"github.com/millrace/millrace/feed"
)

// ReadGroups reads accumulators of one aggregate in one physical partition, in one
// consistent view that waits for what is in flight.
type ReadGroups struct {
	Pipeline   string
	Generation uint32
	// Groups are those asked for; nil reads all, page by page.
	Groups []string
	After  string // the last group of the page before
	Max    int    // groups of a page, default 100, at most 1000
}

// GroupsResult is what ReadGroups read.
type GroupsResult struct {
	LSN feed.LSN
	// Content is an accumulator.Delta: what would make the groups from nothing.
	Content []byte
	// Digest is that of Content, for FoldMany.
	Digest uint64
	// Last is where the next page goes on; "" when nothing follows.
	Last string
	// Positions are those recorded for the aggregate's producers.
	Positions []ProducerPosition
}

// ProducerPosition is how far a producer has been folded.
type ProducerPosition struct {
	Source   string
	Position feed.Position
}

var groupsKind = kind{
	name:         "groups",
	asked:        func(r *Request) bool { return r.Groups != nil },
	encode:       func(w *wireWriter, r *Request) { w.readGroups(r.Groups) },
	decode:       func(d *wireReader, r *Request) { r.Groups = d.readGroups() },
	encodeAnswer: func(w *wireWriter, r *Response) { w.groups(r.Groups) },
	decodeAnswer: func(d *wireReader, r *Response) { r.Groups = d.groups() },
}

// ReadGroups reads accumulators of one physical partition.
func (c *Container) ReadGroups(ctx context.Context, p feed.Partition, r *ReadGroups) (*GroupsResult, error) {
	resp, err := c.do(ctx, &Request{Partition: p, Groups: r})
	if err != nil {
		return nil, err
	}
	return resp.Groups, nil
}

func (w *wireWriter) readGroups(r *ReadGroups) {
	w.str(r.Pipeline)
	w.uint(uint64(r.Generation))
	w.bool(r.Groups != nil)
	w.uint(uint64(len(r.Groups)))
	for _, g := range r.Groups {
		w.str(g)
	}
	w.str(r.After)
	w.uint(uint64(r.Max))
}

func (d *wireReader) readGroups() *ReadGroups {
	r := &ReadGroups{Pipeline: d.str(), Generation: uint32(d.uint())}
	if d.bool() {
		r.Groups = []string{}
	}
	for range d.count() {
		r.Groups = append(r.Groups, d.str())
	}
	r.After, r.Max = d.str(), d.int()
	return r
}

func (w *wireWriter) groups(r *GroupsResult) {
	w.uint(uint64(r.LSN))
	w.bytes(r.Content)
	w.uint(r.Digest)
	w.str(r.Last)
	w.uint(uint64(len(r.Positions)))
	for _, p := range r.Positions {
		w.str(p.Source)
		w.position(p.Position)
	}
}

func (d *wireReader) groups() *GroupsResult {
	r := &GroupsResult{LSN: feed.LSN(d.uint()), Content: d.bytes(), Digest: d.uint(), Last: d.str()}
	for range d.count() {
		r.Positions = append(r.Positions, ProducerPosition{Source: d.str(), Position: d.position()})
	}
	return r
}
