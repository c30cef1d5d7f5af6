package heat

import (
	"cmp"
	"slices"
	"time"
)

const (
	// keysTold bounds the keys of a Report.
	keysTold = 10
	// shareMin is the least part of a partition's load, or of its requests, with which a key is
	// told of.
	shareMin = 0.01
)

// Report is the heat of a partition.
type Report struct {
	// Over is the time that is told of: at most twice Half, and at least Half if the owner has
	// the partition for that long.
	Over time.Duration `json:"over"`
	// Reads are the requests that readers answered, Writes those that the decider decided.
	Reads  Load `json:"reads"`
	Writes Load `json:"writes"`
	// Keys are the hottest first, at most ten.
	Keys []Key `json:"keys,omitempty"`
}

// Key is a hot partition key.
type Key struct {
	// Key is the partition key as JSON, cut at 128 bytes.
	Key string `json:"key"`
	// Share is what part of the partition's load it has at least, ShareMax at most.
	Share    float64 `json:"share"`
	ShareMax float64 `json:"shareMax"`
	// Reads and Writes are those that were counted, estimated where there are many. Some may be
	// missing, of a key whose Share and ShareMax differ.
	Reads  Load `json:"reads"`
	Writes Load `json:"writes"`
}

// Total is the load of reads and writes together.
func (r *Report) Total() Load { return r.Reads.Plus(r.Writes) }

// Weight is the load as one time, by which partitions are compared: that of the readers and the
// decider, and what requests take beside it.
func (r *Report) Weight() time.Duration { return time.Duration(r.Total().weight()) }

// PerSecond is how many a second so many within the time of the report are.
func (r *Report) PerSecond(n uint64) float64 {
	if r.Over <= 0 {
		return 0
	}
	return float64(n) / r.Over.Seconds()
}

// Busy is which part of the time of the report some time is.
func (r *Report) Busy(d time.Duration) float64 {
	if r.Over <= 0 {
		return 0
	}
	return float64(d) / float64(r.Over)
}

// bounds of the load of a key, in one window or in both.
type bounds struct {
	slot
	least, most uint64
}

// Report tells of the present window and the one before; nil of a nil Meter.
func (m *Meter) Report() *Report {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Since(m.created)
	r := &Report{Over: now}
	if m.window.Load() == nil {
		r.Over = min(now, 2*Half)
		return r
	}
	w := m.beginLocked(now)
	r.Over -= max(0, time.Duration(w.index-1)*Half)
	before := w.before
	if w.last != nil {
		before = w.last.before
	}
	r.Reads, r.Writes = m.totals[Read].load().Minus(before[Read]), m.totals[Write].load().Minus(before[Write])
	r.Keys = hottest(w, w.last)
	return r
}

// hottest returns the keys with the greatest lower bounds in all windows together.
func hottest(windows ...*window) []Key {
	found := map[uint64]*bounds{}
	var total, asked, others uint64
	for _, w := range windows {
		if w != nil {
			t, n, free := w.gather(found, others)
			total, asked, others = total+t, asked+n, others+free
		}
	}
	if total == 0 {
		return nil
	}
	var keys []Key
	for _, b := range found {
		k := Key{
			Key: b.shown(), Share: float64(b.least) / float64(total), ShareMax: min(float64(b.most)/float64(total), 1),
			Reads: b.counts[Read], Writes: b.counts[Write],
		}
		if k.Share >= shareMin || float64(k.Reads.Requests+k.Writes.Requests) >= shareMin*float64(asked) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Key, b.Key)) })
	return keys[:min(len(keys), keysTold)]
}

// gather adds what a window knows of keys to what is known. A key that is found in it alone may
// have had up to others in the windows before, and one that has no slot in it up to free.
func (w *window) gather(found map[uint64]*bounds, others uint64) (total, asked, free uint64) {
	s := &w.sketch
	s.mu.Lock()
	defer s.mu.Unlock()
	missed := w.missed.Load()
	if s.n > 0 {
		free = s.free()
	}
	here := map[uint64]bool{}
	for i := range s.n {
		hash, slot := s.hashes[i], &s.slots[i]
		here[hash] = true
		b := found[hash]
		if b == nil {
			b = &bounds{slot: *slot, most: others}
			found[hash] = b
		} else {
			for c := range b.counts {
				b.counts[c] = b.counts[c].Plus(slot.counts[c])
			}
		}
		b.least += s.loads[i] - slot.error
		b.most += s.loads[i] + missed
	}
	for hash, b := range found {
		if !here[hash] {
			b.most += free + missed
		}
	}
	return s.total + missed, s.asked, free + missed
}
