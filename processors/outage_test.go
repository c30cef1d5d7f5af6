package processors_test

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// fails returns what to fail with: so many times with what is not there, then with what nobody
// knows, then never.
func fails(away, doubts int) func([]string) error {
	n := 0
	return func([]string) error {
		switch n++; {
		case n <= away:
			return &store.Error{Status: store.StatusUnavailable, Message: "no owner", RetryAfter: time.Millisecond}
		case n <= away+doubts:
			return errors.New("who knows")
		}
		return nil
	}
}

// An outage of any length, and one other error behind it, does not give a change up.
func TestAnOutageGivesNothingUp(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond, CheckpointBusyInterval: time.Millisecond})
	l := newLease()
	s.append("a")
	first := &recorder{fail: fails(1<<30, 0)}
	stop := s.run(l, first)
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return cp.Attempts > processors.AttemptsMax })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	second := &recorder{fail: fails(2, 1)}
	stop = s.run(l, second)
	if cp := l.waitCheckpoint(t, at(1)); len(cp.Parked) != 0 || cp.Attempts != 0 || cp.Transient != 0 {
		t.Errorf("behind an outage the checkpoint is %+v", cp)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if deadLetters, err := s.letters.List(t.Context(), "names", 10); err != nil || len(deadLetters) != 0 {
		t.Errorf("dead letters %+v, %v", deadLetters, err)
	}
}

// What may lie in a change is counted across terms, whatever was unavailable between.
func TestDoubtsCountAcrossTerms(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond, CheckpointBusyInterval: time.Millisecond})
	l := newLease()
	l.checkpoint = (&processors.Checkpoint{Attempts: 90, Transient: processors.AttemptsMax - 1, LastError: "who knows"}).Encode()
	s.append("a")
	s.run(l, &recorder{fail: fails(2, 1)})
	cp := l.waitCheckpoint(t, at(1))
	if len(cp.Parked) != 1 || cp.Parked[0].Attempts != 93 {
		t.Errorf("parked: %+v", cp.Parked)
	}
}
