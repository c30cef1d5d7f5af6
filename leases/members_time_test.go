package leases

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRecordsOfLockedNodesGoAfterADay ends a process whose node is locked. Its record stays for a day, whether anybody
// looked at it meanwhile or not, and goes then: a fleet whose nodes get new names leaves no records for ever. The same
// node starts again as if it were new.
func TestRecordsOfLockedNodesGoAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, all := newGroup(t), newConnections()
		defer g.stop()
		resources := resourceNames(4)
		known := func() bool {
			e, ok := g.server.State().Keys[memberKey("g", "a")]
			return ok && !e.Deleted
		}
		right := func() bool {
			e, ok := g.server.State().Keys["node.g.a"]
			return ok && !e.Deleted
		}
		end := func(p *proc) {
			p.cancel()
			if err := <-p.done; err != nil {
				t.Errorf("Run: %v", err)
			}
			p.done <- nil // for stop
		}
		a := g.start("a", resources, all.deposing)
		g.until("hold", time.Second, resources, g.whole(resources))
		end(a)
		time.Sleep(23 * time.Hour)
		b := g.start("b", resources, all.deposing)
		g.pass(3*time.Minute, resources)
		if !known() || !right() {
			t.Error("the record was removed within a day")
		}
		end(b)
		time.Sleep(time.Hour)
		b = g.start("b", resources, all.deposing)
		g.until("remove the record", 12*DefaultTTL, resources, func() bool { return !known() && !right() })
		again := g.start("a", resources, all.deposing)
		g.until("share", 10*time.Second, resources, g.even(resources, again, b))
		g.pass(3*time.Minute, resources)
		if !known() || !right() {
			t.Error("the record of a process that lives was removed")
		}
	})
}

// TestALockedNodeThatWasAwayForADay cuts a process off for more than a day. Its record is removed meanwhile, and it
// announces itself with the next beat that arrives.
func TestALockedNodeThatWasAwayForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(4)
		a := g.start("a", resources, nil)
		b := g.start("b", resources, nil)
		g.until("share", 10*time.Second, resources, g.even(resources, a, b))
		b.client.Set(func(c *faults) { c.Down = true })
		g.pass(3*time.Minute, resources)
		e := g.server.Get(memberKey("g", "b"))
		e.Created = e.Created.Add(-24 * time.Hour) // as if it had been written a day earlier
		g.server.Set(e)
		breakWatches(a.client)
		g.until("remove the record", 10*time.Second, resources, func() bool { return g.server.State().Keys[e.Key].Deleted })
		b.client.Set(func(c *faults) { c.Down = false })
		g.until("share again", time.Minute, resources, g.even(resources, a, b))
	})
}
