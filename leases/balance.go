package leases

import (
	"cmp"
	"hash/fnv"
	"io"
	"math"
	"slices"
)

// Member is a process of a group, as [Balance] sees it.
type Member struct {
	// Holder is "node/incarnation".
	Holder string

	// Closed says that the member takes no lease: it drains, knows another set of
	// resources, or did not take the free leases that it was to take. The leases that it
	// holds still count.
	Closed bool

	// Drains says that the member gives up all that others would take, and takes what nobody else does.
	Drains bool

	// Declines are the resources that the member does not take for now.
	Declines []string

	// Warm has the resources that the member is prepared to take.
	Warm map[string]uint64

	// Fails has the resources for which the member was to become warm and did not. Another one is to, if there is one.
	Fails map[string]bool
}

// Decision is what one member does next.
type Decision struct {
	// Take are the free leases that this member takes, GiveUp those of its own
	// that it releases for a member with less. Both are ordered by name.
	Take, GiveUp []string

	// Plan has for each free lease the member that is to take it. A lease that no member
	// takes is missing.
	Plan map[string]string

	// Next has for each lease that would move, if only it had a warm member to move to, the member that is to become
	// warm for it. All members come to the same.
	Next map[string]string
}

// Balance decides what the member self does. It is a pure function of what the members see,
// so members with the same view come to one decision: exactly one of them takes a free
// lease, and a member gives up what the others expect.
//
// A lease weighs 1, or what its holder published, rounded to a power of two between 1/16
// and 1024. A free lease that is bound goes to the member of the node that used it last: it would come back from
// any other. Other free leases go to the member with the least weight, the heaviest lease first.
// Within the weight that a member gets so, it gets leases that its node held before. A lease goes to a
// member that is warm for it in place of the lightest, unless it would have to move away again. Then the
// heaviest member gives the lightest one its heaviest lease of which one and a half times
// the weight does not exceed the difference of the two; before others those that one which is
// about as light is warm for. That repeats until no member has such a lease:
//
//	weights 5 and 2, leases of 1:   5-2 = 3 >= 1.5   ->  4 and 3
//	weights 4 and 3, leases of 1:   4-3 = 1 <  1.5   at rest
//
// Each move makes the difference smaller, or reverses it to at most a third of its size. So
// the sum of squares falls with each move, and the moves end. With equal weights they end
// when no two members differ by more than one. Only its holder ever gives a lease up. One that is bound
// does not move.
//
// A lease of which copies are kept is given up only to a member that is warm for it, and stays where it is until one is
// (Decision.Next): whoever is cold would load it, and nobody serves it meanwhile. Who fails to become warm is passed over.
// When such a lease is free, it goes to a
// member that is warm for it however much that one has, and to any if none is.
//
// A member that drains gives up all that others would take, and gets a free lease only where nobody else takes it.
//
// The Owner of a lease that can be taken is empty. An owner that is not among the members
// counts as a closed member. The order of the arguments has no influence.
func Balance(self string, members []Member, leases []Lease) Decision {
	p := newPlan(members, leases)
	p.assignFree()
	return p.moveSurplus(self)
}

// load is one member in a plan.
type load struct {
	Member
	weight   float64
	held     []*Lease // that may move, heaviest first
	declines map[string]bool
}

type plan struct {
	loads []*load // ordered by holder
	free  []*Lease
	taken map[string]string // resource to holder
}

func newPlan(members []Member, leases []Lease) *plan {
	p := &plan{taken: make(map[string]string)}
	byHolder := make(map[string]*load, len(members))
	add := func(m Member) *load {
		l := &load{Member: m}
		if len(m.Declines) > 0 {
			l.declines = make(map[string]bool, len(m.Declines))
			for _, resource := range m.Declines {
				l.declines[resource] = true
			}
		}
		byHolder[m.Holder] = l
		p.loads = append(p.loads, l)
		return l
	}
	for _, m := range members {
		if byHolder[m.Holder] == nil {
			add(m)
		}
	}
	for i := range leases {
		lease := &leases[i]
		if lease.Owner == "" {
			p.free = append(p.free, lease)
			continue
		}
		// An owner that is not a member may be dead or merely unseen. Its leases count, and it
		// gets none.
		owner := byHolder[lease.Owner]
		if owner == nil {
			owner = add(Member{Holder: lease.Owner, Closed: true})
		}
		if !lease.Bound {
			owner.held = append(owner.held, lease)
		}
		owner.weight += roundWeight(lease.Weight)
	}
	slices.SortFunc(p.loads, func(a, b *load) int { return cmp.Compare(a.Holder, b.Holder) })
	slices.SortFunc(p.free, heaviestFirst)
	for _, l := range p.loads {
		slices.SortFunc(l.held, heaviestFirst)
	}
	return p
}

