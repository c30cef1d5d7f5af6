// Package propose reads items and proposes the cascades that they suggest: which field
// names an item of another container, and which fields beside it are copies of that item's.
//
//	samples ── groups ──▶ items of one type          (container, type = "...")
//	        ── places ──▶ where texts stand in them  (categoryId; tags, id)
//	                          │ for each group that they could name: the references, read
//	                          ▼
//	                      the share that names an item, the fields that are equal
//	                          │ Check, as apply does it
//	                          ▼
//	                      YAML, with the shares as comments
//
// What is looked at is bounded: the samples, and for each place and group at most
// valuesMax items that are read, by readsMax requests in all; Result.Left says what was left
// out. A share is of what was looked at and promises nothing of
// the rest; millrace plan counts all.
//
// A proposal is one only if a cascade can be what it says: match and where fix the whole
// partition key of the source and its id. How a level of the key is fixed is in fixes.
//
// All of it is pure but for the reading, which callers bring. It is for one use by one
// goroutine.
package propose
