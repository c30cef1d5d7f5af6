package right

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// lively is more than a node that lives stands still: an interval, the way of its renewal, and that of the own one.
const lively = RenewInterval + 10*latency

func TestStill_OfWhoDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a, b, c := start(t, s, "a", nil), start(t, s, "b", nil), start(t, s, "c", nil)
		defer b.end()
		defer c.end()
		watchHolds(5*time.Second, func() {
			if d := max(b.s.Still("a"), b.s.Still("b"), b.s.Still("c"), b.s.Still("nobody")); d > lively {
				t.Fatalf("a node that lives stands still for %v", d)
			}
		})
		a.end()
		died := time.Now()
		watchHolds(3*time.Second, func() {
			dead := time.Since(died)
			if still := b.s.Still("a"); still > dead+lively || still < dead-2*lively {
				t.Fatalf("it died %v ago and stands still for %v", dead, still)
			}
			if still := b.s.Still("c"); still > lively {
				t.Fatalf("the other one stands still for %v", still)
			}
		})
	})
}

// blindings are the ways in which p does not see for ten seconds, while another process is there.
func blindings() map[string]func(p, other *proc) {
	const blind = 10 * time.Second
	pass := func(*proc) { time.Sleep(blind) }
	return map[string]func(p, other *proc){
		"the watch is mute": func(p, _ *proc) {
			p.client.Set(func(f *faults) { f.Mute = true })
			pass(p)
			p.client.Set(func(f *faults) { f.Mute = false })
		},
		"the watch breaks, and none can be made": func(p, _ *proc) {
			p.client.Set(func(f *faults) { f.Mute = true })
			p.client.Spoil(func(w *fakeWatch) { w.Broken = true })
			pass(p)
			p.client.Set(func(f *faults) { f.Mute = false })
		},
		"cut off": func(p, _ *proc) {
			p.client.Set(func(f *faults) { f.Down = true })
			pass(p)
			p.client.Set(func(f *faults) { f.Down = false })
		},
		"stopped": func(p, _ *proc) {
			p.client.Pause()
			pass(p)
			p.client.Resume()
		},
		"suspended": func(p, _ *proc) { p.skew.Add(int64(blind)) },
		"nobody reaches the bucket": func(p, other *proc) {
			for _, p := range []*proc{p, other} {
				p.client.Set(func(f *faults) { f.Down = true })
			}
			pass(p)
			p.client.Set(func(f *faults) { f.Down = false })
			time.Sleep(10 * time.Millisecond) // the other one comes back a little later
			other.client.Set(func(f *faults) { f.Down = false })
		},
	}
}

// TestStill_WhatItCouldNotSee lets a process not see for a while, in each way, while the other node lives; and while it dies meanwhile. The
// time is not counted.
func TestStill_WhatItCouldNotSee(t *testing.T) {
	for name, way := range blindings() {
		t.Run(name, func(t *testing.T) {
			for _, dies := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					s := newFakeServer(t)
					a, b := start(t, s, "a", nil), start(t, s, "b", nil)
					defer a.end()
					defer b.end()
					time.Sleep(2 * time.Second)
					blinded := make(chan struct{})
					go func() {
						defer close(blinded)
						way(b, a)
					}()
					if dies {
						a.stop()
					}
					for seen := false; !seen; time.Sleep(time.Millisecond) {
						select {
						case <-blinded:
							seen = true
						default:
						}
						if still := b.s.Still("a"); still > lively {
							t.Fatalf("%v are counted of a time that it could not see", still)
						}
					}
					// The other one may come back with a try under way that nobody answers, and the pause behind it.
					var late time.Duration
					if name == "nobody reaches the bucket" {
						late = Trust/2 + RenewInterval
					}
					back := time.Now()
					watchHolds(3*time.Second, func() {
						still := b.s.Still("a")
						if since := time.Since(back); still > since+2*lively {
							t.Fatalf("after %v, %v are counted", since, still)
						}
						if !dies && still > lively+late {
							t.Fatalf("a node that lives stands still for %v", still)
						}
					})
					if still := b.s.Still("a"); dies && still < time.Second {
						t.Errorf("3 s later it stands still for %v", still)
					}
				})
			}
		})
	}
}

// TestStill_WhoDoesNotSeeSuspectsNobody forgets what it has counted when it does not see any more.
func TestStill_WhoDoesNotSeeSuspectsNobody(t *testing.T) {
	for name, test := range map[string]struct {
		way func(b *proc)
		in  time.Duration
	}{
		"the watch is mute": {func(b *proc) { b.client.Set(func(f *faults) { f.Mute = true }) }, 2*RenewInterval + lively},
		"it cannot renew":   {func(b *proc) { b.client.Set(func(f *faults) { f.Delay = time.Hour }) }, 2*RenewInterval + lively},
		"it is stopped":     {func(b *proc) { b.client.Pause() }, 2*RenewInterval + lively},
		"it is suspended":   {func(b *proc) { b.skew.Add(int64(2 * RenewInterval)) }, 0},
		"the watch is broken": {func(b *proc) {
			b.client.Set(func(f *faults) { f.Mute = true })
			b.client.Spoil(func(w *fakeWatch) { w.Broken = true })
		}, 5 * latency},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer(t)
				a, b := start(t, s, "a", nil), start(t, s, "b", nil)
				defer b.end()
				a.end()
				time.Sleep(2 * time.Second)
				s.nextWrite(t, "b")
				time.Sleep(5 * latency)
				before := b.s.Still("a")
				if before < time.Second {
					t.Fatalf("a dead node stands still for %v", before)
				}
				test.way(b)
				for begun := time.Now(); time.Since(begun) < test.in; time.Sleep(latency) {
					if still := b.s.Still("a"); still > before+lively {
						t.Fatalf("%v are counted", still-before)
					}
				}
				if still := b.s.Still("a"); still != 0 {
					t.Errorf("after %v it still counts %v", test.in, still)
				}
			})
		})
	}
}

