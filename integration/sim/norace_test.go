//go:build !race

package sim

// raced says that the race detector does not run.
const raced = false
