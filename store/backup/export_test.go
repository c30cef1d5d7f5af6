package backup

import (
	"testing"
	"time"
)

// Several segments are then few bytes.
func init() { segmentTarget = 4 << 10 }

// WholeUntil is wholeUntil.
var WholeUntil = wholeUntil

// TakeForDeadAfter is how long a prune may show nothing, for a test that does not run beside
// others.
func TakeForDeadAfter(t testing.TB, d time.Duration) {
	t.Helper()
	after, look := deadAfter, lookInterval
	deadAfter, lookInterval = d, d
	t.Cleanup(func() { deadAfter, lookInterval = after, look })
}
