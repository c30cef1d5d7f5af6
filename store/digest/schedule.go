package digest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
)

// Schedule says when the owner of partitions has their digests compared. One goroutine uses it.
type Schedule struct {
	interval time.Duration
	all      map[feed.Partition]*turn
}

// turn is when a partition is next.
type turn struct {
	due    time.Time
	told   feed.LSN // of the commit that told the last digest, if it stands right behind the order; else 0
	copies []string // who was ready to compare, as of the last look; in order
	seen   bool     // at this round
}

// restRounds is for how many intervals more than one a partition rests that nobody writes to, a day if that is an hour.
// The owner does not hear whether a standby has compared what it told, or had others to compare then; and what an engine
// holds may go wrong later.
const restRounds = 23

// NewSchedule returns a schedule that has each partition compared once in an interval. The first time is at random
// within the first one: else all partitions of a store would come at once after its start.
func NewSchedule(interval time.Duration) *Schedule {
	return &Schedule{interval, map[feed.Partition]*turn{}}
}

// Due says whether a partition is to be compared now, whose last commit is at. copies are the nodes that have a copy
// which is warm. Without one nobody would compare, and a log that nobody has written to since the last time makes no
// other state, so it rests, for restRounds or until there is a copy that was not there before.
func (s *Schedule) Due(id feed.Partition, at feed.LSN, copies []string, now time.Time) bool {
	t := s.all[id]
	if t == nil {
		t = &turn{due: now.Add(rand.N(s.interval))} //nolint:gosec // nothing is to be kept from being guessed
		s.all[id] = t
	}
	t.seen = true
	slices.Sort(copies)
	if slices.ContainsFunc(copies, func(node string) bool { return !slices.Contains(t.copies, node) }) {
		t.told = 0
	}
	t.copies = copies
	return len(copies) > 0 && !now.Before(t.due) && (at != t.told || now.Sub(t.due) >= restRounds*s.interval)
}

// Done says that a digest was told with the commit at told; 0 if others stand between that and the order.
func (s *Schedule) Done(id feed.Partition, told feed.LSN, now time.Time) {
	t := s.all[id]
	t.told, t.due = told, now.Add(s.interval)
}

// Failed says that none was.
func (s *Schedule) Failed(id feed.Partition, now time.Time) { s.all[id].due = now.Add(s.interval / 10) }

// EndRound forgets the partitions that Due was not asked for since the last call.
func (s *Schedule) EndRound() {
	maps.DeleteFunc(s.all, func(_ feed.Partition, t *turn) bool { return !t.seen })
	for _, t := range s.all {
		t.seen = false
	}
}
