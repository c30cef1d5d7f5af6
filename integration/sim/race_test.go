//go:build race

package sim

// raced says that the race detector runs, with which a seed takes five times as long.
const raced = true
