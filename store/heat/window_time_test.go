package heat

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestReport_ForgetsWhatIsOld lets time pass: what is told is of the last one to two halves.
func TestReport_ForgetsWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		tell := func(over time.Duration, requests uint64, keys ...string) {
			t.Helper()
			r := m.Report()
			var told []string
			for _, k := range r.Keys {
				told = append(told, k.Key)
			}
			if r.Over != over || r.Reads.Requests != requests || len(told) != len(keys) {
				t.Fatalf("over %s: %+v and keys %v, want %s with %d and %v", r.Over, r.Reads, told, over, requests, keys)
			}
			for i := range keys {
				if told[i] != keys[i] {
					t.Fatalf("keys %v, want %v", told, keys)
				}
			}
		}
		a, b := key(t, "a"), key(t, "b")
		tell(0, 0)
		time.Sleep(10 * time.Second)
		tell(10*time.Second, 0)
		m.ask(Read, a, 1, time.Millisecond)
		m.ask(Read, a, 1, time.Millisecond)
		tell(10*time.Second, 2, `["a"]`)
		time.Sleep(Half) // the second window
		m.ask(Read, b, 1, time.Millisecond)
		tell(Half+10*time.Second, 3, `["a"]`, `["b"]`)
		time.Sleep(Half) // the third: the first is forgotten
		m.ask(Read, b, 1, time.Millisecond)
		tell(Half+10*time.Second, 2, `["b"]`)
		time.Sleep(49 * time.Second)
		tell(2*Half-time.Second, 2, `["b"]`)
		time.Sleep(3 * Half) // nothing was asked for meanwhile
		tell(2*Half-time.Second, 0)
		m.ask(Read, a, 1, time.Millisecond)
		tell(2*Half-time.Second, 1, `["a"]`)
		if got := m.Take(Read); got.Requests != 5 {
			t.Fatalf("%+v in all", got)
		}
		if got := m.Take(Read); got != (Load{}) {
			t.Fatalf("%+v since", got)
		}
		// A window that begins after a pause does not take the request with it that began it.
		time.Sleep(5 * Half)
		m.ask(Read, b, 1, time.Millisecond)
		tell(2*Half-time.Second, 1, `["b"]`)
	})
}
