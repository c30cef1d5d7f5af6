package feed

import "time"

const (
	// patienceMin is the least time for which a try of an append waits for its answer before the same
	// bytes are sent again. It is as good as no time at all for who waits for a write, and longer than
	// a stream's new leader needs that another server hands the stream to.
	patienceMin = 100 * time.Millisecond
	// patienceBytes is how many bytes a second a link or a disk carries that is not called slow yet: a large
	// commit is waited for longer.
	patienceBytes = 8 << 20
	// patienceDeviations is how many mean deviations above the mean an answer may come before it is called late.
	patienceDeviations = 4
)

// patience tells how long an answer to an append may take before it is called late, by what the answers before
// took: as TCP does it (RFC 6298). The zero value knows nothing yet. It belongs to who appends.
type patience struct {
	mean, deviation time.Duration
	known           bool
}

// note counts an answer that took so long.
func (p *patience) note(took time.Duration) {
	if !p.known {
		*p = patience{mean: took, deviation: took / 2, known: true}
		return
	}
	p.deviation += ((took - p.mean).Abs() - p.deviation) / 4
	p.mean += (took - p.mean) / 8
}

// first is how long the first try with so many bytes waits; a further one waits twice as long as the one before. No
// try waits longer than most.
func (p *patience) first(bytes int, most time.Duration) time.Duration {
	size := time.Duration(bytes) * time.Second / patienceBytes
	return min(max(patienceMin, p.mean+patienceDeviations*p.deviation)+size, most)
}
