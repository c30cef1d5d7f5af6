package store

import (
	"context"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/tombstone"
)

// ReadSources reads items of one physical partition and what is left of those that
// are gone, in one consistent view, behind the barrier of ReadItems.
type ReadSources struct {
	Refs []ItemRef // at most ReadManyMax
	Wish tombstone.Wish
}

// SourcesResult holds a Source for each item in order. InForce says that the partition
// has all tombstones of that kind: what has none was never there, or went too long ago.
type SourcesResult struct {
	Sources []Source
	InForce bool
}

// Source is an item that pipelines follow, or what is left of it.
type Source struct {
	// Item is the item if it is there, whether the wish selects it or not; else its
	// ETag is zero.
	Item
	// Gone is its tombstone; nil if there is none.
	Gone *tombstone.Stone
	// Expiring says that the item's time has passed, and that it will expire: Gone
	// tells what it is until then.
	Expiring bool
	// Known is SourcesResult.InForce of its partition.
	Known bool
}

var sourcesKind = kind{
	name:         "sources",
	asked:        func(r *Request) bool { return r.Sources != nil },
	encode:       func(w *wireWriter, r *Request) { w.readSources(r.Sources) },
	decode:       func(d *wireReader, r *Request) { r.Sources = d.readSources() },
	encodeAnswer: func(w *wireWriter, r *Response) { w.sources(r.Sources) },
	decodeAnswer: func(d *wireReader, r *Response) { r.Sources = d.sources() },
}

// ReadSources reads sources of any partitions, in the order asked.
func (c *Container) ReadSources(ctx context.Context, refs []ItemRef, wish tombstone.Wish) ([]Source, error) {
	sources := make([]Source, len(refs))
	return sources, c.byPartition(ctx, refs, func(ctx context.Context, p feed.Partition, some []ItemRef, at []int) error {
		resp, err := c.Do(ctx, &Request{Partition: p, Sources: &ReadSources{Wish: wish, Refs: some}})
		if err != nil {
			return err
		}
		for i, n := range at {
			sources[n] = resp.Sources.Sources[i]
			sources[n].Known = resp.Sources.InForce
		}
		return nil
	})
}

func (w *wireWriter) readSources(r *ReadSources) {
	w.str(r.Wish.Where)
	w.uint(uint64(r.Wish.Expressions))
	w.uint(uint64(len(r.Wish.Fields)))
	for _, f := range r.Wish.Fields {
		w.str(f)
	}
	w.refs(r.Refs)
}

func (d *wireReader) readSources() *ReadSources {
	r := &ReadSources{Wish: tombstone.Wish{Where: d.str(), Expressions: query.Meaning(d.uint())}}
	for range d.count() {
		r.Wish.Fields = append(r.Wish.Fields, d.str())
	}
	r.Refs = d.refs()
	return r
}

func (w *wireWriter) sources(r *SourcesResult) {
	w.bool(r.InForce)
	w.uint(uint64(len(r.Sources)))
	for i := range r.Sources {
		s := &r.Sources[i]
		w.item(&s.Item)
		w.bool(s.Expiring)
		if s.Gone == nil {
			w.bytes(nil)
			continue
		}
		w.bytes(s.Gone.Append(nil))
	}
}

func (d *wireReader) sources() *SourcesResult {
	r := &SourcesResult{InForce: d.bool()}
	for range d.count() {
		s := Source{Item: d.item(), Expiring: d.bool()}
		if data := d.bytes(); data != nil && d.err == nil {
			stone, err := tombstone.Decode(data)
			if err != nil {
				d.fail(err)
			}
			s.Gone = stone
		}
		r.Sources = append(r.Sources, s)
	}
	return r
}
