package processors_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

// term runs a task to its end, which it must find by itself.
func (s *stage) term(l *lease, t processors.Task) error {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.host.Run(s.t.Context(), l, t) }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		s.t.Fatal("the term does not end")
		return nil
	}
}

// TestATaskHalts stops at a change that cannot be processed, term after term,
// with nothing parked and nothing behind it done, and goes on when it can.
func TestATaskHalts(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]error{
		"rejected": processors.Reject(errors.New("it is bad")),
		"doubtful": errors.New("it is bad"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
			l := newLease()
			s.append("a", "b")
			s.append("c", "d")
			for range 2 {
				r := &recorder{fail: func(ids []string) error {
					if slices.Contains(ids, "c") {
						return bad
					}
					return nil
				}}
				err := s.term(l, processors.Task{Resource: resource, Processor: r, Halt: true})
				halted, ok := errors.AsType[*processors.HaltedError](err)
				if !ok || halted.Item != `["k"]/c` || halted.Position != (feed.Position{LSN: 2}) {
					t.Fatalf("it ended with %v", err)
				}
				if slices.Contains(r.seen(), "d") {
					t.Error("what follows the change was processed")
				}
				cp, err := processors.DecodeCheckpoint(l.Checkpoint())
				if err != nil || !cp.Halted || cp.Attempts < processors.StuckAttempts || len(cp.Parked) != 0 || cp.Position.LSN > 1 {
					t.Errorf("checkpoint: %+v, %v", cp, err)
				}
			}
			if deadLetters, err := s.letters.List(t.Context(), "names", 10); err != nil || len(deadLetters) != 0 {
				t.Errorf("dead letters: %+v, %v", deadLetters, err)
			}
			s.run(l, &recorder{})
			if cp := l.waitCheckpoint(t, at(2)); cp.Halted || cp.Attempts != 0 || cp.LastError != "" {
				t.Errorf("when it is mended the checkpoint is %+v", cp)
			}
		})
	}
}

// TestARewindSetsTheCheckpointBackOnce reads again from where an operator wished,
// not forward, and not again in the terms that follow.
func TestARewindSetsTheCheckpointBackOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	for _, id := range []string{"a", "b", "c", "d"} {
		s.append(id)
	}
	end := s.last
	for _, c := range []struct {
		name    string
		rewinds uint32
		start   feed.LSN
		want    []string
	}{
		{"the first term", 0, 0, []string{"a", "b", "c", "d", "+"}},
		{"set back", 1, 2, []string{"c", "d", "+", "+"}},
		{"once", 1, 2, []string{"+"}},
		{"set back further", 2, 1, []string{"b", "c", "d", "+", "+", "+", "+"}},
		{"not forward", 3, 100, []string{"+"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.append("+")
			r := &recorder{}
			task := processors.Task{Resource: resource, Processor: r, Rewinds: c.rewinds, Start: feed.Position{LSN: c.start}}
			stop := s.runTask(l, task)
			end++
			cp := l.waitCheckpoint(t, at(end))
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, r.seen()); diff != "" || cp.Rewinds != c.rewinds {
				t.Errorf("set back %d times, it read (-want +got):\n%s", cp.Rewinds, diff)
			}
		})
	}
}

// runner gives a job up in Run.
type runner struct {
	recorder
	letters []processors.DeadLetter
}

func (r *runner) Run(ctx context.Context) error {
	for _, l := range r.letters {
		if err := r.term.DeadLetter(ctx, l); err != nil {
			<-ctx.Done()
			return nil //nolint:nilerr // the term has ended
		}
	}
	return nil
}

// TestAJobThatIsGivenUpHalts tells it from a target that refuses, for which there
// is a dead letter.
func TestAJobThatIsGivenUpHalts(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	r := &runner{letters: []processors.DeadLetter{
		{Item: `["k"]/a`, Position: feed.Position{LSN: 1}, Target: `["k"]/copy`, Reason: "too large"},
		{Item: `["k"]/a`, Position: feed.Position{LSN: 1}, Reason: "it is bad"},
	}}
	err := s.term(l, processors.Task{Resource: resource, Processor: r, Halt: true})
	if halted, ok := errors.AsType[*processors.HaltedError](err); !ok || halted.Item != `["k"]/a` {
		t.Fatalf("it ended with %v", err)
	}
	cp, err := processors.DecodeCheckpoint(l.Checkpoint())
	if err != nil || !cp.Halted {
		t.Errorf("checkpoint: %+v, %v", cp, err)
	}
	if deadLetters, err := s.letters.List(t.Context(), "names", 10); err != nil || len(deadLetters) != 1 || deadLetters[0].Target == "" {
		t.Errorf("dead letters: %+v, %v", deadLetters, err)
	}
}
