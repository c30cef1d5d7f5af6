package right

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// TestDeposeRacesWithRenew lets both arrive at every distance from each other. Of the two that expect one revision the bucket
// stores one; the deposing is tried until it is stored, and none of the renewals before it holds beyond the wait.
func TestDeposeRacesWithRenew(t *testing.T) {
	refused := 0
	for shift := -10; shift < 10; shift++ {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			a, b := prepare(t, s, "a", nil).open(), start(t, s, "b", nil)
			defer b.end()
			time.Sleep(10 * time.Millisecond)
			var order []bool // deposed or not, as stored
			s.OnStored(func(e bucket.Entry) {
				if f := read(e); f.rec.Node == "a" {
					order = append(order, f.rec.Deposed != nil)
				}
			})
			renewal := a.r.key
			renewal.onSent, renewal.onStored = func(try) {}, a.r.stored
			var tasks sync.WaitGroup
			defer tasks.Wait()
			tasks.Go(func() {
				time.Sleep(time.Duration(max(shift, 0)) * 100 * time.Microsecond)
				err := renewal.put(t.Context(), StateUp)
				if _, gone := errors.AsType[*DeposedError](err); err != nil && !gone {
					t.Errorf("renewal: %v", err)
				}
			})
			time.Sleep(time.Duration(max(-shift, 0)) * 100 * time.Microsecond)
			b.mustTakeOver(a.r)
			s.Still(func() { order = slices.Clone(order) })
			if n := len(order); n == 0 || n > 2 || !order[n-1] || n == 2 && order[0] {
				t.Errorf("stored, a deposing or not: %v", order)
			}
			refused += len(order) - 1
		})
	}
	if refused == 0 || refused == 20 {
		t.Errorf("of 20 deposings %d came behind the renewal", refused)
	}
}

// TestTwoDeposers are both told that it is done, and both wait for long enough.
func TestTwoDeposers(t *testing.T) {
	for shift := range 8 {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			a, b, c := start(t, s, "a", nil), start(t, s, "b", nil), start(t, s, "c", nil)
			defer a.end()
			defer b.end()
			defer c.end()
			time.Sleep(time.Second)
			var tasks sync.WaitGroup
			tasks.Go(func() { b.mustTakeOver(a.r) })
			tasks.Go(func() {
				time.Sleep(time.Duration(shift) * 500 * time.Microsecond)
				c.mustTakeOver(a.r)
			})
			tasks.Wait()
			mustEnd(t, a.r, s.key(t, "a").Deposed.By, "silent")
		})
	}
}

// TestSecondTrusts finds a node deposed whose right has just been renewed, because the first deposer died. The wait is a whole one.
func TestSecondTrusts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a, b, c := start(t, s, "a", nil), start(t, s, "b", nil), start(t, s, "c", nil)
		defer a.end()
		defer c.end()
		time.Sleep(time.Second)
		s.nextWrite(t, "a")
		a.client.Pause()
		if err := b.s.Depose(t.Context(), "a", a.r.Incarnation(), b.r.Holder(), "silent"); err != nil {
			t.Fatal(err)
		}
		b.end()
		begun, revision := time.Now(), s.Get(keyOf("g", "a")).Revision
		if !a.r.Holds() {
			t.Fatal("the node's right has ended before the test begins")
		}
		c.mustTakeOver(a.r)
		if took := time.Since(begun); took < Wait {
			t.Errorf("it waited for %v", took)
		}
		if e := s.Get(keyOf("g", "a")); e.Revision != revision {
			t.Error("the key was written again")
		}
		a.client.Resume()
	})
}

