//go:build linux

package integration_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The kinds of faults.
const (
	faultKill    = "kill -9"
	faultStop    = "SIGSTOP"
	faultCut     = "silent cut"
	faultDumb    = "cut of what it sends"
	faultDeaf    = "cut of what it gets"
	faultSlow    = "slow link"
	faultFull    = "full disk"
	faultWiped   = "wiped disk"
	faultPlanned = "planned stop"
	faultTwo     = "two at once"
)

// faultKinds are in the order in which figures are told.
var faultKinds = []string{faultKill, faultStop, faultCut, faultDumb, faultDeaf, faultSlow, faultFull, faultWiped, faultPlanned}

// befalls says whether a kind of fault befalls hosts of a role. What a server of NATS has on its disk is one of three
// copies, which the product does not make again, and which it need not lose.
func befalls(kind, role string) bool { return kind != faultWiped || role != roleNATS }

const (
	faultLeast = 2 * time.Second
	faultMost  = 9 * time.Second
	// chaosDoubles and chaosSplits are how many of ten steps have two faults, and a split.
	chaosDoubles = 2
	chaosSplits  = 4
)

// chaosFault befalls one host.
type chaosFault struct{ kind, host string }

// chaosStep is what happens at one time, when all is well.
type chaosStep struct {
	faults []chaosFault
	lasts  time.Duration
	split  string        // container whose partition is split meanwhile; "" for none
	where  float64       // which of its partitions, as a part of 1
	after  time.Duration // the faults' beginning, that the split is asked for
}

func (s *chaosStep) String() string {
	var all []string
	for _, f := range s.faults {
		all = append(all, f.kind+" of "+f.host)
	}
	text := fmt.Sprintf("%s for %s", strings.Join(all, " and "), s.lasts.Round(100*time.Millisecond))
	if s.split != "" {
		text += fmt.Sprintf(", a split of %s after %s", s.split, s.after.Round(100*time.Millisecond))
	}
	return text
}

// kind is that of the one fault, or says that there are two.
func (s *chaosStep) kind() string {
	if len(s.faults) > 1 {
		return faultTwo
	}
	return s.faults[0].kind
}

// chaosPlan draws step after step from a seed. Kinds and roles are dealt from a shuffled deck, so that a long run has
// all of them and about as many of each.
type chaosPlan struct {
	rand  *rand.Rand
	hosts map[string][]string // by role
	deck  []chaosFault        // with roles in the place of hosts
	drawn []chaosStep
}

func newChaosPlan(seed uint64, hosts []*chaosHost) *chaosPlan {
	p := &chaosPlan{rand: rand.New(rand.NewPCG(seed, 0)), hosts: map[string][]string{}}
	for _, h := range hosts {
		p.hosts[h.role] = append(p.hosts[h.role], h.Name)
	}
	return p
}

func (p *chaosPlan) next() *chaosStep {
	s := chaosStep{faults: []chaosFault{p.deal("")}, lasts: faultLeast + upTo(p.rand, faultMost-faultLeast)}
	if p.rand.IntN(10) < chaosDoubles {
		s.faults = append(s.faults, p.deal(s.faults[0].host))
	}
	if p.rand.IntN(10) < chaosSplits {
		containers := []string{"ledger", "productMeta", "product", "customer", "region"}
		s.split, s.where, s.after = containers[p.rand.IntN(len(containers))], p.rand.Float64(), upTo(p.rand, s.lasts)
	}
	p.drawn = append(p.drawn, s)
	return &p.drawn[len(p.drawn)-1]
}

// upTo draws a duration below most.
func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

// deal takes a fault from the deck, and draws a host for it of another role than that of the host beside it: one host of
// each role may be missing.
func (p *chaosPlan) deal(beside string) chaosFault {
	if len(p.deck) == 0 {
		for _, kind := range faultKinds {
			for _, role := range []string{roleNATS, roleStore, roleWorker} {
				if befalls(kind, role) {
					p.deck = append(p.deck, chaosFault{kind, role})
				}
			}
		}
		p.rand.Shuffle(len(p.deck), func(i, j int) { p.deck[i], p.deck[j] = p.deck[j], p.deck[i] })
	}
	at := slices.IndexFunc(p.deck, func(f chaosFault) bool { return !slices.Contains(p.hosts[f.host], beside) })
	if at < 0 { // the rest of the deck is of the one role
		p.deck = nil
		return p.deal(beside)
	}
	f := p.deck[at]
	p.deck = slices.Delete(p.deck, at, at+1)
	f.host = p.hosts[f.host][p.rand.IntN(len(p.hosts[f.host]))]
	return f
}

// String is the plan as far as it was drawn.
func (p *chaosPlan) String() string {
	var text strings.Builder
	for i := range p.drawn {
		fmt.Fprintf(&text, "%d. %s\n", i+1, &p.drawn[i])
	}
	return text.String()
}
