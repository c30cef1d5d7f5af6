package leases

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// view is what this process has seen of its group, and when, on its own clock. It may lag
// behind the bucket, so every write that is based on it is conditional.
type view struct {
	group   string
	fenced  bool                   // see Config.Fenced
	leases  map[string]*seenLease  // by resource
	members map[string]*seenMember // by node
	epochs  map[string]uint64      // greatest epoch seen of each resource, deleted ones included
	fallen  map[string][]string    // by node, the incarnations of rights that were deposed, the last ones
	drains  map[string]bool        // nodes that are to drain
	last    uint64                 // greatest revision delivered
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

func newView(group string, fenced bool) *view {
	return &view{
		group: group, fenced: fenced, leases: make(map[string]*seenLease), members: make(map[string]*seenMember),
		epochs: make(map[string]uint64), fallen: make(map[string][]string), drains: make(map[string]bool),
	}
}

// patterns are the keys to watch.
func (v *view) patterns() []string {
	return []string{leasePrefix + v.group + ".>", memberPrefix + v.group + ".>", drainPrefix + ">"}
}

// apply applies an entry. It returns the resource if the entry is a lease, the node if it is a
// member, and whether more than a renewal changed. err says why a record cannot be read; it
// stays in the view without its content, so that nobody takes it for free.
func (v *view) apply(e bucket.Entry, now time.Duration) (resource, node string, changed bool, err error) {
	v.last = max(v.last, e.Revision)
	if node, ok := strings.CutPrefix(e.Key, drainPrefix); ok {
		return "", "", v.applyDrain(unescape(node), !e.Deleted), nil
	}
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

func (v *view) applyLease(resource string, e bucket.Entry, now time.Duration) (bool, error) {
	// Known already: written by this process, or delivered by an earlier watch. since must not
	// move, or a lease would seem renewed.
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
	// since is this process's clock: a lease expires TTL after it was seen to change, whatever
	// the clock of its holder says.
	v.leases[resource] = &seenLease{rec: rec, revision: e.Revision, since: now}
	if rec == nil {
		return true, err
	}
	v.epochs[resource] = max(v.epochs[resource], rec.Epoch)
	return old == nil || old.rec == nil || old.rec.Owner != rec.Owner || old.rec.Epoch != rec.Epoch ||
		old.rec.weight() != rec.weight() || old.rec.Bound != rec.Bound || old.rec.lastUse().Node != rec.lastUse().Node, nil
}

func (v *view) applyMember(node string, e bucket.Entry, now time.Duration) (bool, error) {
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
	// A plain beat changes nothing. A beat of a member that counted as dead does.
	return old == nil || old.rec == nil || now-old.since >= old.rec.ttl() ||
		old.rec.Incarnation != rec.Incarnation || old.rec.Gone != rec.Gone || old.rec.Closed != rec.Closed || old.rec.Drains != rec.Drains || old.rec.Left != rec.Left ||
		old.rec.Right != rec.Right || old.rec.Resources != rec.Resources || !slices.Equal(old.rec.Declines, rec.Declines) ||
		!maps.EqualFunc(old.rec.Warm, rec.Warm, func(uint64, uint64) bool { return true }), nil
}

// replace makes fresh, a snapshot, the view. A revision that was known already keeps the moment
// when it was first seen. A member that is seen for the first time, and whose record is much
// older by the server's clock than that of self, counts as dead until it beats. That is a
// guess, and decides only which member takes a free lease first.
func (v *view) replace(fresh *view, self string, now time.Duration) {
	for resource, lease := range fresh.leases {
		// After the bucket went back another write may have the same revision.
		if old := v.leases[resource]; old != nil && old.revision == lease.revision && old.sameWrite(lease) {
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
	v.leases, v.members, v.drains, v.last, v.ready = fresh.leases, fresh.members, fresh.drains, fresh.last, true
}

// sameWrite reports whether two lease records of one revision were written at once. Records
// that cannot be read are taken for different, so that a lease is rather waited for.
func (s *seenLease) sameWrite(other *seenLease) bool {
	return s.rec != nil && other.rec != nil && s.rec.Write == other.rec.Write &&
		s.rec.Owner == other.rec.Owner && s.rec.Last == other.rec.Last && s.rec.Epoch == other.rec.Epoch
}

// missing returns the key and the revision of the newest record in v of which fresh, a later
// snapshot, has an earlier state or none; an empty key if there is no such record. A record that was
// deleted is none: the deletion has a revision too, and fresh goes beyond it.
func (v *view) missing(fresh *view) (key string, revision uint64) {
	note := func(k string, known, present uint64) {
		if known > present && known > revision {
			key, revision = k, known
		}
	}
	for resource, old := range v.leases {
		present := fresh.last
		if lease := fresh.leases[resource]; lease != nil {
			present = lease.revision
		}
		note(leaseKey(v.group, resource), old.revision, present)
	}
	for node, old := range v.members {
		present := fresh.last
		if member := fresh.members[node]; member != nil {
			present = member.revision
		}
		note(memberKey(v.group, node), old.revision, present)
	}
	return key, revision
}

// lifetime returns the longest lifetime among leases of the view, at least the given one.
func (v *view) lifetime(least time.Duration) time.Duration {
	for _, lease := range v.leases {
		if lease.rec != nil {
			least = max(least, lease.rec.ttl())
		}
	}
	return least
}

// live returns, by node, the members whose last beat is not older than their lifetime.
func (v *view) live(now time.Duration) map[string]*memberRecord {
	live := make(map[string]*memberRecord)
	for node, m := range v.members {
		if m.rec != nil && !m.rec.Left && !m.isGone(now) && !v.isFallen(node, m.rec.Right) && now-m.since < m.rec.ttl() {
			live[node] = m.rec
		}
	}
	return live
}

// restartWaits lets the lifetime of each live member begin again. While this process cannot
// reach the bucket, perhaps nobody can, so the silence of others means nothing. Leases
// expire all the same.
func (v *view) restartWaits(now time.Duration) {
	for _, m := range v.members {
		if m.rec != nil && now-m.since < m.rec.ttl() {
			m.since = now
		}
	}
}

// gone reports whether the group has found that nobody has a connection under the name of a holder, and the holder
// has had the time to say otherwise.
func (v *view) gone(holder string, now time.Duration) bool {
	m := v.members[NodeOf(holder)]
	return m != nil && m.isGone(now) && m.rec.holder() == holder
}

func (m *seenMember) isGone(now time.Duration) bool { return m.saysGone() && now-m.since >= goneGrace }

func (m *seenMember) saysGone() bool { return m.rec != nil && m.rec.Gone != "" }

// fallenMax bounds the incarnations of a node that are remembered. What names a right is written anew by the next incarnation
// of the node, or by who takes its lease, so the last one or two are all that is asked for.
const fallenMax = 4

// noteFallen notes that a right was deposed, which is final. It has to be remembered: the key of the node is written anew by
// its next incarnation, before the record of the member is. In between the record of the one before would count as that of a
// member that lives, is warm for what it kept, and is the first to be given leases:
//
//	b is killed, and deposed           c's copy of p is at b, and nowhere else
//	b starts again: its key            c gives p to b, which was warm
//	b's record as a member             b is closed; a, for which that came first, takes p and has to load it
func (v *view) noteFallen(node, incarnation string) {
	if v.isFallen(node, incarnation) {
		return
	}
	all := append(v.fallen[node], incarnation)
	v.fallen[node] = all[max(0, len(all)-fallenMax):]
}

// isFallen reports whether a right was deposed.
func (v *view) isFallen(node, incarnation string) bool {
	return incarnation != "" && slices.Contains(v.fallen[node], incarnation)
}

// free reports whether a lease can be taken by anybody: it was released, it has
// expired, it was never seen, its holder was deposed, or is gone and the work is fenced.
func (v *view) free(resource string, now time.Duration) bool {
	lease := v.leases[resource]
	switch {
	case lease == nil:
		return true
	case lease.rec == nil:
		return false // nobody can know whether it is held
	default:
		return lease.rec.Owner == "" || now-lease.since >= lease.rec.ttl() ||
			v.isFallen(NodeOf(lease.rec.Owner), lease.rec.Right) || v.fenced && v.gone(lease.rec.Owner, now)
	}
}

// owner returns the member that counts as the lease's owner, "" if the lease is free. If the
// record names an earlier incarnation of a locked node, that is the node's present one:
// the lock says that the earlier one is gone.
func (v *view) owner(resource string, live map[string]*memberRecord, now time.Duration) string {
	if v.free(resource, now) {
		return ""
	}
	rec := v.leases[resource].rec
	if rec == nil {
		return "unknown/unknown" // not free, and no member's
	}
	if m := live[NodeOf(rec.Owner)]; m != nil && m.Locked {
		return m.holder()
	}
	return rec.Owner
}

// stored applies a record that this process stored. The watch will deliver it too, later.
func (v *view) stored(rec leaseRecord, revision uint64, now time.Duration) {
	v.epochs[rec.Resource] = max(v.epochs[rec.Resource], rec.Epoch)
	if old := v.leases[rec.Resource]; old == nil || old.revision < revision {
		v.leases[rec.Resource] = &seenLease{rec: &rec, revision: revision, since: now}
	}
}
