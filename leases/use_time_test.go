package leases

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhoUsedALease goes through holdings of one lease by processes of the nodes a and b, one after the other, and asks
// the last one who has used it before.
func TestWhoUsedALease(t *testing.T) {
	type holding struct {
		node string
		does string // one letter after the other: u uses it, l takes a use back
		ends string // "dies", "drains", or "fails" with work that meets the fence of a greater epoch
	}
	tests := []struct {
		name     string
		holdings []holding
		node     string
		since    uint64
	}{
		{"nobody", nil, "", 0},
		{"one who died", []holding{{"a", "u", "dies"}}, "a", 1},
		{"one who drained", []holding{{"a", "u", "drains"}}, "a", 1},
		{"one who came back", []holding{{"a", "u", "dies"}, {"a", "", "dies"}, {"a", "u", "drains"}}, "a", 1},
		{"who came next died before", []holding{{"a", "u", "dies"}, {"b", "", "dies"}}, "a", 1},
		{"who came next did not, and drained", []holding{{"a", "u", "dies"}, {"b", "", "drains"}}, "a", 1},
		{"who came next had nothing to take back", []holding{{"a", "u", "dies"}, {"b", "l", "dies"}}, "a", 1},
		{"who came next took it back", []holding{{"a", "u", "dies"}, {"b", "ul", "dies"}}, "a", 1},
		{"who came next took it back, and drained", []holding{{"a", "u", "dies"}, {"b", "ul", "drains"}}, "a", 1},
		{"who came next did in the end", []holding{{"a", "u", "dies"}, {"b", "ulu", "dies"}}, "b", 2},
		{"who came next did once of twice", []holding{{"a", "u", "dies"}, {"b", "uul", "dies"}}, "b", 2},
		{"who came back took it back", []holding{{"a", "u", "dies"}, {"a", "ul", "dies"}}, "a", 1},
		{"two, and the first again", []holding{{"a", "u", "dies"}, {"b", "u", "drains"}, {"a", "", "dies"}}, "b", 2},
		{"of epochs whose records were lost nothing is known", []holding{{"a", "u", "fails"}}, "", 0},
		{"nor when they are used again, of before", []holding{{"a", "u", "fails"}, {"a", "u", "dies"}}, "a", 11},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t)
				defer g.stop()
				take := func(node string) (*proc, *Held, chan error) {
					t.Helper()
					held, end, failed := make(chan *Held), make(chan error), new(atomic.Bool)
					p := g.start(node, []string{"r"}, func(p *proc, _ *Config) {
						p.work = func(ctx context.Context, h *Held) error {
							if failed.Load() {
								return idle(ctx, h)
							}
							held <- h
							select {
							case err := <-end:
								failed.Store(true)
								return err
							case <-ctx.Done():
								return context.Cause(ctx)
							}
						}
					})
					return p, <-held, end
				}
				for _, hold := range test.holdings {
					p, h, end := take(hold.node)
					for _, does := range hold.does {
						err := h.Use
						if does == 'l' {
							err = h.LeaveUnused
						}
						if err := err(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					switch hold.ends {
					case "dies":
						p.kill()
						g.pass(2*DefaultTTL, nil)
					case "drains":
						p.cancel()
						p.done <- <-p.done
					case "fails":
						end <- &EpochBehindError{Seen: 9}
						g.until("taken again", time.Minute, nil, func() bool {
							rec, err := g.server.lease("r")
							return err == nil && rec.Epoch == 10 && rec.Used.Node == ""
						})
						p.kill()
						g.pass(2*DefaultTTL, nil)
					}
				}
				_, h, _ := take("a")
				if node, since := h.User(); node != test.node || since != test.since {
					t.Errorf("used by %q since epoch %d, want %q since %d", node, since, test.node, test.since)
				}
			})
		})
	}
}

