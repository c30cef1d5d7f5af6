package node

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
)

// A look that a busy machine makes slow changes nothing while commits are applied; a node
// is unready when nothing moves, and one that was unready stays so.
func TestReadiness_DoesNotFlapWhileCommitsAreApplied(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &watch{began: start}
	second := 0
	judge := func(applied uint64) Readiness {
		second++
		return w.verdict(start.Add(time.Duration(second)*time.Second), applied, nil)
	}
	for range 40 { // no look has come to an end
		if r := judge(uint64(second)); !r.Ready {
			t.Fatalf("unready after %d s of commits: %v", second, r.Problems)
		}
	}
	w.looked.Problems = []string{"a pipeline is stuck"}
	if r := judge(100); r.Ready || r.Problems[0] != "a pipeline is stuck" {
		t.Errorf("commits make it %+v", r)
	}
	w.looked.Problems = nil
	// Partitions that go away are no commits: the sum is less then.
	for range 3 {
		if r := judge(50); !r.Ready {
			t.Errorf("unready %d s after the last commit: %v", second-41, r.Problems)
		}
	}
	if r := judge(50); r.Ready || !strings.Contains(r.Problems[0], "no progress") {
		t.Errorf("ready though nothing has moved for 4 s: %+v", r)
	}
	w.noteLook(start.Add(time.Duration(second) * time.Second))
	if r := judge(50); !r.Ready {
		t.Errorf("unready though a look has come to an end: %v", r.Problems)
	}
}

// An append that stays makes the node unready, whether or not looks come to an end: its
// log does not answer. One that is another each time is progress.
func TestReadiness_AnAppendThatIsNotAnswered(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &watch{}
	p := feed.Partition{Number: 3}
	judge := func(appending map[feed.Partition]feed.LSN) Readiness {
		at = at.Add(appendMax)
		w.noteLook(at)
		return w.verdict(at, 0, appending)
	}
	for lsn := range feed.LSN(5) {
		if r := judge(map[feed.Partition]feed.LSN{p: lsn + 1}); !r.Ready {
			t.Fatal(r.Problems)
		}
	}
	if r := judge(map[feed.Partition]feed.LSN{p: 5}); r.Ready || !strings.Contains(r.Problems[0], "has not answered an append for 3s") {
		t.Errorf("the same append all the time makes it %+v", r)
	}
	if r := judge(nil); !r.Ready {
		t.Errorf("answered at last: %v", r.Problems)
	}
}

// A partition that was made a moment ago has no owner yet, and that makes no node
// unready; one that has none when the node starts, or for two looks, does.
func TestReadiness_ANewPartitionIsNoTrouble(t *testing.T) {
	w, p, made := &watch{}, feed.Partition{Number: 1}, feed.Partition{Number: 2}
	look := func(without ...feed.Partition) (troubled int) {
		unowned := map[feed.Partition]bool{}
		for _, p := range without {
			if w.lacksOwner(p, unowned) {
				troubled++
			}
		}
		w.unowned = unowned
		return troubled
	}
	for i, c := range []struct {
		without []feed.Partition
		want    int
	}{
		{[]feed.Partition{p}, 1}, {[]feed.Partition{p}, 1}, {nil, 0}, {[]feed.Partition{made}, 0}, {nil, 0}, {[]feed.Partition{made}, 0}, {[]feed.Partition{made, p}, 1},
	} {
		if got := look(c.without...); got != c.want {
			t.Errorf("look %d finds %d in trouble, want %d", i, got, c.want)
		}
	}
}
