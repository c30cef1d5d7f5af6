package standby

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestATurnRestsAfterALoad lets followers load one after the other: the engine stands still for each of them.
func TestATurnRestsAfterALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, start := newTurns(), time.Now()
		for i, turn := range []struct {
			loads bool
			began time.Duration
		}{{false, 0}, {false, 0}, {true, 0}, {true, 0}, {true, loadRest}, {true, loadRest}, {false, 2 * loadRest}, {false, 2 * loadRest}} {
			if err := s.take(t.Context()); err != nil {
				t.Fatal(err)
			}
			if began := time.Since(start); began != turn.began {
				t.Errorf("turn %d began after %v, want %v", i, began, turn.began)
			}
			s.give(turn.loads)
		}
		// One that waits for the rest to end is told to end, and leaves it to others.
		for range turnsMax {
			<-s
		}
		s.give(true)
		ctx, cancel := context.WithTimeoutCause(t.Context(), loadRest/2, errUnwanted)
		defer cancel()
		if err := s.take(ctx); !errors.Is(err, errUnwanted) {
			t.Errorf("a turn was taken that rests, %v", err)
		}
		if len(s) != 1 {
			t.Error("the turn is lost")
		}
	})
}

// TestTries_WhoFailsIsNotLoading: a try counts again once it lasts longer than one that is refused at its beginning.
func TestTries_WhoFailsIsNotLoading(t *testing.T) {
	var tr tries
	now := time.Now()
	if tr.failing(now) {
		t.Error("it fails before it has tried")
	}
	tr.begin(now)
	if tr.failing(now) {
		t.Error("it fails at its first try")
	}
	tr.end()
	if !tr.failing(now.Add(time.Hour)) {
		t.Error("it does not fail between two tries")
	}
	tr.begin(now)
	if !tr.failing(now.Add(tryLasts-1)) || tr.failing(now.Add(tryLasts)) {
		t.Errorf("failing %v, then %v", tr.failing(now.Add(tryLasts-1)), tr.failing(now.Add(tryLasts)))
	}
}
