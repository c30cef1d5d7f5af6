//go:build linux

package integration_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/store"
)

var (
	soak     = flag.Duration("soak", 0, "how long the soak test writes; 0 is not at all, an hour is a thorough run")
	soakRate = flag.Int("soak.rate", 2000, "writes per second of the soak test")
)

// What the soak writes to, again and again, so that live data soon stop growing.
const (
	soakCustomers = 5_000
	soakOrders    = 5 // of each customer
	soakProducts  = 2_000
	soakWriters   = 64 // enough that nobody waits for the answer of another
)

// TestSoak_MemoryIsFlat writes for long at a steady rate under the pipelines of
// the WebStore, with the default configuration, and looks at the resident memory
// of the process, mapped files included: in the last quarter of the time it is
// what it was in the second. At the end every copy equals its source.
func TestSoak_MemoryIsFlat(t *testing.T) {
	if *soak == 0 {
		t.Skip("it takes long: make soak, or -soak 1h")
	}
	dir, port := t.TempDir(), strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	node := spawn(t, "up", "--dir", dir, "--port", port, "--listen", "off")
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	client := dial(t, server)
	w := &soakWorld{product: open(t, client, "product"), meta: open(t, client, "productMeta"), customer: open(t, client, "customer")}
	ctx, cancel := context.WithTimeout(t.Context(), *soak)
	defer cancel()
	var group sync.WaitGroup
	for i := range soakWriters {
		group.Go(func() { w.write(ctx, rand.New(rand.NewPCG(uint64(i), 1))) })
	}
	used := processTime(t, node.Cmd.Process.Pid)
	samples := sampleMemory(t, ctx, node.Cmd.Process.Pid, max(*soak/240, 100*time.Millisecond))
	group.Wait()
	used = processTime(t, node.Cmd.Process.Pid) - used
	rate := float64(w.done.Load()) / soak.Seconds()
	t.Logf("%d writes, %.0f/s; %d failed", w.done.Load(), rate, w.failed.Load())
	t.Logf("%v of processor time, %v for each write", used, used/time.Duration(max(1, w.done.Load())))
	w.reasons.Range(func(reason, times any) bool {
		t.Logf("  %d failed: %s", times.(*atomic.Int64).Load(), reason)
		return true
	})
	quarter := len(samples) / 4
	before, after := median(samples[quarter:2*quarter]), median(samples[3*quarter:])
	t.Logf("resident: %d MiB in the second quarter, %d MiB in the last, %d MiB at most", before>>10, after>>10, slices.Max(samples)>>10)
	for i := 0; i < len(samples); i += max(1, len(samples)/24) {
		t.Logf("  after %v: %d MiB", (*soak * time.Duration(i) / time.Duration(len(samples))).Round(time.Second), samples[i]>>10)
	}
	if after > before*5/4 {
		t.Errorf("memory grows: %d MiB in the second quarter of the time, %d MiB in the last", before>>10, after>>10)
	}
	if w.failed.Load() > w.done.Load()/100 {
		t.Errorf("%d of %d writes failed", w.failed.Load(), w.done.Load())
	}
	if out, exit := run(t, server, "verify", "--timeout", "5m"); exit != 0 {
		t.Errorf("verify: exit %d\n%s", exit, out)
	}
}

// soakWorld is what the soak writes to.
type soakWorld struct {
	product, meta, customer *store.Container
	done, failed            atomic.Int64
	reasons                 sync.Map // of failures, by text: *atomic.Int64
}

// write writes its share of the rate until ctx ends. What a slow answer has held up is written
// as soon as it has come: the rate is that of the whole time.
func (w *soakWorld) write(ctx context.Context, dice *rand.Rand) {
	between := time.Second * soakWriters / time.Duration(*soakRate)
	for due := time.Now(); ; due = due.Add(between) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		into, body := w.draw(dice)
		if _, err := into.Upsert(ctx, body); err == nil {
			w.done.Add(1)
		} else if ctx.Err() == nil {
			w.failed.Add(1)
			times, _ := w.reasons.LoadOrStore(err.Error(), new(atomic.Int64))
			times.(*atomic.Int64).Add(1)
		}
	}
}

// draw returns a write: mostly orders, some products and customers, two renames in a second
// at the whole rate.
func (w *soakWorld) draw(dice *rand.Rand) (*store.Container, []byte) {
	customer := dice.IntN(soakCustomers)
	switch n := dice.IntN(1000); {
	case n < 1 && dice.IntN(3) == 0: // it is written into a hundred products, and these into their orders' lines
		return w.meta, fmt.Appendf(nil, `{"id":"category-%d","type":"category","name":"name %d"}`, dice.IntN(20), dice.Uint32())
	case n < 1:
		return w.meta, fmt.Appendf(nil, `{"id":"tag-%d","type":"tag","name":"name %d"}`, dice.IntN(40), dice.Uint32())
	case n < 150:
		i := dice.IntN(soakProducts)
		return w.product, fmt.Appendf(nil, `{"id":"p%d","categoryId":"category-%d","sku":"sku-%d","price":%d,"tags":[{"id":"tag-%d"},{"id":"tag-%d"}],"description":%q}`,
			i, i%20, i, dice.IntN(10_000), dice.IntN(40), dice.IntN(40), strings.Repeat("lorem ipsum ", 20))
	case n < 200:
		return w.customer, fmt.Appendf(nil, `{"id":"c%d","customerId":"c%d","type":"customer","firstName":"A%d","lastName":"B","addresses":[{"city":"C"}]}`, customer, customer, dice.Uint32())
	}
	return w.customer, fmt.Appendf(nil, `{"id":"o%d","customerId":"c%d","type":"salesOrder","orderDate":"2014-03-%02dT00:00:00","shipDate":"2014-04-06T00:00:00","details":[{"sku":"sku-%d","name":"n","price":%d.5,"quantity":%d}]}`,
		dice.IntN(soakOrders), customer, 1+dice.IntN(28), dice.IntN(soakProducts), dice.IntN(100), 1+dice.IntN(9))
}

// sampleMemory returns the resident memory of a process, in KiB, at every interval
// until ctx ends.
func sampleMemory(t *testing.T, ctx context.Context, pid int, interval time.Duration) []int {
	t.Helper()
	var samples []int
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if len(samples) < 8 {
				t.Fatalf("%d samples are too few; let it write longer", len(samples))
			}
			return samples
		case <-tick.C:
			samples = append(samples, residentKiB(t, pid))
		}
	}
}

// residentKiB is what a process has in memory, mapped files included.
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	return processKiB(t, pid, "VmRSS")
}

// processTime is the processor time that a process has used, its own and the system's for it.
func processTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The name, in parentheses, may hold spaces. Behind it, utime and stime are the 12th and 13th
	// field, in hundredths of a second.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		t.Fatalf("no times in %q", stat)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100)
}

func median(samples []int) int {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/2]
}
