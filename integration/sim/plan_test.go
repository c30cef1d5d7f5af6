package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan is what one run does, all of it drawn from a seed. A plan without some of its faults
// is a plan too, which is how a run that fails is made smaller.
type plan struct {
	Seed    uint64
	Nodes   int
	Clients int
	Ops     int // of each client
	Items   int
	Pause   time.Duration // the longest between two operations of a client
	Reads   int           // of 100 operations so many are reads, beside those that are drawn as such
	Faults  []fault
	Cuts    []cut
	Message faults
	// SnapshotBytes is how much a log grows between two snapshots.
	SnapshotBytes int64
	// Compress has commits of any size compressed, where that saves something. A few items make
	// none that are long enough by default.
	Compress bool
	// Pipelines are declared after this time, if it is not 0; Partitions are those of the
	// containers.
	Pipelines  time.Duration
	Partitions int
	// From AwayAt on no process works on pipelines, for AwayFor, so that they read behind while
	// stores go on to trim.
	AwayAt, AwayFor time.Duration
	// Splits are asked for while all this happens.
	Splits []split
	// Timeout is that of clients; 0 is the usual one.
	Timeout time.Duration
	// Ambushes befall who takes a step of a split, at that moment.
	Ambushes []ambush
	// Rights says that stores depose each other, and that leases last as long as they do by default.
	Rights bool
	// Standbys follow partitions, and clients read from them.
	Standbys bool
	// Mutation makes something wrong on purpose.
	Mutation mutation
}

// fault is something that happens to one node.
type fault struct {
	At   time.Duration
	Kind faultKind
	Node int
	// For is how long it lasts: until the node is started again, or heard again.
	For time.Duration
}

// cut breaks the connections of a client.
type cut struct {
	At     time.Duration
	Client int
}

type faultKind string

const (
	kills    faultKind = "kill"    // as kill -9 does; the engine stays as it is
	loses    faultKind = "lose"    // kills, and the engine's directory is lost
	stops    faultKind = "stop"    // as SIGTERM does
	silences faultKind = "silence" // nothing leaves or reaches the node
	cuts     faultKind = "cut"     // connections break
	strands  faultKind = "strand"  // the leases' bucket is out of the node's reach, and nothing else
	jams     faultKind = "jam"     // JetStream is; clients reach the node
)

// planOf draws a plan.
func planOf(seed uint64) plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := plan{
		Seed: seed, Nodes: 2, Clients: 3, Partitions: 1, Ops: 25 + rng.IntN(30), Items: 3 + rng.IntN(6), Pause: 100*time.Millisecond + upTo(rng, time.Second),
		SnapshotBytes: 1<<10 + rng.Int64N(16<<10),
	}
	p.Message.Lose, p.Message.Late = rng.IntN(15), rng.IntN(15)
	p.Message.LateMax = upTo(rng, 4*time.Second) + 1
	kinds := []faultKind{kills, kills, loses, stops, silences, silences, cuts}
	for at := upTo(rng, 4*time.Second); at < 20*time.Second; at += upTo(rng, 5*time.Second) {
		f := fault{At: at, Kind: kinds[rng.IntN(len(kinds))], Node: rng.IntN(p.Nodes), For: upTo(rng, 5*time.Second)}
		p.Faults = append(p.Faults, f)
	}
	rng = rand.New(rand.NewPCG(seed, 2))
	for at := upTo(rng, 15*time.Second); at < 40*time.Second; at += upTo(rng, 15*time.Second) {
		p.Cuts = append(p.Cuts, cut{at, rng.IntN(p.Clients)})
	}
	p.Compress = rand.New(rand.NewPCG(seed, 4)).IntN(2) == 0
	rng = rand.New(rand.NewPCG(seed, 5))
	if p.Rights = rng.IntN(2) == 0; p.Rights {
		for at := upTo(rng, 6*time.Second); at < 25*time.Second; at += upTo(rng, 8*time.Second) {
			f := fault{At: at, Kind: strands, Node: rng.IntN(p.Nodes), For: upTo(rng, 6*time.Second)}
			p.Faults = append(p.Faults, f)
		}
		slices.SortStableFunc(p.Faults, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	}
	p.Splits = splitsOf(rand.New(rand.NewPCG(seed, 6)))
	p.Ambushes = ambushesOf(rand.New(rand.NewPCG(seed, 7)), len(p.Splits))
	rng = rand.New(rand.NewPCG(seed, 8))
	if p.Standbys = rng.IntN(2) == 0; p.Standbys {
		p.lagsBehind(rng, 6*time.Second)
	}
	return p
}

