//go:build !race

package sim

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The tests of the simulation itself. That what they run has no races is seen by others.

// TestMutations_AreFound shows that the simulation can fail.
func TestMutations_AreFound(t *testing.T) {
	for _, m := range []mutation{acknowledgesFirst, expectsNothing, leasesTwice, readsNothingBack, trimsMore, asksNobody, copiesNothing, bearsTwice, forgetsSessions} {
		t.Run(string(m), func(t *testing.T) {
			for seed := range uint64(mutationSeeds) {
				p := planOf(seed + 1)
				if m == copiesNothing || m == asksNobody {
					p = pipelinesOf(seed + 1)
				}
				if m == asksNobody {
					p.AwayFor = 12 * time.Second // which half of the seeds have
				}
				if m == forgetsSessions {
					p = standbysOf(seed + 1)
				}
				if m == leasesTwice {
					p = silencesOf(seed + 1)
				}
				p.Mutation = m
				if r := run(t, p); len(r.failures) > 0 {
					t.Logf("seed %d: %.500s", p.Seed, r.failures[0])
					return
				}
			}
			t.Errorf("%d seeds have not found it", mutationSeeds)
		})
	}
}

// mutationSeeds is within how many seeds a mutation has to be found. A seed finds the one that is
// hardest to see, readsNothingBack, once in nine times, and the others once in four or oftener:
// that none of so many does is not luck.
const mutationSeeds = 200

// TestDamage_IsFoundByDigests shows that a digest would differ if an engine held what its log does not make.
func TestDamage_IsFoundByDigests(t *testing.T) {
	for seed := range uint64(mutationSeeds) {
		p := planOf(seed + 1)
		p.Standbys, p.Mutation = true, harmsEngines
		r := run(t, p)
		if at := slices.IndexFunc(r.failures, func(f string) bool { return strings.HasPrefix(f, "a digest differs") }); at >= 0 {
			t.Logf("seed %d: %.500s", p.Seed, r.failures[at])
			return
		}
	}
	t.Errorf("%d seeds have not found it", mutationSeeds)
}

// TestShrink_LeavesWhatAFailureNeeds lets a mutation fail under faults that it does not need.
func TestShrink_LeavesWhatAFailureNeeds(t *testing.T) {
	p := planOf(1)
	p.Mutation = trimsMore
	runs := 0
	small, r, ok := shrink(p, func(q plan) (result, bool) {
		runs++
		return failsAtOnce(t, q)
	})
	t.Logf("%d runs made\n%sof\n%s%s", runs, small.String(), p.String(), list(r.failures))
	switch {
	case !ok || len(r.failures) == 0:
		t.Fatal("a plan that fails is told not to")
	case len(small.Faults) > 0 || len(small.Cuts) > 0 || small.Message != faults{LateMax: p.Message.LateMax}:
		t.Error("faults are left that it fails without")
	case small.Clients >= p.Clients || small.Ops >= p.Ops:
		t.Error("as many clients and operations are left as there were")
	}
}
