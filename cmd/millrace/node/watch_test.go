package node

import (
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
)

// A look that a busy machine makes slow changes nothing while commits are applied; it
// makes the node unready when nothing moves, and a node that was unready stays so.
func TestReadiness_DoesNotFlapWhileCommitsAreApplied(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ready, unready := Readiness{Ready: true}, Readiness{Problems: []string{"a pipeline is stuck"}}
	w := &watch{concluded: start}
	look := func(before Readiness, seconds int, applied uint64) Readiness {
		return w.inconclusive(Readiness{Checked: start.Add(time.Duration(seconds) * time.Second)}, before, applied)
	}
	for i := range 10 {
		if r := look(ready, 4*(i+1), uint64(i+1)); !r.Ready {
			t.Fatalf("unready after %d s of commits: %v", 4*(i+1), r.Problems)
		}
	}
	if r := look(unready, 41, 11); r.Ready || r.Problems[0] != unready.Problems[0] {
		t.Errorf("a slow look made it %+v", r)
	}
	// The look that begins two seconds later ends two seconds after that: within five.
	if r := look(ready, 43, 11); r.Ready {
		t.Error("ready though nothing moves")
	}
}

// An append that two looks see makes the node unready: its log does not answer. One
// that is another each time is progress.
func TestReadiness_AnAppendThatIsNotAnswered(t *testing.T) {
	w, at := &watch{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := feed.Partition{Number: 3}
	for lsn := range feed.LSN(5) {
		if err := w.appends(map[feed.Partition]feed.LSN{p: lsn + 1}, at); err != nil {
			t.Fatal(err)
		}
		at = at.Add(watchInterval)
	}
	if err := w.appends(map[feed.Partition]feed.LSN{p: 5}, at); err == nil {
		t.Error("the same append twice is no trouble")
	}
	if err := w.appends(nil, at.Add(watchInterval)); err != nil {
		t.Errorf("answered at last: %v", err)
	}
}
