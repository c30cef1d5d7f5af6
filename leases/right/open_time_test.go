package right

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// TestOpenAfterLostReplies is one incarnation, whose right counts from the try that was stored.
func TestOpenAfterLostReplies(t *testing.T) {
	for lose := range 4 {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			p := prepare(t, s, "a", nil)
			p.client.Set(func(f *faults) { f.Lose = lose })
			stored := time.Duration(0)
			s.OnStored(func(e bucket.Entry) {
				if f := read(e); stored == 0 || f.rec.Write > 1 {
					stored = p.cfg.Now() - latency
				}
			})
			p.open()
			if rec := s.key(t, "a"); rec.Incarnation != p.r.Incarnation() || rec.Deposed != nil {
				t.Errorf("key %+v", rec)
			}
			if until := time.Duration(p.r.until.Load()); until != stored+Trust {
				t.Errorf("the right holds for %v from the try that was stored, want %v", until-stored, Trust)
			}
		})
	}
}

func TestOpenGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		p := prepare(t, s, "a", nil)
		p.client.Set(func(f *faults) { f.Down = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Open(ctx, p.client, p.cfg); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open: %v", err)
		}
	})
}

// TestRestart_Locked writes over the key of the process before at once, though a renewal of that one is under way.
func TestRestart_Locked(t *testing.T) {
	for delay := range 8 {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			a := start(t, s, "a", nil)
			time.Sleep(time.Second)
			a.client.Set(func(f *faults) { f.Delay = time.Duration(delay) * time.Millisecond })
			a.r.end(errors.New("killed"))
			a.end()
			next := prepare(t, s, "a", nil)
			begun := time.Now()
			next.open()
			if took := time.Since(begun); took >= RenewInterval {
				t.Errorf("it took %v", took)
			}
			next.run()
			defer next.end()
			b := start(t, s, "b", nil)
			defer b.end()
			watchHolds(time.Second, func() {
				if !next.r.Holds() || a.r.Holds() || s.key(t, "a").Incarnation != next.r.Incarnation() {
					t.Fatalf("holds %v, the process before %v, key %+v", next.r.Holds(), a.r.Holds(), s.key(t, "a"))
				}
			})
			_, ok := errors.AsType[*SucceededError](b.takeOver(a.r))
			if rec := s.key(t, "a"); !ok || rec.Deposed != nil {
				t.Errorf("deposing the process before: %v, key %+v", ok, rec)
			}
		})
	}
}

// TestRestart_TheOtherOneLives copies a directory: the earlier process learns that it is over.
func TestRestart_TheOtherOneLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a, again := start(t, s, "a", nil), start(t, s, "a", nil)
		defer a.end()
		defer again.end()
		mustEnd(t, a.r, again.r.Holder(), "anew")
		if err := <-a.ran; err == nil {
			t.Error("Run returned no error")
		}
		if !again.r.Holds() {
			t.Error("the later one does not hold")
		}
	})
}

// TestRestart_Unlocked deposes the earlier process and waits, because that may be alive.
func TestRestart_Unlocked(t *testing.T) {
	unlocked := func(p *proc) { p.cfg.NodeLocked = false }
	for _, state := range []string{"alive", "stopped", "deposed a moment ago", "left"} {
		t.Run(state, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer(t)
				a := start(t, s, "a", func(p *proc) { p.cfg.Trust = time.Second })
				defer a.end()
				time.Sleep(1200 * time.Millisecond)
				switch state {
				case "stopped":
					a.client.Pause()
				case "deposed a moment ago":
					b := start(t, s, "b", nil)
					if err := b.s.Depose(t.Context(), "a", a.r.Incarnation(), b.r.Holder(), ""); err != nil {
						t.Fatal(err)
					}
					b.end()
				case "left":
					if err := a.r.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				next := prepare(t, s, "a", unlocked)
				begun := time.Now()
				next.open()
				if took := time.Since(begun); took < waitFor(time.Second) {
					t.Errorf("it waited for %v, want seven sixths of the other's trust", took)
				}
				if a.r.Holds() || !next.r.Holds() {
					t.Errorf("the earlier process holds %v, this one %v", a.r.Holds(), next.r.Holds())
				}
				next.run()
				defer next.end()
				a.client.Resume()
				watchHolds(2*time.Second, func() {
					if a.r.Holds() {
						t.Fatal("the earlier process holds again")
					}
				})
			})
		})
	}
}

// TestRestart_TwoUnlocked are two at a time: one of them has the key in the end, and the other knows.
func TestRestart_TwoUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		unlocked := func(p *proc) { p.cfg.NodeLocked = false }
		first := start(t, s, "a", nil)
		first.end()
		opened := make(chan *proc, 2)
		for range 2 {
			p := prepare(t, s, "a", unlocked)
			go func() { opened <- p.open().run() }()
		}
		p, q := <-opened, <-opened
		defer p.end()
		defer q.end()
		time.Sleep(5 * time.Second)
		if p.r.Holds() == q.r.Holds() || (p.r.Deposed().Err() == nil) == (q.r.Deposed().Err() == nil) {
			t.Errorf("both hold: %v, %v; ended with %v, %v", p.r.Holds(), q.r.Holds(), context.Cause(p.r.Deposed()), context.Cause(q.r.Deposed()))
		}
	})
}
