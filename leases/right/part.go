package right

import (
	"sync/atomic"
	"time"
)

// Part is the right to a part of what a node has, such as one partition. It holds while the node's right does, and beyond
// that by what proves for this part alone that nobody has taken it, such as an append to the partition's log. Its methods
// are safe for concurrent use.
//
// A Part is of one term of the owner. Who loses the part, or gives it up, throws it away, and asks for a new one when it has
// the part again.
type Part struct {
	r     *Right
	until atomic.Int64 // reading of the clock up to which it holds by itself
}

// Part returns the right to a part, which nothing has extended yet.
func (r *Right) Part() *Part { return &Part{r: r} }

// Extend extends the right to the part, because of something that was sent at since ([Right.Now], read before its first
// try) and is known to have arrived: Config.Trust is counted from there. An earlier since than before changes nothing.
//
// A successor must wait from after what fences the part off was acknowledged, such as its takeover commit: what was
// sent by the predecessor can arrive until then. That it was deposed is not enough.
func (p *Part) Extend(since time.Duration) {
	until := int64(since + p.r.cfg.Trust)
	for {
		known := p.until.Load()
		if until <= known || p.until.CompareAndSwap(known, until) {
			return
		}
	}
}

// Holds reports whether the right to the part holds at this moment. It reads the clock and costs no I/O. It is false for good
// once the node's right has ended ([Right.Deposed]).
func (p *Part) Holds() bool { return p.r.holds(p.until.Load()) }
