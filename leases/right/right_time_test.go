package right

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// mustEnd fails if the right has not ended for good by a deposing of by, and for a reason that has why in it.
func mustEnd(t *testing.T, r *Right, by, why string) {
	t.Helper()
	select {
	case <-r.Deposed().Done():
	case <-time.After(2 * time.Second):
		t.Fatalf("%s does not learn that it is over", r.Holder())
	}
	cause := context.Cause(r.Deposed())
	gone, ok := errors.AsType[*DeposedError](cause)
	if !ok || gone.By != by || !strings.Contains(gone.Why, why) || gone.Incarnation != r.Incarnation() {
		t.Errorf("ended with %v, want it by %q because of %q", cause, by, why)
	}
	if r.Holds() || r.Part().Holds() {
		t.Error("it holds when Deposed has ended")
	}
}

func TestHoldsWhileItIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		p := start(t, s, "a", nil)
		defer p.end()
		before := s.Puts()
		watchHolds(15*time.Second, func() {
			if !p.r.Holds() {
				t.Fatal("it does not hold")
			}
		})
		n := s.Puts() - before
		if n < 95 || n > 115 {
			t.Errorf("%d renewals in 15 s, want one in 150 ms", n)
		}
	})
}

func TestRunsOutWhileTheBucketIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		p := start(t, s, "a", nil)
		defer p.end()
		time.Sleep(time.Second)
		p.client.Set(func(f *faults) { f.Down = true })
		last := p.r.lastStored()
		for p.r.Holds() {
			time.Sleep(time.Millisecond)
		}
		if d := p.r.Now() - last; d < Trust || d > Trust+2*time.Millisecond {
			t.Errorf("it held for %v after the last renewal was sent, want %v", d, Trust)
		}
		time.Sleep(time.Minute)
		if p.r.Holds() || p.r.Deposed().Err() != nil {
			t.Errorf("holds %v, ended with %v", p.r.Holds(), context.Cause(p.r.Deposed()))
		}
		<-p.r.token
		if n := len(p.r.key.sent); n > 20 {
			t.Errorf("%d tries are remembered, though they can extend nothing", n)
		}
		p.r.token <- struct{}{}
		p.client.Set(func(f *faults) { f.Down = false })
		time.Sleep(Trust)
		watchHolds(time.Second, func() {
			if !p.r.Holds() {
				t.Fatal("it does not hold again")
			}
		})
	})
}

// TestRenewalFromAnswer stops a process whose renewal is stored. When it goes on, and reads the reply, the wait of its successor
// is over: the right must not begin with the reply.
func TestRenewalFromAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a, b := start(t, s, "a", nil), start(t, s, "b", nil)
		defer a.end()
		defer b.end()
		time.Sleep(time.Second)
		sent := make(chan struct{}, 9)
		a.client.Set(func(f *faults) { f.Put = func(string) { sent <- struct{}{} } })
		<-sent
		a.client.Set(func(f *faults) { f.Put = nil })
		a.client.Pause()
		time.Sleep(latency) // it is stored, and the reply under way
		b.mustTakeOver(a.r)
		a.client.Resume()
		watchHolds(time.Second, func() {
			if a.r.Holds() {
				t.Fatal("the right counts from a reply")
			}
		})
		mustEnd(t, a.r, b.r.Holder(), "silent")
	})
}

// TestRenewalFromRetry loses the reply of a renewal that is stored, lets a second one be refused by the deposing, and the key be
// read where it is old. The right counts from the first.
func TestRenewalFromRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a, b := start(t, s, "a", nil), start(t, s, "b", nil)
		defer a.end()
		defer b.end()
		time.Sleep(time.Second)
		a.client.Set(func(f *faults) { f.Lose = 1 })
		s.nextWrite(t, "a")
		first := a.r.Now() - latency
		a.client.Set(func(f *faults) { f.Stale = s.State() })
		time.Sleep(100 * time.Millisecond)
		b.mustTakeOver(a.r)
		// The second try was refused meanwhile, and the key says that the first was stored.
		if got := time.Duration(a.r.until.Load()); got > first+Trust || got < first+Trust-latency {
			t.Errorf("the right holds until %v after the try that was stored was sent, want %v", got-first, Trust)
		}
		watchHolds(3*time.Second, func() {
			if a.r.Holds() {
				t.Fatal("a refused renewal extends the right")
			}
		})
		a.client.Set(func(f *faults) { f.Stale = nil })
		mustEnd(t, a.r, b.r.Holder(), "silent")
	})
}

// TestRefusedIsDeposed loses replies of renewals. The next try is refused each time, because the one before was stored: that is no
// deposing.
func TestRefusedIsDeposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		p := start(t, s, "a", nil)
		defer p.end()
		for range 50 {
			time.Sleep(450 * time.Millisecond)
			p.client.Set(func(f *faults) { f.Lose = 1 })
		}
		watchHolds(time.Second, func() {
			if !p.r.Holds() || p.r.Deposed().Err() != nil {
				t.Fatalf("holds %v, ended with %v", p.r.Holds(), context.Cause(p.r.Deposed()))
			}
		})
	})
}

