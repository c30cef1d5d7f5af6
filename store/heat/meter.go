package heat

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed"
)

const (
	// Half is the length of one of the two windows that are told of.
	Half = time.Minute

	// requestCost is what a request counts for beside the time of its reader or decider: its
	// message, its codec and its part of a commit take about as much.
	requestCost = 50 * time.Microsecond

	// Of the first sampleFrom requests of a window all are in the sample, and of later ones not
	// less than one in weightMax.
	sampleFrom = 4096
	weightMax  = 64

	// runsMax bounds the runs of items of one request that are attributed to keys.
	runsMax = 32
)

// Class is how a request is answered.
type Class uint8

// The classes.
const (
	Read  Class = iota // beside the decider
	Write              // by the decider, reads within a batch included
	classes
)

// Load is what requests took of a partition.
type Load struct {
	Requests uint64 `json:"requests"`
	// Bytes are those of the items that were answered, or of what was decided to be written to
	// the log.
	Bytes uint64 `json:"bytes"`
	// Time is that of the readers, or of the decider, in nanoseconds.
	Time time.Duration `json:"time"`
}

// Plus is the sum of two loads.
func (l Load) Plus(m Load) Load {
	return Load{l.Requests + m.Requests, l.Bytes + m.Bytes, l.Time + m.Time}
}

// Minus is what l is more than m.
func (l Load) Minus(m Load) Load {
	return Load{l.Requests - m.Requests, l.Bytes - m.Bytes, l.Time - m.Time}
}

// weight is the load as one number, in nanoseconds.
func (l Load) weight() uint64 { return uint64(l.Time) + l.Requests*uint64(requestCost) }

// Work is what one request was.
type Work struct {
	Class Class
	Bytes int
	// Took is its time, if that is not what has passed since Begin.
	Took time.Duration
	// Keys are the partition keys of the items that it read or changed.
	Keys Keys
}

// Keys are partition keys of items, in the order in which a request has them. The zero Keys
// has none.
type Keys struct {
	N  int
	At func(i int) feed.PartitionKey // nil: all are One
	// One is the key of requests that have one.
	One feed.PartitionKey
}

// Only is the key of a request that has one; none if it is the zero key.
func Only(key feed.PartitionKey) Keys {
	if key.IsZero() {
		return Keys{}
	}
	return Keys{N: 1, One: key}
}

// counters are the totals of one class. Each has a cache line of its own: readers do not slow
// the decider down.
type counters struct {
	requests, bytes, nanos atomic.Uint64
	_                      [40]byte
}

// add counts a request.
func (c *counters) add(bytes int) {
	c.requests.Add(1)
	if bytes > 0 {
		c.bytes.Add(uint64(bytes))
	}
}

func (c *counters) load() Load {
	return Load{c.requests.Load(), c.bytes.Load(), time.Duration(c.nanos.Load())}
}

// Meter measures one partition.
type Meter struct {
	totals  [classes]counters
	created time.Time
	seed    maphash.Seed
	random  func() uint64
	window  atomic.Pointer[window] // nil until there was a request

	mu    sync.Mutex    // held to begin a window, and to tell
	taken [classes]Load // guarded by mu
}

// window is what is counted between two multiples of Half.
type window struct {
	index  int64
	before [classes]Load // the totals when it began
	missed atomic.Uint64 // the load that found the sketch locked
	sketch sketch
	last   *window // the one before; nil if nobody asked for anything then. Guarded by Meter.mu
}

// New returns a Meter that begins now.
func New() *Meter { return &Meter{created: time.Now(), seed: maphash.MakeSeed(), random: rand.Uint64} }

// Span is a request under way.
type Span struct {
	weight uint64 // how many requests it stands for; 0: it is not in the sample
	began  time.Duration
}

// Begin begins the measuring of a request of a class. One that is long takes part in every
// sample.
func (m *Meter) Begin(c Class, long bool) Span {
	if m == nil {
		return Span{}
	}
	weight := uint64(1)
	if w := m.window.Load(); w != nil && !long {
		weight = weightAt(m.totals[c].requests.Load() - w.before[c].Requests)
	}
	if weight > 1 && m.random()&(weight-1) != 0 {
		return Span{}
	}
	return Span{weight, time.Since(m.created)}
}

