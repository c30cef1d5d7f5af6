package leases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/leases/right"
)

// deposing lets a process's group hold rights, and the process ask by c.
func (c *connections) deposing(p *proc, cfg *Config) {
	cfg.Deposes, cfg.prober = true, &proberOf{c: c, p: p}
}

// takeOver is a takeover commit: who took over before can append no more. It reports false where a later one is there.
func (p *proc) takeOver(h *Held) bool {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if p.g.fences[h.Resource()] > h.Epoch() {
		return false
	}
	p.g.fences[h.Resource()] = h.Epoch()
	return true
}

// appends is work that appends to its log, which goes on while the bucket is away.
func (p *proc) appends(ctx context.Context, h *Held) error {
	for ctx.Err() == nil {
		h.Progress()
		since := h.Now()
		sleep(ctx, 100*time.Millisecond) // on its way to the log
		p.g.mu.Lock()
		arrives := p.g.fences[h.Resource()] == h.Epoch()
		p.g.mu.Unlock()
		sleep(ctx, 100*time.Millisecond)
		if arrives {
			h.Extend(since)
		}
	}
	return nil
}

// taken waits until the processes have all leases, and returns how long it took.
func (g *group) taken(limit time.Duration, resources []string, by ...*proc) time.Duration {
	g.t.Helper()
	return g.until("take", limit, resources, func() bool {
		n := 0
		for _, p := range by {
			n += p.count(resources)
		}
		return n == len(resources)
	})
}

// TestDeposed_LeasesOfADeadProcessAreTakenSoon: a second or two after its connection is gone others serve, and nobody
// serves beside it.
func TestDeposed_LeasesOfADeadProcessAreTakenSoon(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ procs, die int }{"two": {2, 1}, "five": {5, 1}, "two of five": {5, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, all := newGroup(t), newConnections()
				defer g.stop()
				resources := resourceNames(20)
				var procs []*proc
				for i := range c.procs {
					procs = append(procs, g.start(string(rune('a'+i)), resources, all.deposing))
				}
				g.until("share", 10*time.Second, resources, g.even(resources, procs...))
				g.pass(10*time.Second, resources) // until each may judge
				for _, p := range procs[:c.die] {
					p.die(all)
				}
				took := g.taken(2*time.Second, resources, procs[c.die:]...)
				t.Logf("all leases were taken, and serve, after %s", took)
				if took < right.Wait {
					t.Error("nobody has waited for the right of the dead one")
				}
			})
		})
	}
}

// TestDeposed_WhoIsSilentIsSucceededAndBeginsAnew stops one for a while that has a connection all the time.
func TestDeposed_WhoIsSilentIsSucceededAndBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(8)
		a, b := sharing(g, resources, all.deposing)
		all.tell(func(_, to string) (presence, bool) { return unknown, to == a.m.Holder() })
		a.client.Set(func(c *faults) { c.Down = true })
		took := g.taken(5*time.Second, resources, b)
		t.Logf("all leases were taken, and serve, after %s", took)
		if took < silenceMin {
			t.Error("it was deposed too early")
		}
		all.tell(nil)
		a.client.Set(func(c *faults) { c.Down = false })
		g.until("share again", 20*time.Second, resources, g.even(resources, a, b))
		g.pass(20*time.Second, resources)
		if a.count(resources) == 0 {
			t.Error("who began anew holds nothing")
		}
	})
}

// TestDeposed_WhoCannotReachTheBucketJudgesNobody: while nobody reaches it, as while it elects a leader, silence means
// nothing, and everybody goes on with what it has.
func TestDeposed_WhoCannotReachTheBucketJudgesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(8)
		a, b := sharing(g, resources, func(p *proc, cfg *Config) {
			all.deposing(p, cfg)
			p.work = p.appends
		})
		before := g.runs()
		for _, p := range []*proc{a, b} {
			p.client.Set(func(c *faults) { c.Down = true })
		}
		for range 25 {
			g.pass(100*time.Millisecond, resources)
			if n := a.count(resources) + b.count(resources); n != len(resources) {
				t.Fatalf("%d of %d may be read while the bucket is away, though all are written", n, len(resources))
			}
		}
		for _, p := range []*proc{a, b} {
			p.client.Set(func(c *faults) { c.Down = false })
		}
		g.pass(20*time.Second, resources)
		if n := g.runs() - before; n != 0 {
			t.Errorf("%d leases changed hands", n)
		}
	})
}

