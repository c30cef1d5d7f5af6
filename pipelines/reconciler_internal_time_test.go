package pipelines

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestReconciler_LooksSoonBehindAChange: the rounds follow each other quickly while a pipeline is to come into force and
// something has just changed; they rest for four times as long as they take, or the interval; and an idle registry
// costs one round an interval.
func TestReconciler_LooksSoonBehindAChange(t *testing.T) {
	t.Parallel()
	s := newReconciler(&Supervisor{})
	for name, c := range map[string]struct {
		busy              bool
		since, took, want time.Duration
	}{
		"just changed":                      {true, 0, 0, 50 * time.Millisecond},
		"a second ago":                      {true, time.Second, 0, 250 * time.Millisecond},
		"long ago":                          {true, time.Hour, 0, time.Second},
		"rounds that take long":             {true, 0, 100 * time.Millisecond, 400 * time.Millisecond},
		"rounds that take longer than that": {true, 0, time.Minute, time.Second},
		"nothing is to come into force":     {false, 0, 0, time.Second},
	} {
		if is := s.untilNext(c.busy, c.since, c.took); is != c.want {
			t.Errorf("%s: the next round is after %s, want %s", name, is, c.want)
		}
	}
}

// TestReconciler_RestsBetweenRounds: no change is lost, whenever it comes, and changes without end, such as those
// that the rounds themselves make, take no more than a fifth of the time.
func TestReconciler_RestsBetweenRounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newReconciler(&Supervisor{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		var mu sync.Mutex          // guards rounds and took
		var rounds []time.Duration // when each began
		var took time.Duration
		begun := time.Now()
		go func() {
			defer close(ended)
			s.rounds(ctx, func() bool {
				mu.Lock()
				rounds = append(rounds, time.Since(begun))
				rest := took
				mu.Unlock()
				time.Sleep(rest)
				return false
			})
		}()
		began := func() []time.Duration {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(rounds)
		}
		time.Sleep(20 * time.Millisecond) // behind the first round
		s.tellChanged()
		time.Sleep(480 * time.Millisecond)
		if is := began(); !slices.Equal(is, []time.Duration{0, roundMin}) {
			t.Errorf("a change at 20ms: rounds at %v", is)
		}
		s.tellChanged()
		if is := began(); !slices.Equal(is, []time.Duration{0, roundMin, 500 * time.Millisecond}) {
			t.Errorf("a change at 500ms: rounds at %v", is)
		}
		time.Sleep(600 * time.Millisecond)
		mu.Lock()
		rounds, took = nil, 100*time.Millisecond
		mu.Unlock()
		for range 1000 {
			s.tellChanged()
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(began()); n < 19 || n > 21 {
			t.Errorf("%d rounds of 100ms in 10s with changes all the time", n)
		}
		cancel()
		<-ended
	})
}
