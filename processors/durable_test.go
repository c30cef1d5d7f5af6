package processors_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

// holder is a processor that holds what it takes until it is told that it is
// durable.
type holder struct {
	recorder
	hold sync.Mutex
	s    processors.State
}

func (h *holder) Open(ctx context.Context, t *processors.Term, s processors.State) error {
	h.set(func(own *processors.State) { own.Recorded, own.Rejected = s.Recorded, s.Rejected })
	return h.recorder.Open(ctx, t, s)
}

func (h *holder) State() processors.State {
	h.hold.Lock()
	defer h.hold.Unlock()
	return h.s
}

func (h *holder) set(change func(*processors.State)) {
	h.hold.Lock()
	defer h.hold.Unlock()
	change(&h.s)
}

func held(taken feed.LSN) func(*processors.Checkpoint) bool {
	return func(cp *processors.Checkpoint) bool { return cp.Taken.LSN == taken }
}

// The checkpoint does not pass what a processor holds; after a crash that is read
// again, behind the last commit that was durable.
func TestTheCheckpointWaitsForWhatIsHeld(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond, CheckpointBusyInterval: time.Millisecond, BatchItemsMax: 1})
	l := newLease()
	first := &holder{}
	first.s.Durable = &feed.Position{}
	stop := s.run(l, first)
	s.append("a", "b")
	s.append("c")
	s.append("d")
	cp := l.waitCheckpoint(t, held(3))
	if !cp.Position.IsZero() || cp.Time != 0 || !cp.Log.IsZero() || cp.Durable != nil {
		t.Errorf("while nothing is durable the checkpoint is %+v", cp)
	}
	if a := s.host.Activities(); len(a) != 1 || a[0].Waiting || a[0].Checkpoint.Taken.LSN != 3 {
		t.Errorf("activity is %+v, want one that holds something", a)
	}
	// Inside the first commit, and then up to the second.
	first.set(func(s *processors.State) { s.Durable = &feed.Position{LSN: 1} })
	first.term.Changed("")
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Position.IsZero() && cp.Taken.LSN == 3 })
	first.set(func(s *processors.State) { s.Durable, s.Recorded = &feed.Position{LSN: 2}, feed.Position{LSN: 2} })
	first.term.Changed("")
	cp = l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Position.LSN == 2 })
	if cp.Taken.LSN != 3 || cp.Time == 0 || cp.Log.IsZero() || cp.Sum == 0 || cp.FinishedBelow().LSN != 2 {
		t.Errorf("when two commits are durable the checkpoint is %+v", cp)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	second := &holder{}
	s.run(l, second)
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Position.LSN == 3 && cp.Taken.IsZero() })
	if diff := cmp.Diff([]string{"d"}, second.seen()); diff != "" {
		t.Errorf("the next term reads (-want +got):\n%s", diff)
	}
	if got := second.State().Recorded; got.LSN != 2 {
		t.Errorf("the next term is told that %s was recorded", got)
	}
	if a := s.host.Activities(); len(a) != 1 || !a[0].Checkpoint.Taken.IsZero() {
		t.Errorf("activity is %+v, want one that holds nothing", a)
	}
}

// Trouble of work that outlives a batch shows where failures of changes do.
func TestTroubleShowsInTheCheckpoint(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	h := &holder{}
	s.run(l, h)
	s.append("a")
	l.waitCheckpoint(t, at(1))
	h.set(func(s *processors.State) {
		s.Trouble = &processors.Trouble{Attempts: 12, LastError: "the bucket is away"}
	})
	h.term.Changed("")
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Attempts == 12 && cp.LastError == "the bucket is away" })
	h.set(func(s *processors.State) { s.Trouble = nil })
	h.term.Changed("")
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Attempts == 0 && cp.LastError == "" })
}

// A sink that was emptied so that it can be filled again is not taken for one that
// lost what it had.
func TestARewindForgetsWhatTheSinkRecorded(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	first := &holder{}
	first.s.Recorded = feed.Position{LSN: 1}
	stop := s.run(l, first)
	s.append("a")
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Position.LSN == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	second := &holder{}
	s.runTask(l, processors.Task{Resource: resource, Processor: second, Rewinds: 1})
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Rewinds == 1 && cp.Position.LSN == 1 })
	if got := second.State().Recorded; !got.IsZero() || !slices.Equal(second.seen(), []string{"a"}) {
		t.Errorf("after a rewind it is told that %s was recorded, and reads %v", got, second.seen())
	}
}

func TestCheckpointOfASinkRoundTrip(t *testing.T) {
	t.Parallel()
	want := &processors.Checkpoint{
		Position: feed.Position{LSN: 12, Index: 3}, Taken: feed.Position{LSN: 20},
		State: processors.State{
			Recorded: feed.Position{LSN: 12, Index: 1}, Rejected: []string{"orders x: y"}, Counts: processors.Counts{Rows: 5, Rejects: 1},
		},
	}
	data := want.Encode()
	got, err := processors.DecodeCheckpoint(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded checkpoint (-want +got):\n%s", diff)
	}
	// Who does not know the new members reads where to go on.
	var v1 struct {
		Version  int
		Position string
	}
	if err := json.Unmarshal(data, &v1); err != nil || v1.Version != 1 || v1.Position != "12.3" {
		t.Errorf("%s is read as %+v, %v", data, v1, err)
	}
	for _, member := range []string{"taken", "recorded"} {
		text := strings.Replace(string(data), `"`+member+`":"`, `"`+member+`":"x`, 1)
		if _, err := processors.DecodeCheckpoint([]byte(text)); err == nil {
			t.Errorf("a bad %s is read", member)
		}
	}
}
