package memory_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/memory"
)

func TestHeap_LeavesRoomForWhatIsMapped(t *testing.T) {
	for _, c := range []struct{ limit, heap, mapped int64 }{ // MiB
		{400, 225, 80},
		{1024, 704, 204},
		{4096, 3584, 819},
	} {
		if heap, mapped := memory.Heap(c.limit<<20)>>20, memory.Mapped(c.limit<<20)>>20; heap != c.heap || mapped != c.mapped {
			t.Errorf("of %d MiB the heap has %d and tables are trimmed at %d, want %d and %d", c.limit, heap, mapped, c.heap, c.mapped)
		}
	}
}

// TestPause_IsAShareOfTheTimeAndBounded: a trim that took long because others had the
// processor does not let seconds pass in which everything may be mapped.
func TestPause_IsAShareOfTheTimeAndBounded(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		limit int64
		took  time.Duration
		pause time.Duration
	}{
		{0, 0, 100 * ms},
		{0, 4 * ms, 100 * ms},
		{0, 15 * ms, 300 * ms},
		{0, 160 * ms, 500 * ms},
		{400 << 20, 3 * ms, 60 * ms},
		{400 << 20, 160 * ms, 500 * ms},
	} {
		if got := memory.Pause(c.limit, c.took); got != c.pause {
			t.Errorf("limit %d: after %v the next trim is in %v, want %v", c.limit, c.took, got, c.pause)
		}
	}
}

// TestHeadroom_FollowsWhatCollectingCosts: step by step up to a bound, and back again.
func TestHeadroom_FollowsWhatCollectingCosts(t *testing.T) {
	for _, c := range []struct {
		name      string
		was, live int64 // MiB
		share     float64
		want      int64
	}{
		{"a sixth to begin with", 0, 150, 0.07, 25},
		{"costly", 25, 150, 0.2, 33},
		{"neither costly nor cheap", 33, 150, 0.07, 33},
		{"cheap", 33, 150, 0.01, 25},
		{"a sixth at least", 25, 150, 0.01, 25},
		{"264 MiB in all at most", 96, 150, 0.5, 74},
		{"as much as is in use at most", 58, 60, 0.5, 60},
		{"what was in use has gone", 64, 12, 0.07, 12},
		{"a sixth that is more than the bound", 64, 600, 0.5, 100},
	} {
		if got := memory.Headroom(c.was<<20, c.live<<20, 40<<20, c.share) >> 20; got != c.want {
			t.Errorf("%s: %d MiB, want %d", c.name, got, c.want)
		}
	}
}
