//go:build !linux

package boottime

import "time"

// Clock returns Go's monotonic clock. It may stand still while the
// machine is suspended: a holder that wakes up may then trust its lease too
// long, and only the fences in what it writes to protect from it.
func Clock() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
