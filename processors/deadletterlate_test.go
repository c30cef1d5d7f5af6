package processors_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/processors"
)

// lateWorker begins a term that fails at its first change when it is let go on. By then its lease is
// lost, so that it only writes its dead letter. goOn returns when it has ended.
func (s *stage) lateWorker() (goOn func()) {
	s.t.Helper()
	there, on := make(chan struct{}), make(chan struct{})
	l := newLease()
	stop := s.run(l, &recorder{fail: func([]string) error {
		close(there)
		select {
		case <-on:
		case <-s.t.Context().Done(): // the test has failed, and its end waits for the term's
		}
		return processors.Reject(errors.New("it was bad"))
	}})
	<-there
	// The dead letter comes before the checkpoint that tells of it, which is refused.
	refused := make(chan struct{}, 1)
	l.mu.Lock()
	l.lost = true
	l.onSave = func(cp *processors.Checkpoint) error {
		if len(cp.Parked) > 0 {
			select {
			case refused <- struct{}{}:
			default:
			}
		}
		return nil
	}
	l.mu.Unlock()
	return func() {
		s.t.Helper()
		close(on)
		select {
		case <-refused:
		case <-time.After(time.Minute):
			s.t.Fatal("the late worker has not given its change up")
		}
		_ = stop()
	}
}

// successor has the lease after a lateWorker.
func successor() *lease {
	l := newLease()
	l.epoch = 2
	return l
}

// letter returns the one dead letter that there is.
func (s *stage) letter() processors.DeadLetter {
	s.t.Helper()
	all, err := s.letters.List(s.t.Context(), "names", 10)
	if err != nil || len(all) != 1 {
		s.t.Fatalf("dead letters: %+v, %v, want one", all, err)
	}
	return all[0]
}

// TestI5_ALateDeadLetterKeepsWhatIsAsked gives a change up that a successor has given up before, and of which
// somebody has asked for a retry since.
func TestI5_ALateDeadLetterKeepsWhatIsAsked(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("a")
	goOn := s.lateWorker()
	l := successor()
	stop := s.run(l, newKeeper())
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	given := s.letter()
	s.retry(given.ID)
	if err := s.letters.RetryFinally(t.Context(), &given); err != nil {
		t.Fatal(err)
	}
	s.retry(given.ID)
	asked := s.letter()
	goOn()
	late := s.letter()
	if !late.Retry.Equal(asked.Retry) || !late.FinalRetry.Equal(asked.FinalRetry) || late.Attempts != asked.Attempts {
		t.Fatalf("after the late worker's write: %+v, want what was asked of %+v", late, asked)
	}
	if late.Reason != "it was bad" || late.Position != asked.Position {
		t.Errorf("%+v does not tell why it was given up last", late)
	}
	if _, err := s.letters.ReadChange(t.Context(), &late); err != nil {
		t.Error(err)
	}
	s.run(l, &counted{retrier{retry: func(string) error { return nil }}})
	s.done(given.ID)
}

// TestI5_ALateDeadLetterOfADoneChangeIsHarmless gives a change up that a successor has given up and made good since. The
// dead letter is there again; nothing is parked, and a retry does nothing but remove it.
func TestI5_ALateDeadLetterOfADoneChangeIsHarmless(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	s.append("a")
	goOn := s.lateWorker()
	l := successor()
	r := &counted{retrier{recorder: recorder{fail: func(ids []string) error {
		if slices.Contains(ids, "a") {
			return processors.Reject(errors.New("it is bad"))
		}
		return nil
	}}, retry: func(string) error { return nil }}}
	s.run(l, r)
	l.waitCheckpoint(t, func(cp *processors.Checkpoint) bool { return len(cp.Parked) == 1 })
	given := s.letter()
	s.retry(given.ID)
	s.done(given.ID)
	goOn()
	late := s.letter()
	if late.ID != given.ID || late.Asked() {
		t.Errorf("the late worker's dead letter is %+v, want that of %+v, and not asked for", late, given)
	}
	if _, err := s.letters.ReadChange(t.Context(), &late); err != nil {
		t.Error(err)
	}
	s.append("b")
	if cp := l.waitCheckpoint(t, at(2)); len(cp.Parked) != 0 {
		t.Errorf("parked: %+v, want nothing", cp.Parked)
	}
	s.retry(late.ID)
	s.done(late.ID)
}

// A repair that has read a dead letter asks for it after somebody else did, and after its target has refused once more.
func TestDeadLetters_ARepairKeepsWhatCameSinceItLooked(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{})
	for _, target := range []string{"", `["k"]/full`} {
		first, again := refusal(1, `["k"]/a`, target), refusal(1, `["k"]/a`, target)
		again.Reason = "too large still"
		if err := s.letters.Write(t.Context(), &first); err != nil {
			t.Fatal(err)
		}
		seen := s.letter()
		if err := s.letters.Write(t.Context(), &again); err != nil {
			t.Fatal(err)
		}
		s.retry(seen.ID)
		if err := s.letters.RetryFinally(t.Context(), &seen); err != nil {
			t.Fatal(err)
		}
		if l := s.letter(); l.Retry.IsZero() || l.FinalRetry.IsZero() || l.Reason != again.Reason {
			t.Errorf("after the repair has asked: %+v", l)
		}
		if err := s.letters.Drop(t.Context(), "names", seen.ID); err != nil {
			t.Fatal(err)
		}
		// One that is gone is there again.
		if err := s.letters.RetryFinally(t.Context(), &seen); err != nil {
			t.Fatal(err)
		}
		if l := s.letter(); l.ID != seen.ID || l.FinalRetry.IsZero() {
			t.Errorf("one that was dropped: %+v", l)
		}
		if err := s.letters.Drop(t.Context(), "names", seen.ID); err != nil {
			t.Fatal(err)
		}
	}
}
