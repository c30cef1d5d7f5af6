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

	// Closed says that the member takes nothing: it drains, knows another set of
	// resources, or let free leases lie. What it holds still counts.
	Closed bool

	// Declines are the resources that the member will not take for now.
	Declines []string
}

// Decision is what one member does next.
type Decision struct {
	// Take are the free leases that this member takes, GiveUp those of its own
	// that it releases for a member with less. Both are ordered by name.
	Take, GiveUp []string

	// Plan tells for each free lease which member is to take it. A lease that
	// no member takes is missing.
	Plan map[string]string
}

// Balance decides what the member self does. It is a pure function of what the
// members see, so that members with the same view decide as one: a free lease
// is taken by one of them, and what is given up is what the others expect.
//
// A lease weighs 1 or what its holder published, rounded to a power of two
// between 1/16 and 1024. Free leases go to the member with the least weight,
// the heaviest first; within what a member gets so, it gets those that its node
// held before. Then the heaviest member gives the lightest one its heaviest lease
// of which one and a half times the weight does not exceed the difference of the
// two, and so on until nobody has such a lease. Each move makes that difference
// smaller, or turns it round to at most a third, so the sum of squares falls and
// it comes to rest; with equal weights it rests where no two members differ by
// more than one. A lease is only ever given up by its holder.
//
// The Owner of a lease that can be taken is empty. An owner that is not among
// the members counts as a closed one. Order of the arguments has no influence.
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
		owner := byHolder[lease.Owner]
		if owner == nil {
			owner = add(Member{Holder: lease.Owner, Closed: true})
		}
		owner.held = append(owner.held, lease)
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

// assignFree gives each free lease to a member.
func (p *plan) assignFree() {
	// Pour the leases on the lightest members to learn how much each gets.
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
	// Within that much, a node keeps what it had.
	give := func(l *load, lease *Lease) {
		l.weight += roundWeight(lease.Weight)
		p.taken[lease.Resource] = l.Holder
	}
	for _, lease := range p.free {
		node := nodeOf(lease.Last)
		for i, l := range p.loads {
			if node != "" && nodeOf(l.Holder) == node && l.takes(lease.Resource) &&
				l.weight+roundWeight(lease.Weight) <= target[i] {
				give(l, lease)
				break
			}
		}
	}
	for _, lease := range p.free {
		if l := p.lightest(lease.Resource); l != nil && p.taken[lease.Resource] == "" {
			give(l, lease)
		}
	}
}

// lightest returns the member with the least weight that takes the resource.
func (p *plan) lightest(resource string) *load {
	var lightest *load
	for _, l := range p.loads {
		if l.takes(resource) && (lightest == nil || l.weight < lightest.weight) {
			lightest = l
		}
	}
	return lightest
}

func (l *load) takes(resource string) bool { return !l.Closed && !l.declines[resource] }

// moveSurplus moves leases between members until that improves nothing, and
// returns self's part.
func (p *plan) moveSurplus(self string) Decision {
	decision := Decision{Plan: p.taken}
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
	givers := slices.Clone(p.loads)
	slices.SortStableFunc(givers, func(a, b *load) int { return cmp.Compare(b.weight, a.weight) })
	for _, giver := range givers {
		for i, lease := range giver.held {
			weight := roundWeight(lease.Weight)
			taker := p.lightest(lease.Resource)
			if taker == nil || taker == giver || giver.weight-taker.weight < weight*3/2 {
				continue
			}
			giver.held = slices.Delete(giver.held, i, i+1)
			giver.weight -= weight
			taker.weight += weight // what it is given does not move on in this plan
			if giver.Holder == self {
				decision.GiveUp = append(decision.GiveUp, lease.Resource)
			}
			return true
		}
	}
	return false
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

// roundWeight rounds to a power of two, so that sums are exact and small
// changes are none.
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
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}
