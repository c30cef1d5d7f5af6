package standby

import (
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store/owner"
)

// Wish is what the catalog and the leases say of a partition.
type Wish struct {
	Partition feed.Partition
	// Standbys is how many are to follow it.
	Standbys int
	// Owner is the node that has its lease, or had it last.
	Owner string
	// Next is the node that is to own it when its copy is warm (leases.Group.Next); "" where it stays.
	Next string
}

// Choose returns the partitions that the node self follows, in the order of the wishes. It ranks the
// nodes of a partition by a hash of both, and takes the first ones that live and do not own it: so a
// node that comes or goes changes little for the others, and nobody needs to agree. Who is to own the partition next
// follows it too, because it does not get it cold. nodes are those that live and are not to drain (leases.Group.Stays):
// who is about to go is not to begin a copy, nor to be the reason why nobody else does. What it has begun it keeps
// until others are warm, or there are others.
//
//	ranks of P: b a c   owner a          b follows
//	                    a is dead        b follows, and takes it
//	                    owner b          a follows; without a, c
//	                    b owns too much  a follows, and c, to which it is to move; then owner c, and b follows
//	ranks of P: b a c   owner a          b follows; b drains, and c follows; until c is warm, b does too
func Choose(self string, nodes []string, wishes []Wish) []feed.Partition {
	var chosen []feed.Partition
	for _, w := range wishes {
		if slices.Contains(w.followers(nodes), self) {
			chosen = append(chosen, w.Partition)
		}
	}
	return chosen
}

// followers returns the nodes that are to follow the partition.
func (w Wish) followers(nodes []string) []string {
	others := slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return node == w.Owner })
	slices.SortFunc(others, func(a, b string) int { return compareRanks(w.Partition, a, b) })
	if w.Standbys <= 0 {
		return nil
	}
	first := others[:min(w.Standbys, len(others))]
	if slices.Contains(others, w.Next) && !slices.Contains(first, w.Next) {
		first = append(slices.Clip(first), w.Next)
	}
	return first
}

// relieved says whether all who are to follow the partition are warm, so that others need not. Where there is nobody to
// follow it, because all others drain, nobody is relieved.
func (w Wish) relieved(group *leases.Group) bool {
	followers := w.followers(group.Stays())
	return len(followers) > 0 && !slices.ContainsFunc(followers, func(node string) bool {
		_, warm := group.Warm[node][owner.LeaseResource(w.Partition)]
		return !warm
	})
}

func compareRanks(p feed.Partition, a, b string) int {
	if x, y := rank(p, a), rank(p, b); x != y {
		if x > y {
			return -1
		}
		return 1
	}
	return strings.Compare(a, b)
}

func rank(p feed.Partition, node string) uint64 {
	return xxhash.Sum64String(node + "\x00" + p.String())
}