// TestDeposed_AReadRestsOnTheRight: who is cut off and writes nothing answers nothing soon, though its lease lasts.
func TestDeposed_AReadRestsOnTheRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(1)
		var held *Held
		a := g.start("a", resources, func(p *proc, cfg *Config) {
			all.deposing(p, cfg)
			p.work = func(ctx context.Context, h *Held) error { held = h; return idle(ctx, h) }
		})
		g.until("hold", 10*time.Second, resources, g.whole(resources))
		g.pass(5*time.Second, resources)
		a.client.Set(func(c *faults) { c.Down = true })
		sleep(t.Context(), right.Wait)
		if held.Valid() || !held.Lasts() || held.Trust().Err() != nil {
			t.Errorf("valid %v, lasts %v, trust %v", held.Valid(), held.Lasts(), held.Trust().Err())
		}
		a.client.Set(func(c *faults) { c.Down = false })
		g.until("hold again", time.Second, resources, g.whole(resources))
	})
}

// TestDeposed_WhoIsAloneBeginsAnew is deposed by somebody who does not take its leases then.
func TestDeposed_WhoIsAloneBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(4)
		a, b := sharing(g, resources, all.deposing)
		b.cancel()
		g.taken(5*time.Second, resources, a)
		s := a.m.rights.now()
		if err := s.sight.Depose(t.Context(), "a", s.right.Incarnation(), "b/1", "for a test"); err != nil {
			t.Fatal(err)
		}
		g.until("give up", time.Second, resources, func() bool { return a.count(resources) == 0 })
		before := g.runs()
		g.taken(time.Second, resources, a)
		if n := g.runs() - before; n > len(resources) || a.m.rights.now() == s {
			t.Errorf("%d runs of work, and the right is made anew: %v", n, a.m.rights.now() != s)
		}
	})
}

// TestDeposed_TheNextWaitsToo: b takes over from a and ends in its wait. Whoever is next finds the lease free, or b
// deposed, and must wait for a, of which it knows nothing.
func TestDeposed_TheNextWaitsToo(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *proc, all *connections){
		"it drains": func(b *proc, _ *connections) { b.cancel() },
		"it dies":   func(b *proc, all *connections) { b.die(all) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, all := newGroup(t), newConnections()
				defer g.stop()
				resources := resourceNames(1)
				a := g.start("a", resources, all.deposing)
				g.until("hold", 10*time.Second, resources, g.whole(resources))
				b, c := g.start("b", resources, all.deposing), g.start("c", resources, all.deposing)
				b.m.SetWarm(map[string]uint64{resources[0]: 1})
				g.pass(10*time.Second, resources)
				a.die(all)
				record := func() leaseRecord {
					rec, err := g.server.lease(resources[0])
					if err != nil {
						t.Fatal(err)
					}
					return rec
				}
				g.until("b takes it", 5*time.Second, resources, func() bool { return record().Owner == b.m.Holder() })
				if !record().Waits {
					t.Error("the record does not tell that b waits")
				}
				end(b, all)
				g.until("c takes it", 5*time.Second, resources, func() bool { return record().Owner == c.m.Holder() })
				if took := g.taken(5*time.Second, resources, c); took < right.Wait-10*time.Millisecond {
					t.Errorf("c waited for %v", took)
				}
				g.until("it is told that nobody need wait", 5*time.Second, resources, func() bool { return !record().Waits })
			})
		})
	}
}

// TestDeposed_AnOwnerThatLeavesIsNotWaitedFor: a lease that was released can be served at once.
func TestDeposed_AnOwnerThatLeavesIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(6)
		a, b := sharing(g, resources, all.deposing)
		a.cancel()
		if took := g.taken(right.Wait-50*time.Millisecond, resources, b); took > 0 {
			t.Logf("all leases were taken after %s", took)
		}
		// Its next process has the lock of the directory, and deposes nobody.
		a = g.start("a", resources, all.deposing)
		g.until("share", 10*time.Second, resources, g.even(resources, a, b))
	})
}

// TestDeposed_WithoutATakeoverTheLeaseIsWaitedFor: what extends the right of the former holder goes on until the lease
// has run out, where nothing refuses it.
func TestDeposed_WithoutATakeoverTheLeaseIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(1)
		var former *Held
		a := g.start("a", resources, func(p *proc, cfg *Config) {
			all.deposing(p, cfg)
			p.work = func(ctx context.Context, h *Held) error {
				former = h
				for ctx.Err() == nil { // nothing fences it off
					h.Progress()
					h.Extend(h.Now())
					sleep(ctx, 50*time.Millisecond)
				}
				return nil
			}
		})
		g.until("hold", 10*time.Second, resources, g.whole(resources))
		settled := make(chan struct{})
		g.start("b", resources, func(p *proc, cfg *Config) {
			all.deposing(p, cfg)
			cfg.StallTimeout = 5 * time.Second // less than the wait
			p.work = idle
			p.settle = func(ctx context.Context, h *Held) error {
				err := h.Settle(ctx, false)
				if err == nil && former.Valid() {
					t.Error("b serves beside a")
				}
				close(settled)
				return err
			}
		})
		g.pass(10*time.Second, resources)
		a.client.Set(func(c *faults) { c.Down = true })
		all.close(a.m.Holder())
		<-settled
	})
}

