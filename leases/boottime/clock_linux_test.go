package boottime

import (
	"testing"
	"time"
)

// TestBootClockFollowsBootTime compares the clock with the system's.
func TestBootClockFollowsBootTime(t *testing.T) {
	now := Clock()
	var last, longest time.Duration
	for begun := time.Now(); time.Since(begun) < 50*time.Millisecond; {
		before := readBootTime()
		got := now()
		after := readBootTime()
		// The clock may lag by as much as goes unnoticed. Where a reading was preempted
		// it is wrong by so much at most.
		longest = max(longest, after-before)
		if slack := 2*time.Millisecond + longest; got < before-slack || got > after+slack {
			t.Fatalf("clock says %v between %v and %v", got, before, after)
		} else if got < last-slack {
			t.Fatalf("clock went back from %v to %v", last, got)
		}
		last = got
	}
}

func BenchmarkBootClock(b *testing.B) {
	now := Clock()
	b.ReportAllocs()
	for b.Loop() {
		now()
	}
}

func BenchmarkBootTime(b *testing.B) {
	for b.Loop() {
		readBootTime()
	}
}

// TestBootClockOfAProcessThatIsStopped stops the process between the two readings that a refresh compares. What the
// clock says afterwards neither runs ahead of the system's nor goes back.
func TestBootClockOfAProcessThatIsStopped(t *testing.T) {
	const stop, slack = 2 * time.Second, 2 * time.Millisecond
	var monotonic, wall, boot time.Duration
	pass := func(d time.Duration) { monotonic, wall, boot = monotonic+d, wall+d, boot+d }
	pass(time.Hour)
	boot += time.Minute // for which the machine was suspended before
	before, after := time.Duration(0), time.Duration(0)
	now := bootClock(
		func() (time.Duration, time.Duration) {
			m, distance := monotonic, wall-monotonic
			pass(before)
			before = 0
			return m, distance
		},
		func() time.Duration {
			b := boot
			pass(after)
			after = 0
			return b
		},
	)
	var last time.Duration
	look := func(what string) {
		t.Helper()
		for range 3 {
			got := now()
			if got > boot || got < boot-slack {
				t.Errorf("%s: the clock says %v, CLOCK_BOOTTIME %v", what, got, boot)
			}
			if got < last-slack {
				t.Errorf("%s: the clock went back from %v to %v", what, last, got)
			}
			last = got
			pass(100 * time.Microsecond)
		}
	}
	for range 2 { // the second time the clock has a reading to compare with
		before = stop
		look("stopped before CLOCK_BOOTTIME is read")
		wall += time.Second // somebody sets it: the clock is refreshed
		look("wall clock set")
		wall, after = wall+time.Second, stop
		look("stopped after CLOCK_BOOTTIME was read")
		wall += time.Second
		look("wall clock set again")
		wall, boot = wall+time.Minute, boot+time.Minute
		before = stop
		look("suspended, and stopped when it is back")
		wall += time.Second
	}
}
