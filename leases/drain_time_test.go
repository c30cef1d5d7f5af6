package leases

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// copying plays the standbys of stores: a process is warm for what it has not served for a while.
type copying struct {
	*group
	resources []string
	procs     []*proc
	since     map[*proc]map[string]time.Time      // when a copy was begun
	begins    func(p *proc, resource string) bool // whether a copy may be begun; nil: it may
	takes     map[*proc]time.Duration             // how long it takes, if not copyTime

	// Guarded by group.mu.
	warm  map[*proc]map[string]time.Time // when the group was told last
	moved map[string]bool                // given up by a process that lives, and not taken yet
	cold  []string                       // what a process took so that was not warm for it
}

// copyTime is how long it takes to make a copy ready.
const copyTime = 3 * time.Second

func newCopying(t *testing.T, leases int) *copying {
	t.Helper()
	return &copying{
		group: newGroup(t), resources: resourceNames(leases), since: map[*proc]map[string]time.Time{},
		warm: map[*proc]map[string]time.Time{}, moved: map[string]bool{},
	}
}

// start starts a process whose copies are kept, and played.
func (c *copying) start(node string, adjust func(*Config)) *proc {
	c.t.Helper()
	p := c.group.start(node, c.resources, func(p *proc, cfg *Config) {
		p.work = func(ctx context.Context, h *Held) error { return c.work(ctx, p, h) }
		if adjust != nil {
			adjust(cfg)
		}
	})
	p.m.SetCopied(c.resources)
	c.procs = append(c.procs, p)
	c.since[p], c.warm[p] = map[string]time.Time{}, map[string]time.Time{}
	return p
}

func (c *copying) work(ctx context.Context, p *proc, h *Held) error {
	c.mu.Lock()
	if c.moved[h.Resource()] && time.Since(c.warm[p][h.Resource()]) > time.Second {
		c.cold = append(c.cold, h.Resource()+" by "+p.m.Holder())
	}
	delete(c.moved, h.Resource())
	c.mu.Unlock()
	err := idle(ctx, h)
	if errors.Is(err, ErrMoved) {
		c.mu.Lock()
		c.moved[h.Resource()] = true
		c.mu.Unlock()
	}
	return err
}

// end stops a process, or kills it.
func (c *copying) end(p *proc, kill bool) {
	if kill {
		p.kill()
	}
	p.cancel()
	for i := range c.procs {
		if c.procs[i] == p {
			c.procs = append(c.procs[:i:i], c.procs[i+1:]...)
			return
		}
	}
}

// look tells the group what each of the processes is warm for.
func (c *copying) look() {
	for _, p := range c.procs {
		warm, loading := map[string]uint64{}, []string(nil)
		for _, resource := range c.resources {
			since, begun := c.since[p][resource]
			switch {
			case p.m.Has(resource):
				delete(c.since[p], resource)
			case !begun && (c.begins == nil || c.begins(p, resource)):
				c.since[p][resource] = time.Now()
			case !begun:
			case time.Since(since) < cmp.Or(c.takes[p], copyTime):
				loading = append(loading, resource)
			default:
				warm[resource] = 1
				c.mu.Lock()
				c.warm[p][resource] = time.Now()
				c.mu.Unlock()
			}
		}
		p.m.SetWarm(warm)
		p.m.SetLoading(loading)
	}
}

// pass lets time pass. At no moment more than unserved leases are valid nowhere.
func (c *copying) pass(d time.Duration, unserved int) {
	c.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		c.look()
		for range 20 {
			time.Sleep(10 * time.Millisecond)
			c.check(c.resources)
			n := 0
			for _, resource := range c.resources {
				if len(c.valid(resource)) == 0 {
					n++
				}
			}
			if n > unserved {
				c.t.Fatalf("%v: %d leases are valid nowhere: %s", time.Since(c.began), n, c.state(c.resources))
			}
		}
	}
}

// all is any number of leases that may be valid nowhere.
const all = 1 << 30

// counts fails unless the processes hold so many.
func (c *copying) counts(what string, want ...int) {
	c.t.Helper()
	for i, p := range c.procs {
		if got := p.count(c.resources); got != want[i] {
			c.t.Errorf("%s: %s holds %d of %d, want %d: %s", what, p.m.Holder(), got, len(c.resources), want[i], c.state(c.resources))
		}
	}
}

func (c *copying) drain(node string) {
	c.t.Helper()
	if changed, err := drain(c.t.Context(), c.server.Client(), node, "a test"); err != nil || !changed {
		c.t.Fatal(changed, err)
	}
}

func (c *copying) undrain(node string) {
	c.t.Helper()
	if changed, err := undrain(c.t.Context(), c.server.Client(), node); err != nil || !changed {
		c.t.Fatal(changed, err)
	}
}

