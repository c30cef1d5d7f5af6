package aggregate

import (
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// member is a change that a processor has to fold, and where it stands.
type member struct {
	*feed.Change
	at   feed.Position
	part *processors.Part
}

// membersOf returns the changes of a batch that are the processor's to fold, in order:
// those that the owner has not folded, and that touch what the rule reads.
func (a *Aggregate) membersOf(b *processors.Batch) []member {
	var all []member
	for i := range b.Parts {
		p := &b.Parts[i]
		if a.foldedByOwner(p.Transaction) {
			continue
		}
		for j := range p.Changes {
			ch := &p.Changes[j]
			// A replacement lists what it changed. One that leaves the fields that the rule
			// reads alone takes away exactly what it adds, and is not sent at all.
			if ch.Op != feed.OpReplace || ch.Touches(a.touches) {
				all = append(all, member{ch, p.At(j), p})
			}
		}
	}
	return all
}

// foldedByOwner says whether the owner has folded the changes of a transaction: its fold
// is of them, unless it is of what a processor has sent.
func (a *Aggregate) foldedByOwner(t *feed.Transaction) bool {
	// What the owner made because of our own request, such as a target that it created,
	// carries a Fold too, but of what was sent. Its changes are ours to fold, see the
	// package comment.
	if t.Effect != nil && t.Effect.Producer.Pipeline == a.cfg.Pipeline && t.Effect.Producer.Generation == a.cfg.Generation {
		return false
	}
	for i := range t.Folds {
		if t.Folds[i].Pipeline == a.cfg.Pipeline && t.Folds[i].Generation == a.cfg.Generation {
			return true
		}
	}
	return false
}

func (a *Aggregate) touches(pointer string) bool {
	for _, path := range a.reads {
		if path.Touched(pointer) {
			return true
		}
	}
	return false
}

// fold adds the shares of members to d until it has bytesMax bytes, and returns how
// many it has taken: one at least. A change whose undo does not fit is rejected.
func (a *Aggregate) fold(d *accumulator.Delta, members []member, bytesMax int) (n int, err error) {
	for n < len(members) && (n == 0 || d.Size() < bytesMax) {
		m := &members[n]
		before, err := m.BeforeBody()
		if err != nil {
			return n, processors.Reject(fmt.Errorf("change %s: %w", m.at, err))
		}
		a.rule.Fold(d, m.Key, m.ID, before, m.After)
		n++
	}
	return n, nil
}

// shares are what an interval means for one partition.
type shares struct {
	data   []byte // an encoded accumulator.Delta; nil if nothing
	groups int
}

// sharesOf returns what d means for a partition.
func (a *Aggregate) sharesOf(d *accumulator.Delta, p feed.Partition) shares {
	only := d.Only(func(g accumulator.Group) bool {
		at, ok := a.partitionOf(g)
		return ok && at == p
	})
	groups := len(only.Groups())
	if groups == 0 {
		return shares{}
	}
	return shares{only.Append(nil), groups}
}

// membersAfter returns the members at greater positions than at.
func membersAfter(members []member, at feed.Position) []member {
	for len(members) > 0 && !at.Before(members[0].at) {
		members = members[1:]
	}
	return members
}

// ref names the item of a member.
func (m *member) ref() store.ItemRef { return store.ItemRef{Key: m.Key, ID: m.ID} }
