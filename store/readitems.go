package store

import "github.com/millrace/millrace/feed"

// ReadItems reads items of one physical partition in one consistent view.
type ReadItems struct {
	Refs []ItemRef
	// Barrier makes the read wait until every append in flight at its arrival is
	// resolved and applied: whoever follows the change feed may have seen a
	// change before its owner applied it, and must not read what it replaced.
	Barrier bool
}

var readKind = kind{
	name:  "read",
	asked: func(r *Request) bool { return r.Read != nil },
	encode: func(w *wireWriter, r *Request) {
		w.bool(r.Read.Barrier)
		w.refs(r.Read.Refs)
	},
	decode: func(d *wireReader, r *Request) { r.Read = &ReadItems{Barrier: d.bool(), Refs: d.refs()} },
	encodeAnswer: func(w *wireWriter, r *Response) {
		w.uint(uint64(r.ReadLSN))
		w.items(r.Read)
	},
	decodeAnswer: func(d *wireReader, r *Response) { r.ReadLSN, r.Read = feed.LSN(d.uint()), d.items() },
}

// ReadVersions asks for the ETags of items of one physical partition in one
// consistent view, behind the barrier of ReadItems: whoever has seen a change in
// the feed learns whether the item is still as the change left it.
type ReadVersions struct {
	Refs []ItemRef // at most ReadManyMax
}

var versionsKind = kind{
	name:   "versions",
	asked:  func(r *Request) bool { return r.Versions != nil },
	encode: func(w *wireWriter, r *Request) { w.refs(r.Versions.Refs) },
	decode: func(d *wireReader, r *Request) { r.Versions = &ReadVersions{Refs: d.refs()} },
	encodeAnswer: func(w *wireWriter, r *Response) {
		w.uint(uint64(len(r.Versions)))
		for _, e := range r.Versions {
			w.etag(e)
		}
	},
	decodeAnswer: func(d *wireReader, r *Response) {
		r.Versions = make([]ETag, d.count())
		for i := range r.Versions {
			r.Versions[i] = d.etag()
		}
	},
}