// weightAt is of how many requests one is taken, after n of them:
//
//	0 to 4,095          all
//	4,096 to 8,191      one in 2
//	8,192 to 16,383     one in 4
//	131,072 and more    one in 64
func weightAt(n uint64) uint64 { return min(uint64(1)<<bits.Len64(n/sampleFrom), weightMax) }

// End counts a request.
func (m *Meter) End(s Span, work Work) {
	if m == nil {
		return
	}
	total := &m.totals[work.Class]
	if s.weight == 0 {
		total.add(work.Bytes)
		return
	}
	now := time.Since(m.created)
	took := work.Took
	if took == 0 {
		took = now - s.began
	}
	// First the window: the one that this request begins is to have it.
	w := m.at(now)
	total.add(work.Bytes)
	total.nanos.Add(s.weight * uint64(took))
	if w == nil {
		return
	}
	load := Load{1, uint64(max(work.Bytes, 0)), took}
	if work.Keys.At == nil {
		m.observe(w, work.Class, work.Keys.One, load, s.weight)
		return
	}
	m.observeRuns(w, &work, load, s.weight)
}

// observe gives the sketch a load of one key, which stands for weight of its kind. The zero key
// adds to the whole alone.
func (m *Meter) observe(w *window, c Class, key feed.PartitionKey, load Load, weight uint64) {
	load = Load{load.Requests * weight, load.Bytes * weight, load.Time * time.Duration(weight)}
	if !w.sketch.mu.TryLock() {
		w.missed.Add(load.weight())
		return
	}
	defer w.sketch.mu.Unlock()
	if key.IsZero() {
		w.sketch.give(load)
		return
	}
	w.sketch.add(maphash.String(m.seed, key.Encoded()), key, c, load)
}

// observeRuns gives the sketch each run of items of one key, or every so many of them.
func (m *Meter) observeRuns(w *window, work *Work, load Load, weight uint64) {
	keys, runs := &work.Keys, 0
	for i := range keys.N {
		if i == 0 || keys.At(i) != keys.At(i-1) {
			runs++
		}
	}
	if runs == 0 {
		m.observe(w, work.Class, feed.PartitionKey{}, load, weight)
		return
	}
	stride := (runs + runsMax - 1) / runsMax
	run := -1 - int(m.random()%uint64(stride))
	for begin := 0; begin < keys.N; {
		end := begin + 1
		for end < keys.N && keys.At(end) == keys.At(begin) {
			end++
		}
		if run++; run%stride == 0 {
			part := Load{1, load.Bytes * uint64(end-begin) / uint64(keys.N), load.Time * time.Duration(end-begin) / time.Duration(keys.N)}
			m.observe(w, work.Class, keys.At(begin), part, weight*uint64(stride))
		}
		begin = end
	}
}

// at returns the window of a time, and begins it if it is the first to come. Who comes while
// another begins it gets the one before, or none.
func (m *Meter) at(now time.Duration) *window {
	w := m.window.Load()
	if w != nil && w.index >= int64(now/Half) || !m.mu.TryLock() {
		return w
	}
	defer m.mu.Unlock()
	return m.beginLocked(now)
}

func (m *Meter) beginLocked(now time.Duration) *window {
	index, w := int64(now/Half), m.window.Load()
	if w != nil && w.index >= index {
		return w
	}
	next := &window{index: index}
	if w != nil {
		for c := range m.totals {
			next.before[c] = m.totals[c].load()
		}
		if w.index == index-1 {
			next.last = w
		}
		w.last = nil
	}
	m.window.Store(next)
	return next
}

// Take is what requests of a class took since the Take before, or since New.
func (m *Meter) Take(c Class) Load {
	if m == nil {
		return Load{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	total := m.totals[c].load()
	load := total.Minus(m.taken[c])
	m.taken[c] = total
	return load
}
