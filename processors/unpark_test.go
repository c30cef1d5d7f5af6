package processors_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

// superseder is a recorder of which a create makes up for what was given up of its item before,
// and a replace does not.
type superseder struct{ recorder }

func (*superseder) Supersedes(p *processors.Part, i int) bool {
	return p.Changes[i].Op == feed.OpCreate
}

// replace commits a change of an item that is there.
func (s *stage) replace(id string) {
	s.t.Helper()
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		s.t.Fatal(err)
	}
	body := []byte(`{"id":"` + id + `"}`)
	s.appendTransaction(feed.Transaction{Changes: []feed.Change{{Op: feed.OpReplace, Key: key, ID: id, Before: body, After: body}}})
}

// parkedAt are the positions of what a checkpoint says to be parked.
func parkedAt(cp *processors.Checkpoint) string {
	var at []string
	for i := range cp.Parked {
		at = append(at, cp.Parked[i].Position.String())
	}
	return strings.Join(at, " ")
}

// A change of an item that was given up stays parked while later changes of the item are
// processed that do not make up for it, in later terms too.
func TestI6_ALaterChangeUnparksOnlyWhatItMakesUpFor(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	bad := func(ids []string) error {
		if slices.Contains(ids, "bad") {
			return processors.Reject(errors.New("it is bad"))
		}
		return nil
	}
	s.append("bad", "good")
	stop := s.run(l, &superseder{recorder{fail: bad}})
	l.waitCheckpoint(t, at(1))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s.run(l, &superseder{})
	s.replace("bad")
	if cp := l.waitCheckpoint(t, at(2)); parkedAt(cp) != "1.0" {
		t.Errorf("after a later change that passed it over, parked: %q", parkedAt(cp))
	}
	s.append("bad")
	if cp := l.waitCheckpoint(t, at(3)); len(cp.Parked) != 0 {
		t.Errorf("after a later change that makes up for it, parked: %q", parkedAt(cp))
	}
}

// Where no change makes up for another one, each that was given up waits for its own retry: of
// one item too.
func TestI6_WhatIsGivenUpWaitsForItsRetry(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	first := true
	r := &retrier{
		recorder: recorder{fail: func(ids []string) error {
			if slices.Contains(ids, "bad") && first {
				return processors.Reject(errors.New("it is bad"))
			}
			return nil
		}},
		retry: func(string) error { return nil },
	}
	s.append("bad", "good")
	s.append("bad")
	stop := s.run(l, r)
	if cp := l.waitCheckpoint(t, at(2)); parkedAt(cp) != "1.0 2.0" {
		t.Errorf("two changes of one item were given up, parked: %q", parkedAt(cp))
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	first = false
	s.append("bad")
	s.run(l, r)
	if cp := l.waitCheckpoint(t, at(3)); parkedAt(cp) != "1.0 2.0" {
		t.Errorf("after a later change of the item, parked: %q", parkedAt(cp))
	}
	deadLetters, err := s.letters.List(t.Context(), "names", 10)
	if err != nil || len(deadLetters) != 2 {
		t.Fatalf("dead letters: %+v, %v", deadLetters, err)
	}
	slices.SortFunc(deadLetters, func(a, b processors.DeadLetter) int { return b.Position.Compare(a.Position) })
	for i, left := range []string{"1.0", ""} { // the newer one first
		s.retry(deadLetters[i].ID)
		l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return parkedAt(cp) == left })
	}
}

// One item whose every change is given up does not stop its pipeline, nor fill the checkpoint.
func TestWhatIsParkedOfOneItemIsBounded(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond, ParkedMax: 10})
	l := newLease()
	s.run(l, newKeeper())
	for range 20 {
		s.append("a")
	}
	cp := l.waitCheckpoint(t, at(20))
	if first, last := cp.Parked[0].Position.LSN, cp.Parked[len(cp.Parked)-1].Position.LSN; len(cp.Parked) > 10 || first != 1 || last != 20 {
		t.Errorf("parked: %s", parkedAt(cp))
	}
}

// A repair lets a change go that nobody has any more: what is missing then it finds by itself.
func TestAChangeThatNobodyHasIsLetGoByARepair(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	l := newLease()
	l.checkpoint = (&processors.Checkpoint{Parked: []processors.Job{
		{Source: `["k"]/w`, Position: feed.Position{LSN: 90}, Parked: true, LastError: "it was bad"},
	}}).Encode()
	s.append("a")
	k := &keeper{retried: make(chan processors.Parked, 10)}
	s.run(l, k)
	l.waitCheckpoint(t, at(1))
	lost := processors.DeadLetterOf(resource, &processors.Job{Source: `["k"]/w`, Position: feed.Position{LSN: 90}, LastError: "it was bad"})
	if err := s.letters.RetryFinally(t.Context(), &lost); err != nil {
		t.Fatal(err)
	}
	if p := k.next(t); p.Missing == nil {
		t.Errorf("tried again with the change %+v", p.Change)
	}
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 0 })
	s.done(lost.ID)
}
