package feed

import (
	"cmp"
	"context"
	"fmt"
	"sync"
)

// HubConfig tunes a Hub. Zero fields take their defaults.
type HubConfig struct {
	// RingBytesMax bounds the recent commits that are kept for the readers of one
	// partition, in bytes of memory. Commits that all readers have passed are kept
	// up to an eighth of it, for readers that come later. The last commit is always
	// kept. Default 16 MiB.
	RingBytesMax int `yaml:"ringBytesMax"`

	// Tail tunes the tails.
	Tail TailOptions `yaml:"tail"`
}

// Hub lets the readers of one process share, for each partition, one tail and
// one decoding of each commit.
//
// The first reader of a partition opens the shared tail. The tail's recent commits are
// kept in a ring. Readers whose next commit is in the ring, or is the one behind its end,
// share the tail: the reader that reaches the end first reads the next commit for all.
// A reader that falls out of the ring, or that begins far from it, has a tail of its own
// until it reaches the ring:
//
//	ring          40 41 42 43
//	reader A            42         returns 42 from the ring
//	reader B                 44    reads 44 from the shared tail, for A and B
//	reader C  12                   reads 12 to 39 from its own tail, then from the ring
//
// So no reader waits for a slower one, and the process never reads further ahead than its
// fastest reader asks.
//
// A Hub has no goroutine. It may be used concurrently.
type Hub struct {
	open func(ctx context.Context, p Partition) (*Log, error)
	cfg  HubConfig
	done chan struct{}

	mu     sync.Mutex
	shared map[Partition]*shared
	closed bool
}

// NewHub makes a Hub that opens logs with open. It does not close them.
func NewHub(open func(ctx context.Context, p Partition) (*Log, error), cfg HubConfig) *Hub {
	cfg.RingBytesMax = cmp.Or(cfg.RingBytesMax, 16<<20)
	cfg.Tail.Prev = 0
	return &Hub{open: open, cfg: cfg, done: make(chan struct{}), shared: map[Partition]*shared{}}
}

// Reader reads a partition after a position: the commits behind after.LSN, and
// if after.Index is not zero the commit at after.LSN too, of which the caller
// skips what it has done. Commits come whole, so that no transaction is split.
// The caller closes the reader.
func (h *Hub) Reader(ctx context.Context, p Partition, after Position) (*Reader, error) {
	s, err := h.acquire(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read partition %s: %w", p, err)
	}
	next := after.LSN + 1
	if after.Index > 0 && after.LSN > 0 {
		next = after.LSN
	}
	return &Reader{h: h, s: s, next: next}, nil
}

// Close ends all readers: their Next returns ErrClosed, also where it waits.
// It may be called twice.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.done)
	}
}

// acquire adds a reader to the partition, and opens its log if this is the first one.
func (h *Hub) acquire(ctx context.Context, p Partition) (*shared, error) {
	if s, err := h.addReader(p, nil); s != nil || err != nil {
		return s, err
	}
	// Opening asks the server, so it happens without the lock. Two readers may do it at
	// once; addReader then keeps the log of the first. An unused Log holds nothing.
	l, err := h.open(ctx, p)
	if err != nil {
		return nil, err
	}
	return h.addReader(p, l)
}

// addReader adds a reader to the partition. If the partition has no reader yet, l becomes its
// log; if l is nil then, addReader returns nil.
func (h *Hub) addReader(p Partition, l *Log) (*shared, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	s := h.shared[p]
	if s == nil {
		if l == nil {
			return nil, nil
		}
		s = &shared{log: l, ring: ring{bytesMax: h.cfg.RingBytesMax}, changed: make(chan struct{}), drive: make(chan struct{}, 1)}
		s.drive <- struct{}{}
		h.shared[p] = s
	}
	s.readers++
	return s, nil
}

// release removes a reader from the partition. The last one closes the shared tail, so a
// partition that nobody reads costs nothing.
func (h *Hub) release(s *shared) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.readers--; s.readers > 0 {
		return
	}
	delete(h.shared, s.log.p)
	if s.tail != nil {
		s.tail.Close()
	}
}

// tail makes a tail that ends when the hub is closed. It expects nothing of the commit before
// the first, because it is, or becomes, the tail of many: each reader checks what its own
// checkpoint says.
func (h *Hub) tail(l *Log, from LSN) (*Tail, error) {
	t, err := newTail(l, from, h.cfg.Tail)
	if err != nil {
		return nil, err
	}
	t.stop = h.done
	return t, nil
}

// shared is what the readers of one partition share.
type shared struct {
	log     *Log
	readers int // guarded by the hub's lock

	// drive holds one token: the reader that has taken it may use tail. A token in a channel
	// and not a mutex, because a reader that waits for it must also see the ring grow, its
	// context end, and the hub close.
	drive chan struct{}
	tail  *Tail

	mu      sync.Mutex // guards what follows; never held together with the hub's lock
	ring    ring
	joined  []*Reader     // the readers that read from the ring
	changed chan struct{} // closed, and replaced, when the ring grows
}

// dropPassedLocked drops commits that every reader of the ring has passed.
func (s *shared) dropPassedLocked() {
	passed := s.ring.end()
	for _, r := range s.joined {
		passed = min(passed, r.passed)
	}
	s.ring.dropPassed(passed)
}

// push adds a commit that the tail delivered and wakes the readers that wait for it.
func (s *shared) push(c *Commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring.push(c)
	close(s.changed)
	s.changed = make(chan struct{})
}

// ring holds recent commits without a gap, bounded by the memory that they take.
type ring struct {
	bytesMax int
	commits  []*Commit
	sizes    []int
	first    LSN // of commits[0], or of the next to come
	bytes    int
}

// end is the LSN of the next commit to be added.
func (r *ring) end() LSN { return r.first + LSN(len(r.commits)) }

// at returns the commit at lsn, nil if the ring does not have it.
func (r *ring) at(lsn LSN) *Commit {
	if lsn < r.first || lsn >= r.end() {
		return nil
	}
	return r.commits[lsn-r.first]
}

// push adds the commit at the end, and drops the oldest commits while the ring holds too
// many bytes, also those that a slow reader still needs: that reader continues with a tail
// of its own.
func (r *ring) push(c *Commit) {
	size := c.Memory()
	r.commits, r.sizes = append(r.commits, c), append(r.sizes, size)
	r.bytes += size
	r.drop(r.bytesMax, r.end())
}

// dropPassed drops commits below lsn, which no reader needs any more. An eighth of the ring is
// kept: a reader that arrives, or returns from a tail of its own, is rarely at the very
// end, and without those commits it would read and decode them by itself.
func (r *ring) dropPassed(lsn LSN) { r.drop(r.bytesMax/8, lsn) }

// drop drops the oldest commits below lsn while the ring holds more than bytesMax;
// never the last one.
func (r *ring) drop(bytesMax int, lsn LSN) {
	n := 0
	for ; r.bytes > bytesMax && n < len(r.commits)-1 && r.first+LSN(n) < lsn; n++ {
		r.bytes -= r.sizes[n]
		r.commits[n] = nil // the array outlives the slice; the commit must not
	}
	r.commits, r.sizes = r.commits[n:], r.sizes[n:]
	r.first += LSN(n)
}

// reset empties the ring; the next commit to come is at LSN next.
func (r *ring) reset(next LSN) {
	*r = ring{bytesMax: r.bytesMax, first: next}
}