// stop ends all, and fails if anything moved cold.
func (c *copying) stop() {
	c.t.Helper()
	if len(c.cold) > 0 {
		c.t.Errorf("moved cold: %v", c.cold)
	}
	c.group.stop()
}

// TestRestartsLeaveNothingOnOneNode restarts one of two processes again and again.
func TestRestartsLeaveNothingOnOneNode(t *testing.T) {
	for _, kill := range []bool{false, true} {
		for _, up := range []time.Duration{time.Second, 4 * time.Second, 12 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				c := newCopying(t, 4)
				defer c.stop()
				c.start("a", nil)
				b := c.start("b", nil)
				c.pass(20*time.Second, all)
				for range 4 {
					c.end(b, kill)
					c.pass(2*time.Second, all)
					b = c.start("b", nil)
					c.pass(up, all)
				}
				c.pass(10*time.Second, all)
				c.counts("at last", 2, 2)
			})
		}
	}
}

// TestNothingMovesUntilACopyIsWarm lets a process join that gets its share when it is warm, and not before.
func TestNothingMovesUntilACopyIsWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopying(t, 4)
		defer c.stop()
		a := c.start("a", nil)
		c.pass(time.Second, all)
		c.start("b", nil)
		c.pass(copyTime-time.Second, 0)
		c.counts("cold", 4, 0)
		next := a.m.Group().Next
		if len(next) != 2 || next[c.resources[0]] != "b" {
			t.Errorf("to become warm are %v", next)
		}
		c.pass(5*time.Second, 2)
		c.counts("warm", 2, 2)
		if next := a.m.Group().Next; len(next) != 0 {
			t.Errorf("to become warm are still %v", next)
		}
	})
}

// TestNext_PassesOverWhoDoesNotBecomeWarm drains a process of whose leases no copies are kept but where they are to move
// to. The lightest of the others has no room for any, or takes its time.
func TestNext_PassesOverWhoDoesNotBecomeWarm(t *testing.T) {
	tests := []struct {
		name    string
		room    bool
		loads   time.Duration
		passed  time.Duration
		b, late int // what it has in the end
	}{
		{name: "no room", passed: nextWait + 15*time.Second, late: 6},
		{name: "it loads", room: true, loads: 5 * nextWait, passed: 5*nextWait + 15*time.Second, b: 3, late: 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCopying(t, 6)
				defer c.stop()
				a, late := c.start("a", nil), c.start("c", nil)
				c.pass(20*time.Second, all)
				c.counts("before", 3, 3)
				b := c.start("b", nil)
				c.takes = map[*proc]time.Duration{b: test.loads}
				c.begins = func(p *proc, resource string) bool {
					group := p.m.Group()
					return group != nil && group.Next[resource] == p.m.cfg.Node && (p != b || test.room)
				}
				clear(c.since[a])
				clear(c.since[late])
				c.pass(time.Second, 0)
				c.drain("a")
				c.pass(nextWait-15*time.Second, 0)
				c.counts("while it is waited for", 3, 3, 0)
				c.pass(test.passed-nextWait+15*time.Second, drainMax)
				c.counts("in the end", 0, test.late, test.b)
			})
		})
	}
}

// TestDrain_GivesAllToOthers drains one of three while all serve, and undoes it. The wish outlives the process.
func TestDrain_GivesAllToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopying(t, 60)
		defer c.stop()
		a := c.start("a", nil)
		for _, node := range []string{"b", "c"} {
			c.start(node, nil).client.Set(func(c *faults) { c.Delay = 30 * time.Millisecond })
		}
		c.pass(30*time.Second, all)
		c.counts("before", 20, 20, 20)
		c.drain("a")
		c.pass(3*time.Second, 2*drainMax) // some are taken, and the taker does not know yet
		c.counts("drained", 0, 30, 30)
		rec := c.member("a")
		if !rec.Closed || !rec.Drains {
			t.Errorf("the group is told closed %v, drains %v", rec.Closed, rec.Drains)
		}
		c.end(a, false)
		c.pass(time.Second, 0)
		a = c.start("a", nil)
		c.pass(10*time.Second, 0)
		if n := a.count(c.resources); n != 0 {
			t.Errorf("it holds %d after a restart", n)
		}
		c.end(c.procs[0], true) // b
		c.pass(20*time.Second, all)
		if n := a.count(c.resources); n != 0 {
			t.Errorf("it has taken %d of a process that died, and another lives", n)
		}
		c.undrain("a")
		c.pass(10*time.Second, 30)
		c.counts("undone", 30, 30)
		if rec := c.member("a"); rec.Closed || rec.Drains {
			t.Errorf("the group is still told closed %v, drains %v", rec.Closed, rec.Drains)
		}
	})
}

