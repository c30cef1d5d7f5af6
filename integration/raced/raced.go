// Package raced tells tests whether the race detector watches them: it makes what keeps a
// processor busy several times as slow. `make test` runs the rounds that Rounds leaves
// out beside, without it.
package raced

// Rounds chooses how much is done: with the race detector, or without.
func Rounds(with, without int) int {
	if Detector {
		return with
	}
	return without
}
