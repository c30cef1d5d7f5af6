package pipelines_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/pipelines/verify"
)

// BenchmarkAuditCost tells what the continuous verification costs those who write: 64
// of them write orders that four pipelines copy, in turns with it and without, and
// it works all the time in its share. cost-% is the median over pairs of turns of
// the writes a second that are lost; the processor's time per write is that of the
// whole process, which what else runs on the machine does not change.
func BenchmarkAuditCost(b *testing.B) {
	const customers, orders, writers, writes = 400, 10, 64, 4000
	for _, share := range []int{2, 10} {
		b.Run(fmt.Sprintf("share=%d%%/writers=%d", share, writers), func(b *testing.B) {
			m := newMart(b)
			m.fill(b, customers, orders)
			var lost, plain, watched, plainCPU, watchedCPU []float64
			passed := 0
			for b.Loop() {
				rate, cpu := m.rush(b, customers, writers, writes)
				plain, plainCPU = append(plain, rate), append(plainCPU, cpu)
				rateThen, cpuThen := 0.0, 0.0
				passed += m.audited(b, share, func() { rateThen, cpuThen = m.rush(b, customers, writers, writes) })
				watched, watchedCPU = append(watched, rateThen), append(watchedCPU, cpuThen)
				lost = append(lost, 100*(1-rateThen/rate))
			}
			b.ReportMetric(median(lost), "cost-%")
			b.ReportMetric(median(plain), "writes/s")
			b.ReportMetric(median(watched), "verified-writes/s")
			b.ReportMetric(median(plainCPU), "cpu-µs/write")
			b.ReportMetric(median(watchedCPU), "verified-cpu-µs/write")
			b.ReportMetric(float64(passed)/float64(b.N), "verified-pipelines/op")
		})
	}
}

// audited does something while all pipelines are verified continuously, and returns
// how many were meanwhile.
func (m *mart) audited(b *testing.B, share int, do func()) (passed int) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var g sync.WaitGroup
	g.Go(func() {
		var err error
		passed, err = verifyContinuously(ctx, m.registry, m.client, verify.ContinuousConfig{SharePercent: share, Interval: time.Nanosecond})
		if err != nil && ctx.Err() == nil {
			b.Error(err)
		}
	})
	do()
	cancel()
	g.Wait()
	return passed
}

// rush writes orders, and waits until the pipelines have done with them. It returns
// the writes a second and the microseconds of processor for each, all in all.
func (m *mart) rush(b *testing.B, customers, writers, writes int) (rate, cpu float64) {
	b.Helper()
	sale := m.container(b, "sale")
	before, began := used(b), time.Now()
	var g sync.WaitGroup
	for w := range writers {
		g.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for range writes / writers {
				order := martOrder(rng.IntN(customers), rng.IntN(10), rng.IntN(100))
				if _, err := sale.Upsert(b.Context(), []byte(order)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	g.Wait()
	rate = float64(writes) / time.Since(began).Seconds()
	m.idle(b)
	return rate, float64(used(b)-before) / float64(time.Microsecond) / float64(writes)
}

// used is the processor's time that this process has had.
func used(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(values []float64) float64 {
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	return sorted[len(sorted)/2]
}