func heaviestFirst(a, b *Lease) int {
	return cmp.Or(
		cmp.Compare(roundWeight(b.Weight), roundWeight(a.Weight)),
		cmp.Compare(a.Resource, b.Resource))
}

// assignFree gives each free lease to a member. Who drains comes last: it is better that it serves than that nobody does.
func (p *plan) assignFree() {
	give := func(l *load, lease *Lease) {
		l.weight += roundWeight(lease.Weight)
		p.taken[lease.Resource] = l.Holder
	}
	p.assignBound(give)
	// Two passes. The first gives leases to the lightest members only to learn how much
	// weight each gets; the weights are set back after it. The second gives each node what
	// it held before, within that weight, and the rest to the lightest. Without that limit a
	// node that comes back would take all it had, however little the others have.
	before := make([]float64, len(p.loads))
	target := make([]float64, len(p.loads))
	for i, l := range p.loads {
		before[i] = l.weight
	}
	for _, lease := range p.free {
		if l := p.lightest(lease.Resource); l != nil {
			l.weight += roundWeight(lease.Weight)
		}
	}
	for i, l := range p.loads {
		target[i], l.weight = l.weight, before[i]
	}
	for _, lease := range p.free {
		node := NodeOf(lease.Last)
		if lease.Copied && p.lightestWarm(lease.Resource) != nil {
			continue // it was given up for that one
		}
		for i, l := range p.loads {
			if node != "" && NodeOf(l.Holder) == node && l.takes(lease.Resource) &&
				l.weight+roundWeight(lease.Weight) <= target[i] {
				give(l, lease)
				break
			}
		}
	}
	p.assignWarm(give)
	for _, lease := range p.free {
		if p.taken[lease.Resource] != "" {
			continue
		}
		var warm *load // one that drains: better than that somebody loads it
		if lease.Copied {
			warm = p.lightestOf(func(l *load) bool { return l.serves(lease.Resource) && l.isWarm(lease.Resource) })
		}
		if l := cmp.Or(warm, p.lightest(lease.Resource), p.lightestOf(func(l *load) bool { return l.serves(lease.Resource) })); l != nil {
			give(l, lease)
		}
	}
}

// assignBound gives the free leases that are bound to the members of the nodes that used them last, however much those
// have, and though they drain. Where such a node takes nothing, or does not live, its leases are given as others are.
func (p *plan) assignBound(give func(*load, *Lease)) {
	var rest []*Lease
	for _, lease := range p.free {
		user := p.lightestOf(func(l *load) bool {
			return lease.Bound && l.serves(lease.Resource) && NodeOf(l.Holder) == lease.User
		})
		if user == nil {
			rest = append(rest, lease)
			continue
		}
		give(user, lease)
	}
	p.free = rest
}

// assignWarm gives free leases to members that are warm for them, the lightest of those first. None gets so
// much more than the lightest member has that moveSurplus would take it away again:
//
//	free a b c d   x has 2, warm for a b   y has 2, warm for c d
//	a to x         3 and 2                 b to x would be 4 and 2, and wait: c to y   3 and 3
//	b to x         4 and 3                 d to y   4 and 4
//
// A lease of which copies are kept is not taken away again before another member is warm for it, so that is no reason to wait.
func (p *plan) assignWarm(give func(*load, *Lease)) {
	for given := true; given; {
		given = false
		for _, lease := range p.free {
			if p.taken[lease.Resource] != "" {
				continue
			}
			if warm := p.lightestWarm(lease.Resource); warm != nil && (lease.Copied || p.mayTakeWarm(warm, lease)) {
				give(warm, lease)
				given = true
			}
		}
	}
}

// lightest returns the member with the least weight that takes the resource.
func (p *plan) lightest(resource string) *load {
	return p.lightestOf(func(l *load) bool { return l.takes(resource) })
}

// lightestOf returns the member with the least weight of those for which among is true, nil if there are none.
func (p *plan) lightestOf(among func(*load) bool) *load {
	var lightest *load
	for _, l := range p.loads {
		if among(l) && (lightest == nil || l.weight < lightest.weight) {
			lightest = l
		}
	}
	return lightest
}

// takes reports whether a member takes a lease that others could take too, serves whether it does if nobody else can.
func (l *load) takes(resource string) bool  { return !l.Drains && l.serves(resource) }
func (l *load) serves(resource string) bool { return !l.Closed && !l.declines[resource] }

func (l *load) isWarm(resource string) bool {
	_, warm := l.Warm[resource]
	return warm
}

// moveSurplus moves leases between members until that improves nothing, and
// returns self's part.
func (p *plan) moveSurplus(self string) Decision {
	decision := Decision{Plan: p.taken, Next: make(map[string]string)}
	p.moveDrained(self, &decision)
	for p.moveOne(self, &decision) {
	}
	for resource, holder := range p.taken {
		if holder == self {
			decision.Take = append(decision.Take, resource)
		}
	}
	slices.Sort(decision.Take)
	slices.Sort(decision.GiveUp)
	return decision
}

