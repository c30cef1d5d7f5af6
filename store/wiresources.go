package store

import (
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/tombstone"
)

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
