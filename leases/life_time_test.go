package leases

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestNewcomerGetsItsShareSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(24)
		a := g.start("a", resources, nil)
		g.until("hold", time.Second, resources, func() bool { return a.count(resources) == 24 })
		procs := []*proc{a}
		for _, node := range []string{"b", "c", "d"} {
			g.pass(5*time.Second, resources)
			runs := g.runs()
			procs = append(procs, g.start(node, resources, nil))
			took := g.until("share", 3*time.Second, resources, g.even(resources, procs...))
			moved := g.runs() - runs
			t.Logf("%d members share after %v and %d moves", len(procs), took, moved)
			if share := 24 / len(procs); moved != share {
				t.Errorf("%d leases moved for a share of %d", moved, share)
			}
		}
		runs := g.runs()
		g.pass(3*time.Minute, resources)
		if n := g.runs() - runs; n != 0 {
			t.Errorf("%d leases moved at rest", n)
		}
	})
}

// TestGracefulStopHandsOverAtOnce also covers leases that are being taken.
func TestGracefulStopHandsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(20)
		a := g.start("a", resources, nil)
		b := g.start("b", resources, nil)
		g.until("share", 5*time.Second, resources, g.even(resources, a, b))
		c := g.start("c", resources, nil)
		time.Sleep(1100 * time.Millisecond) // leases are moving to c
		a.cancel()
		if took := g.until("hand over", time.Second, resources, func() bool {
			return b.count(resources)+c.count(resources) == 20
		}); took > 500*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// TestSwingingWeightsMoveLittle has weights that swing by a factor of three
// every second: 600 times for 12 leases, and few of them move.
func TestSwingingWeightsMoveLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(12)
		a := g.start("a", resources, nil)
		b := g.start("b", resources, nil)
		g.until("share", 5*time.Second, resources, g.even(resources, a, b))
		runs := g.runs()
		r := rand.New(rand.NewPCG(1, 1))
		const minutes = 10
		for range minutes * 60 {
			weights := map[string]float64{}
			for _, resource := range resources {
				weights[resource] = 4 * (0.6 + r.Float64())
			}
			a.m.SetResources(resources, weights)
			b.m.SetResources(resources, weights)
			g.pass(time.Second, resources)
		}
		n := g.runs() - runs
		t.Logf("%d moves in %d minutes", n, minutes)
		if n > 4*minutes {
			t.Errorf("%d moves in %d minutes of noise", n, minutes)
		}
	})
}

// TestHeavyLeasesPart moves leases by their measured weight.
func TestHeavyLeasesPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(8)
		a := g.start("a", resources, nil)
		b := g.start("b", resources, nil)
		g.until("share", 5*time.Second, resources, g.even(resources, a, b))
		weights := map[string]float64{}
		for _, resource := range resources {
			if g.valid(resource)[0] == a {
				weights[resource] = 64 // all that is behind is on one side
			}
		}
		a.m.SetResources(resources, weights)
		b.m.SetResources(resources, weights)
		parted := func() bool {
			heavy := 0
			for _, resource := range resources {
				if valid := g.valid(resource); weights[resource] > 1 && len(valid) == 1 && valid[0] == a {
					heavy++
				}
			}
			return heavy == 2 && g.whole(resources)()
		}
		g.until("part", 2*time.Minute, resources, parted)
		g.pass(2*time.Minute, resources) // until all weights are published
		if !parted() {
			t.Errorf("rests uneven: %s", g.state(resources))
		}
		runs := g.runs()
		g.pass(5*time.Minute, resources)
		if n := g.runs() - runs; n != 0 {
			t.Errorf("%d leases moved at rest", n)
		}
	})
}

