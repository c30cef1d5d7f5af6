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