// TestDeposed_WhoTrustsItsRightForLongerIsWaitedForLonger: it renews its key less often, and that is no silence.
func TestDeposed_WhoTrustsItsRightForLongerIsWaitedForLonger(t *testing.T) {
	t.Parallel()
	for name, trusts := range map[string][2]time.Duration{
		"both": {3 * time.Second, 3 * time.Second}, "one": {10 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, all := newGroup(t), newConnections()
				defer g.stop()
				resources, i := resourceNames(6), 0
				a, b := sharing(g, resources, func(p *proc, cfg *Config) {
					all.deposing(p, cfg)
					cfg.Right.Trust = trusts[i]
					i++
				})
				before := g.runs()
				all.tell(func(_, to string) (presence, bool) { return absent, to == a.m.Holder() || to == b.m.Holder() })
				g.pass(time.Minute, resources)
				if n := g.runs() - before; n != 0 {
					t.Errorf("%d leases changed hands", n)
				}
			})
		})
	}
}

// TestDeposed_NotWhileItBegins: a process announces itself, and is busy with other things for a while before it runs.
func TestDeposed_NotWhileItBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(2)
		g.start("a", resources, all.deposing)
		g.pass(10*time.Second, resources)
		b := g.open("b", resources, all.deposing)
		g.pass(4*time.Second, resources)
		b.begin()
		s := b.m.rights.now()
		g.pass(5*time.Second, resources)
		if b.m.rights.now() != s {
			t.Error("it was deposed before it ran")
		}
	})
}

// TestDeposed_ACopiedDirectory: two processes have one node's name. The later one goes on, and keeps its right.
func TestDeposed_ACopiedDirectory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(3)
		first := g.start("a", resources, all.deposing)
		g.pass(10*time.Second, resources)
		second := g.start("a", resources, all.deposing)
		if err := <-first.done; !errors.Is(err, ErrSuperseded) {
			t.Errorf("the first ended with %v", err)
		}
		first.done <- nil // for stop
		g.taken(10*time.Second, resources, second)
		s, before := second.m.rights.now(), g.runs()
		g.pass(20*time.Second, resources)
		if n := g.runs() - before; n != 0 || second.m.rights.now() != s {
			t.Errorf("%d runs of work more, and the right was made anew: %v", n, second.m.rights.now() != s)
		}
	})
}

// TestRandomFaults_WithRights is TestRandomFaults where processes depose each other.
func TestRandomFaults_WithRights(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := newConnections()
				randomFaults(t, uint64(seed), all)
			})
		})
	}
}

// lie says of a process that nobody is there.
func (c *connections) lie(about string) {
	c.tell(func(_, to string) (presence, bool) { return absent, to == about })
}

// TestIsFallen: a right that was not named rests on nothing, and one that was deposed stays so when its node has another one.
func TestIsFallen(t *testing.T) {
	v := newView("g", false)
	v.noteFallen("a", "1")
	got := []bool{v.isFallen("a", "1"), v.isFallen("a", "2"), v.isFallen("a", ""), v.isFallen("b", ""), v.isFallen("b", "1")}
	if want := []bool{true, false, false, false, false}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, incarnation := range []string{"1", "2", "2", "3", "4", "5"} {
		v.noteFallen("a", incarnation)
	}
	if got := v.fallen["a"]; !slices.Equal(got, []string{"2", "3", "4", "5"}) {
		t.Errorf("%q are remembered", got)
	}
}

// TestDeposed_IsNotWarmWhenItsNodeComesBack: the next incarnation writes the key of its node before others have its record as a
// member. Until then nobody gives up a lease to the one before, which was warm for it, and is no more.
func TestDeposed_IsNotWarmWhenItsNodeComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(6)
		start := func(node string) *proc {
			p := g.start(node, resources, all.deposing)
			p.m.SetCopied(resources)
			return p
		}
		a, b, c := start("a"), start("b"), start("c")
		warm := make(map[string]uint64)
		for _, resource := range resources {
			warm[resource] = 1
		}
		for _, p := range []*proc{a, b, c} { // so that all can move
			p.m.SetWarm(warm)
		}
		g.until("share", 30*time.Second, resources, g.even(resources, a, b, c))
		g.pass(10*time.Second, resources)
		b.die(all)
		g.taken(5*time.Second, resources, a, c)
		for _, p := range []*proc{a, c} {
			p.m.SetWarm(nil)
			miss(p.client, memberKey("g", "b"))
		}
		start("b")
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
			if n := a.count(resources) + c.count(resources); n != len(resources) {
				t.Fatalf("%d of %d leases are held: the others were given up for one that is not there: %s", n, len(resources), g.state(resources))
			}
		}
	})
}
