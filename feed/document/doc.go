// Package document reads and changes items in their JSON text.
//
// An item is one JSON object. It is never decoded into maps and encoded again. A value that
// is read is found by scanning, and returned as a slice of the item; a value that is
// changed is spliced in. So numbers, escapes, the order of members and white space come
// out as they went in, and a change of one field costs one scan up to that field and one
// copy.
//
// # From foreign bytes to items
//
// Check decides once whether bytes are an item: one JSON object in UTF-8, no member twice
// in one object, no nesting beyond DepthMax, no larger than SizeMax. All other functions
// take bytes that passed Check, or parts of them. For other bytes their results are
// unspecified, but they never panic and never read outside of them.
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
// In an object, a step of a pointer is the member of that name. In an array it is an index,
// *, [key=value] or -. So every pointer of RFC 6901 keeps its meaning.
//
// # Changes
//
// Three types change an item. Each returns the item after the change, and the undo: a list
// of splices that turn it back, byte for byte. A Patch holds the operations of a client, a
// Setter the values that a copy must have, and an EachSetter the same for the elements of
// an array. Setters change nothing where the values are Equal already, so that a pipeline
// which would change nothing writes nothing.
//
// The Path of a splice is the pointer of the value that changed. If an element of an array
// was inserted or removed it is the pointer of the array, because the elements behind it
// have moved; in the splices of an EachSetter, * stands for the index. Path.Touched
// reports whether a change may alter what a path reads.
//
// # Concurrency
//
// Functions keep no state. Compiled patches and setters may be used by many goroutines at
// once. No function writes to an input slice or keeps it; results share memory with an
// input only where their function says so.
package document
