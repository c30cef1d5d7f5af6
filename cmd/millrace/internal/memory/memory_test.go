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