// TestFailingWorkIsRetriedElsewhere has one process on which one resource always
// fails.
func TestFailingWorkIsRetriedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(4)
		fail := func(p *proc, _ *Config) {
			p.work = func(ctx context.Context, h *Held) error {
				if h.Resource() == resources[1] {
					return errors.New("disk on fire")
				}
				return idle(ctx, h)
			}
		}
		a := g.start("a", resources, fail)
		g.pass(time.Minute, resources)
		rec, err := g.server.lease(resources[1])
		if err != nil || rec.LastError != "disk on fire" || rec.Attempts < 5 || rec.Attempts > 9 || rec.Owner != "" {
			t.Errorf("after a minute: %+v, %v", rec, err)
		}
		b := g.start("b", resources, nil)
		g.until("be held by the other", time.Second, resources, func() bool {
			valid := g.valid(resources[1])
			return len(valid) == 1 && valid[0] == b
		})
		runs := g.runs()
		g.pass(10*time.Minute, resources)
		g.until("share", 10*time.Second, resources, g.even(resources, a, b))
		if n := g.runs() - runs; n > 8 {
			t.Errorf("%d runs of work in ten minutes", n)
		}
		h := func() *Held {
			g.mu.Lock()
			defer g.mu.Unlock()
			for h := range g.held[resources[1]] {
				return h
			}
			return nil
		}()
		if err := h.Save(t.Context(), []byte("well")); err != nil {
			t.Fatal(err)
		}
		if rec, err := g.server.lease(resources[1]); err != nil || rec.LastError != "" || rec.Attempts != 0 {
			t.Errorf("after a checkpoint: %+v, %v", rec, err)
		}
	})
}

// TestFailuresAfterWorkThatDidWellAreANewRow has work that fails at first, does well for a while
// without a checkpoint, and fails again.
func TestFailuresAfterWorkThatDidWellAreANewRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		var runs atomic.Int32
		again := make(chan struct{})
		g.start("a", []string{"r"}, func(p *proc, _ *Config) {
			p.work = func(ctx context.Context, h *Held) error {
				if n := runs.Add(1); n <= 5 {
					return errors.New("no answer")
				}
				h.Works()
				select {
				case <-again:
					return errors.New("no answer again")
				case <-ctx.Done():
					return nil
				}
			}
		})
		g.pass(time.Minute, []string{"r"}) // pauses of 1, 2, 4, 8 and 16 s
		if rec, err := g.server.lease("r"); err != nil || runs.Load() != 6 || rec.LastError != "" || rec.Attempts != 0 {
			t.Errorf("after %d runs, the last of which does well: %+v, %v", runs.Load(), rec, err)
		}
		again <- struct{}{}
		g.pass(5*time.Second, []string{"r"})
		if n := runs.Load(); n != 7 {
			t.Errorf("%d runs, want one more after a second", n)
		}
	})
}

// TestPoisonDoesNotSpin has work that fails wherever it runs.
func TestPoisonDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		var tries atomic.Int32
		poison := func(p *proc, _ *Config) {
			p.work = func(context.Context, *Held) error { tries.Add(1); return errors.New("poison") }
		}
		g.start("a", []string{"r"}, poison)
		g.start("b", []string{"r"}, poison)
		g.pass(10*time.Minute, []string{"r"})
		if n := tries.Load(); n < 15 || n > 40 {
			t.Errorf("%d tries in ten minutes, want about one a minute from each process after the first", n)
		}
	})
}

// TestWorkThatReturnsIsBegunAgain after a pause.
func TestWorkThatReturnsIsBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		g.start("a", []string{"r"}, func(p *proc, _ *Config) {
			p.work = func(context.Context, *Held) error { return nil }
		})
		g.pass(time.Minute, []string{"r"})
		if n := g.runs(); n < 40 || n > 80 {
			t.Errorf("%d runs of work in a minute, want about one a second", n)
		}
		if rec, err := g.server.lease("r"); err != nil || rec.LastError != "" || rec.Attempts != 0 {
			t.Errorf("record: %+v, %v", rec, err)
		}
	})
}

// TestLostEpochsAreRaised has records that were lost while fences remember.
func TestLostEpochsAreRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		const fence = 41
		g.start("a", []string{"r"}, func(p *proc, _ *Config) {
			p.work = func(ctx context.Context, h *Held) error {
				if h.Epoch() <= fence {
					return &EpochBehindError{Seen: fence}
				}
				return idle(ctx, h)
			}
		})
		g.pass(5*time.Second, []string{"r"})
		if rec, err := g.server.lease("r"); err != nil || rec.Epoch != fence+1 || rec.Owner == "" {
			t.Errorf("record: %+v, %v", rec, err)
		}
	})
}

func TestResourcesComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		var mu sync.Mutex
		causes := map[string]error{}
		note := func(p *proc, _ *Config) {
			p.work = func(ctx context.Context, h *Held) error {
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					causes[h.Resource()] = context.Cause(ctx)
				}()
				return idle(ctx, h)
			}
		}
		old := resourceNames(6)
		a := g.start("a", old, note)
		b := g.start("b", old, note)
		g.until("share", 5*time.Second, old, g.even(old, a, b))
		runs := g.runs()
		// One learns of the new set a moment later.
		now := append(slices.Clone(old[1:]), "new/0", "new/1", "new/2")
		a.m.SetResources(now, nil)
		g.pass(300*time.Millisecond, now)
		b.m.SetResources(now, nil)
		g.until("share the new set", 3*time.Second, now, g.even(now, a, b))
		if n := len(g.valid(old[0])); n != 0 {
			t.Errorf("a withdrawn resource is held by %d", n)
		}
		mu.Lock()
		if !errors.Is(causes[old[0]], ErrWithdrawn) {
			t.Errorf("work on it ended with %v", causes[old[0]])
		}
		mu.Unlock()
		g.pass(time.Minute, now)
		if n := g.runs() - runs; n > 4 {
			t.Errorf("%d runs of work begun for 3 new resources", n)
		}
	})
}

// TestMemberThatKnowsLessDoesNotCauseFlapping never learns of half the set.
func TestMemberThatKnowsLessDoesNotCauseFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(8)
		g.start("a", resources, nil)
		g.start("b", resources[:4], nil)
		g.until("be whole", 10*time.Second, resources, g.whole(resources))
		g.pass(time.Minute, resources)
		runs := g.runs()
		g.pass(3*time.Minute, resources)
		if n := g.runs() - runs; n != 0 {
			t.Errorf("%d leases moved at rest", n)
		}
	})
}

func TestDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		resources := resourceNames(3)
		deaf := make(chan struct{})
		a := g.start("a", resources, func(p *proc, cfg *Config) {
			cfg.DrainTimeout = 3 * time.Second
			p.work = func(ctx context.Context, h *Held) error {
				switch h.Resource() {
				case resources[0]:
					<-deaf
				case resources[1]: // finishes what it has at hand
					<-ctx.Done()
					time.Sleep(2 * time.Second)
					if err := h.Save(h.Trust(), []byte("finished")); err != nil {
						t.Errorf("Save while draining: %v", err)
					}
				default:
					<-ctx.Done()
				}
				return nil
			}
		})
		g.until("hold", time.Second, resources, g.whole(resources))
		begun := time.Now()
		a.cancel()
		err := <-a.done
		if !errors.Is(err, ErrDrainTimeout) || time.Since(begun) < 3*time.Second || time.Since(begun) > 6*time.Second {
			t.Errorf("Run: %v after %v", err, time.Since(begun))
		}
		a.done <- nil
		if n := len(g.valid(resources[0])); n != 0 {
			t.Error("the lease of work that did not end is still trusted")
		}
		if rec, err := g.server.lease(resources[0]); err != nil || rec.Owner == "" {
			t.Errorf("the lease of work that did not end was released: %+v, %v", rec, err)
		}
		if rec, err := g.server.lease(resources[1]); err != nil || rec.Owner != "" || string(rec.Checkpoint) != "finished" {
			t.Errorf("the lease of work that took its time: %+v, %v", rec, err)
		}
		b := g.start("b", resources, nil)
		g.until("pass on", 8*time.Second, resources, func() bool { return b.count(resources) == 3 })
		close(deaf)
		g.stop()
	})
}

// TestRenewalsAreCheap counts what twenty leases cost at rest.
func TestRenewalsAreCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(20)
		g.start("a", resources, nil)
		g.until("hold", time.Second, resources, g.whole(resources))
		g.pass(10*time.Second, resources)
		before := g.server.Puts()
		g.pass(100*time.Second, resources)
		n := g.server.Puts() - before
		t.Logf("%.2f puts a second", float64(n)/100)
		if n > 21*50*115/100 { // 20 leases and a beat, every 2s
			t.Errorf("%d puts in 100s", n)
		}
	})
}