// TestLostReplyLeavesNoGap renews in time all the same.
func TestLostReplyLeavesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		p := start(t, s, "a", nil)
		defer p.end()
		watchHolds(30*time.Second, func() {
			if p.client.Faults().Lose == 0 && p.r.Now()%(700*time.Millisecond) < time.Millisecond {
				p.client.Set(func(f *faults) { f.Lose = 1 })
			}
			if !p.r.Holds() {
				t.Fatal("one lost reply ends the right")
			}
		})
	})
}

// TestRenewalUnconditional lets a renewal arrive when its node has been deposed. It changes nothing, whether the node was deposed
// alone or has begun anew.
func TestRenewalUnconditional(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			a, b := start(t, s, "a", nil), start(t, s, "b", nil)
			defer a.end()
			defer b.end()
			time.Sleep(time.Second)
			sent := make(chan struct{}, 99)
			a.client.Set(func(f *faults) {
				f.Delay, f.Put = 1200*time.Millisecond, func(string) { sent <- struct{}{} }
			})
			<-sent
			b.mustTakeOver(a.r)
			want := "by " + b.r.Holder()
			if again {
				next := start(t, s, "a", nil)
				defer next.end()
				want = next.r.Incarnation()
			}
			watchHolds(3*time.Second, func() {
				rec := s.key(t, "a")
				if again && (rec.Incarnation != want || rec.Deposed != nil) || !again && (rec.Deposed == nil || "by "+rec.Deposed.By != want) {
					t.Fatalf("a late renewal has changed the key: %+v", rec)
				}
				if a.r.Holds() {
					t.Fatal("it holds its right")
				}
			})
		})
	}
}

// TestSleepUncounted suspends the machine of a node, for which timers do not count.
func TestSleepUncounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a, b := start(t, s, "a", nil), start(t, s, "b", nil)
		defer a.end()
		defer b.end()
		time.Sleep(time.Second)
		part := a.r.Part()
		part.Extend(a.r.Now())
		a.client.Pause()
		before := a.r.Holds() && part.Holds()
		a.skew.Add(int64(Wait))
		if !before || a.r.Holds() || part.Holds() {
			t.Errorf("holds before %v, after %v, %v", before, a.r.Holds(), part.Holds())
		}
		// Nobody took anything, so it goes on.
		a.client.Resume()
		time.Sleep(RenewInterval + 10*time.Millisecond)
		if !a.r.Holds() {
			t.Error("it does not hold again after a renewal")
		}
		a.client.Pause()
		b.mustTakeOver(a.r)
		a.skew.Add(int64(time.Hour))
		a.client.Resume()
		mustEnd(t, a.r, b.r.Holder(), "silent")
	})
}

// TestNoDrift has clocks that run as unequally as they may.
func TestNoDrift(t *testing.T) {
	for delay := range 15 {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			a := start(t, s, "a", func(p *proc) { p.rate = 1 - 1.0/14 })
			b := start(t, s, "b", func(p *proc) { p.rate = 1 + 1.0/14 })
			defer a.end()
			defer b.end()
			time.Sleep(time.Second)
			s.nextWrite(t, "a")
			time.Sleep(2*latency + time.Duration(delay)*10*time.Millisecond)
			a.client.Pause() // it learns nothing
			defer a.client.Resume()
			b.mustTakeOver(a.r)
		})
	}
}

// TestAKeyThatIsStoredAgain has somebody store the key again and again as it is, so that every renewal is refused. What stands there
// is an earlier one, and extends nothing.
func TestAKeyThatIsStoredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		p := start(t, s, "a", nil)
		defer p.end()
		time.Sleep(time.Second)
		s.nextWrite(t, "a")
		time.Sleep(2 * latency) // none is under way, which would be stored behind what is last now
		last := p.r.lastStored()
		for p.r.Holds() {
			e := s.Get(keyOf("g", "a"))
			if _, err := s.Put(e.Key, e.Value, e.Revision); err != nil {
				t.Fatal(err)
			}
			if p.r.Now() > last+Trust {
				t.Fatalf("it holds %v after the last renewal that was stored", p.r.Now()-last)
			}
			time.Sleep(latency / 4)
		}
		time.Sleep(RenewInterval)
		if !p.r.Holds() || p.r.Deposed().Err() != nil {
			t.Errorf("then it holds %v, ended with %v", p.r.Holds(), context.Cause(p.r.Deposed()))
		}
	})
}

