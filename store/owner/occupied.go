package owner

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
)

// heldLong is how long a decider may be at one thing before the log and a metric report
// it: all writes of its partition wait.
const heldLong = time.Second

// Held says that the decider of a partition has been at one thing for longer than a
// second.
type Held struct {
	Partition feed.Partition
	By        string // what it is doing
	For       time.Duration
}

// occupation is what a decider is doing.
type occupation struct {
	what  string
	since time.Time
}

// occupy notes what the decider does from now on, until unoccupy.
func (d *decider) occupy(what string) { d.p.occupation.Store(&occupation{what, time.Now()}) }

func (d *decider) unoccupy() { d.p.occupation.Store(nil) }

// held returns what has held the decider for longer than heldLong; nil if nothing has.
func (p *Partition) held() (*occupation, time.Duration) {
	o := p.occupation.Load()
	if o == nil {
		return nil, 0
	}
	took := time.Since(o.since)
	if took < heldLong {
		return nil, 0
	}
	return o, took
}

// Held returns the partitions of this process whose writes wait for one thing.
func (s *Server) Held() []Held {
	var list []Held
	for _, p := range s.partitions() {
		if o, took := p.held(); o != nil {
			list = append(list, Held{p.id, o.what, took})
		}
	}
	slices.SortFunc(list, func(a, b Held) int { return strings.Compare(a.Partition.String(), b.Partition.String()) })
	return list
}

// heldLoop says when a decider is held, and when it goes on.
func (s *Server) heldLoop(ctx context.Context) {
	t := time.NewTicker(heldLong / 4)
	defer t.Stop()
	told := map[*Partition]*occupation{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.tellHeld(ctx, told)
		}
	}
}

// tellHeld logs what has changed since the last time.
func (s *Server) tellHeld(ctx context.Context, told map[*Partition]*occupation) {
	longest := time.Duration(0)
	for p, o := range told {
		if p.occupation.Load() != o {
			delete(told, p)
			p.log.Info("the partition decides writes again", "held", time.Since(o.since).Round(time.Millisecond), "by", o.what)
		}
	}
	for _, p := range s.partitions() {
		o, took := p.held()
		longest = max(longest, took)
		if o != nil && told[p] == nil {
			told[p] = o
			meters.held.Add(ctx, 1)
			p.log.Error("all writes of the partition wait for one thing", "held", took.Round(time.Millisecond), "by", o.what)
		}
	}
	meters.heldDuration.Record(ctx, longest.Seconds())
}
