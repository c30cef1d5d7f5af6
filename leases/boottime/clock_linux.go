package boottime

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Clock returns CLOCK_BOOTTIME: monotonic, and counting suspended time. It may be read concurrently.
//
// Reading it is a system call, while Go reads the wall clock and its monotonic clock without
// one. A suspension moves the wall clock and not the monotonic one. So while the two keep
// their distance the machine was not suspended, and CLOCK_BOOTTIME is the monotonic clock
// plus an offset that stays. If somebody sets the wall clock the distance changes too, and
// costs one system call.
func Clock() func() time.Duration {
	begun := time.Now()
	wallBegun := begun.Round(0)
	return bootClock(func() (monotonic, distance time.Duration) {
		now := time.Now()
		monotonic = now.Sub(begun)
		return monotonic, now.Round(0).Sub(wallBegun) - monotonic
	}, readBootTime)
}

// bootClock is Clock on any clocks. read returns a reading of the monotonic clock, and its
// distance to the wall clock; boot returns one of CLOCK_BOOTTIME.
//
// An offset is made of two readings, and a stop of the process between them makes it wrong by as
// much: the clock would run ahead, and go back with the next offset. So the monotonic clock is
// read on both sides of CLOCK_BOOTTIME, and the offset is kept only if the two are close:
//
//	monotonic 10 s, boot 70 s, monotonic 10 s    60 s
//	monotonic 10 s, boot 72 s, monotonic 12 s    between 60 s and 62 s: read again
func bootClock(read func() (monotonic, distance time.Duration), boot func() time.Duration) func() time.Duration {
	type reading struct {
		distance time.Duration // from the monotonic clock to the wall clock
		offset   time.Duration // from the monotonic clock to CLOCK_BOOTTIME
	}
	const (
		distanceMax = time.Millisecond
		stopMax     = time.Millisecond
		triesMax    = 4
	)
	var last atomic.Pointer[reading]
	return func() time.Duration {
		var now time.Duration
		for range triesMax {
			monotonic, distance := read()
			if r := last.Load(); r != nil && (distance-r.distance).Abs() < distanceMax {
				return monotonic + r.offset
			}
			now = boot()
			if after, _ := read(); after-monotonic < stopMax {
				last.Store(&reading{distance: distance, offset: now - monotonic})
				break
			}
		}
		// Without a new offset this is right all the same, and the next reading tries again.
		return now
	}
}

func readBootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("boottime: CLOCK_BOOTTIME: %v", err))
	}
	return time.Duration(ts.Nano())
}