// TestOverIsForGood has a renewal whose reply comes last.
func TestOverIsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		p := start(t, s, "a", nil)
		defer p.end()
		part := p.r.Part()
		cause := errors.New("the log has another owner's takeover commit")
		p.r.end(cause)
		p.r.end(errors.New("later"))
		part.Extend(p.r.Now())
		p.r.stored(try{write: 99, start: p.r.Now()})
		if p.r.Holds() || part.Holds() || !errors.Is(context.Cause(p.r.Deposed()), cause) {
			t.Errorf("holds %v, part %v, ended with %v", p.r.Holds(), part.Holds(), context.Cause(p.r.Deposed()))
		}
		if err := <-p.ran; !errors.Is(err, cause) {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestAppendExtendsItsPart lets a part hold on while the bucket is away.
func TestI1_AppendExtendsItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		p := start(t, s, "a", nil)
		defer p.end()
		written, idle := p.r.Part(), p.r.Part()
		if !written.Holds() {
			t.Error("a part does not hold with its node's right")
		}
		p.client.Set(func(f *faults) { f.Down = true })
		time.Sleep(400 * time.Millisecond)
		since := p.r.Now()
		time.Sleep(200 * time.Millisecond)
		written.Extend(since)
		written.Extend(since - time.Second)
		if !written.Holds() || idle.Holds() || p.r.Holds() {
			t.Errorf("written %v, idle %v, all %v", written.Holds(), idle.Holds(), p.r.Holds())
		}
		time.Sleep(Trust - 201*time.Millisecond)
		if !written.Holds() {
			t.Error("it has run out too early")
		}
		time.Sleep(2 * time.Millisecond)
		if written.Holds() {
			t.Error("it holds for longer than from the sending")
		}
	})
}

// TestClose ends the right before the key says so.
func TestClose(t *testing.T) {
	for _, lose := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			p := start(t, s, "a", nil)
			defer p.end()
			time.Sleep(time.Second)
			p.client.Set(func(f *faults) {
				f.Lose = lose
				f.Put = func(string) {
					if p.r.over.Load() && p.r.Holds() {
						t.Error("it holds while the key is written")
					}
				}
			})
			s.OnStored(func(e bucket.Entry) {
				if rec := read(e).rec; rec != nil && rec.State == StateLeft && (p.r.Holds() || p.r.Deposed().Err() == nil) {
					t.Error("the key says that it has left before it has")
				}
			})
			for range 2 {
				if err := p.r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-p.ran; !errors.Is(err, ErrClosed) || !errors.Is(context.Cause(p.r.Deposed()), ErrClosed) {
				t.Errorf("Run: %v, ended with %v", err, context.Cause(p.r.Deposed()))
			}
			if rec := s.key(t, "a"); rec.State != StateLeft || rec.Deposed != nil {
				t.Errorf("key %+v", rec)
			}
			before := s.State().Revision
			time.Sleep(time.Second)
			if s.State().Revision != before {
				t.Error("the key is written after Close")
			}
		})
	}
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		p := start(t, s, "a", nil)
		defer p.end()
		p.client.Set(func(f *faults) { f.Down = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		p.client.Set(func(f *faults) { f.Down = false })
		if err := p.r.Close(t.Context()); err != nil || s.key(t, "a").State != StateLeft {
			t.Errorf("Close: %v, state %q", err, s.key(t, "a").State)
		}
	})
}

// TestCloseOfTheDeposed leaves the key as it is, whether it knows of the deposing or not.
func TestCloseOfTheDeposed(t *testing.T) {
	for _, knows := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			a, b := start(t, s, "a", nil), start(t, s, "b", nil)
			defer a.end()
			defer b.end()
			if !knows {
				a.stop()
			}
			b.mustTakeOver(a.r)
			a.client.Set(func(f *faults) {
				f.Put = func(string) {
					if knows {
						t.Error("it writes a key that it knows to be not its own")
					}
				}
			})
			if err := a.r.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if rec := s.key(t, "a"); rec.Deposed == nil || rec.State != StateUp {
				t.Errorf("key %+v", rec)
			}
			if _, told := errors.AsType[*DeposedError](context.Cause(a.r.Deposed())); told != knows {
				t.Errorf("ended with %v", context.Cause(a.r.Deposed()))
			}
		})
	}
}

// TestRepliesTakeLongerThanATry: the bucket takes so long that no reply comes while a try is waited for. The watch tells
// what was stored, so the right holds every now and then (each second try is conditional on what has passed), and the node
// does not seem to stand still.
func TestRepliesTakeLongerThanATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		b := start(t, s, "b", nil)
		a := start(t, s, "a", func(p *proc) {
			p.client.Set(func(f *faults) { f.Delay = Trust/2 + 30*time.Millisecond })
		})
		held, looks, still := 0, 0, time.Duration(0)
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			if looks++; a.r.Holds() {
				held++
			}
			still = max(still, b.s.Still("a"))
		}
		t.Logf("held in %d of %d looks, stood still for %v", held, looks, still)
		if held < looks*4/10 || still > time.Second {
			t.Errorf("held in %d of %d looks, stood still for %v", held, looks, still)
		}
		for _, p := range []*proc{a, b} {
			p.end()
		}
	})
}
