package leases

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// connections are which holders have a connection, for tests under synctest.
type connections struct {
	mu      sync.Mutex
	open    map[string]bool
	answers func(from, to string) (presence, bool) // what one is told in place of the truth, if true
	asked   int
}

func newConnections() *connections { return &connections{open: map[string]bool{}} }

// proberOf is one process's way to ask.
type proberOf struct {
	c    *connections
	p    *proc
	self string
}

func (o *proberOf) answer(holder string) (end func(), err error) {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	o.self = holder
	o.c.open[holder] = true
	return func() { o.c.close(holder) }, nil
}

func (o *proberOf) ask(ctx context.Context, holder string) presence {
	if err := o.p.client.Travel(ctx); err != nil {
		return unknown
	}
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	o.c.asked++
	if o.c.answers != nil {
		if is, told := o.c.answers(o.self, holder); told {
			return is
		}
	}
	if o.c.open[holder] {
		return present
	}
	return absent
}

func (o *proberOf) reconnected() bool { return false }

func (c *connections) close(holder string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, holder)
}

func (c *connections) tell(answers func(from, to string) (presence, bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = answers
}

// of lets a process ask by c, and its group be fenced.
func (c *connections) of(p *proc, cfg *Config) {
	cfg.Fenced, cfg.prober = true, &proberOf{c: c, p: p}
}

// sharing starts two processes and waits until they share the resources, and may judge each other.
func sharing(g *group, resources []string, adjust func(p *proc, cfg *Config)) (a, b *proc) {
	g.t.Helper()
	a, b = g.start("a", resources, adjust), g.start("b", resources, adjust)
	g.until("share", 10*time.Second, resources, g.even(resources, a, b))
	g.pass(10*time.Second, resources)
	return a, b
}

// die kills a process with its connection.
func (p *proc) die(c *connections) {
	p.kill()
	c.close(p.m.Holder())
}

// TestGone_LeasesOfADeadProcessAreTakenSoon: where work is fenced, the leases of a process that has died are taken long
// before they expire, also where one of the two that ask for it has died with it.
func TestGone_LeasesOfADeadProcessAreTakenSoon(t *testing.T) {
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
					procs = append(procs, g.start(string(rune('a'+i)), resources, all.of))
				}
				g.until("share", 10*time.Second, resources, g.even(resources, procs...))
				g.pass(10*time.Second, resources) // until each may judge
				for _, p := range procs[:c.die] {
					p.die(all)
				}
				// Half a second until the first question, two pauses, and the grace.
				took := g.until("take", 1600*time.Millisecond, nil, func() bool {
					n := 0
					for _, p := range procs[c.die:] {
						n += p.count(resources)
					}
					return n == len(resources)
				})
				t.Logf("all leases were taken after %s", took)
			})
		})
	}
}

// TestGone_WhoRunsIsNotGone: neither a process that does not answer, because it is slow or was stopped, nor one of an
// earlier release, which does not know the question, nor one of which only some say that it is absent for a moment, counts as gone.
func TestGone_WhoRunsIsNotGone(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]func(n int) presence{
		"it does not answer": func(int) presence { return unknown },
		"now and then":       func(n int) presence { return []presence{absent, absent, present}[n%3] },
		"not for certain":    func(n int) presence { return []presence{absent, absent, unknown}[n%3] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, all := newGroup(t), newConnections()
				defer g.stop()
				resources := resourceNames(8)
				sharing(g, resources, all.of)
				runs := g.runs()
				asked := map[string]int{}
				all.tell(func(_, to string) (presence, bool) {
					asked[to]++
					return answers(asked[to]), true
				})
				g.pass(time.Minute, resources)
				all.tell(nil)
				if g.runs() != runs {
					t.Errorf("%d leases moved", g.runs()-runs)
				}
				if len(asked) != 2 {
					t.Errorf("asked were %v", asked)
				}
			})
		})
	}
	t.Run("earlier release", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			g, all := newGroup(t), newConnections()
			defer g.stop()
			resources := resourceNames(8)
			a, b := g.start("a", resources, all.of), g.start("b", resources, nil)
			g.until("share", 10*time.Second, resources, g.even(resources, a, b))
			runs := g.runs()
			g.pass(time.Minute, resources)
			if g.runs() != runs || all.asked != 0 {
				t.Errorf("%d leases moved, and it was asked %d times", g.runs()-runs, all.asked)
			}
		})
	})
}

// TestGone_WhoIsWrongedTakesItBack: where there is no way from one to the other, but both reach the bucket, each says of the
// other that it seems to be gone, once. Both take it back, and no lease moves.
func TestGone_WhoIsWrongedTakesItBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(8)
		sharing(g, resources, all.of)
		runs, puts := g.runs(), g.server.Puts()
		g.pass(time.Minute, resources)
		puts = g.server.Puts() - puts // of a minute in which nothing is wrong
		before := g.server.Puts()
		all.tell(func(_, _ string) (presence, bool) { return absent, true })
		g.pass(time.Minute, resources)
		if g.runs() != runs {
			t.Errorf("%d leases moved", g.runs()-runs)
		}
		if more := g.server.Puts() - before - puts; more <= 0 || more > puts/4 {
			t.Errorf("%d records were written in a minute more than the %d of another one", more, puts)
		}
	})
}

