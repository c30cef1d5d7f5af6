package leases

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPassesOnWithinTenSeconds(t *testing.T) {
	for _, after := range []time.Duration{0, 700 * time.Millisecond, 1990 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t)
			defer g.stop()
			resources := resourceNames(20)
			a := g.start("a", resources, nil)
			b := g.start("b", resources, nil)
			c := g.start("c", resources, nil)
			g.until("share", 5*time.Second, resources, g.even(resources, a, b, c))
			g.pass(10*time.Second+after, resources)
			a.kill()
			took := g.until("pass on", 10*time.Second, resources, func() bool {
				return b.count(resources)+c.count(resources) == len(resources)
			})
			t.Logf("passed on after %v", took)
			g.until("even", 5*time.Second, resources, g.even(resources, b, c))
		})
	}
}

func TestHolderFencesItselfBeforeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(1)
		var held *Held
		a := g.start("a", resources, func(p *proc, _ *Config) {
			p.work = func(ctx context.Context, h *Held) error { held = h; return idle(ctx, h) }
		})
		g.until("hold", time.Second, resources, g.whole(resources))
		g.pass(30*time.Second, resources)
		rec, _ := g.server.lease(resources[0])
		for { // until just after a renewal
			time.Sleep(5 * time.Millisecond)
			if now, _ := g.server.lease(resources[0]); now.Write != rec.Write {
				break
			}
		}
		time.Sleep(10 * time.Millisecond) // the reply comes
		a.client.Set(func(c *faults) { c.Down = true })
		g.pass(5900*time.Millisecond, resources)
		if !held.Valid() {
			t.Error("trust ended though the last renewal began less than 6s ago")
		}
		time.Sleep(150 * time.Millisecond)
		if held.Valid() {
			t.Error("trust has not ended a second before the lease expires")
		}
		time.Sleep(300 * time.Millisecond)
		if !errors.Is(context.Cause(held.Context()), ErrLost) || !errors.Is(context.Cause(held.Trust()), ErrLost) {
			t.Errorf("contexts ended with %v and %v", context.Cause(held.Context()), context.Cause(held.Trust()))
		}
		if err := held.Save(t.Context(), nil); !errors.Is(err, ErrLost) {
			t.Errorf("Save: %v", err)
		}
		a.client.Set(func(c *faults) { c.Down = false })
		g.until("take it again", 5*time.Second, resources, g.whole(resources))
	})
}

func TestSuspendedMachineHoldsNothingWhenItWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(3)
		a := g.start("a", resources, nil)
		g.until("hold", time.Second, resources, g.whole(resources))
		g.pass(5*time.Second, resources)
		a.suspend(8 * time.Second)
		if n := a.count(resources); n != 0 {
			t.Errorf("%d leases trusted right after waking up", n)
		}
		g.until("hold again", 5*time.Second, resources, g.whole(resources))
	})
}

// TestLateObserverWaitsALifetime starts after the holder died: only what it saw
// itself counts.
func TestLateObserverWaitsALifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(2)
		a := g.start("a", resources, nil)
		g.until("hold", time.Second, resources, g.whole(resources))
		a.kill()
		time.Sleep(5 * time.Second)
		b := g.start("b", resources, nil)
		begun := time.Now()
		g.until("take", 10*time.Second, resources, func() bool { return b.count(resources) == 2 })
		if took := time.Since(begun); took < 7*time.Second {
			t.Errorf("took leases after watching them for %v", took)
		}
	})
}

// TestGhostsDoNotDelay starts in a group whose members died long ago: what they
// left is not kept for them.
func TestGhostsDoNotDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(4)
		for _, node := range []string{"a", "b", "c"} {
			g.start(node, nil, nil).kill()
		}
		time.Sleep(time.Hour)
		b := g.start("d", resources, nil)
		if took := g.until("take", 10*time.Second, resources, func() bool { return b.count(resources) == 4 }); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestStalledWorkLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(4)
		wake := make(chan struct{})
		hung := make(chan *Held, 1)
		stall := func(_ *proc, cfg *Config) { cfg.StallTimeout = 3 * time.Second }
		a := g.start("a", resources, func(p *proc, cfg *Config) {
			stall(p, cfg)
			p.work = func(ctx context.Context, h *Held) error {
				if h.Resource() != resources[0] || h.Epoch() != 1 {
					return idle(ctx, h)
				}
				for range 20 {
					time.Sleep(time.Second)
					h.Progress()
				}
				hung <- h
				<-wake // deaf and blind from now on
				return errors.New("woke up late")
			}
		})
		g.until("hold", time.Second, resources, func() bool { return a.count(resources) == 4 })
		h := <-hung
		<-h.Trust().Done()
		<-h.Context().Done() // Trust ends both, one after the other
		if cause := context.Cause(h.Context()); !errors.Is(cause, ErrStalled) || h.Valid() {
			t.Errorf("ended with %v, valid %v", cause, h.Valid())
		}
		b := g.start("b", resources, stall)
		took := g.until("pass on what hangs", 10*time.Second, resources, func() bool {
			valid := g.valid(resources[0])
			return len(valid) == 1 && valid[0] == b
		})
		t.Logf("passed on %v after trust ended", took)
		close(wake)
		g.pass(30*time.Second, resources)
		g.until("share", 5*time.Second, resources, g.even(resources, a, b))
		starts := g.runs()
		g.pass(time.Minute, resources)
		if n := g.runs() - starts; n != 0 {
			t.Errorf("%d more runs of work after the group came to rest", n)
		}
	})
}

// TestStalledWorkThatEndsIsReleased does not wait for the lease to expire.
func TestStalledWorkThatEndsIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(1)
		var first atomic.Bool
		stall := func(p *proc, cfg *Config) {
			cfg.StallTimeout = 3 * time.Second
			p.work = func(ctx context.Context, h *Held) error {
				if !first.Swap(true) {
					<-ctx.Done() // does not turn, but listens
					return nil
				}
				return idle(ctx, h)
			}
		}
		a := g.start("a", resources, stall)
		g.until("hold", time.Second, resources, func() bool { return a.count(resources) == 1 })
		b := g.start("b", resources, stall)
		g.until("pass on", 4*time.Second, resources, func() bool { return b.count(resources) == 1 })
		rec, err := g.server.lease(resources[0])
		if err != nil || rec.LastError != "leases: holder made no progress for 3s" || rec.Attempts != 1 {
			t.Errorf("record: %+v, %v", rec, err)
		}
	})
}
