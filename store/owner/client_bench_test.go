package owner_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/store"
)

// BenchmarkClientCreate measures acknowledged creates of 1 KiB items through a
// client in the owner's process, every append synced.
func BenchmarkClientCreate(b *testing.B) {
	for _, partitions := range []int{1, 4} {
		b.Run(fmt.Sprintf("writers=64/partitions=%d/sync=always", partitions), func(b *testing.B) {
			c := newCluster(b)
			spec := store.ContainerSpec{PartitionKey: []string{"/a"}, Partitions: partitions}
			if _, err := c.catalog.Create(b.Context(), "default", "things", spec); err != nil {
				b.Fatal(err)
			}
			ct := c.container(c.process("one", b.TempDir()).client, "things")
			pad := strings.Repeat("p", 960)
			if _, err := ct.Create(b.Context(), []byte(`{"id":"first","a":"x"}`)); err != nil {
				b.Fatal(err)
			}
			var next atomic.Int64
			var wg sync.WaitGroup
			b.SetBytes(1024)
			b.ReportAllocs()
			b.ResetTimer()
			for range 64 {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						body := fmt.Appendf(nil, `{"id":"item-%012d","a":"a%d","pad":"%s"}`, i, i%1000, pad)
						if _, err := ct.Create(b.Context(), body); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}
