package leases_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/leases"
)

// copied makes leases of which copies are kept.
func copied(all []leases.Lease) []leases.Lease {
	for i := range all {
		all[i].Copied = true
	}
	return all
}

// draining returns a member that drains, warm for resources that are named by the letters of names.
func draining(holder, names string) leases.Member {
	m := warm(holder, names)
	m.Drains = true
	return m
}

// TestBalance_CopiesAndDrains: nothing moves cold where copies are kept, and who drains gives all up that others take.
func TestBalance_CopiesAndDrains(t *testing.T) {
	closed := leases.Member{Holder: "c/1", Closed: true}
	tests := []struct {
		name    string
		members []leases.Member
		leases  []leases.Lease
		take    map[string]string // member to what it takes
		giveUp  map[string]string
		next    map[string]string // member to what it is to become warm for
	}{
		{
			name: "nobody is warm", members: members("a/1", "b/1"),
			leases: copied(held("a/1", "uvxy")), next: map[string]string{"b/1": "uv"},
		},
		{
			name: "one is warm for some", members: []leases.Member{{Holder: "a/1"}, warm("b/1", "y")},
			leases: copied(held("a/1", "uvxy")), giveUp: map[string]string{"a/1": "y"}, next: map[string]string{"b/1": "u"},
		},
		{
			name: "one is warm for all, and another has nothing", members: []leases.Member{{Holder: "a/1"}, warm("b/1", "mnopqr"), {Holder: "c/1"}},
			leases: copied(held("a/1", "mnopqr")), giveUp: map[string]string{"a/1": "mo"}, next: map[string]string{"c/1": "np"},
		},
		{
			name: "what has no copies moves as ever", members: members("a/1", "b/1"),
			leases: slices.Concat(copied(held("a/1", "uv")), held("a/1", "xy")), giveUp: map[string]string{"a/1": "xy"}, next: nil,
		},
		{
			name: "a free one goes to who is warm, however much that has", members: []leases.Member{{Holder: "a/1"}, warm("b/1", "xy")},
			leases: slices.Concat(copied(held("b/1", "uv")), copied(held("", "xy"))), take: map[string]string{"b/1": "xy"},
			next: map[string]string{"a/1": "uv"},
		},
		{
			name: "a free one of which nobody has a copy goes to anybody", members: members("a/1", "b/1"),
			leases: slices.Concat(copied(held("b/1", "u")), copied(held("", "x"))), take: map[string]string{"a/1": "x"},
		},
		{
			name: "who drains gives all up, and takes nothing", members: []leases.Member{draining("a/1", "z"), {Holder: "b/1"}},
			leases: slices.Concat(held("a/1", "uv"), held("b/1", "klmn"), held("", "z")),
			take:   map[string]string{"b/1": "z"}, giveUp: map[string]string{"a/1": "uv"},
		},
		{
			name: "but nothing cold", members: []leases.Member{draining("a/1", ""), warm("b/1", "u"), {Holder: "c/1"}},
			leases: slices.Concat(copied(held("a/1", "uv")), held("b/1", "k")),
			giveUp: map[string]string{"a/1": "u"}, next: map[string]string{"c/1": "v"},
		},
		{
			name: "and nothing bound", members: []leases.Member{draining("a/1", ""), {Holder: "b/1"}},
			leases: slices.Concat(bound("a", held("a/1", "u")), bound("a", held("", "v"))), take: map[string]string{"a/1": "v"},
		},
		{
			name: "nor what nobody else takes", members: []leases.Member{draining("a/1", ""), {Holder: "b/1", Declines: []string{"u", "x"}}, closed},
			leases: slices.Concat(held("a/1", "uv"), held("", "xy")),
			take:   map[string]string{"a/1": "x", "b/1": "y"}, giveUp: map[string]string{"a/1": "v"},
		},
		{
			name: "two that drain", members: []leases.Member{draining("a/1", "x"), draining("b/1", "u")},
			leases: slices.Concat(copied(held("a/1", "u")), copied(held("b/1", "v")), copied(held("", "x"))), take: map[string]string{"a/1": "x"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			take, giveUp, next := map[string]string{}, map[string]string{}, map[string]string{}
			for _, m := range test.members {
				d := leases.Balance(m.Holder, test.members, test.leases)
				for _, r := range d.Take {
					take[m.Holder] += r
				}
				for _, r := range d.GiveUp {
					giveUp[m.Holder] += r
				}
				for _, l := range test.leases {
					if d.Next[l.Resource] == m.Holder {
						next[m.Holder] += l.Resource
					}
				}
			}
			for what, diff := range map[string]string{
				"take":    cmp.Diff(test.take, take, cmpopts.EquateEmpty()),
				"give up": cmp.Diff(test.giveUp, giveUp, cmpopts.EquateEmpty()),
				"next":    cmp.Diff(test.next, next, cmpopts.EquateEmpty()),
			} {
				if diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
		})
	}
}

// TestBalance_NothingMovesCold plays groups out whose members become warm for what they are to become warm for. What is
// given up goes to who is warm for it, and all comes to rest, even, with nothing left to a member that drains.
func TestBalance_NothingMovesCold(t *testing.T) {
	for seed := range 2 * *balanceSeeds {
		r := rand.New(rand.NewPCG(seed, 4))
		w := random(r, seed%2 == 0)
		copied(w.leases)
		w.members[0].Drains = seed%3 == 0 && len(w.members) > 1
		given := map[string]bool{}
		for step := 0; ; step++ {
			if step > 40 {
				t.Fatalf("seed %d: no rest: %v", seed, w.counts())
			}
			before := w.clone()
			moves := w.round()
			for i, l := range w.leases {
				was := before.leases[i].Owner
				given[l.Resource] = given[l.Resource] || was != "" && l.Owner == ""
				if was != "" || l.Owner == "" || !given[l.Resource] {
					continue
				}
				at := slices.IndexFunc(w.members, func(m leases.Member) bool { return m.Holder == l.Owner })
				if w.members[at].Warm[l.Resource] == 0 {
					t.Fatalf("seed %d: %s moved cold to %s", seed, l.Resource, l.Owner)
				}
			}
			next := leases.Balance(w.members[0].Holder, w.members, w.leases).Next
			for i := range w.members {
				m := &w.members[i]
				for resource, holder := range next {
					if holder == m.Holder {
						if m.Warm == nil {
							m.Warm = map[string]uint64{}
						}
						m.Warm[resource] = 1
					}
				}
			}
			if moves == 0 && len(next) == 0 {
				break
			}
		}
		counts := w.counts()
		open := w.members
		if w.members[0].Drains {
			open = open[1:]
			if counts[w.members[0].Holder] > 0 {
				t.Fatalf("seed %d: %s drains and has some: %v", seed, w.members[0].Holder, counts)
			}
		}
		if seed%2 == 0 {
			continue // of unequal weight
		}
		least, most := len(w.leases), 0
		for _, m := range open {
			least, most = min(least, counts[m.Holder]), max(most, counts[m.Holder])
		}
		if most-least > 1 {
			t.Fatalf("seed %d: rests uneven: %v", seed, counts)
		}
	}
}

// TestBalance_WhoDrainsServesRatherThanThatSomebodyLoads: the only copy of a free lease is with a member that drains.
func TestBalance_WhoDrainsServesRatherThanThatSomebodyLoads(t *testing.T) {
	for _, names := range [][2]string{{"a/1", "b/1"}, {"b/1", "a/1"}} {
		members := []leases.Member{{Holder: names[0], Drains: true, Warm: map[string]uint64{"x": 1}}, {Holder: names[1]}}
		for _, copied := range []bool{true, false} {
			want := names[1]
			if copied {
				want = names[0]
			}
			if got := leases.Balance(names[1], members, []leases.Lease{{Resource: "x", Copied: copied}}).Plan["x"]; got != want {
				t.Errorf("copied %t: %s takes it, want %s", copied, got, want)
			}
		}
	}
}