// moveOne makes the move from the heaviest member that has one.
func (p *plan) moveOne(self string, decision *Decision) bool {
	// Members of equal weight stay in the order of their holders, so that all who compute the
	// plan come to the same.
	givers := slices.Clone(p.loads)
	slices.SortStableFunc(givers, func(a, b *load) int { return cmp.Compare(b.weight, a.weight) })
	for _, giver := range givers {
		// Whoever is not warm for a lease has to load something first, and nobody answers for it
		// meanwhile. So a lease that can go to a warm member goes before others.
		// What must not move cold is last, for it does not move yet.
		for _, takerOf := range []func(*Lease) *load{p.warmTaker, p.coldTaker(false), p.coldTaker(true)} {
			for i, lease := range giver.held {
				weight := roundWeight(lease.Weight)
				taker := takerOf(lease)
				if taker == nil || taker == giver || giver.weight-taker.weight < weight*3/2 {
					continue
				}
				giver.held = slices.Delete(giver.held, i, i+1)
				p.move(self, giver, taker, lease, decision)
				return true
			}
		}
	}
	return false
}

// moveDrained makes the moves from the members that drain: all that others take, to warm members where there are some.
func (p *plan) moveDrained(self string, decision *Decision) {
	for _, giver := range p.loads {
		if !giver.Drains {
			continue
		}
		for _, lease := range giver.held {
			if taker := cmp.Or(p.lightestWarm(lease.Resource), p.coldTaker(lease.Copied)(lease), p.lightest(lease.Resource)); taker != nil {
				p.move(self, giver, taker, lease, decision)
			}
		}
		giver.held = nil // what is left is taken by nobody
	}
}

// move moves a lease in the plan. Where the taker has to become warm first, the lease stays where it is, and counts as
// moved all the same: so the plan tells at once who is to become warm for what.
func (p *plan) move(self string, giver, taker *load, lease *Lease, decision *Decision) {
	weight := roundWeight(lease.Weight)
	giver.weight -= weight
	taker.weight += weight // the lease is not added to held: it moves once in a plan
	switch {
	case lease.Copied && !taker.isWarm(lease.Resource):
		decision.Next[lease.Resource] = taker.Holder
	case giver.Holder == self:
		decision.GiveUp = append(decision.GiveUp, lease.Resource)
	}
}

// warmTaker returns the lightest member that is warm for a lease, if assignWarm would give it the
// lease when it is free; nil if there is none.
func (p *plan) warmTaker(lease *Lease) *load {
	warm := p.lightestWarm(lease.Resource)
	if warm == nil || !p.mayTakeWarm(warm, lease) {
		return nil
	}
	return warm
}

// coldTaker returns a function for the lightest member that takes a lease, of which copies are kept or not; nil of others.
func (p *plan) coldTaker(copied bool) func(*Lease) *load {
	return func(lease *Lease) *load {
		if lease.Copied != copied {
			return nil
		}
		return p.lightestOf(func(l *load) bool { return l.takes(lease.Resource) && (!copied || !l.Fails[lease.Resource]) })
	}
}

// lightestWarm is lightest of the members that are warm for the resource.
func (p *plan) lightestWarm(resource string) *load {
	return p.lightestOf(func(l *load) bool { return l.takes(resource) && l.isWarm(resource) })
}

// mayTakeWarm reports whether moveSurplus would leave a lease with a member that is warm for it.
func (p *plan) mayTakeWarm(warm *load, lease *Lease) bool {
	weight := roundWeight(lease.Weight)
	return warm.weight+weight-p.lightest(lease.Resource).weight < weight*3/2
}

const (
	weightMin = 1.0 / 16
	weightMax = 1024
)

func weightOrOne(w float64) float64 {
	if w == 0 {
		return 1
	}
	return w
}

// roundWeight rounds to a power of two. Sums of such weights are exact in any order, so that
// all members compute the same, and small changes of a weight move nothing.
func roundWeight(w float64) float64 {
	w = weightOrOne(w)
	if math.IsNaN(w) || w <= weightMin {
		return weightMin
	}
	if w >= weightMax {
		return weightMax
	}
	return math.Exp2(math.Round(math.Log2(w)))
}

// digest identifies a set of resources, given in order.
func digest(resources []string) uint64 {
	h := fnv.New64a()
	for _, resource := range resources {
		_, _ = io.WriteString(h, resource) // a hash does not fail
		_, _ = h.Write([]byte{0})          // ends a name, so that "ab","c" differs from "a","bc"
	}
	return h.Sum64()
}
