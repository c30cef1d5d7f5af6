//go:build !race

package raced

// Detector says that the race detector does not run.
const Detector = false
