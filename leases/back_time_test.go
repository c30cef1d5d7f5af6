package leases

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/integration/raced"
	"github.com/millrace/millrace/leases/bucket"
)

// settled reports whether each resource is held as its stored record says.
func (g *group) settled(resources []string) func() bool {
	return func() bool {
		for _, resource := range resources {
			rec, err := g.server.lease(resource)
			valid := g.valid(resource)
			if err != nil || len(valid) != 1 || rec.Owner != valid[0].m.Holder() {
				return false
			}
		}
		return true
	}
}

// TestTheBucketGoesBack restores an earlier state of the bucket while processes hold leases. Their watches stay silent
// until the revisions are greater than before. All leases are held again, in epochs that grow, and the group works as
// before.
func TestTheBucketGoesBack(t *testing.T) {
	tests := []struct {
		name string
		// before returns the state that comes back. b and c start behind it.
		before func(g *group, a *proc, resources []string) *fakeState
	}{
		{"to before the group", func(*group, *proc, []string) *fakeState {
			return &fakeState{Keys: map[string]bucket.Entry{}}
		}},
		{"to when one had all", func(g *group, _ *proc, resources []string) *fakeState {
			g.pass(5*time.Second, resources)
			return g.server.State()
		}},
		{"to when all were free", func(g *group, a *proc, resources []string) *fakeState {
			a.m.SetResources(nil, nil)
			g.pass(time.Second, resources)
			then := g.server.State()
			a.m.SetResources(resources, nil)
			return then
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t)
				defer g.stop()
				resources := resourceNames(6)
				a := g.start("a", resources, nil)
				g.until("hold", time.Second, resources, g.whole(resources))
				then := test.before(g, a, resources)
				b, c := g.start("b", resources, nil), g.start("c", resources, nil)
				g.until("share", 10*time.Second, resources, g.even(resources, a, b, c))
				g.pass(time.Minute, resources)
				goBackAndSettle(g, then, resources, a, b, c)
			})
		})
	}
	t.Run("by some renewals", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t)
			defer g.stop()
			resources := resourceNames(6)
			a, b, c := g.start("a", resources, nil), g.start("b", resources, nil), g.start("c", resources, nil)
			g.until("share", 10*time.Second, resources, g.even(resources, a, b, c))
			g.pass(time.Minute, resources)
			then := g.server.State()
			g.pass(time.Second, resources)
			goBackAndSettle(g, then, resources, a, b, c)
		})
	})
}

// goBackAndSettle restores a state, and requires that the processes share the leases as the records say, and hand over
// at once.
func goBackAndSettle(g *group, then *fakeState, resources []string, a, b, c *proc) {
	g.t.Helper()
	g.server.GoBack(then)
	g.pass(2*DefaultTTL, resources)
	g.until("hold again", DefaultTTL, resources, g.settled(resources))
	g.until("share again", time.Minute, resources, g.even(resources, a, b, c))
	g.pass(time.Minute, resources)
	runs := g.runs()
	g.pass(time.Minute, resources)
	if n := g.runs() - runs; n != 0 || !g.settled(resources)() {
		g.t.Errorf("%d runs of work begun at rest: %s", n, g.state(resources))
	}
	a.cancel()
	g.until("hand over", 2*time.Second, resources, g.even(resources, b, c))
}

// TestTheBucketGoesBack_NothingIsTakenThatAnotherMayTrust restores a state in which a lease is free that a process
// holds. The holder is cut off and does not hear of it. Another, which knows that the lease was held, leaves it alone
// until the holder trusts it no more, though its new watch shows it free.
func TestTheBucketGoesBack_NothingIsTakenThatAnotherMayTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(3)
		c := g.start("c", nil, nil)
		empty := g.server.State()
		b := g.start("b", resources, nil)
		c.m.SetResources(resources, nil)
		g.until("share", 10*time.Second, resources, g.even(resources, b, c))
		g.pass(10*time.Second, resources)
		g.server.GoBack(empty)
		b.client.Set(func(cl *faults) { cl.Down = true })
		breakWatches(c.client)
		g.until("take what the other does not trust any more", 3*DefaultTTL, resources, func() bool { return c.count(resources) == 3 })
		b.client.Set(func(cl *faults) { cl.Down = false })
		g.until("share again", time.Minute, resources, g.even(resources, b, c))
	})
}

