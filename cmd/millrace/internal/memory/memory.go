// Package memory keeps what a process has in memory within a limit.
//
// What is resident is Go's heap, with what the runtime needs beside it, and pages of
// mapped files: the program, and the engine's tables and logs. Go's collector is told
// how far the first may grow, and pages of tables are taken out of the process when
// the second grow beyond their part; the system may keep those in its page cache.
//
// With a limit the heap's part is fixed. Without one it is small, which keeps bursts
// of garbage from growing the process, and follows what is in use: a sixth of that
// is always free, and more, up to a bound, while collecting is costly, so that the
// collector does not take the time that work needs.
package memory

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// gcPercent is how much garbage may gather beside what is in use before it is
	// collected, as long as the heap's part has room for both. With 50 an import took
	// a tenth more of the processor and peaked as high, while a store with 100,000
	// items took 157 MiB in a fan-out, with this 188.
	gcPercent = 100

	// heapMin is the heap's part without a limit, as long as what is in use leaves
	// a sixth of it free. With 192 MiB an import took half as many collections again, and
	// had as much at its peak, when more was in use anyway.
	heapMin = 224 << 20

	// mappedDefault is how much of mapped files may be resident before a trim, the
	// program with some 45 MiB of it included, without a limit.
	mappedDefault = 72 << 20

	// A merge of the engine maps all that it writes until it ends, out of reach of a
	// trim: ten memtables. These bound what is kept for it and for the program.
	reserveMin = 128 << 20
	reserveMax = 256 << 20

	// interval is the time between two looks. In it a merge can map 20 MiB.
	interval = 50 * time.Millisecond
	// trimShare bounds the part of the time that trims may take: one in so many.
	trimShare = 20
	// trimPauseMax bounds what follows from that, because on a busy machine a trim takes
	// time without using it: after one of 160 ms, which are else 3, none came for 3 s, and a
	// merge mapped 80 MiB.
	trimPauseMax = 500 * time.Millisecond
	// trimPause is the least time between two trims without a limit: what is read again
	// comes back page by page. With a second a merge mapped 120 MiB between two,
	// with 200 ms up to 115.
	trimPause = 100 * time.Millisecond
)

// Mapped returns beyond how much of mapped files the engine's tables are trimmed.
func Mapped(limit int64) int64 {
	if limit == 0 {
		return mappedDefault
	}
	return max(72<<20, limit/5)
}

// Heap returns how much of a limit is Go's.
func Heap(limit int64) int64 {
	return limit - min(reserveMax, max(reserveMin, limit/8*3)) - limit/16
}

// Pause returns how long after the beginning of a trim that took so long the next may begin.
func Pause(limit int64, took time.Duration) time.Duration {
	pause := min(trimShare*took, trimPauseMax)
	if limit == 0 {
		pause = max(pause, trimPause)
	}
	return pause
}

// Keeper keeps one process within its limit.
type Keeper struct {
	limit int64
	trim  func() error
	log   *slog.Logger

	heap    int64     // what Go was told; 0: nothing
	free    int64     // of it, beside what is in use
	cost    cost      // of collecting
	resting time.Time // no trim before it
	samples []metrics.Sample
	statm   statm // while Run runs
}

// Keep applies the limit, in bytes, to the process at once; 0 is none. What the
// environment says in GOGC and GOMEMLIMIT counts where there is no limit. Call Run.
func Keep(limit int64, log *slog.Logger) *Keeper {
	k := &Keeper{limit: limit, log: log, cost: newCost(), samples: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	switch {
	case limit > 0:
		k.heap = Heap(limit)
		debug.SetMemoryLimit(k.heap)
		log.Info("memory is limited", slog.Int64("limit", limit), slog.Int64("heap", k.heap))
	case os.Getenv("GOMEMLIMIT") == "" && os.Getenv("GOGC") == "":
		k.heap = heapMin
		debug.SetMemoryLimit(k.heap)
	}
	return k
}

// Run keeps the limit until ctx ends. trim takes pages of mapped files out of the
// process; nil where there are none but the program's.
func (k *Keeper) Run(ctx context.Context, trim func() error) {
	k.trim = trim
	tick := time.NewTicker(interval)
	defer tick.Stop()
	defer k.statm.close()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			k.adapt(now)
			k.look(now)
		}
	}
}

// adapt lets the heap's part follow what is in use.
func (k *Keeper) adapt(now time.Time) {
	if k.limit > 0 || k.heap == 0 {
		return
	}
	metrics.Read(k.samples)
	at := func(i int) int64 { return int64(min(k.samples[i].Value.Uint64(), math.MaxInt64)) }
	live, other := at(0), at(1)-at(2)-at(3)-at(4)
	if share, ok := k.cost.share(now); ok {
		k.free = Headroom(k.free, live, other, share)
	}
	// What is in use may have changed since the measurement.
	want := max(heapMin, live+live/6+other, min(live+k.free+other, heapCostly))
	// Each change stops the world for a moment.
	if diff := want - k.heap; diff > k.heap/16 || diff < -k.heap/16 || want == heapMin && diff != 0 {
		k.heap = want
		debug.SetMemoryLimit(want)
	}
}

// look trims what is mapped where it is too much.
func (k *Keeper) look(now time.Time) {
	most := Mapped(k.limit)
	if k.trim == nil || now.Before(k.resting) || k.statm.mapped() <= most {
		return
	}
	if err := k.trim(); err != nil {
		k.log.Debug("trim what is mapped", slog.Any("error", err))
	}
	k.resting = now.Add(Pause(k.limit, time.Since(now)))
}
