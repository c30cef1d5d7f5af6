package accumulator

import (
	"bytes"
	"slices"
)

// Delta is the effect of changes of members on groups. Deltas can be added in any order, and
// each has an inverse: the removal of a member may come before its addition. A Delta belongs
// to one Rule and is not safe for concurrent use: one goroutine owns all of its fields.
type Delta struct {
	rule   *Rule
	shares map[Group]*Share
	free   []*Share // emptied, for new groups
	size   int      // see Size
	memory int      // see Memory
	arena  []byte   // keys and copies of entries
	cursor cursor
	group  []byte
	form   []byte
	text   []byte
	copied []byte
}

// Share is the part of a Delta for one group.
type Share struct {
	members int64
	parts   []part
}

// part is the part of a Share for one field. Count and avg use count, sum and avg use sum, and
// the others use entries.
type part struct {
	count   int64
	sum     decimal
	entries []entry
	loose   bool // entries are not in order, or not yet added up
}

// entry is a change of the number of members under a key. copied is what latest copies from
// such a member; it may be missing if n is negative.
type entry struct {
	key, copied []byte
	n           int64
}

// NewDelta returns an empty Delta.
func (r *Rule) NewDelta() *Delta {
	return &Delta{rule: r, shares: map[Group]*Share{}}
}

// Empty reports whether d changes nothing: all its shares are Zero.
func (d *Delta) Empty() bool {
	for _, s := range d.shares {
		if !s.Zero() {
			return false
		}
	}
	return true
}

// Groups returns the groups with a share that is not Zero, in order.
func (d *Delta) Groups() []Group { return sortedGroups(d.shares) }

// Share returns the share of a group, nil if there is none. It belongs to d, and is valid until
// d changes.
func (d *Delta) Share(g Group) *Share { return d.shares[g] }

// Size returns about how many bytes Append will append. It grows with each Fold; entries that
// cancel out count until Reset.
func (d *Delta) Size() int { return d.size }

// Memory returns about how many bytes d takes in memory. As Size, it counts entries that
// cancel out until d is merged into another.
func (d *Delta) Memory() int { return d.memory }

// Only returns a Delta with the shares of the groups for which keep is true. Both share them, so
// neither may be changed afterwards.
func (d *Delta) Only(keep func(Group) bool) *Delta {
	only := d.rule.NewDelta()
	for g, s := range d.shares {
		if keep(g) {
			only.shares[g] = s
			only.count(g, s, 1)
		}
	}
	return only
}

// Merge adds o, which must be of the same rule, to d. What cancels out in o is left out.
func (d *Delta) Merge(o *Delta) {
	d.rule.mustOwn(o)
	for g, s := range o.shares {
		if s.Zero() {
			continue
		}
		into := d.shares[g]
		if into == nil {
			into = d.newShare(g)
		}
		into.members += s.members
		for i := range s.parts {
			from, to := &s.parts[i], &into.parts[i]
			to.count += from.count
			to.sum = to.sum.add(from.sum)
			for _, e := range from.netEntries() {
				d.addEntry(to, e.key, e.copied, e.n)
			}
		}
	}
}

// Remove takes the share of a group out of d. The memory of its entries is freed when those
// that were added at about the same time go too.
func (d *Delta) Remove(g Group) {
	if s := d.shares[g]; s != nil {
		d.count(g, s, -1)
		delete(d.shares, g)
	}
}

// Negate turns d into its inverse: merged with the original, it is empty. Append and Content
// leave out the copies of removals, so they are missing in the inverse's additions. It can
// be applied where the records of those members exist.
func (d *Delta) Negate() {
	for _, s := range d.shares {
		s.members = -s.members
		for i := range s.parts {
			p := &s.parts[i]
			p.count = -p.count
			p.sum = p.sum.neg()
			for j := range p.entries {
				p.entries[j].n = -p.entries[j].n
			}
		}
	}
}

// Reset empties d and uses its memory again: its shares are no longer valid.
func (d *Delta) Reset() {
	// A Delta that once had a million groups must not keep them for ever.
	const freeMax = 1024
	for _, s := range d.shares {
		if len(d.free) >= freeMax {
			break
		}
		s.members = 0
		for i := range s.parts {
			clear(s.parts[i].entries)
			s.parts[i] = part{entries: s.parts[i].entries[:0]}
		}
		d.free = append(d.free, s)
	}
	clear(d.shares)
	d.size, d.memory = 0, 0
	d.arena = d.arena[:0]
}

