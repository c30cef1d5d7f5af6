package store

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
