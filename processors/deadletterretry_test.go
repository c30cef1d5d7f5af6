package processors_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

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
