package feed_test

import (
	"math"
	"testing"

	"github.com/millrace/millrace/feed"
)

// TestI4_PositionsOfAWalk lie behind those of its commit and before those of the next, and
// tell by themselves what they are.
func TestI4_PositionsOfAWalk(t *testing.T) {
	t.Parallel()
	behind := feed.WalkEnd(7)
	behind.Index++ // a retry once the walk is over
	all := []feed.Position{{}, {LSN: 6, Index: 9}, {LSN: 7}, {LSN: 7, Index: 1<<31 - 1}, feed.WalkPosition(7, 0), feed.WalkPosition(7, 1), feed.WalkPosition(7, feed.WalkMax-1), feed.WalkEnd(7), behind, {LSN: 7, Index: math.MaxUint32}, {LSN: 8}}
	for i := range all[1:] {
		if !all[i].Before(all[i+1]) {
			t.Errorf("%s is not before %s", all[i], all[i+1])
		}
	}
	for _, x := range []struct {
		at      feed.Position
		done    uint64
		walking bool
		reached feed.LSN // all up to it
	}{
		{feed.Position{}, 0, false, 0},
		{feed.Position{LSN: 7, Index: 5}, 0, false, 7},
		{feed.WalkPosition(7, 0), 1, true, 0},
		{feed.WalkPosition(7, 41), 42, true, 0},
		{feed.WalkEnd(7), 0, false, 7},
		{behind, 0, false, 7},
		{feed.Position{LSN: 8}, 0, false, 8},
	} {
		if done, walking := x.at.Walked(); done != x.done || walking != x.walking {
			t.Errorf("%s: %d items, %t", x.at, done, walking)
		}
		for lsn := feed.LSN(1); lsn < 10; lsn++ {
			if got := x.at.Reached(lsn); got != (lsn <= x.reached) {
				t.Errorf("%s has reached %s: %t", x.at, lsn, got)
			}
		}
	}
}
