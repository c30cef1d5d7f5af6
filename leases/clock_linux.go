package leases

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// newBootClock returns CLOCK_BOOTTIME: monotonic, and counting suspended time.
//
// Reading it is a system call, while Go reads the wall clock and its monotonic clock without
// one. A suspension moves the wall clock and not the monotonic one. So while the two keep
// their distance the machine was not suspended, and CLOCK_BOOTTIME is the monotonic clock
// plus an offset that stays. If somebody sets the wall clock the distance changes too, and
// costs one system call.
func newBootClock() clock {
	type reading struct {
		distance time.Duration // from the monotonic clock to the wall clock
		offset   time.Duration // from the monotonic clock to CLOCK_BOOTTIME
	}
	const distanceMax = time.Millisecond
	begun := time.Now()
	wallBegun := begun.Round(0)
	var last atomic.Pointer[reading]
	return func() time.Duration {
		now := time.Now()
		monotonic := now.Sub(begun)
		distance := now.Round(0).Sub(wallBegun) - monotonic
		if r := last.Load(); r != nil && (distance-r.distance).Abs() < distanceMax {
			return monotonic + r.offset
		}
		boot := readBootTime()
		last.Store(&reading{distance: distance, offset: boot - monotonic})
		return boot
	}
}

func readBootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("leases: CLOCK_BOOTTIME: %v", err))
	}
	return time.Duration(ts.Nano())
}
