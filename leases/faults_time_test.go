package leases

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/integration/raced"
)

// TestLostReplies loses the reply to a write of each kind: what was stored is
// found to be our own and nothing begins anew.
func TestLostReplies(t *testing.T) {
	tests := []struct {
		name string
		do   func(g *group, p *proc, h *Held)
	}{
		{"renewal", func(g *group, p *proc, _ *Held) {
			p.client.Set(func(c *faults) { c.Lose = 4 }) // beats among them
			g.pass(10*time.Second, []string{"r"})
		}},
		{"checkpoint", func(g *group, p *proc, h *Held) {
			p.client.Set(func(c *faults) { c.Lose = 2 })
			if err := h.Save(g.t.Context(), []byte("saved")); err != nil {
				g.t.Errorf("Save: %v", err)
			}
			if got := string(h.Checkpoint()); got != "saved" {
				g.t.Errorf("checkpoint %q", got)
			}
		}},
		{"checkpoint given up", func(g *group, p *proc, h *Held) {
			p.client.Set(func(c *faults) { c.Lose = 1 })
			ctx, cancel := context.WithTimeout(g.t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := h.Save(ctx, []byte("saved")); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrLost) {
				g.t.Errorf("Save: %v, want the outcome unknown", err)
			}
			g.pass(5*time.Second, []string{"r"})
			if got := string(h.Checkpoint()); got != "saved" {
				g.t.Errorf("checkpoint %q, want what the renewal found stored", got)
			}
		}},
		{"late renewal", func(g *group, p *proc, _ *Held) {
			p.client.Set(func(c *faults) { c.Delay = 1500 * time.Millisecond }) // each try takes longer than it may
			g.pass(2*time.Second, []string{"r"})
			p.client.Set(func(c *faults) { c.Delay = 0 })
			g.pass(10*time.Second, []string{"r"})
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t)
				defer g.stop()
				held := make(chan *Held, 9)
				p := g.start("a", []string{"r"}, func(p *proc, _ *Config) {
					p.work = func(ctx context.Context, h *Held) error { held <- h; return idle(ctx, h) }
				})
				h := <-held
				g.pass(5*time.Second, []string{"r"})
				test.do(g, p, h)
				g.pass(10*time.Second, []string{"r"})
				if !h.Valid() || h.Epoch() != 1 || g.runs() != 1 {
					t.Errorf("valid %v, %d runs of work: %s", h.Valid(), g.runs(), g.state([]string{"r"}))
				}
			})
		})
	}
}

// TestLostReplyToTaking begins the work once, in the epoch that was stored.
func TestLostReplyToTaking(t *testing.T) {
	for _, lose := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t)
			defer g.stop()
			resources := resourceNames(3)
			g.start("a", resources, func(p *proc, _ *Config) {
				p.client.Set(func(f *faults) {
					f.Put = func(key string) {
						if strings.HasPrefix(key, leasePrefix) && lose > 0 {
							lose--
							p.client.Set(func(f *faults) { f.Lose++ }) // for the next, which is likely a lease's too
						}
					}
				})
			})
			g.until("hold", 15*time.Second, resources, g.whole(resources))
			g.pass(10*time.Second, resources)
			for _, resource := range resources {
				rec, err := g.server.lease(resource)
				if valid := g.valid(resource); err != nil || len(valid) != 1 || rec.Owner != valid[0].m.Holder() {
					t.Errorf("%s: %+v, %v", resource, rec, err)
				}
			}
			if g.runs() != 3 {
				t.Errorf("%d runs of work, want 3", g.runs())
			}
		})
	}
}

// TestLostReplyToReleasing hands over in time all the same.
func TestLostReplyToReleasing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(2)
		a := g.start("a", resources, nil)
		g.until("hold", time.Second, resources, g.whole(resources))
		b := g.start("b", resources, nil)
		g.until("share", 5*time.Second, resources, g.even(resources, a, b))
		g.pass(5*time.Second, resources)
		a.client.Set(func(c *faults) { c.Lose = 2 })
		a.cancel()
		if took := g.until("hand over", 5*time.Second, resources, func() bool { return b.count(resources) == 2 }); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// TestSilentWatchIsMadeAnew has a watch that delivers nothing though it lives.
func TestSilentWatchIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(2)
		a := g.start("a", resources, nil)
		g.until("hold", time.Second, resources, g.whole(resources))
		b := g.start("b", resources, nil)
		g.until("share", 5*time.Second, resources, g.even(resources, a, b))
		g.pass(5*time.Second, resources)

		b.client.Set(func(c *faults) { c.Mute = true })
		g.pass(20*time.Second, resources)
		if n := b.count(resources); n != 1 {
			t.Errorf("holds %d leases without news of others, want its 1", n)
		}
		b.client.Set(func(c *faults) { c.Mute = false })
		g.pass(5*time.Second, resources)

		deafen(b.client)
		a.cancel()
		g.until("hand over", 6*time.Second, resources, func() bool { return b.count(resources) == 2 })
	})
}

// TestNewWatchKeepsWhatWasSeen makes the watch anew after a holder died: the
// time that its lease was seen unchanged goes on.
func TestNewWatchKeepsWhatWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(2)
		a := g.start("a", resources, nil)
		b := g.start("b", resources, nil)
		g.until("share", 5*time.Second, resources, g.even(resources, a, b))
		g.pass(5*time.Second, resources)
		a.kill()
		deafen(b.client)
		g.until("pass on", 9*time.Second, resources, func() bool { return b.count(resources) == 2 })
	})
}

// TestNothingIsTrustedAfterRelease keeps a Held beyond its work.
func TestNothingIsTrustedAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		kept := make(chan *Held, 1)
		enough := make(chan struct{})
		a := g.start("a", []string{"r"}, func(p *proc, _ *Config) {
			p.work = func(_ context.Context, h *Held) error { kept <- h; <-enough; return errors.New("enough") }
			p.client.Set(func(f *faults) {
				f.Put = func(key string) {
					select {
					case <-enough: // the release
						h := <-kept
						if key == leaseKey("g", "r") && h.Epoch() == 1 && (h.Valid() || h.Trust().Err() == nil) {
							t.Error("trusted while the release is on its way")
						}
						kept <- h
					default:
					}
				}
			})
		})
		g.until("hold", time.Second, []string{"r"}, func() bool { return a.count([]string{"r"}) == 1 })
		time.Sleep(10 * time.Millisecond)
		close(enough)
		time.Sleep(100 * time.Millisecond)
		a.cancel()
		h := <-kept
		kept <- h
		h.extend(h.clock()) // a renewal whose reply comes last
		if h.Valid() {
			t.Error("trusted again by a late reply")
		}
		if err := h.Save(t.Context(), nil); !errors.Is(err, ErrLost) {
			t.Errorf("Save: %v", err)
		}
	})
}

// TestUnreachableBucket cuts everybody off for a while. Nobody trusts a lease for
// longer than it lasts; afterwards each node gets what it had.
func TestUnreachableBucket(t *testing.T) {
	for _, outage := range []time.Duration{3 * time.Second, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t)
			defer g.stop()
			resources := resourceNames(12)
			procs := []*proc{g.start("a", resources, nil), g.start("b", resources, nil), g.start("c", resources, nil)}
			g.until("share", 10*time.Second, resources, g.even(resources, procs...))
			g.pass(10*time.Second, resources)
			before := map[string]*proc{}
			for _, resource := range resources {
				before[resource] = g.valid(resource)[0]
			}
			runs := g.runs()
			for _, p := range procs {
				p.client.Set(func(c *faults) { c.Down = true })
			}
			g.pass(outage, resources)
			if outage > 7*time.Second {
				for _, resource := range resources {
					if len(g.valid(resource)) > 0 {
						t.Errorf("%s is trusted after %v without the bucket", resource, outage)
					}
				}
			}
			for _, p := range procs {
				p.client.Set(func(c *faults) { c.Down = false })
			}
			took := g.until("recover", 10*time.Second, resources, g.whole(resources))
			t.Logf("recovered after %v", took)
			g.pass(10*time.Second, resources)
			for _, resource := range resources {
				if valid := g.valid(resource); len(valid) != 1 || valid[0] != before[resource] {
					t.Errorf("%s moved to another node: %s", resource, g.state(resources))
					break
				}
			}
			if again := g.runs() - runs; outage < 5*time.Second && again != 0 || again > len(resources) {
				t.Errorf("%d runs of work begun after an outage of %v", again, outage)
			}
		})
	}
}

