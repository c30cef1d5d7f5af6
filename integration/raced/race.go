//go:build race

package raced

// Detector says that the race detector runs.
const Detector = true