// TestASilentWatchIsMadeAnew has one that delivers nothing any more, and does not say so.
func TestASilentWatchIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a, b := start(t, s, "a", nil), start(t, s, "b", nil)
		defer a.end()
		defer b.end()
		time.Sleep(time.Second)
		b.client.Spoil(func(w *fakeWatch) { w.Dead = true })
		time.Sleep(time.Second)
		prepare(t, s, "c", nil).open()
		time.Sleep(10 * time.Millisecond)
		if n := b.s.Nodes(); len(n) != 3 || n[2].State != StateUp {
			t.Errorf("it sees %+v", n)
		}
	})
}

// TestStill_WhatIsNoSignOfLife deposes a dead node, and stores its key once more.
func TestStill_WhatIsNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a, b := start(t, s, "a", nil), start(t, s, "b", nil)
		defer b.end()
		time.Sleep(time.Second)
		a.end()
		time.Sleep(time.Second)
		e := s.Get(keyOf("g", "a"))
		if _, err := s.Put(e.Key, e.Value, e.Revision); err != nil {
			t.Fatal(err)
		}
		if err := b.s.Depose(t.Context(), "a", a.r.Incarnation(), b.r.Holder(), "silent"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(RenewInterval)
		if still := b.s.Still("a"); still < time.Second-lively {
			t.Errorf("it stands still for %v", still)
		}
		for range 2 { // each dies after its first write
			prepare(t, s, "a", nil).open()
			time.Sleep(RenewInterval)
			if still := b.s.Still("a"); still > lively {
				t.Errorf("the next process stands still for %v", still)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c := start(t, s, "c", func(p *proc) { p.cfg.Host, p.cfg.Level = "store-3", 3 })
		defer c.end()
		a := start(t, s, "a", func(p *proc) { p.cfg.Trust, p.cfg.Host = time.Second, "store-1" })
		defer a.end()
		b := start(t, s, "b", nil)
		defer b.end()
		put := func(node, value string) {
			if _, err := s.Put(keyOf("g", node), []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
		put("d", `{"v":3}`)
		put("e", `{"v":1,"node":"e","incarnation":"x","write":4,"state":"left","level":2,"trustMs":428,"deposed":{"by":"b/y","why":"silent","at":1}}`)
		if _, err := s.Put("node.other.f", []byte(`{}`), 0); err != nil { // of another group
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		want := []Node{
			{Node: "a", Incarnation: a.r.Incarnation(), Host: "store-1", State: StateUp, Trust: time.Second},
			{Node: "b", Incarnation: b.r.Incarnation(), State: StateUp, Trust: Trust},
			{Node: "c", Incarnation: c.r.Incarnation(), Host: "store-3", State: StateUp, Level: 3, Trust: Trust},
			{Node: "d", Unreadable: (&VersionError{Key: "node.g.d", Version: 3}).Error()},
			{Node: "e", Incarnation: "x", State: StateLeft, Level: 2, Trust: Trust, DeposedBy: "b/y", DeposedWhy: "silent"},
		}
		look := func() []Node {
			nodes := b.s.Nodes()
			for i := range nodes {
				if nodes[i].Still != b.s.Still(nodes[i].Node) {
					t.Errorf("still %v, Still says %v", nodes[i].Still, b.s.Still(nodes[i].Node))
				}
				nodes[i].Still = 0
			}
			return nodes
		}
		if diff := cmp.Diff(want, look()); diff != "" {
			t.Error(diff)
		}
		for i, node := range []string{"d", "e"} {
			if _, err := s.Put(keyOf("g", node), nil, s.Get(keyOf("g", node)).Revision); err != nil {
				t.Fatal(err)
			}
			if i == 0 { // one is deleted while the watch shows it, the other while there is none
				time.Sleep(10 * time.Millisecond)
				if n := b.s.Nodes(); len(n) != 4 {
					t.Errorf("it sees %+v", n)
				}
				b.client.Spoil(func(w *fakeWatch) { w.Broken = true })
				time.Sleep(latency)
			}
		}
		time.Sleep(time.Second)
		if diff := cmp.Diff(want[:3], look()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestSightTellsItsOwnRight lets a deposing be learned before the next renewal.
func TestSightTellsItsOwnRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		slow := func(p *proc) { p.cfg.Trust, p.cfg.RenewInterval = time.Minute, 20*time.Second }
		a, b := start(t, s, "a", slow), start(t, s, "b", nil)
		defer a.end()
		defer b.end()
		time.Sleep(time.Second)
		if err := b.s.Depose(t.Context(), "a", a.r.Incarnation(), b.r.Holder(), "silent"); err != nil {
			t.Fatal(err)
		}
		mustEnd(t, a.r, b.r.Holder(), "silent")
		// Who has been deposed suspects nobody.
		b.end()
		time.Sleep(2 * time.Minute)
		if still := a.s.Still("b"); still != 0 {
			t.Errorf("it counts %v", still)
		}
	})
}

// TestSightAfterTheBucketWentBack shows what there is now, and deposes by it.
func TestSightAfterTheBucketWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		a, b := start(t, s, "a", nil), start(t, s, "b", nil)
		defer a.end()
		defer b.end()
		early := s.State()
		time.Sleep(2 * time.Second)
		s.GoBack(early)
		mustEnd(t, a.r, a.r.Holder(), "went back")
		mustEnd(t, b.r, b.r.Holder(), "went back")
		b.end()
		c := start(t, s, "c", nil)
		defer c.end()
		c.mustTakeOver(a.r)
	})
}
