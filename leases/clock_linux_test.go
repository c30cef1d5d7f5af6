package leases

import (
	"testing"
	"time"
)

// TestBootClockFollowsBootTime compares the clock with the system's.
func TestBootClockFollowsBootTime(t *testing.T) {
	now := newBootClock()
	last := now()
	for begun := time.Now(); time.Since(begun) < 50*time.Millisecond; {
		before := readBootTime()
		got := now()
		after := readBootTime()
		// The clock may lag by as much as goes unnoticed, and by a preemption
		// between two of its readings.
		if slack := 20 * time.Millisecond; got < before-slack || got > after+slack {
			t.Fatalf("clock says %v between %v and %v", got, before, after)
		}
		if got < last-2*time.Millisecond {
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