// TestEarlierIncarnationsLeasesAreTakenAtOnce restarts a node whose lock says
// that the earlier process is gone.
func TestEarlierIncarnationsLeasesAreTakenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(8)
		a := g.start("a", resources, nil)
		b := g.start("b", resources, nil)
		g.until("share", 5*time.Second, resources, g.even(resources, a, b))
		g.pass(5*time.Second, resources)
		had := map[string]bool{}
		for _, resource := range resources {
			had[resource] = g.valid(resource)[0] == a
		}
		a.kill()
		g.forget(a)
		again := g.start("a", resources, nil)
		took := g.until("take what it had", time.Second, resources, func() bool { return again.count(resources) == 4 })
		t.Logf("took %v", took)
		g.pass(20*time.Second, resources)
		for _, resource := range resources {
			if valid := g.valid(resource); len(valid) != 1 || (valid[0] == again) != had[resource] {
				t.Errorf("moved: %s", g.state(resources))
				break
			}
		}
	})
}

// TestDeletedRecordsKeepTheirEpoch deletes what an operator should not.
func TestDeletedRecordsKeepTheirEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		a := g.start("a", []string{"r"}, nil)
		g.until("hold", time.Second, []string{"r"}, g.whole([]string{"r"}))
		g.pass(3*time.Second, []string{"r"})
		for _, key := range []string{leaseKey("g", "r"), memberKey("g", "a")} {
			if err := a.client.Delete(t.Context(), key, 0); err != nil {
				rev := g.server.Get(key).Revision
				if err := a.client.Delete(t.Context(), key, rev); err != nil {
					t.Fatal(err)
				}
			}
		}
		g.pass(time.Second, nil)
		g.until("hold again", 10*time.Second, []string{"r"}, g.whole([]string{"r"}))
		g.pass(5*time.Second, []string{"r"})
		if rec, err := g.server.lease("r"); err != nil || rec.Epoch != 2 {
			t.Errorf("record: %+v, %v", rec, err)
		}
	})
}

var seeds = flag.Int("seeds", raced.Rounds(3, 12), "runs of TestRandomFaults")

// TestRandomFaults plays processes that start, stop, die, restart, are cut off,
// lose replies, send late, hear nothing and have clocks that run unequally. At no
// moment may two of them act on one resource, no epoch may come twice, and
// when the faults end the group must come to rest whole and even.
func TestRandomFaults(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomFaults(t, uint64(seed), nil) })
		})
	}
}

