package leases

import "maps"

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

// noteNext keeps who is to become warm for what, by the plan of moves. The next round tells it (Group).
func (l *loop) noteNext(plan map[string]string) {
	next := make(map[string]string, len(plan))
	for resource, holder := range plan {
		next[resource] = NodeOf(holder)
	}
	if !maps.Equal(next, l.next) {
		l.next, l.dirty = next, true
	}
}
