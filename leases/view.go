package leases

import (
	"fmt"
	"slices"
	"time"
)

// view is what this process has seen of its group, and when, on its own clock.
// It may lag behind the bucket; whoever acts on it writes conditionally.
type view struct {
	group   string
	leases  map[string]*seenLease  // by resource
	members map[string]*seenMember // by node
	epochs  map[string]uint64      // greatest epoch seen of each resource, deleted ones included
	ready   bool                   // a snapshot was delivered
}

type seenLease struct {
	rec      *leaseRecord // nil: cannot be read
	revision uint64
	since    time.Duration // when this revision was first seen
}

type seenMember struct {
	rec      *memberRecord // nil: cannot be read
	revision uint64
	since    time.Duration
	created  time.Time // the server's clock
}

func newView(group string) *view {
	return &view{
		group: group, leases: make(map[string]*seenLease), members: make(map[string]*seenMember),
		epochs: make(map[string]uint64),
	}
}

// patterns are the keys to watch.
func (v *view) patterns() []string {
	return []string{leasePrefix + v.group + ".>", memberPrefix + v.group + ".>"}
}

// apply takes in an entry. It returns the resource if it is a lease, the node if
// it is a member, and whether anything beyond a renewal changed. err says why a
// record could not be read.
func (v *view) apply(e entry, now time.Duration) (resource, node string, changed bool, err error) {
	kind, group, name, ok := splitKey(e.Key)
	if !ok || group != v.group {
		return "", "", false, nil
	}
	switch kind {
	case leasePrefix:
		resource = unescape(name)
		changed, err = v.applyLease(resource, e, now)
	case memberPrefix:
		node = unescape(name)
		changed, err = v.applyMember(node, e, now)
	}
	return resource, node, changed, err
}

func (v *view) applyLease(resource string, e entry, now time.Duration) (bool, error) {
	old := v.leases[resource]
	if old != nil && e.Revision <= old.revision {
		return false, nil
	}
	if e.Deleted {
		delete(v.leases, resource)
		return old != nil, nil
	}
	rec, err := decodeLease(e.Key, e.Value)
	if err == nil && rec.Resource != resource {
		rec, err = nil, fmt.Errorf("record %s: it is of resource %q", e.Key, rec.Resource)
	}
	v.leases[resource] = &seenLease{rec: rec, revision: e.Revision, since: now}
	if rec == nil {
		return true, err
	}
	v.epochs[resource] = max(v.epochs[resource], rec.Epoch)
	return old == nil || old.rec == nil || old.rec.Owner != rec.Owner || old.rec.Epoch != rec.Epoch ||
		old.rec.weight() != rec.weight(), nil
}

func (v *view) applyMember(node string, e entry, now time.Duration) (bool, error) {
	old := v.members[node]
	if old != nil && e.Revision <= old.revision {
		return false, nil
	}
	if e.Deleted {
		delete(v.members, node)
		return old != nil, nil
	}
	rec, err := decodeMember(e.Key, e.Value)
	if err == nil && rec.Node != node {
		rec, err = nil, fmt.Errorf("record %s: it is of node %q", e.Key, rec.Node)
	}
	v.members[node] = &seenMember{rec: rec, revision: e.Revision, since: now, created: e.Created}
	if rec == nil {
		return true, err
	}
	return old == nil || old.rec == nil || now-old.since >= old.rec.ttl() ||
		old.rec.Incarnation != rec.Incarnation || old.rec.Closed != rec.Closed || old.rec.Left != rec.Left ||
		old.rec.Resources != rec.Resources || !slices.Equal(old.rec.Declines, rec.Declines), nil
}

// replace makes fresh, a snapshot, the view. A revision that was already known
// keeps the moment when it was first seen. Members seen for the first time whose
// record is much older, by the server's clock, than the one of self are taken
// for dead until they stir; that is a guess which only decides who takes a free
// lease first.
func (v *view) replace(fresh *view, self string, now time.Duration) {
	for resource, lease := range fresh.leases {
		if old := v.leases[resource]; old != nil && old.revision == lease.revision {
			lease.since = old.since
		}
	}
	own := fresh.members[self]
	for node, member := range fresh.members {
		old := v.members[node]
		switch {
		case old != nil && old.revision == member.revision:
			member.since = old.since
		case old == nil && own != nil && member.rec != nil && own.created.Sub(member.created) > 2*member.rec.ttl():
			member.since = now - member.rec.ttl()
		}
	}
	for resource, epoch := range fresh.epochs {
		v.epochs[resource] = max(v.epochs[resource], epoch)
	}
	v.leases, v.members, v.ready = fresh.leases, fresh.members, true
}

// live returns the members that beat, by node.
func (v *view) live(now time.Duration) map[string]*memberRecord {
	live := make(map[string]*memberRecord)
	for node, m := range v.members {
		if m.rec != nil && !m.rec.Left && now-m.since < m.rec.ttl() {
			live[node] = m.rec
		}
	}
	return live
}

// restartWaits gives each live member its whole time again: while this process
// cannot reach the bucket, perhaps nobody can, and nobody's silence tells
// anything. Leases expire all the same.
func (v *view) restartWaits(now time.Duration) {
	for _, m := range v.members {
		if m.rec != nil && now-m.since < m.rec.ttl() {
			m.since = now
		}
	}
}

// free reports whether a lease can be taken by anybody: it was released, it has
// expired, or it was never seen.
func (v *view) free(resource string, now time.Duration) bool {
	lease := v.leases[resource]
	switch {
	case lease == nil:
		return true
	case lease.rec == nil:
		return false
	default:
		return lease.rec.Owner == "" || now-lease.since >= lease.rec.ttl()
	}
}

// owner returns the member that counts as the lease's owner: the present
// incarnation of the node, if an earlier one's record stands there and the node
// is locked. It is empty if the lease is free.
func (v *view) owner(resource string, live map[string]*memberRecord, now time.Duration) string {
	if v.free(resource, now) {
		return ""
	}
	rec := v.leases[resource].rec
	if rec == nil {
		return "unknown/unknown"
	}
	if m := live[nodeOf(rec.Owner)]; m != nil && m.Locked {
		return m.holder()
	}
	return rec.Owner
}

// stored takes in a record that this process stored.
func (v *view) stored(rec leaseRecord, revision uint64, now time.Duration) {
	v.epochs[rec.Resource] = max(v.epochs[rec.Resource], rec.Epoch)
	if old := v.leases[rec.Resource]; old == nil || old.revision < revision {
		v.leases[rec.Resource] = &seenLease{rec: &rec, revision: revision, since: now}
	}
}
