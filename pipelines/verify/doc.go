// Package verify recomputes copies from their sources, while writes go on, and says which
// differ.
//
//	cascades     scan.go, wait.go, judge.go      each item against its source
//	aggregates   groups*.go, fields.go           each group folded anew, then its fields
//	projections  row*.go                         sums of rows against those of the sink
//
// A difference counts only when it stays: what differs at first is suspect, and is read
// again after the readers of the pipeline have passed the position at which it was seen.
// What then differs for a reason, because something is in flight, halted or given up, is
// behind; what differs for none is drift.
//
// Nothing is called equal that could not be judged. Rows of an item that is gone are judged by
// the log: they go if it was deleted, and may stay if it expired. Where the log was trimmed since,
// neither is known. Such a row is unjudged, and so is its pipeline unless it is worse:
//
//	items expire   their rows   the log       rows of items that are gone
//	no             -            -             go
//	yes            go           whole         go when the log says so
//	yes            stay         whole         go, or stay as they were, as the log says
//	yes            go           was trimmed   go if the log still tells of the item; else unjudged
//	yes            stay         was trimmed   the same; and others may be missing of which nobody knows,
//	                                          unless the generation began with items, and the log behind
//	                                          these is whole
//
// A repair leaves alone what is unjudged: it may be the last trace of its item.
//
// Where a partition is split meanwhile, its pipeline is verified anew; see lineage.go.
//
// Repair goes on from there: it sets anew what is drift, through the same writes as the
// pipeline itself, and tries again what was given up. Continuous is the verification that
// never ends, one worker's work for all, in a small share of its time; what it finds is
// kept in its lease (CONTINUOUS.md).
//
// A Verifier and a Repairer keep nothing between two calls and are safe for concurrent
// use; a Continuous runs once.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package verify
