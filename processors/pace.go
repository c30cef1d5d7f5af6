package processors

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed"
)

// restMax bounds one rest, so that a batch that waited for long does not stand for
// work.
const restMax = 2 * time.Second

// pace is how fast a processor reads what was there before its pipeline: while others
// write to the log it rests after each batch, so that it works for a share of its time.
//
//	share 0.5, a batch took 40 ms    rest 40 ms
//	share 0.2, a batch took 40 ms    rest 160 ms
//
// Any goroutine may call noteLogEnd; the loop calls the others.
type pace struct {
	share       float64
	backfillTo  feed.LSN
	pausedUntil time.Time

	logEnd atomic.Uint64 // of the log, when it was looked at last; 0 if never
	busy   atomic.Bool   // the log has grown between two looks
}

// noteLogEnd notes where the log ends now.
func (p *pace) noteLogEnd(last feed.LSN) {
	before := p.logEnd.Swap(uint64(last))
	p.busy.Store(before != 0 && uint64(last) > before)
}

// noteBatch notes a batch that began at an LSN and took a while.
func (p *pace) noteBatch(from feed.LSN, took time.Duration) {
	if from > p.backfillTo || !p.busy.Load() {
		return
	}
	p.pausedUntil = time.Now().Add(rest(p.share, took, restMax))
}

// rest returns how long to rest after work that took a while.
func rest(share float64, took, most time.Duration) time.Duration {
	return min(time.Duration(float64(took)*(1-share)/share), most)
}

// pause returns how long to wait before the next batch.
func (p *pace) pause() time.Duration { return max(time.Until(p.pausedUntil), 0) }