// TestGone_WhoCannotTakeItBackLosesItsLeases: a process that counts as gone, is not, and cannot reach the bucket loses its
// leases in greater epochs. When it reaches the bucket again it says that it is there, and gets its share again.
func TestGone_WhoCannotTakeItBackLosesItsLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(8)
		a, b := sharing(g, resources, all.of)
		a.client.Set(func(c *faults) { c.Down = true })
		all.tell(func(_, to string) (presence, bool) { return absent, to == a.m.Holder() })
		g.until("b takes all", 3*time.Second, nil, func() bool { return b.count(resources) == len(resources) })
		a.client.Set(func(c *faults) { c.Down = false })
		all.tell(nil)
		// Two may work for a moment, which is what Fenced is for; it is over when a has heard of it.
		time.Sleep(3 * time.Second)
		g.until("share again", 10*time.Second, resources, g.even(resources, a, b))
		var rec memberRecord
		value := g.server.Get(memberKey("g", "a")).Value
		if err := json.Unmarshal(value, &rec); err != nil || rec.Gone != "" {
			t.Errorf("its record is %s, %v", value, err)
		}
	})
}

// TestGone_OnlyWhereWorkIsFenced: where work rests on the lease alone, nobody takes the lease of a process that is gone before
// it has expired.
func TestGone_OnlyWhereWorkIsFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(8)
		plain := func(p *proc, cfg *Config) {
			all.of(p, cfg)
			cfg.Fenced = false
		}
		a, b := sharing(g, resources, plain)
		a.die(all)
		begun := time.Now()
		g.until("take", 15*time.Second, resources, func() bool { return b.count(resources) == len(resources) })
		if took := time.Since(begun); took < DefaultTTL-DefaultTTL*2/7 {
			t.Errorf("they were taken after %s", took)
		}
	})
}

// TestGone_NobodyJudgesWhoCannotReachTheBucket: after an outage of the bucket, in which all connections broke, those who are
// back first do not take the leases of those who are back a moment later.
func TestGone_NobodyJudgesWhoCannotReachTheBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(8)
		long := func(p *proc, cfg *Config) { // no lease is lost by the outage alone
			all.of(p, cfg)
			cfg.TTL, cfg.RenewInterval = 30*time.Second, 2*time.Second
		}
		a, b := sharing(g, resources, long)
		runs := g.runs()
		for _, p := range []*proc{a, b} {
			p.client.Set(func(c *faults) { c.Down = true })
		}
		all.tell(func(_, to string) (presence, bool) { return absent, to == a.m.Holder() })
		time.Sleep(5 * time.Second)
		b.client.Set(func(c *faults) { c.Down = false })
		time.Sleep(1500 * time.Millisecond)
		a.client.Set(func(c *faults) { c.Down = false })
		all.tell(nil)
		g.pass(20*time.Second, resources)
		if g.runs() != runs {
			t.Errorf("%d leases moved", g.runs()-runs)
		}
	})
}

// TestGone_IsSaidAgainWhereItCouldNotBeWritten: the leaders of the bucket change at the moment in which a worker dies.
func TestGone_IsSaidAgainWhereItCouldNotBeWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(8)
		long := func(p *proc, cfg *Config) {
			all.of(p, cfg)
			cfg.TTL, cfg.RenewInterval = time.Minute, 2*time.Second
		}
		a, b := sharing(g, resources, long)
		a.die(all)
		b.client.Set(func(c *faults) { c.Down = true })
		time.Sleep(2 * time.Second) // in which b counts what it needs, and its first word is lost
		b.client.Set(func(c *faults) { c.Down = false })
		g.until("take", 15*time.Second, nil, func() bool { return b.count(resources) == len(resources) })
	})
}

// TestGone_IsTakenBackThoughItCameInASnapshot: a process whose watch was made anew finds in its first entries that it seems to
// be gone.
func TestGone_IsTakenBackThoughItCameInASnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(8)
		a, _ := sharing(g, resources, all.of)
		gone := func() bool {
			var rec memberRecord
			return json.Unmarshal(g.server.Get(memberKey("g", "a")).Value, &rec) == nil && rec.Gone != ""
		}
		runs, seen := g.runs(), 0
		for range 20 {
			all.tell(nil)
			g.pass(3*time.Second, resources)
			a.client.Set(func(c *faults) { c.Mute = true })
			all.tell(func(_, to string) (presence, bool) { return absent, to == a.m.Holder() })
			for range 400 {
				if time.Sleep(5 * time.Millisecond); gone() {
					seen++
					break
				}
			}
			breakWatches(a.client)
			a.client.Set(func(c *faults) { c.Mute = false })
		}
		if seen < 10 {
			t.Errorf("it seemed to be gone %d times of 20", seen)
		}
		g.pass(10*time.Second, resources)
		if g.runs() != runs {
			t.Errorf("%d leases moved", g.runs()-runs)
		}
	})
}

// TestConnection_CountsFromWhenItWasMade: what was made anew long ago has lasted, whenever it is looked at.
func TestConnection_CountsFromWhenItWasMade(t *testing.T) {
	t.Parallel()
	var c connection
	begun := time.Now()
	for i, look := range []struct {
		after      time.Duration
		reconnects uint64
		connected  bool
		settled    bool
	}{
		{0, 0, true, false},
		{settleTime - 1, 0, true, false},
		{settleTime, 0, true, true},
		{time.Hour, 0, true, true},
		{time.Hour + 1, 1, true, false}, // it broke, and was made anew
		{time.Hour + settleTime, 1, true, false},
		{time.Hour + 2*settleTime, 1, true, true},
		{time.Hour + 3*settleTime, 1, false, false},
		{time.Hour + 4*settleTime, 1, true, true},
	} {
		if is := c.note(look.reconnects, look.connected, begun.Add(look.after)); is != look.settled {
			t.Errorf("look %d: settled %t", i, is)
		}
	}
}
