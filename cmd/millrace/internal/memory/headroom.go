package memory

import (
	"runtime/metrics"
	"time"
)

const (
	// heapCostly bounds the heap's part while collecting is costly, unless a sixth of what
	// is in use needs more. With 232 MiB the heap of a store that takes 17,000 orders a second, beside 34 MB of the
	// benchmark's own, was collected 20 times a second, each time for 12 ms, which was the 99th percentile of an order. An import peaks at 341 to
	// 356 MB with this, of 400 that it may have, and with 288 MiB at 372 to 393.
	heapCostly = 264 << 20

	// headroomStep is by how much the headroom changes with one measurement. Twice the
	// headroom halves what collecting takes, so a large step up would be one down next.
	headroomStep = 8 << 20

	// Collecting is costly above the first share of the processor time that the process
	// uses, and cheap below the second.
	costlyShare = 0.10
	cheapShare  = 0.05

	// costInterval is the time between two measurements: some collections of a process
	// that has work.
	costInterval = time.Second
)

// Headroom returns how much beside what is live, and what the runtime needs else, may be
// free, when so much was, and collecting has since taken that share of the processor time
// that the process used. It is a sixth of what is live at least. More than all of it would
// do nothing: gcPercent has it collected then.
func Headroom(was, live, other int64, share float64) int64 {
	switch {
	case share > costlyShare:
		was += headroomStep
	case share < cheapShare:
		was -= headroomStep
	default:
	}
	return max(live/6, min(was, live, heapCostly-live-other))
}

// cost measures what collecting costs.
type cost struct {
	samples         []metrics.Sample
	at              time.Time // of the last measurement
	collecting, all float64   // processor seconds until then
}

func newCost() cost {
	return cost{samples: []metrics.Sample{
		{Name: "/cpu/classes/gc/total:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/idle:cpu-seconds"},
		{Name: "/cpu/classes/total:cpu-seconds"},
		{Name: "/cpu/classes/idle:cpu-seconds"},
	}}
}

// share returns which part of the processor time that was used since the last measurement
// went into collecting, and false if that is not long ago.
func (c *cost) share(now time.Time) (float64, bool) {
	if now.Sub(c.at) < costInterval {
		return 0, false
	}
	metrics.Read(c.samples)
	at := func(i int) float64 { return c.samples[i].Value.Float64() }
	idle := at(1) // marking in time that nobody else wants costs nothing
	collecting, all := at(0)-idle, at(2)-at(3)-idle
	used, part := all-c.all, collecting-c.collecting
	c.at, c.collecting, c.all = now, collecting, all
	if used <= 0 {
		return 0, true
	}
	return part / used, true
}