// TestDrain_KeepsWhatNobodyTakes drains a process that is alone, then one beside another that is not warm, and at last
// the only one is one that drains.
func TestDrain_KeepsWhatNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopying(t, 8)
		defer c.stop()
		a := c.start("a", nil)
		c.pass(time.Second, all)
		c.drain("a")
		c.pass(20*time.Second, 0)
		c.counts("alone", 8)
		b := c.start("b", nil)
		c.pass(copyTime-time.Second, 0)
		c.counts("beside a cold one", 8, 0)
		if !b.m.Group().Takes("a", c.resources[0]) {
			t.Error("who drains would not take what nobody else could do anything with")
		}
		c.pass(5*time.Second, drainMax)
		c.counts("beside a warm one", 0, 8)
		c.end(b, false)
		c.pass(2*time.Second, all)
		c.counts("alone again", 8)
		c.end(a, false)
		c.pass(2*time.Second, all)
		c.start("a", nil)
		c.pass(time.Second, all)
		c.counts("alone after a restart", 8)
		if rec := c.member("a"); !rec.Closed || !rec.Drains {
			t.Errorf("the group is told closed %v, drains %v", rec.Closed, rec.Drains)
		}
		c.pass(20*time.Second, 0)
	})
}

// TestDrain_WithoutCopies: leases of workers move at once.
func TestDrain_WithoutCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(8)
		a, b := g.start("a", resources, nil), g.start("b", resources, nil)
		g.until("share", time.Minute, resources, g.even(resources, a, b))
		if _, err := drain(t.Context(), a.client, "a", "a test"); err != nil {
			t.Fatal(err)
		}
		g.until("drain", 2*time.Second, resources, func() bool { return b.count(resources) == 8 })
	})
}

// TestDrain_LeavesTheNextHolderTimeToLoad drains a process whose leases are served only when their next holder has loaded
// what it needs: a few of them are on the way at any moment.
func TestDrain_LeavesTheNextHolderTimeToLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(16)
		var loading, most int // guarded by g.mu
		count := func(n int) {
			g.mu.Lock()
			defer g.mu.Unlock()
			loading += n
			most = max(most, loading)
		}
		start := func(node string, load time.Duration) *proc {
			return g.start(node, resources, func(p *proc, _ *Config) {
				p.work = func(ctx context.Context, h *Held) error {
					count(1)
					for end := time.Now().Add(load); time.Now().Before(end) && ctx.Err() == nil; h.Progress() {
						sleep(ctx, 100*time.Millisecond)
					}
					err := h.Use(ctx)
					count(-1)
					if err != nil {
						return err
					}
					return idle(ctx, h)
				}
			})
		}
		a := start("a", 0)
		g.until("hold", time.Minute, resources, g.whole(resources))
		if _, err := drain(t.Context(), a.client, "a", "a test"); err != nil {
			t.Fatal(err)
		}
		g.pass(time.Second, resources)
		g.mu.Lock()
		most = 0
		g.mu.Unlock()
		b := start("b", 5*time.Second)
		g.until("drain", time.Minute, resources, func() bool { return a.count(resources) == 0 })
		g.until("take", time.Second, resources, func() bool { return b.count(resources) == len(resources) })
		g.mu.Lock()
		defer g.mu.Unlock()
		if most == 0 || most > drainMax {
			t.Errorf("%d leases were loaded at once, want at most %d", most, drainMax)
		}
	})
}

// TestDrain_OfANodeWithoutADirectory ends with its process, for no other will have its name.
func TestDrain_OfANodeWithoutADirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCopying(t, 1)
		defer c.stop()
		a := c.start("a", func(cfg *Config) { cfg.NodeLocked = false })
		c.pass(time.Second, all)
		c.drain(a.m.cfg.Node)
		c.pass(time.Second, all)
		c.end(a, false)
		time.Sleep(time.Second)
		if e := c.server.State().Keys[drainKey(a.m.cfg.Node)]; e.Key == "" || !e.Deleted {
			t.Errorf("the wish is still there: %+v", e)
		}
	})
}

// TestDrain_IsWrittenOnce: who drains a node that drains, or undoes what was not done, changes nothing.
func TestDrain_IsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t).Client()
		for i, want := range []bool{true, false} {
			if changed, err := drain(t.Context(), s, "a.b", "x"); changed != want || err != nil {
				t.Errorf("drain %d: %v, %v", i, changed, err)
			}
		}
		if _, err := s.Get(t.Context(), "drain.a=2Eb"); err != nil {
			t.Error(err)
		}
		for i, want := range []bool{true, false} {
			if changed, err := undrain(t.Context(), s, "a.b"); changed != want || err != nil {
				t.Errorf("undrain %d: %v, %v", i, changed, err)
			}
		}
	})
}

// member returns what is stored of a member.
func (g *group) member(node string) memberRecord {
	g.t.Helper()
	rec, err := decodeMember("", g.server.State().Keys[memberKey("g", node)].Value)
	if err != nil {
		g.t.Fatal(err)
	}
	return *rec
}
