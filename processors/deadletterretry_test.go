package processors_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

// retrier is a recorder that tries again what it gave up.
type retrier struct {
	recorder
	retry func(id string) error

	mu    sync.Mutex
	tried []string
}

func (r *retrier) Retry(_ context.Context, p *processors.Parked) error {
	r.mu.Lock()
	r.tried = append(r.tried, p.Change.ID)
	r.mu.Unlock()
	return r.retry(p.Change.ID)
}

// TestADroppedDeadLetterIsNotTried drops a dead letter while it waits for its turn behind
// another one: it is not tried any more, and does not come back.
func TestADroppedDeadLetterIsNotTried(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	var dropped string
	r := &retrier{recorder: recorder{fail: func([]string) error { return processors.Reject(errors.New("it is bad")) }}}
	r.retry = func(id string) error {
		if id == "a" {
			if err := s.letters.Drop(t.Context(), "names", dropped); err != nil {
				t.Error(err)
			}
		}
		return errors.New("it is bad")
	}
	s.append("a", "b", "c")
	l := newLease()
	stop := s.run(l, r)
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Position.LSN == 1 && len(cp.Parked) == 3 })
	if err := stop(); err != nil { // so that all three are found together
		t.Fatal(err)
	}
	deadLetters, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(deadLetters) != 3 {
		t.Fatalf("dead letters: %+v, %v", deadLetters, err)
	}
	for i := range deadLetters {
		if deadLetters[i].Position.Index == 1 {
			dropped = deadLetters[i].ID
		}
		if err := s.letters.Retry(t.Context(), "names", deadLetters[i].ID); err != nil {
			t.Fatal(err)
		}
	}
	s.run(l, r)
	deadline := time.After(time.Minute)
	for {
		deadLetters, err := s.letters.List(t.Context(), "names", 10)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(deadLetters, func(l processors.DeadLetter) bool { return l.Asked() }) {
			if len(deadLetters) != 2 {
				t.Errorf("dead letters: %+v", deadLetters)
			}
			break
		}
		select {
		case <-l.saves:
		case <-deadline:
			t.Fatalf("not all were tried: %+v", deadLetters)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.tried, []string{"a", "c"}) {
		t.Errorf("tried %v", r.tried)
	}
}

// counted is a retrier that knows of a dead letter, so that those are looked for soon.
type counted struct{ retrier }

func (c *counted) State() processors.State {
	return processors.State{Counts: processors.Counts{DeadLetters: 1}}
}

// A crash at any point of a successful retry leaves the change parked with its dead letter, or
// a dead letter that is tried again. There is never a parked change without its dead letter.
func TestI6_ACrashBesideARetryLeavesTheDeadLetter(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond, CheckpointBusyInterval: time.Millisecond})
	s.append("a")
	l := newLease()
	stop := s.run(l, newKeeper())
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	deadLetters, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(deadLetters) != 1 {
		t.Fatalf("dead letters: %+v, %v", deadLetters, err)
	}
	id := deadLetters[0].ID
	s.retry(id)
	there := func(when string) {
		t.Helper()
		if now, err := s.letters.Get(t.Context(), "names", id); err != nil || !now.Asked() {
			t.Errorf("%s: %+v, %v, want a dead letter that is asked for", when, now, err)
		}
	}
	r := &counted{retrier{retry: func(string) error { return nil }}}
	for _, step := range []struct {
		when   string
		lost   bool
		parked int
	}{{"crash before the checkpoint", true, 1}, {"crash behind the checkpoint", false, 0}} {
		reached := make(chan struct{})
		var once sync.Once
		ctx, crash := context.WithCancel(t.Context())
		defer crash()
		l.onSave = func(cp *processors.Checkpoint) error {
			if len(cp.Parked) == 0 {
				there(step.when)
				l.lost = step.lost
				crash()
				once.Do(func() { close(reached) })
			}
			return nil
		}
		done := make(chan error, 1)
		go func() { done <- s.host.Run(ctx, l, processors.Task{Resource: resource, Processor: r}) }()
		select {
		case <-reached:
		case <-time.After(time.Minute):
			t.Fatalf("%s: nothing was tried", step.when)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		there("after a " + step.when)
		l.lost = false
		if cp, err := processors.DecodeCheckpoint(l.Checkpoint()); err != nil || len(cp.Parked) != step.parked {
			t.Errorf("after a %s: checkpoint %+v, %v", step.when, cp, err)
		}
	}
	l.onSave = nil
	s.run(l, r)
	s.done(id)
	if r.mu.Lock(); len(r.tried) != 3 {
		t.Errorf("tried %v, want once in each term", r.tried)
	}
	r.mu.Unlock()
}

// A dead letter that was written anew while its retry was under way stays.
func TestARetryDropsOnlyWhatItTried(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("a")
	l := newLease()
	r := &retrier{recorder: recorder{fail: func([]string) error { return processors.Reject(errors.New("it is bad")) }}}
	r.retry = func(string) error {
		return r.term.DeadLetter(t.Context(), processors.DeadLetter{Item: `["k"]/a`, Position: feed.Position{LSN: 1}, Reason: "it is bad again"})
	}
	s.run(l, r)
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 1 })
	deadLetters, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(deadLetters) != 1 {
		t.Fatalf("dead letters: %+v, %v", deadLetters, err)
	}
	s.retry(deadLetters[0].ID)
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 0 })
	s.append("b") // given up behind what the retry had to finish
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Position.LSN == 2 && len(cp.Parked) == 1 })
	if now, err := s.letters.Get(t.Context(), "names", deadLetters[0].ID); err != nil || now.Reason != "it is bad again" {
		t.Errorf("the dead letter that was written anew: %+v, %v", now, err)
	}
}

// What a target refused is tried again: the change at the same position that was given up waits for its own retry.
func TestI6_ARetryOfATargetUnparksNoChange(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	r := &retrier{
		recorder: recorder{fail: func(ids []string) error {
			if slices.Contains(ids, "bad") {
				return processors.Reject(errors.New("it is bad"))
			}
			return nil
		}},
		retry: func(string) error { return nil },
	}
	s.append("bad")
	s.run(l, r)
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 1 })
	refused := processors.DeadLetter{Item: `["k"]/bad`, Position: feed.Position{LSN: 1}, Target: `["k"]/other`, Reason: "it has no room"}
	if err := r.term.DeadLetter(t.Context(), refused); err != nil {
		t.Fatal(err)
	}
	deadLetters, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(deadLetters) != 2 {
		t.Fatalf("dead letters: %+v, %v", deadLetters, err)
	}
	i := slices.IndexFunc(deadLetters, func(l processors.DeadLetter) bool { return l.Target != "" })
	s.retry(deadLetters[i].ID)
	s.done(deadLetters[i].ID)
	s.append("good")
	if cp := l.waitCheckpoint(t, at(2)); parkedAt(cp) != "1.0" {
		t.Errorf("parked: %q, want the change that was given up", parkedAt(cp))
	}
}