// Zero reports whether the share changes nothing.
func (s *Share) Zero() bool {
	if s.members != 0 {
		return false
	}
	for i := range s.parts {
		p := &s.parts[i]
		if p.count != 0 || p.sum.sign() != 0 || len(p.netEntries()) > 0 {
			return false
		}
	}
	return true
}

// mustOwn panics if d is of another rule.
func (r *Rule) mustOwn(d *Delta) {
	if d.rule != r && d.rule.digest != r.digest {
		panic("accumulator: a Delta of another rule")
	}
}

// share returns the share of a group, a new one if it has none.
func (d *Delta) share(g []byte) *Share {
	if s := d.shares[Group(g)]; s != nil {
		return s
	}
	return d.newShare(Group(g))
}

func (d *Delta) newShare(g Group) *Share {
	var s *Share
	if n := len(d.free); n > 0 {
		s, d.free = d.free[n-1], d.free[:n-1]
	} else {
		s = &Share{parts: make([]part, len(d.rule.fields))}
	}
	d.shares[g] = s
	d.count(g, s, 1)
	return s
}

// What stands in memory beside the bytes of groups, keys and copies: a Share with its place in
// the map, a part and an entry.
const (
	shareMemory = 120
	partMemory  = 88
	entryMemory = 56
)

// count adds what a share takes to size and memory; sign -1 takes it away.
func (d *Delta) count(g Group, s *Share, sign int) {
	size, memory := len(g)+8, len(g)+shareMemory
	for i := range s.parts {
		size += 12
		memory += partMemory
		for _, e := range s.parts[i].entries {
			n := len(e.key) + len(e.copied)
			size += n + 4
			memory += n + entryMemory
		}
	}
	d.size += sign * size
	d.memory += sign * memory
}

// addEntry adds n members under a key to p. It keeps neither slice.
func (d *Delta) addEntry(p *part, key, copied []byte, n int64) {
	added := len(key) + len(copied)
	d.size += added + 4
	d.memory += added + entryMemory
	p.entries = append(p.entries, entry{d.keep(key), d.keep(copied), n})
	p.loose = true
}

// keep returns a copy of b that is valid until Reset.
func (d *Delta) keep(b []byte) []byte {
	const chunkMin, chunkMax = 512, 64 << 10
	if len(b) == 0 {
		return nil
	}
	// A new chunk, not a larger copy: earlier entries point into the old one.
	if cap(d.arena)-len(d.arena) < len(b) {
		d.arena = make([]byte, 0, max(len(b), min(max(2*cap(d.arena), chunkMin), chunkMax)))
	}
	at := len(d.arena)
	d.arena = append(d.arena, b...)
	return d.arena[at:len(d.arena):len(d.arena)]
}

// netEntries returns the entries in order, each key once, none of them zero.
func (p *part) netEntries() []entry {
	if !p.loose {
		return p.entries
	}
	p.loose = false
	if len(p.entries) > 1 {
		slices.SortFunc(p.entries, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	}
	// In place: entries of one key stand together after sorting, so what is written never
	// overtakes what is read. An addition and a removal of one key leave nothing:
	//
	//	a +1, b +1, a -1, c +1   ->   a +1, a -1, b +1, c +1   ->   b +1, c +1
	//
	// An entry is seen to be zero only when the next key comes, or at the end.
	out := p.entries[:0]
	for _, e := range p.entries {
		if last := len(out) - 1; last >= 0 && bytes.Equal(out[last].key, e.key) {
			out[last].n += e.n
			if out[last].copied == nil {
				out[last].copied = e.copied
			}
			continue
		}
		if last := len(out) - 1; last >= 0 && out[last].n == 0 {
			out = out[:last]
		}
		out = append(out, e)
	}
	if last := len(out) - 1; last >= 0 && out[last].n == 0 {
		out = out[:last]
	}
	// Otherwise the array would keep the bytes of dropped entries in memory.
	clear(p.entries[len(out):])
	p.entries = out
	return out
}
