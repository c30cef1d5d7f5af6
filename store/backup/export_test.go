package backup

import (
	"testing"
	"time"
)

// Several segments are then few bytes.
func init() { segmentTarget = 4 << 10 }

// TakeForDeadAfter is how long a prune may show nothing, for a test that does not run beside
// others.
func TakeForDeadAfter(t testing.TB, d time.Duration) {
	t.Helper()
	after, look, sign := deadAfter, lookInterval, signEvery
	deadAfter, lookInterval, signEvery = d, d, 0
	t.Cleanup(func() { deadAfter, lookInterval, signEvery = after, look, sign })
}
