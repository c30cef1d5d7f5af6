//go:build !linux

package right

import "time"

// bootClock returns Go's monotonic clock. It may stand still while the machine is suspended: a node that wakes up may
// then trust its right for too long, and answer reads that lack what others have acknowledged. Writes are fenced by the
// log all the same.
func bootClock() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
