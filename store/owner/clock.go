package owner

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// reading is what the clock of the log's server showed, and when by the monotonic
// clock of this process, which no step of the wall clock moves.
type reading struct {
	server int64 // unix ms
	at     time.Time
	errs   int64 // ms by which it may be wrong, either way
}

// noteClock takes the server's time from an answer to what was asked at asked: the server
// looked at its clock between then and now.
func (p *Partition) noteClock(asked time.Time, shape *feed.Shape) {
	if shape.Time.IsZero() {
		return
	}
	// The middle of the way there and back errs least: by half of the way, and by the parts of
	// milliseconds that are cut off.
	const cutOff = 2
	way := time.Since(asked) / 2
	p.clock.Store(&reading{shape.Time.UnixMilli(), asked.Add(way), way.Milliseconds() + cutOff})
}

// now is the time in unix milliseconds by which the partition decides: that of the log's
// server. It is one clock for all owners, so that what was written last in two partitions
// is told by their commits, as onSourceDelete: delete does:
//
//	own clocks   source at +8 s: deleted 12:00:08    target at -8 s: written 11:59:53, a second later
//	the server's source: deleted 12:00:00            target: written 12:00:01
//
// If the two differ by no more than the error of the server's reading, nothing proves that they
// differ, and this machine's clock counts. So all owners on one machine have the same time to the
// millisecond, however slow the server's answers are:
//
//	asked 12:00:00.000, the server looked .071, answered .080   the middle, .040, errs by 31 ms
//
// This machine's clock counts too where the server's is not known, and where the server's is
// ahead of it by more than ClockAheadMax. One of the two is wrong then. A time that is in the
// log moves the log's time for good and lets items expire, so the earlier clock does less harm.
func (p *Partition) now() int64 {
	own, server := p.clocks()
	if server == 0 || server-own > p.cfg.ClockAheadMax.Milliseconds() {
		return own
	}
	if errs := p.clock.Load().errs; server-own <= errs && own-server <= errs {
		return own
	}
	return server
}

// clocks returns this machine's time and the server's, 0 if that is not known or does
// not matter.
func (p *Partition) clocks() (own, server int64) {
	own = p.cfg.now()
	known := p.clock.Load()
	if known == nil || p.cfg.ClockAheadMax < 0 {
		return own, 0
	}
	return own, known.server + time.Since(known.at).Milliseconds()
}

// checkClock refuses writes while this machine's clock is too far ahead, and takes them
// again when it is not.
func (p *Partition) checkClock() {
	own, server := p.clocks()
	ahead := time.Duration(own-server) * time.Millisecond
	if server != 0 && ahead > p.cfg.ClockAheadMax {
		refusal := &store.Error{Status: store.StatusUnavailable, RetryAfter: time.Second, Message: fmt.Sprintf(
			"partition %s refuses writes: the clock of %s is %s ahead of that of the log's server, more than %s (store.clockAheadMax): "+
				"items would expire too early; set the clock", p.id, p.owner, ahead.Round(100*time.Millisecond), p.cfg.ClockAheadMax)}
		if p.early == nil && p.trouble.CompareAndSwap(nil, refusal) {
			p.early = refusal
			p.log.Error(refusal.Message)
		}
		return
	}
	if p.early != nil {
		p.trouble.CompareAndSwap(p.early, nil)
		p.early = nil
		p.log.Info("the clock agrees with the log's server again; writes are taken")
	}
}