// TestWaitFromSending sends the deposing late, and loses its reply: a renewal is stored meanwhile. Depose returns when
// the bucket has acknowledged the deposing, so the wait covers that renewal.
func TestWaitFromSending(t *testing.T) {
	for name, fault := range map[string]faults{
		"late": {Delay: 190 * time.Millisecond}, "later than it is waited for": {Delay: 300 * time.Millisecond},
		"no replies": {Lose: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer(t)
				a, b := start(t, s, "a", nil), prepare(t, s, "b", nil).open()
				defer a.end()
				run, stop := context.WithCancel(t.Context())
				b.tasks.Go(func() { _ = b.s.Run(run) })
				defer b.tasks.Wait()
				defer stop()
				<-b.s.seen
				time.Sleep(time.Second)
				b.client.Set(func(f *faults) {
					*f = fault
					f.Put = func(string) { b.client.Set(func(f *faults) { f.Delay = 0 }) } // the next one is in time
				})
				stored := time.Time{}
				s.OnStored(func(e bucket.Entry) {
					if f := read(e); f.rec.Deposed != nil && stored.IsZero() {
						stored = time.Now()
					}
				})
				err := b.s.Depose(t.Context(), "a", a.r.Incarnation(), b.r.Holder(), "silent")
				at := time.Time{}
				s.Still(func() { at = stored })
				if err != nil || at.IsZero() || time.Since(at) < latency {
					t.Errorf("returned %v, stored at %v", err, at)
				}
				if err := waitOut(t.Context(), b.cfg.Now, b.s.Wait()); err != nil || a.r.Holds() {
					t.Errorf("holds %v, %v", a.r.Holds(), err)
				}
			})
		})
	}
}

// TestDeposeGivesUpWithItsContext leaves the outcome to the next call.
func TestDeposeGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a, b := start(t, s, "a", nil), start(t, s, "b", nil)
		defer a.end()
		defer b.end()
		b.client.Set(func(f *faults) { f.Down = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := b.s.Depose(ctx, "a", a.r.Incarnation(), b.r.Holder(), "silent")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), a.r.Holder()) {
			t.Errorf("Depose: %v", err)
		}
		b.client.Set(func(f *faults) { f.Down = false })
		b.mustTakeOver(a.r)
		mustEnd(t, a.r, b.r.Holder(), "silent")

		blind := NewSight(b.r) // which nobody runs
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := blind.Depose(ctx, "a", "x", "b/y", ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Depose before any key was seen: %v", err)
		}
	})
}

// TestAMissingKeyIsDeposed has the first write of an incarnation arrive when it has been deposed.
func TestAMissingKeyIsDeposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		b := start(t, s, "b", nil)
		defer b.end()
		a := prepare(t, s, "a", nil)
		a.client.Set(func(f *faults) { f.Delay = 200 * time.Millisecond })
		opened := make(chan error, 1)
		go func() {
			r, err := Open(t.Context(), a.client, a.cfg)
			a.r = r
			opened <- err
		}()
		first := &record{Version: 1, Node: "a", Incarnation: "early", Write: 1, State: StateUp, Trust: 1}
		if err := b.s.Depose(t.Context(), "a", "early", b.r.Holder(), "gone"); err != nil {
			t.Fatal(err)
		}
		if rec := s.key(t, "a"); rec.Incarnation != "early" || rec.Deposed == nil || rec.Write != 0 {
			t.Errorf("key %+v", rec)
		}
		if _, err := s.Put(keyOf("g", "a"), encode(first), 0); !errors.Is(err, bucket.ErrMismatch) {
			t.Errorf("its first write: %v", err)
		}
		// The node's next incarnation begins over it.
		if err := <-opened; err != nil || s.key(t, "a").Incarnation != a.r.Incarnation() {
			t.Errorf("Open: %v, key %+v", err, s.key(t, "a"))
		}
	})
}

// TestASucceededLeaderEndsNoWait shows the deposer the key of an earlier incarnation, or none, while the one that it is to
// depose lives. That it sees another one proves nothing.
func TestASucceededLeaderEndsNoWait(t *testing.T) {
	for _, none := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			b := start(t, s, "b", nil)
			defer b.end()
			old := s.State()
			early := start(t, s, "a", nil)
			early.end()
			if !none {
				old = s.State()
			}
			b.client.Set(func(f *faults) { f.Mute = true }) // its watch is late too
			a := start(t, s, "a", nil)
			defer a.end()
			b.client.Set(func(f *faults) { f.Stale = old })
			done := make(chan error, 1)
			go func() { done <- b.takeOver(a.r) }()
			select {
			case err := <-done:
				t.Fatalf("it is told %v by a leader that was succeeded", err)
			case <-time.After(5 * time.Second):
			}
			if a.r.Deposed().Err() != nil || !a.r.Holds() {
				t.Error("it was deposed")
			}
			b.client.Set(func(f *faults) { f.Stale = nil })
			if err := <-done; err != nil || a.r.Holds() {
				t.Errorf("then: %v, holds %v", err, a.r.Holds())
			}
		})
	}
}

