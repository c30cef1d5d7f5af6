package leases

import (
	"testing"
	"time"
)

// TestBootClockFollowsBootTime compares the clock with the system's.
func TestBootClockFollowsBootTime(t *testing.T) {
	now := newBootClock()
	var last, longest time.Duration
	for begun := time.Now(); time.Since(begun) < 50*time.Millisecond; {
		before := readBootTime()
		got := now()
		after := readBootTime()
		// The clock may lag by as much as goes unnoticed. Where a reading was preempted
		// it is wrong by so much at most, and so are later ones that rest on it.
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
	now := newBootClock()
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
