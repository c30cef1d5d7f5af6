package backup

import (
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/snapshot"
)

// Several segments are then few bytes.
func init() { segmentTarget = 4 << 10 }

// WholeUntil is wholeUntil.
var WholeUntil = wholeUntil

// NewerWithin is how long an owner gets to take a snapshot, for a test that does not run beside others.
func NewerWithin(t testing.TB, d time.Duration) {
	t.Helper()
	was := newerWithin
	newerWithin = d
	t.Cleanup(func() { newerWithin = was })
}

// SplitPause is the time until a backup begins again because of a split, for a test that does not run beside others.
func SplitPause(t testing.TB, d time.Duration) {
	t.Helper()
	was := splitPause
	splitPause = d
	t.Cleanup(func() { splitPause = was })
}

// TakeForDeadAfter is how long a prune may show nothing, for a test that does not run beside
// others.
func TakeForDeadAfter(t testing.TB, d time.Duration) {
	t.Helper()
	after, look := deadAfter, lookInterval
	deadAfter, lookInterval = d, d
	t.Cleanup(func() { deadAfter, lookInterval = after, look })
}

// LogAlone copies all of the log of a partition, as a program does that takes it for the whole of what that holds.
func LogAlone(t testing.TB, place snapshot.Store, src *Source, id feed.Partition) *Partition {
	t.Helper()
	log, err := feed.OpenLog(t.Context(), src.JetStream, id, src.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	shape, err := log.Shape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &partitionCopy{creator: &creator{src: src, place: place}, id: id}
	p := &Partition{Partition: id.String(), Log: log.ID(), First: shape.First}
	if err = c.copyLog(t.Context(), log, p, shape); err == nil {
		err = c.setUntil(t.Context(), log, p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}
