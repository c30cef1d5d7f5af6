package leases_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/leases"
)

var balanceSeeds = flag.Uint64("balance.seeds", 100, "groups that the tests of Balance begin with, some of them with half and a third as many; 400 is a thorough run")

// held makes leases of one owner, named by the letters of names.
func held(owner, names string) []leases.Lease {
	var out []leases.Lease
	for _, name := range names {
		out = append(out, leases.Lease{Resource: string(name), Owner: owner})
	}
	return out
}

func weigh(weight float64, all []leases.Lease) []leases.Lease {
	for i := range all {
		all[i].Weight = weight
	}
	return all
}

func after(last string, all []leases.Lease) []leases.Lease {
	for i := range all {
		all[i].Last = last
	}
	return all
}

func members(holders ...string) []leases.Member {
	var out []leases.Member
	for _, holder := range holders {
		out = append(out, leases.Member{Holder: holder})
	}
	return out
}

// bound makes leases that only the node can do something with.
func bound(user string, all []leases.Lease) []leases.Lease {
	for i := range all {
		all[i].User, all[i].Bound = user, true
	}
	return all
}

// warm returns a member that is prepared for resources, named by the letters of names.
func warm(holder, names string) leases.Member {
	m := leases.Member{Holder: holder, Warm: map[string]uint64{}}
	for _, name := range names {
		m.Warm[string(name)] = 1
	}
	return m
}

