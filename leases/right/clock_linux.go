package right

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock returns a clock that reads CLOCK_BOOTTIME: monotonic, and counting the time during which the machine was
// suspended. A reading is a system call.
func bootClock() func() time.Duration {
	return func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			panic(fmt.Sprintf("right: CLOCK_BOOTTIME: %v", err))
		}
		return time.Duration(ts.Nano())
	}
}
