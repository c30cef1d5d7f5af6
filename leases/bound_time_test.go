package leases

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errUnfit = errors.New("it is left to the node that used it last")

// TestBound_GoesToWhoUsedItLastAndStays has three processes, of which the one with most uses a lease, until something is
// lost: then no other can do anything with it. The lease moves away once, as nothing is known of that yet, comes back and
// stays.
func TestBound_GoesToWhoUsedItLastAndStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := []string{"heavy", "r"}
		var lost atomic.Bool
		var refused atomic.Int64
		work := func(p *proc, cfg *Config) {
			cfg.WeightInterval = time.Second
			p.work = func(ctx context.Context, h *Held) error {
				user, _ := h.User()
				switch {
				case h.Resource() == "heavy":
					return idle(ctx, h)
				case !lost.Load():
					if err := h.Use(ctx); err != nil {
						return err
					}
					return idle(ctx, h)
				case user == p.m.cfg.Node:
					h.Bind(true)
					return idle(ctx, h)
				}
				refused.Add(1)
				h.Bind(true)
				for !p.m.Group().Takes(user, h.Resource()) {
					sleep(ctx, 50*time.Millisecond)
					if ctx.Err() != nil {
						return nil //nolint:nilerr // it was told to end
					}
				}
				return errUnfit
			}
		}
		start := func(node string) *proc {
			p := g.start(node, resources, work)
			p.m.SetResources(resources, map[string]float64{"heavy": 8})
			return p
		}
		a := start("a")
		g.until("a uses it, and has most", time.Minute, resources, func() bool {
			heavy, err1 := g.server.lease("heavy")
			r, err2 := g.server.lease("r")
			return err1 == nil && err2 == nil && heavy.Weight == 8 && r.Used.Node == "a"
		})
		lost.Store(true)
		start("b")
		start("c")
		g.until("it came back", time.Minute, resources, func() bool {
			rec, err := g.server.lease("r")
			return err == nil && rec.Epoch > 1 && rec.Bound && a.count([]string{"r"}) == 1
		})
		there, err := g.server.lease("r")
		if err != nil || refused.Load() != 1 {
			t.Errorf("%d others took it before, %v", refused.Load(), err)
		}
		g.pass(5*time.Minute, resources)
		if rec, err := g.server.lease("r"); err != nil || rec.Epoch != there.Epoch || a.count(resources) != 2 {
			t.Errorf("it was in epoch %d, and did not stay: %v%s", there.Epoch, err, g.state(resources))
		}
		// It is bound to a when a starts anew, too: whoever has it meanwhile leaves it again.
		a.kill()
		g.forget(a)
		g.until("another has it", time.Minute, resources, func() bool {
			rec, err := g.server.lease("r")
			return err == nil && rec.Epoch > there.Epoch && len(g.valid("r")) == 1
		})
		a = start("a")
		g.until("it came back once more", time.Minute, resources, func() bool { return a.count([]string{"r"}) == 1 })
		back, err := g.server.lease("r")
		g.pass(5*time.Minute, resources)
		if rec, again := g.server.lease("r"); err != nil || again != nil || rec.Epoch != back.Epoch || refused.Load() != 2 {
			t.Errorf("it did not stay, and others took it %d times: %v, %v%s", refused.Load(), err, again, g.state(resources))
		}
		// What was lost is there again, and it is used: it may move as any other.
		for _, p := range g.valid("r") {
			p.with("r", func(h *Held) {
				if err := h.Use(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		g.until("it is bound no more", time.Minute, resources, func() bool {
			rec, err := g.server.lease("r")
			return err == nil && !rec.Bound
		})
	})
}

// with calls work with what p holds of a resource.
func (p *proc) with(resource string, work func(h *Held)) {
	p.g.mu.Lock()
	var all []*Held
	for h, holder := range p.g.held[resource] {
		if holder == p {
			all = append(all, h)
		}
	}
	p.g.mu.Unlock()
	for _, h := range all {
		work(h)
	}
}

// TestGroup_WhoTakesALease tells those who live from those who would take it.
func TestGroup_WhoTakesALease(t *testing.T) {
	g := &Group{
		Nodes: []string{"a", "b", "c"},
		members: []Member{
			{Holder: "a/1"}, {Holder: "b/1", Closed: true}, {Holder: "c/1", Declines: []string{"q", "r"}},
		},
	}
	for node, want := range map[string]bool{"a": true, "b": false, "c": false, "d": false, "": false} {
		if got := g.Takes(node, "r"); got != want {
			t.Errorf("%q takes it: %t", node, got)
		}
	}
	if !g.Takes("c", "s") {
		t.Error("c takes what it does not decline")
	}
}
