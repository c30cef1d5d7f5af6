package leases

import (
	"maps"
	"time"
)

// SetCopied says of which resources members keep copies of the state and tell the group when a copy is warm
// ([Manager.SetWarm]). Leases of such resources are given up only to members that are warm for them; see [Balance], and
// [Group.Next] for what a member is to become warm for.
//
// All members should be given the same. While they are not, nothing depends on it but which of them takes a free lease
// first, and from whom the others do not wait for that: a lease is given up by its holder alone.
func (m *Manager) SetCopied(resources []string) {
	copied := make(map[string]bool, len(resources))
	for _, resource := range resources {
		copied[resource] = true
	}
	m.mu.Lock()
	same := maps.Equal(m.copied, copied)
	m.copied = copied // replaced and never changed: copiedNow hands it out
	m.mu.Unlock()
	if same {
		return
	}
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *Manager) copiedNow() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.copied
}

const (
	// nextWait is how long a member that is to become warm for a lease may neither be warm nor be about to.
	nextWait = time.Minute
	// nextPause is for how long others are to in its place. Then it may have room again.
	nextPause = 10 * time.Minute
)

// nextMove is a lease that is to move to a node when that is warm for it.
type nextMove struct {
	node  string
	heard time.Duration // when the node was named, or was about to become warm
}

// noteNext keeps who is to become warm for what, by the plan of moves. The next round tells it (Group). Who does not become
// warm, and does not say that it is about to, as where its disk has no room, is passed over in later plans for a while:
//
//	to b    b is loading, for an hour       it stays with b
//	to b    nothing is heard for a minute   to c, if c takes it; to b again ten minutes later
//
// Each member finds that for itself. While they differ, two become warm for one lease; its holder gives it to whoever is first.
func (l *loop) noteNext(plan map[string]string, live map[string]*memberRecord, now time.Duration) {
	next, moves := make(map[string]string, len(plan)), make(map[string]nextMove, len(plan))
	for resource, holder := range plan {
		node := NodeOf(holder)
		next[resource] = node
		move := nextMove{node, now}
		if old := l.moves[resource]; old.node == node && l.canJudge(now) && !live[node].isLoading(resource) {
			move.heard = old.heard
		}
		if now-move.heard > nextWait {
			l.log.Info("another member is to become warm for a lease, for one does not", "resource", resource, "member", holder)
			l.fails[fails{node, resource}] = now + nextPause
		}
		moves[resource] = move
	}
	l.moves = moves
	if !maps.Equal(next, l.next) {
		l.next, l.dirty = next, true
	}
}

// fails is a node that does not become warm for a resource.
type fails struct{ node, resource string }

// failsOf returns for what a node does not become warm.
func (l *loop) failsOf(node string, now time.Duration) map[string]bool {
	var all map[string]bool
	for f, until := range l.fails {
		switch {
		case now >= until:
			delete(l.fails, f)
		case f.node == node:
			if all == nil {
				all = make(map[string]bool)
			}
			all[f.resource] = true
		}
	}
	return all
}
