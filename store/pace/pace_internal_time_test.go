package pace

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPacerWorksInItsShare lets work of 10ms be followed by rests, but not what was
// waiting.
func TestPacerWorksInItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := 0
		p := New(0.02, func() { turns++ })
		began := time.Now()
		for range 10 {
			time.Sleep(10 * time.Millisecond)
			if err := p.Pace(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := time.Since(began); got != 5*time.Second {
			t.Errorf("100ms of work took %s, at a share of 2 %% that is 5s", got)
		}
		time.Sleep(time.Minute)
		p.Resume()
		began = time.Now()
		if err := p.Pace(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("waiting is taken for work: %s, %v", time.Since(began), err)
		}
		time.Sleep(time.Second)
		p.Excuse(time.Second - time.Millisecond)
		if err := p.Pace(t.Context()); err != nil || time.Since(began) != time.Second {
			t.Errorf("what is excused is taken for work: %s, %v", time.Since(began), err)
		}
		turns, began = 0, time.Now()
		p.Resume()
		time.Sleep(time.Minute)
		if err := p.Pace(t.Context()); err != nil || time.Since(began) != time.Minute+restMax || turns < 10 {
			t.Errorf("a rest of %s with %d turns, %v", time.Since(began)-time.Minute, turns, err)
		}
	})
}
