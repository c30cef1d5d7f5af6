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
		does string // one letter after the other: u uses it, l leaves it unused
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
		{"who came next may have", []holding{{"a", "u", "dies"}, {"b", "", "dies"}}, "b", 2},
		{"who came next did not, and drained", []holding{{"a", "u", "dies"}, {"b", "", "drains"}}, "a", 1},
		{"who came next did not, said so and died", []holding{{"a", "u", "dies"}, {"b", "l", "dies"}}, "a", 1},
		{"who came next did in the end", []holding{{"a", "u", "dies"}, {"b", "lu", "dies"}}, "b", 2},
		{"who came next did first", []holding{{"a", "u", "dies"}, {"b", "ul", "dies"}}, "b", 2},
		{"two, and the first again", []holding{{"a", "u", "dies"}, {"b", "u", "drains"}, {"a", "", "dies"}}, "a", 3},
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
								if err := h.LeaveUnused(ctx); err != nil {
									return err
								}
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