func TestBalance(t *testing.T) {
	closed := func(holder string) leases.Member { return leases.Member{Holder: holder, Closed: true} }
	tests := []struct {
		name    string
		members []leases.Member
		leases  []leases.Lease
		take    map[string]string // member to what it takes
		giveUp  map[string]string
	}{
		{name: "nothing to hold", members: members("a/1", "b/1")},
		{
			name: "alone takes all", members: members("a/1"), leases: held("", "xyz"),
			take: map[string]string{"a/1": "xyz"},
		},
		{
			name: "free leases are dealt out", members: members("a/1", "b/1"), leases: held("", "uvxyz"),
			take: map[string]string{"a/1": "uxz", "b/1": "vy"},
		},
		{
			name: "free leases before moved ones", members: members("a/1", "b/1"),
			leases: slices.Concat(held("a/1", "uvx"), held("", "yz")),
			take:   map[string]string{"b/1": "yz"},
		},
		{
			name: "a newcomer is given its share", members: members("a/1", "b/1", "c/1"),
			leases: slices.Concat(held("a/1", "mnopq"), held("b/1", "uvxy")),
			giveUp: map[string]string{"a/1": "mn", "b/1": "u"},
		},
		{
			name: "a difference of one moves nothing", members: members("a/1", "b/1"),
			leases: slices.Concat(held("a/1", "uvx"), held("b/1", "yz")),
		},
		{
			name: "a node gets back what it had", members: members("a/1", "b/2"),
			leases: slices.Concat(after("b/1", held("", "xy")), after("a/1", held("", "uv"))),
			take:   map[string]string{"a/1": "uv", "b/2": "xy"},
		},
		{
			name: "but not beyond its share", members: members("a/1", "b/2"),
			leases: after("b/1", held("", "uvxy")),
			take:   map[string]string{"a/1": "xy", "b/2": "uv"},
		},
		{
			name: "what was given up does not go back", members: members("a/1", "b/1", "c/1"),
			leases: slices.Concat(held("a/1", "uv"), after("a/1", held("", "x")), held("c/1", "klmnopqrst")),
			take:   map[string]string{"b/1": "x"},
			giveUp: map[string]string{"c/1": "klmno"},
		},
		{
			name: "a closed member takes nothing", members: []leases.Member{{Holder: "a/1"}, closed("b/1")},
			leases: slices.Concat(held("a/1", "uvx"), held("", "y")),
			take:   map[string]string{"a/1": "y"},
		},
		{
			name: "a closed member's leases stay", members: []leases.Member{{Holder: "a/1"}, closed("b/1")},
			leases: held("b/1", "uv"),
			giveUp: map[string]string{"b/1": "u"},
		},
		{
			name: "an unknown owner counts as closed", members: members("a/1", "b/1"),
			leases: slices.Concat(held("x/1", "klm"), held("", "uv")),
			take:   map[string]string{"a/1": "u", "b/1": "v"},
			giveUp: map[string]string{"x/1": "k"},
		},
		{
			name:    "a declined lease goes elsewhere",
			members: []leases.Member{{Holder: "a/1", Declines: []string{"x"}}, {Holder: "b/1"}},
			leases:  slices.Concat(held("b/1", "uv"), held("", "x")),
			take:    map[string]string{"b/1": "x"},
			giveUp:  map[string]string{"b/1": "u"},
		},
		{
			name:    "what everyone declines stays free",
			members: []leases.Member{{Holder: "a/1", Declines: []string{"x"}}},
			leases:  held("", "x"),
		},
		{
			name: "a heavy lease counts for many", members: members("a/1", "b/1"),
			leases: slices.Concat(weigh(8, held("", "h")), held("", "uvxyz")),
			take:   map[string]string{"a/1": "h", "b/1": "uvxyz"},
		},
		{
			name: "light leases leave the side of a heavy one", members: members("a/1", "b/1"),
			leases: slices.Concat(weigh(8, held("a/1", "h")), held("a/1", "uvx")),
			giveUp: map[string]string{"a/1": "uvx"},
		},
		{
			name: "a warm member before the lightest", members: []leases.Member{{Holder: "a/1"}, warm("b/1", "x")},
			leases: slices.Concat(held("a/1", "u"), held("b/1", "v"), held("", "x")),
			take:   map[string]string{"b/1": "x"},
		},
		{
			name: "but not where it would move away again", members: []leases.Member{{Holder: "a/1"}, warm("b/1", "x")},
			leases: slices.Concat(held("a/1", "u"), held("b/1", "vw"), held("", "x")),
			take:   map[string]string{"a/1": "x"},
		},
		{
			name: "each of two takes what it is warm for", members: []leases.Member{warm("a/1", "mn"), warm("b/1", "kl")},
			leases: slices.Concat(held("a/1", "uv"), held("b/1", "xy"), held("", "klmn")),
			take:   map[string]string{"a/1": "mn", "b/1": "kl"},
		},
		{
			name:    "who declines is not asked, however warm",
			members: []leases.Member{{Holder: "a/1"}, {Holder: "b/1", Warm: map[string]uint64{"x": 1}, Declines: []string{"x"}}},
			leases:  held("", "x"), take: map[string]string{"a/1": "x"},
		},
		{
			name:    "what can go to a warm member goes first",
			members: []leases.Member{{Holder: "a/1"}, warm("b/1", "y")},
			leases:  held("a/1", "xyz"), giveUp: map[string]string{"a/1": "y"},
		},
		{
			name:    "a warm member that has more than others gets none",
			members: []leases.Member{{Holder: "a/1"}, warm("b/1", "u"), {Holder: "c/1"}},
			leases:  slices.Concat(held("a/1", "uvxyz"), held("b/1", "mn")), giveUp: map[string]string{"a/1": "uv"},
		},
		{
			name: "a bound lease goes to who used it last, however much that has", members: []leases.Member{{Holder: "a/2"}, warm("b/1", "x"), {Holder: "c/1"}},
			leases: slices.Concat(bound("a", held("a/2", "uvw")), bound("a", after("b/1", held("", "x")))),
			take:   map[string]string{"a/2": "x"},
		},
		{
			name: "and does not move from there", members: members("a/1", "b/1"),
			leases: slices.Concat(bound("a", held("a/1", "uvwx")), held("a/1", "yz")),
			giveUp: map[string]string{"a/1": "yz"},
		},
		{
			name:    "nor from anybody else",
			members: members("a/1", "b/1"), leases: bound("c", held("a/1", "uvwx")),
		},
		{
			name: "who used it last is gone", members: members("b/1", "c/1"),
			leases: slices.Concat(held("b/1", "u"), bound("a", held("", "x"))),
			take:   map[string]string{"c/1": "x"},
		},
		{
			name: "who used it last takes nothing", members: []leases.Member{closed("a/1"), {Holder: "b/1"}},
			leases: bound("a", held("", "x")),
			take:   map[string]string{"b/1": "x"},
		},
		{
			name: "who used it last declines it", members: []leases.Member{{Holder: "a/1", Declines: []string{"x"}}, {Holder: "b/1"}},
			leases: bound("a", held("", "xy")),
			take:   map[string]string{"a/1": "y", "b/1": "x"},
		},
		{
			name: "who used it last gets no other lease for that", members: members("a/1", "b/1"),
			leases: slices.Concat(held("a/1", "u"), bound("a", held("", "x")), held("", "yz")),
			take:   map[string]string{"a/1": "x", "b/1": "yz"},
		},
		{
			name: "two heavy ones part", members: members("a/1", "b/1"),
			leases: weigh(8, held("a/1", "gh")),
			giveUp: map[string]string{"a/1": "g"},
		},
		{
			name: "a heavy one stays where moving it would only turn the tables", members: members("a/1", "b/1"),
			leases: slices.Concat(weigh(8, held("a/1", "g")), held("b/1", "u")),
		},
		{
			name: "heavy ones part and light ones make up", members: members("a/1", "b/1"),
			leases: slices.Concat(weigh(8, held("a/1", "gh")), held("b/1", "uv")),
			giveUp: map[string]string{"a/1": "g", "b/1": "u"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			holders := map[string]bool{}
			for _, m := range test.members {
				holders[m.Holder] = true
			}
			for _, l := range test.leases {
				holders[l.Owner] = true
			}
			delete(holders, "")
			take, giveUp := map[string]string{}, map[string]string{}
			for holder := range holders {
				d := leases.Balance(holder, test.members, test.leases)
				for _, r := range d.Take {
					take[holder] += r
				}
				for _, r := range d.GiveUp {
					giveUp[holder] += r
				}
			}
			if diff := cmp.Diff(test.take, take, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("take (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.giveUp, giveUp, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("give up (-want +got):\n%s", diff)
			}
		})
	}
}

// world is a group in which Balance is played out.
type world struct {
	members []leases.Member
	leases  []leases.Lease
}

func (w *world) clone() world {
	return world{slices.Clone(w.members), slices.Clone(w.leases)}
}

// do lets one member act as it decided, in so far as the world still is as it
// was seen: what is free can be taken, what is its own can be given up.
func (w *world) do(self string, d leases.Decision) (moves int) {
	for i := range w.leases {
		l := &w.leases[i]
		switch {
		case l.Owner == "" && slices.Contains(d.Take, l.Resource):
			l.Owner = self
			moves++
		case l.Owner == self && slices.Contains(d.GiveUp, l.Resource):
			l.Owner, l.Last = "", self
			moves++
		}
	}
	return moves
}

// round lets every member decide on the same view and act.
func (w *world) round() (moves int) {
	seen := w.clone()
	for _, m := range seen.members {
		moves += w.do(m.Holder, leases.Balance(m.Holder, seen.members, seen.leases))
	}
	return moves
}

func (w *world) counts() map[string]int {
	counts := map[string]int{}
	for _, m := range w.members {
		counts[m.Holder] = 0
	}
	for _, l := range w.leases {
		counts[l.Owner]++
	}
	return counts
}

// random makes a world of up to 8 open members and 40 leases, some free, some of
// unequal weight.
func random(r *rand.Rand, weighted bool) world {
	var w world
	for i := range 1 + r.IntN(8) {
		w.members = append(w.members, leases.Member{Holder: fmt.Sprintf("n%d/%d", i, r.IntN(3))})
	}
	for i := range r.IntN(41) {
		l := leases.Lease{Resource: fmt.Sprintf("r%02d", i), Weight: 1}
		if weighted {
			l.Weight = r.Float64() * []float64{0.1, 1, 10, 3000}[r.IntN(4)]
		}
		if r.IntN(3) > 0 {
			l.Owner = w.members[r.IntN(1+r.IntN(len(w.members)))].Holder
		} else if r.IntN(2) > 0 {
			l.Last = w.members[r.IntN(len(w.members))].Holder
		}
		w.leases = append(w.leases, l)
		if m := &w.members[r.IntN(len(w.members))]; r.IntN(2) > 0 {
			if m.Warm == nil {
				m.Warm = map[string]uint64{}
			}
			m.Warm[l.Resource] = 1
		}
	}
	return w
}

func TestBalanceConvergesOnOneView(t *testing.T) {
	for seed := range *balanceSeeds {
		r := rand.New(rand.NewPCG(seed, 1))
		weighted := seed%2 == 0
		w := random(r, weighted)
		rounds := 0
		for w.round() > 0 {
			if rounds++; rounds > 12 {
				t.Fatalf("seed %d: still moving after %d rounds: %v", seed, rounds, w.counts())
			}
		}
		counts := w.counts()
		if counts[""] > 0 {
			t.Fatalf("seed %d: leases left free: %v", seed, counts)
		}
		if weighted {
			continue
		}
		least, most := len(w.leases), 0
		for _, m := range w.members {
			least, most = min(least, counts[m.Holder]), max(most, counts[m.Holder])
		}
		if most-least > 1 {
			t.Fatalf("seed %d: rests uneven: %v", seed, counts)
		}
		if rounds > 2 {
			t.Fatalf("seed %d: %d rounds, want at most one to give and one to take", seed, rounds)
		}
	}
}

// TestBalanceOnlyTakesWhatIsFree covers the promise that nothing is taken from a
// live holder, and that two members never decide on the same free lease.
func TestBalanceOnlyTakesWhatIsFree(t *testing.T) {
	for seed := range *balanceSeeds / 2 {
		r := rand.New(rand.NewPCG(seed, 2))
		w := random(r, true)
		byName := map[string]leases.Lease{}
		for _, l := range w.leases {
			byName[l.Resource] = l
		}
		taken := map[string]string{}
		for _, m := range w.members {
			d := leases.Balance(m.Holder, w.members, w.leases)
			for _, name := range d.Take {
				if byName[name].Owner != "" || taken[name] != "" {
					t.Fatalf("seed %d: %s takes %s of %q, also taken by %q", seed, m.Holder, name, byName[name].Owner, taken[name])
				}
				taken[name] = m.Holder
			}
			for _, name := range d.GiveUp {
				if byName[name].Owner != m.Holder {
					t.Fatalf("seed %d: %s gives up %s of %s", seed, m.Holder, name, byName[name].Owner)
				}
			}
			r.Shuffle(len(w.members), func(i, j int) { w.members[i], w.members[j] = w.members[j], w.members[i] })
			r.Shuffle(len(w.leases), func(i, j int) { w.leases[i], w.leases[j] = w.leases[j], w.leases[i] })
			if diff := cmp.Diff(d, leases.Balance(m.Holder, w.members, w.leases)); diff != "" {
				t.Fatalf("seed %d: order matters:\n%s", seed, diff)
			}
			slices.SortFunc(w.members, func(a, b leases.Member) int { return strings.Compare(a.Holder, b.Holder) })
		}
	}
}

// TestBalanceConvergesOnOldViews lets members act one by one on views of
// different age. They may disagree for a while; they must come to rest.
func TestBalanceConvergesOnOldViews(t *testing.T) {
	for seed := range *balanceSeeds / 3 {
		r := rand.New(rand.NewPCG(seed, 3))
		w := random(r, seed%2 == 0)
		history := []world{w.clone()}
		moves := 0
		for range 400 {
			seen := history[max(0, len(history)-1-r.IntN(4))]
			self := w.members[r.IntN(len(w.members))].Holder
			moves += w.do(self, leases.Balance(self, seen.members, seen.leases))
			history = append(history, w.clone())
		}
		if rest := w.round(); rest != 0 {
			t.Fatalf("seed %d: still moving after %d moves: %v", seed, moves, w.counts())
		}
		if limit := 12 * (len(w.leases) + 1); moves > limit {
			t.Errorf("seed %d: %d moves of %d leases, want at most %d", seed, moves, len(w.leases), limit)
		}
	}
}

// TestBalanceDoesNotFlap adds and removes a member and counts the moves.
func TestBalanceDoesNotFlap(t *testing.T) {
	for n := 1; n <= 6; n++ {
		for total := range 30 {
			var w world
			for i := range n {
				w.members = append(w.members, leases.Member{Holder: fmt.Sprintf("n%d/1", i)})
			}
			for i := range total {
				w.leases = append(w.leases, leases.Lease{Resource: fmt.Sprintf("r%02d", i)})
			}
			w.round()
			w.members = append(w.members, leases.Member{Holder: "new/1"})
			given := w.round()
			taken := w.round()
			if want := total / (n + 1); given != want || taken != want {
				t.Errorf("%d members, %d leases: a newcomer is given %d and takes %d, want its share of %d", n, total, given, taken, want)
			}
			if again := w.round(); again != 0 {
				t.Errorf("%d members, %d leases: %d moves at rest", n, total, again)
			}
		}
	}
}

func BenchmarkBalance(b *testing.B) {
	for _, n := range []int{20, 1000} {
		b.Run(fmt.Sprintf("leases=%d/members=10", n), func(b *testing.B) {
			var w world
			for i := range 10 {
				w.members = append(w.members, leases.Member{Holder: fmt.Sprintf("n%d/1", i)})
			}
			for i := range n {
				w.leases = append(w.leases, leases.Lease{Resource: fmt.Sprintf("r%04d", i)})
			}
			for w.round() > 0 {
			}
			b.ReportAllocs()
			for b.Loop() {
				leases.Balance("n3/1", w.members, w.leases)
			}
		})
	}
}
