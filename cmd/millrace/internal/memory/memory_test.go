package memory_test

import (
	"testing"

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