// randomFaults is one run; with connections processes hold rights, and are told of some that they are gone.
func randomFaults(t *testing.T, seed uint64, all *connections) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	g := newGroup(t)
	defer g.stop()
	resources := resourceNames(1 + r.IntN(12))
	live := map[string]*proc{}
	saves := &saves{}
	start := func(node string) {
		live[node] = g.start(node, resources, func(p *proc, cfg *Config) {
			p.rate = 0.97 + 0.06*r.Float64()
			cfg.StallTimeout = 5 * time.Second
			p.work = saves.work
			if all != nil {
				all.deposing(p, cfg)
				p.work = func(ctx context.Context, h *Held) error {
					go func() { _ = p.appends(ctx, h) }() // returns nil
					return saves.work(ctx, h)
				}
			}
		})
	}
	nodes := []string{"a", "b", "c", "d"}
	start("a")
	for range 60 {
		node := nodes[r.IntN(len(nodes))]
		p := live[node]
		if p == nil {
			start(node)
			g.pass(upTo(3*time.Second), resources)
			continue
		}
		if all != nil && r.IntN(2) == 0 {
			// Some renew late, or not at all, and are wrongly said to be gone while they append.
			p.client.Set(func(c *faults) {
				c.Delay = upTo(500 * time.Millisecond)
				c.Down = r.IntN(2) == 0
				c.Mute = r.IntN(2) == 0
			})
			all.lie(p.m.Holder())
			g.pass(upTo(3*time.Second), resources)
			continue
		}
		switch r.IntN(8) {
		case 0:
			p.kill()
			if all != nil {
				all.close(p.m.Holder())
			}
			g.forget(p)
			delete(live, node)
		case 1:
			p.cancel()
			p.client.Set(func(c *faults) { c.Down = false })
			if err := <-p.done; err != nil && !errors.Is(err, ErrDrainTimeout) {
				t.Errorf("Run: %v", err)
			}
			p.done <- nil // for stop
			delete(live, node)
		case 2:
			p.client.Set(func(c *faults) { c.Down = true })
		case 3, 4:
			p.client.Set(func(c *faults) { c.Down, c.Delay, c.Mute = false, 0, false })
		case 5:
			p.client.Set(func(c *faults) { c.Lose = r.IntN(8) })
		case 6:
			p.client.Set(func(c *faults) { c.Delay = upTo(3 * time.Second) })
		case 7:
			p.client.Set(func(c *faults) { c.Mute = true })
		}
		g.pass(upTo(6*time.Second), resources)
	}
	for _, node := range nodes {
		if live[node] == nil {
			start(node)
		}
		live[node].client.Set(func(c *faults) { c.Down, c.Delay, c.Mute, c.Lose = false, 0, false, 0 })
	}
	if all != nil {
		all.tell(nil)
	}
	g.until("be whole", 30*time.Second, resources, g.whole(resources))
	g.until("be even", 60*time.Second, resources, g.even(resources, live["a"], live["b"], live["c"], live["d"]))
	g.pass(40*time.Second, resources) // what slow members are denied ends in this time
	runs := g.runs()
	g.pass(2*time.Minute, resources)
	if n := g.runs() - runs; n != 0 {
		t.Errorf("%d runs of work begun at rest", n)
	}
	saves.compare(t, g, resources)
}

// forget takes a killed process's leases out of the account: it is gone, not
// only cut off.
func (g *group) forget(p *proc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, held := range g.held {
		for h, holder := range held {
			if holder == p {
				delete(held, h)
			}
		}
	}
}

// saves is work that counts up in its checkpoint.
type saves struct {
	mu    sync.Mutex
	count map[string]int // greatest number known to be saved
}

func (s *saves) work(ctx context.Context, h *Held) error {
	n := 0
	if c := h.Checkpoint(); c != nil {
		if _, err := fmt.Sscan(string(c), &n); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		sleep(ctx, 700*time.Millisecond)
		h.Progress()
		saveCtx, cancel := context.WithTimeout(h.Trust(), 2*time.Second)
		err := h.Save(saveCtx, []byte(strconv.Itoa(n+1)))
		cancel()
		if err == nil {
			n++
			s.mu.Lock()
			if s.count == nil {
				s.count = map[string]int{}
			}
			s.count[h.Resource()] = max(s.count[h.Resource()], n)
			s.mu.Unlock()
		}
	}
	return nil
}

// compare fails if a checkpoint that was acknowledged is lost.
func (s *saves) compare(t *testing.T, g *group, resources []string) {
	t.Helper()
	for _, resource := range resources {
		rec, err := g.server.lease(resource)
		if err != nil {
			t.Error(err)
			continue
		}
		s.mu.Lock()
		saved := s.count[resource]
		s.mu.Unlock()
		var n int
		if _, err := fmt.Sscan(string(rec.Checkpoint), &n); err != nil || n < saved {
			t.Errorf("%s: stored checkpoint %q, %d was acknowledged: %v", resource, rec.Checkpoint, saved, err)
		}
	}
}