// lagsBehind adds times in which a node does not hear of what others write, and is asked for it: what it owns it cannot write
// to, and what it follows grows old.
func (p *plan) lagsBehind(rng *rand.Rand, most time.Duration) {
	for at := upTo(rng, 6*time.Second); at < 20*time.Second; at += time.Second + upTo(rng, 8*time.Second) {
		p.Faults = append(p.Faults, fault{At: at, Kind: jams, Node: rng.IntN(p.Nodes), For: upTo(rng, most)})
	}
	slices.SortStableFunc(p.Faults, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
}

// silencesOf draws a plan in which nodes fall silent for less than their leases last, and clients
// read more than they write: nobody may take a lease then, because who had it goes on to answer. Where stores hold
// rights a node loses its right meanwhile, and perhaps what it has, while clients reach it all the time.
func silencesOf(seed uint64) plan {
	p := planOf(seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	p.Ops, p.Items, p.Pause, p.Reads = 150, 2, 150*time.Millisecond, 60
	p.Faults = nil
	for at := upTo(rng, 3*time.Second); at < 15*time.Second; at += time.Second + upTo(rng, 2*time.Second) {
		f := fault{At: at, Kind: silences, Node: rng.IntN(p.Nodes), For: leaseTTL/4 + upTo(rng, leaseTTL/2)}
		if p.Rights {
			f.Kind, f.For = strands, upTo(rng, 2*leaseTTL)
		}
		p.Faults = append(p.Faults, f)
	}
	if p.Rights && len(p.Splits) > 0 {
		// Who has ended a log does not learn it, and clients reach it, while others serve the children.
		p.Timeout, p.Ambushes = 1500*time.Millisecond, []ambush{{ends, 1, jams, 3*time.Second + upTo(rng, 6*time.Second)}}
	}
	return p
}

// standbysOf draws a plan in which a standby does not hear of what is written, and then the owner dies: clients, who read more
// than they write, reach a copy that is old.
func standbysOf(seed uint64) plan {
	p := planOf(seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	p.Ops, p.Reads, p.Pause, p.Standbys, p.Faults = 100, 50, 200*time.Millisecond, true, nil
	for at := 2*time.Second + upTo(rng, 3*time.Second); at < 16*time.Second; at += 4*time.Second + upTo(rng, 3*time.Second) {
		node := rng.IntN(p.Nodes)
		p.Faults = append(p.Faults, fault{At: at, Kind: jams, Node: node, For: 3*time.Second + upTo(rng, 3*time.Second)},
			fault{At: at + upTo(rng, 3*time.Second), Kind: kills, Node: 1 - node, For: 1*time.Second + upTo(rng, 3*time.Second)})
	}
	return p
}

// pipelinesOf draws a plan in which pipelines are declared while the stores run.
func pipelinesOf(seed uint64) plan {
	p := planOf(seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	p.Pipelines, p.Partitions = 1+upTo(rng, 15*time.Second), 1+rng.IntN(2)
	p.Splits, p.Ambushes = nil, nil
	p.AwayAt = p.Pipelines + upTo(rng, 4*time.Second)
	if rng.IntN(2) == 0 {
		p.AwayFor = 5*time.Second + upTo(rng, 10*time.Second)
	}
	return p
}

// String prints the plan, one fault a line.
func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d nodes, %d clients of %d operations on %d items, pause %s, snapshot each %d bytes\n",
		p.Seed, p.Nodes, p.Clients, p.Ops, p.Items, p.Pause, p.SnapshotBytes)
	if p.Compress {
		b.WriteString("  commits are compressed\n")
	}
	fmt.Fprintf(&b, "  of 1000 messages %d are lost, %d late by up to %s\n", p.Message.Lose, p.Message.Late, p.Message.LateMax)
	if p.Rights {
		b.WriteString("  stores depose each other\n")
	}
	if p.Standbys {
		b.WriteString("  partitions have standbys\n")
	}
	for _, s := range p.Splits {
		fmt.Fprintf(&b, "  at %s: %s\n", s.At, s)
	}
	for _, a := range p.Ambushes {
		fmt.Fprintf(&b, "  when for the %d. time %s: %s, for %s\n", a.Nth, a.Step, a.Kind, a.For)
	}
	if p.Pipelines > 0 {
		fmt.Fprintf(&b, "  pipelines over %d partitions, declared after %s\n", p.Partitions, p.Pipelines)
		fmt.Fprintf(&b, "  at %s: nobody works on them, for %s\n", p.AwayAt, p.AwayFor)
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  at %s: %s node %d, for %s\n", f.At, f.Kind, f.Node, f.For)
	}
	for _, c := range p.Cuts {
		fmt.Fprintf(&b, "  at %s: cut client %d\n", c.At, c.Client)
	}
	return b.String()
}

// smaller returns plans that have less of something: of faults first none or half as many, then
// one less, so that what needs none of them is found in a few runs.
func (p *plan) smaller() []plan {
	var all []plan
	add := func(change func(*plan)) {
		q := *p
		q.Faults = slices.Clone(p.Faults)
		change(&q)
		all = append(all, q)
	}
	if len(p.Cuts) > 0 {
		add(func(q *plan) { q.Cuts = nil })
	}
	if p.AwayFor > 0 {
		add(func(q *plan) { q.AwayFor = 0 })
	}
	for i := range p.Splits {
		add(func(q *plan) { q.Splits = slices.Delete(slices.Clone(q.Splits), i, i+1) })
	}
	for i := range p.Ambushes {
		add(func(q *plan) { q.Ambushes = slices.Delete(slices.Clone(q.Ambushes), i, i+1) })
	}
	if p.Compress {
		add(func(q *plan) { q.Compress = false })
	}
	if p.Rights {
		add(func(q *plan) { q.Rights = false })
	}
	if p.Standbys {
		add(func(q *plan) { q.Standbys = false })
	}
	if n := len(p.Faults); n > 1 {
		add(func(q *plan) { q.Faults = nil })
		add(func(q *plan) { q.Faults = q.Faults[:n/2] })
		add(func(q *plan) { q.Faults = q.Faults[n/2:] })
	}
	if p.Message.Lose > 0 {
		add(func(q *plan) { q.Message.Lose = 0 })
	}
	if p.Message.Late > 0 {
		add(func(q *plan) { q.Message.Late = 0 })
	}
	for i := range p.Faults {
		add(func(q *plan) { q.Faults = slices.Delete(q.Faults, i, i+1) })
	}
	if p.Clients > 1 {
		add(func(q *plan) { q.Clients-- })
	}
	if p.Ops > 5 {
		add(func(q *plan) { q.Ops = q.Ops * 2 / 3 })
	}
	return all
}

// upTo draws a time below most.
func upTo(rng *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(most)))
}