// TestSucceeded_DisturbsNobody is asked to depose earlier incarnations of a node that lives.
func TestSucceeded_DisturbsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a, b := start(t, s, "a", nil), start(t, s, "b", nil)
		defer a.end()
		defer b.end()
		for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(7 * time.Millisecond) {
			err := b.s.Depose(t.Context(), "a", "earlier", b.r.Holder(), "silent")
			if gone, ok := errors.AsType[*SucceededError](err); !ok || gone.By != a.r.Incarnation() {
				t.Fatalf("Depose: %v", err)
			}
			if !a.r.Holds() || a.r.Deposed().Err() != nil {
				t.Fatalf("the living one holds %v, ended with %v", a.r.Holds(), context.Cause(a.r.Deposed()))
			}
		}
		a.end()
		time.Sleep(time.Second)
		if err := b.s.Depose(t.Context(), "a", "earlier", b.r.Holder(), "silent"); err == nil || b.s.Still("a") < 300*time.Millisecond {
			t.Errorf("Depose: %v; a dead node seems to have moved %v ago", err, b.s.Still("a"))
		}
	})
}

// TestTheLongestTrustIsWaitedFor has a successor that dies in its wait. Who comes after it waits for the one before, whom it does not know.
func TestTheLongestTrustIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a := start(t, s, "a", func(p *proc) { p.cfg.Trust = 2 * time.Second })
		b, c := start(t, s, "b", nil), start(t, s, "c", nil)
		defer a.end()
		defer c.end()
		time.Sleep(1100 * time.Millisecond)
		a.client.Pause() // it sees nothing of all that
		if err := b.s.Depose(t.Context(), "a", a.r.Incarnation(), b.r.Holder(), "silent"); err != nil {
			t.Fatal(err)
		}
		b.end()
		c.mustTakeOver(b.r)
		if a.r.Holds() {
			t.Error("the one before holds its right")
		}
		a.client.Resume()
		// One that began when nobody else was there has seen it all the same.
		d := start(t, s, "d", nil)
		defer d.end()
		if got := d.s.Wait(); got != waitFor(2*time.Second) {
			t.Errorf("a newcomer waits for %v", got)
		}
	})
}

func TestDeposeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		b := start(t, s, "b", nil)
		defer b.end()
		for _, bad := range [][3]string{{"", "x", "b/y"}, {"a.b", "x", "b/y"}, {"a", "", "b/y"}, {"a", "x", ""}} {
			if err := b.s.Depose(t.Context(), bad[0], bad[1], bad[2], ""); err == nil || !strings.Contains(err.Error(), "named") {
				t.Errorf("%q: %v", bad, err)
			}
		}
		for value, want := range map[string]string{`{"v":9}`: "version 9", `no`: "node.g.c cannot be read"} {
			if _, err := s.Put(keyOf("g", "c"), []byte(value), s.Get(keyOf("g", "c")).Revision); err != nil {
				t.Fatal(err)
			}
			err := b.s.Depose(t.Context(), "c", "x", "b/y", "")
			if err == nil || !strings.Contains(err.Error(), want) || string(s.Get(keyOf("g", "c")).Value) != value {
				t.Errorf("Depose: %v, want %q; key %s", err, want, s.Get(keyOf("g", "c")).Value)
			}
		}
		// A reason that is too long is cut.
		if err := b.s.Depose(t.Context(), "e", "x", "b/y", strings.Repeat("ü", whyBytesMax)); err != nil {
			t.Fatal(err)
		}
		if got := s.key(t, "e").Deposed.Why; got != strings.Repeat("ü", whyBytesMax/2) {
			t.Errorf("reason of %d bytes", len(got))
		}
	})
}