// TestAWatchThatBeginsLateIsNoBucketThatWentBack opens a watch at a replica that lags. What is free is taken at once.
func TestAWatchThatBeginsLateIsNoBucketThatWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(4)
		a, b := g.start("a", resources, nil), g.start("b", resources, nil)
		g.until("share", 10*time.Second, resources, g.even(resources, a, b))
		g.pass(10*time.Second, resources)
		then := g.server.State()
		g.pass(5*time.Second, resources)
		b.client.Set(func(cl *faults) { cl.Late = then })
		breakWatches(b.client)
		g.pass(time.Second, resources)
		a.cancel()
		g.until("hand over", 2*time.Second, resources, func() bool { return b.count(resources) == 4 })
	})
}

// TestARefusalThatTheWatchDoesNotExplain has a watch that misses what was written between two revisions, as one does
// after the bucket went back by less than others have written since. The lease that was freed meanwhile is taken.
func TestARefusalThatTheWatchDoesNotExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(4)
		a, b := g.start("a", resources, nil), g.start("b", resources, nil)
		g.until("share", 10*time.Second, resources, g.even(resources, a, b))
		g.pass(10*time.Second, resources)
		miss(b.client, leasePrefix)
		a.cancel()
		g.pass(time.Second, resources)
		miss(b.client, "")
		g.until("take what was freed", 2*DefaultTTL, resources, func() bool { return b.count(resources) == 4 })
	})
}

// TestTheBucketGoesBack_AtRandom lets the bucket go back again and again, while watches break, replies are lost and
// leases move. All processes live on, so they know of the lost part. No two of them may act on one resource, no epoch
// may come twice, and in the end the group must come to rest whole and even.
func TestTheBucketGoesBack_AtRandom(t *testing.T) {
	for seed := range raced.Rounds(2, 6) {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { goBackAtRandom(t, uint64(seed)) })
		})
	}
}

func goBackAtRandom(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 13))
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	g := newGroup(t)
	defer g.stop()
	resources := resourceNames(1 + r.IntN(8))
	all := []*proc{g.start("a", resources, nil), g.start("b", resources, nil), g.start("c", resources, nil)}
	g.pass(10*time.Second, resources)
	states := []*fakeState{g.server.State()}
	for range 30 {
		p := all[r.IntN(len(all))]
		switch r.IntN(6) {
		case 0:
			i := r.IntN(len(states))
			g.server.GoBack(states[i])
			states = states[:i+1] // later ones are of a past that is gone
			for _, p := range all {
				if r.IntN(4) == 0 {
					breakWatches(p.client)
				}
			}
		case 1:
			p.client.Set(func(c *faults) { c.Lose = r.IntN(4) })
		case 2:
			breakWatches(p.client)
		case 3:
			p.m.SetResources(nil, nil)
			g.pass(upTo(2*time.Second), resources)
			p.m.SetResources(resources, nil)
		}
		g.pass(upTo(6*time.Second), resources)
		if r.IntN(2) == 0 {
			states = append(states, g.server.State())
		}
	}
	g.pass(3*DefaultTTL, resources)
	g.until("be whole", DefaultTTL, resources, g.settled(resources))
	g.until("be even", time.Minute, resources, g.even(resources, all...))
	g.pass(40*time.Second, resources) // what slow members are denied ends in this time
	runs := g.runs()
	g.pass(time.Minute, resources)
	if n := g.runs() - runs; n != 0 {
		t.Errorf("%d runs of work begun at rest", n)
	}
}
