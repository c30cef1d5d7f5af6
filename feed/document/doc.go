// Package document reads and changes items as the bytes that they are.
//
// An item is one JSON object. It is never decoded into maps and encoded again:
// what is read is found by scanning and returned as a slice of the item, and what
// is changed is spliced in. So numbers, escapes, the order of members and white
// space come out as they went in, and a change of one field costs one scan up to
// that field and one copy.
//
// # From foreign bytes to items
//
// Check decides once whether bytes are an item: one JSON object in UTF-8, no
// member twice in one object, no nesting beyond DepthMax, no larger than SizeMax.
// Everything else in the package takes bytes that passed Check (or parts of them)
// and gives unspecified results for others; it never panics and never reads
// outside of them.
//
// # Paths
//
// A Path leads from the item to a value. It is written in one of two ways: as a
// JSON pointer (RFC 6901; ParsePointer) in patches, indexes and partition keys,
// or as a field (ParseField) in pipelines:
//
//	/categoryName          categoryName
//	/addresses/0/city      addresses[0].city
//	/tags/*/id             tags[*].id             every element
//	/tags/[id="x"]/name    tags[id = "x"].name    the element whose id is "x"
//	/tags/-                                       after the last element
//
// A step of a pointer means its text where it meets an object and an index, *,
// [key=value] or - where it meets an array, so every pointer of RFC 6901 keeps
// its meaning.
//
// # Changes
//
// Three things change an item, all with the same result: the item after, and the
// undo, a list of splices which turn it back, byte for byte. A Patch holds the
// operations of a client; a Setter the values that a copy must have; an
// EachSetter the same for the elements of an array. Setters change nothing where
// the values are Equal already, which is what keeps pipelines quiet.
//
// The Path of a splice is the pointer of what changed. Where an element of an
// array was inserted or removed it is that of the array, because the elements
// behind it have moved; in what an EachSetter did, * stands for the index.
// Path.Touched tells whether a change may alter what a path reads.
//
// # Concurrency
//
// Functions keep no state. Compiled patches and setters may be used by many
// goroutines at once. No input slice is written to or kept, except that results
// which say so share memory with it.
package document