// TestUse_ATakingWhoseReplyIsLostIsNone has b take a lease that a has used, and lose all replies until b gives up and takes
// it once more, from a record that names b already. b uses nothing, and dies.
func TestUse_ATakingWhoseReplyIsLostIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		held := make(chan *Held, 1)
		work := func(p *proc, _ *Config) {
			p.work = func(ctx context.Context, h *Held) error {
				held <- h
				return idle(ctx, h)
			}
		}
		a := g.start("a", []string{"r"}, work)
		if err := (<-held).Use(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.kill()
		b := g.start("b", []string{"r"}, func(p *proc, cfg *Config) {
			work(p, cfg)
			p.client.Set(func(f *faults) { f.Loses = func(key string) bool { return key == leaseKey("g", "r") } })
		})
		g.until("a taking is stored", time.Minute, nil, func() bool {
			rec, err := g.server.lease("r")
			return err == nil && rec.Epoch == 2 && rec.Owner == b.m.Holder()
		})
		g.pass(2*b.m.cfg.RenewInterval, nil) // it has given up by now
		b.client.Set(func(c *faults) { c.Loses = nil })
		h := <-held
		if h.Epoch() <= 2 {
			t.Fatalf("it has the lease in epoch %d: the first taking was not given up", h.Epoch())
		}
		if node, since := h.User(); node != "a" || since != 1 {
			t.Errorf("used by %q since epoch %d, want a since 1", node, since)
		}
		b.kill()
		if rec, err := g.server.lease("r"); err != nil || *rec.Used != (use{"a", 1}) {
			t.Errorf("the record says %+v, %v, want a since 1", rec.Used, err)
		}
	})
}

// TestUse_IsInTheRecordBeforeItReturns, in the first holding and in one after another node's. An error has said nothing.
func TestUse_IsInTheRecordBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		held := make(chan *Held, 1)
		for i, node := range []string{"a", "b"} {
			p := g.start(node, []string{"r"}, func(p *proc, _ *Config) {
				p.work = func(ctx context.Context, h *Held) error {
					held <- h
					return idle(ctx, h)
				}
			})
			h := <-held
			before, _ := h.User()
			p.client.Set(func(c *faults) { c.Loses = func(key string) bool { return key == leaseKey("g", "r") } })
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if err := h.Use(ctx); err == nil {
				t.Fatal("it is said, though no reply came")
			}
			cancel()
			if user, _ := h.User(); user != before {
				t.Errorf("after an error it is used by %q, was by %q", user, before)
			}
			p.client.Set(func(c *faults) { c.Loses = nil })
			g.until("the next renewal takes it back", time.Minute, []string{"r"}, func() bool {
				rec, err := g.server.lease("r")
				return err == nil && rec.Used.Node == before
			})
			if err := h.Use(t.Context()); err != nil {
				t.Fatal(err)
			}
			if rec, err := g.server.lease("r"); err != nil || *rec.Used != (use{node, uint64(i + 1)}) {
				t.Errorf("the record says %+v, %v", rec.Used, err)
			}
			p.kill()
		}
	})
}

// TestUsedBefore reads records that have lost something, or that an earlier release wrote.
func TestUsedBefore(t *testing.T) {
	used := &use{"a", 3}
	for name, test := range map[string]struct {
		rec   leaseRecord
		epoch uint64
		want  use
	}{
		"the next epoch":                  {leaseRecord{Epoch: 7, Owner: "a/1", Used: used}, 8, use{"a", 3}},
		"one that is not in the record":   {leaseRecord{Epoch: 7, Owner: "a/1", Used: used}, 9, use{}},
		"no record":                       {leaseRecord{}, 1, use{}},
		"a record that was deleted":       {leaseRecord{}, 8, use{}},
		"an earlier release holds it":     {leaseRecord{Epoch: 7, Owner: "b/1", Last: "a/1"}, 8, use{"b", 7}},
		"an earlier release has given it": {leaseRecord{Epoch: 7, Last: "b/1"}, 8, use{"b", 7}},
	} {
		if got := test.rec.usedBefore(test.epoch); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
