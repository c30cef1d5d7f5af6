package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// drain merges into delta what every view that is read from now on has folded, so that it
// need not be kept: what the checkpoints have passed, and what owners have folded before they
// are asked.
func (c *groupCheck) drain(at registry.Checkpoints) error {
	for _, s := range c.sources {
		through := at.Of(&c.p.Record, processors.RoleSource, s.partition).Position
		for by := range s.ahead {
			a := &s.ahead[by]
			n := 0
			// The checkpoint has passed it, so every later view holds it, in whichever
			// partition. Of what owners fold all is dropped: it lies before the moment
			// in which they are asked next.
			for n < len(a.shares) && (by == byOwner || !through.Before(a.shares[n].at)) {
				merged := n < a.taken // for the partition at hand
				if err := c.mergeAhead(&a.shares[n], func(partition feed.Partition) bool {
					return !merged || partition != c.at.partition
				}); err != nil {
					return err
				}
				n++
			}
			a.shares, a.taken = slices.Delete(a.shares, 0, n), max(0, a.taken-n)
		}
	}
	return nil
}

// mergePassed merges the shares that the view of the partition at hand has folded, of its
// groups that are still to be compared.
func (c *groupCheck) mergePassed(a *aheads, passed func(*ahead) bool) error {
	// Shares are in the order of the log, and views only grow, so an index is
	// enough to remember what the view has; they are not deleted, because other
	// partitions need their own groups of the same share.
	for a.taken < len(a.shares) && passed(&a.shares[a.taken]) {
		if err := c.mergeAhead(&a.shares[a.taken], func(partition feed.Partition) bool { return partition == c.at.partition }); err != nil {
			return err
		}
		a.taken++
	}
	return nil
}

// mergeAhead merges a share of the groups that are still to be compared, in the partitions
// for which in is true.
func (c *groupCheck) mergeAhead(a *ahead, in func(feed.Partition) bool) error {
	d, err := c.rule.DecodeDelta(a.data)
	if err != nil {
		return err
	}
	// What a share says of a group stays in it, so one that is merged for some partitions is
	// merged for the others later.
	c.delta.Merge(d.Only(func(g accumulator.Group) bool {
		partition, ok := c.partitionOf(g)
		if !ok || c.done[partition] || !in(partition) || partition == c.at.partition && c.at.passed(g) {
			return false
		}
		if s := c.delta.Share(g); s == nil || s.Zero() {
			c.noteFresh(partition, g)
		}
		return true
	}))
	c.compact()
	return nil
}

// noteFresh remembers a group that came up since the members were read.
func (c *groupCheck) noteFresh(partition feed.Partition, g accumulator.Group) {
	if c.fresh[partition] == nil {
		c.fresh[partition] = map[accumulator.Group]bool{}
	}
	c.fresh[partition][g] = true
}

// groupsOfPage returns the groups of a page of the partition at hand: those that the
// accumulators have there, and those that the members have.
func (c *groupCheck) groupsOfPage(view *groupView) map[accumulator.Group]bool {
	partition, last := c.at.partition, accumulator.Group(view.Last)
	on := map[accumulator.Group]bool{}
	left := c.expected[partition]
	for len(left) > 0 && (last == "" || left[0] <= last) {
		on[left[0]] = true
		left = left[1:]
	}
	c.expected[partition] = left
	// A group may come up between two pages, behind or before the cursor. Those
	// before it were compared without it, when it was not there yet.
	for g := range c.fresh[partition] {
		if last == "" || g <= last {
			on[g] = true
			delete(c.fresh[partition], g)
		}
	}
	return on
}

// compare takes what the accumulators of a page say from delta, and returns the
// groups of which something is left, among those of the page and those on it.
func (c *groupCheck) compare(view *groupView, on map[accumulator.Group]bool) (differ []accumulator.Group, err error) {
	content, err := c.rule.DecodeDelta(view.Content)
	if err != nil {
		return nil, err
	}
	content = content.Only(c.selected)
	for _, g := range content.Groups() {
		on[g] = true
	}
	if err := c.values.note(content); err != nil {
		return nil, err
	}
	// Taking away and looking for what is left finds both kinds of fault in one
	// pass: too much in the accumulator, and too little.
	content.Negate()
	c.delta.Merge(content)
	for _, g := range slices.Sorted(maps.Keys(on)) {
		// Nothing at all and a share that comes to zero are both equal.
		if s := c.delta.Share(g); s != nil && !s.Zero() {
			differ = append(differ, g)
		}
	}
	c.run.countEqualGroups(c.p, len(on)-len(differ))
	return differ, nil
}

// compareOnly compares single groups of a partition. One that differs is judged, which
// tells whether to look at it again.
func (c *groupCheck) compareOnly(ctx context.Context, partition feed.Partition) error {
	var groups []string
	for g := range c.only {
		if at, ok := c.partitionOf(g); ok && at == partition && c.selected(g) {
			groups = append(groups, string(g))
		}
	}
	slices.Sort(groups)
	for some := range slices.Chunk(groups, c.run.cfg.PageItems) {
		for round, left := 0, some; len(left) > 0; {
			view, err := c.readView(ctx, partition, &store.ReadGroups{Groups: left, Max: len(left)})
			if err != nil || c.reason != "" {
				return err
			}
			if err := c.advance(ctx, partition, view); err != nil {
				return err
			}
			read, rest := view.readOf(left)
			on := map[accumulator.Group]bool{}
			for _, g := range read {
				on[accumulator.Group(g)] = true
			}
			differ, err := c.compare(view, on)
			if err != nil {
				return err
			}
			sure, unsure, err := c.splitSure(ctx, partition, differ)
			if err != nil {
				return err
			}
			again, err := c.judge(ctx, partition, view, sure)
			if err != nil {
				return err
			}
			// Two kinds are read again: those that judge wants to see differ by the same
			// once more, and those of which a fold was under way.
			if again = append(again, unsure...); len(again) > 0 {
				round++
			}
			if round > groupRoundsMax {
				if err := c.giveUp(view, again); err != nil {
					return err
				}
				left = rest
				continue
			}
			names, err := c.restore(view, again)
			if err != nil {
				return err
			}
			left = append(rest, names...) // those that were not read have their turn first
		}
		c.at.after = accumulator.Group(some[len(some)-1])
	}
	return nil
}

// groupRoundsMax is how often groups that differ are read. Of one that many write to
// at a time most views are unsure.
const groupRoundsMax = 1000

// giveUp tells of groups that change faster than they can be judged.
func (c *groupCheck) giveUp(view *groupView, groups []accumulator.Group) error {
	for _, g := range groups {
		d, err := c.difference(view, g, "it keeps changing")
		if err != nil {
			return err
		}
		c.run.addDifference(c.p, d)
	}
	return nil
}

// splitSure parts groups that differ into those that do for sure, and those that must be
// looked at again. A view is at least as new as its LSN says, and perhaps newer by
// what was being applied. A group of which the owner has folded something since that
// LSN may have been compared with what it was before.
func (c *groupCheck) splitSure(ctx context.Context, partition feed.Partition, differ []accumulator.Group) (sure, unsure []accumulator.Group, err error) {
	// Owners fold only changes of their own partition. Where it is none of the
	// source's, nothing can have been folded beside the view.
	at := slices.IndexFunc(c.sources, func(s *groupSource) bool { return s.partition == partition })
	if at < 0 || len(differ) == 0 {
		return differ, nil, nil
	}
	s := c.sources[at]
	//	view says LSN 50, and was read while 51 was applied: g has it
	//	members up to 50                                    g has it not
	//	Status after the view says 51: follow to there, find g in it
	//
	// So g differs only because the view was newer than it said. What has no fold
	// between the two differs for sure.
	status, err := c.p.target.Status(ctx, partition)
	if err != nil {
		return nil, nil, fmt.Errorf("ask %s how far it is: %w", partition, err)
	}
	if err := s.follow(ctx, status.Applied, func(e *event) error { return c.collect(s, e) }); err != nil {
		return nil, nil, err
	}
	folded := map[accumulator.Group]bool{}
	own := &s.ahead[byOwner]
	// Those before taken are in delta.
	for _, a := range own.shares[own.taken:] {
		d, err := c.rule.DecodeDelta(a.data)
		if err != nil {
			return nil, nil, err
		}
		for _, g := range d.Groups() {
			folded[g] = true
		}
	}
	for _, g := range differ {
		if folded[g] {
			unsure = append(unsure, g)
		} else {
			sure = append(sure, g)
		}
	}
	return sure, unsure, nil
}

// restore makes delta be what it was before groups were compared.
func (c *groupCheck) restore(view *groupView, groups []accumulator.Group) (names []string, err error) {
	if len(groups) == 0 {
		return nil, nil
	}
	content, err := c.rule.DecodeDelta(view.Content)
	if err != nil {
		return nil, err
	}
	// The negated content was merged by compare; this is its opposite, for these
	// groups alone, so that the next view is compared with the members again.
	c.delta.Merge(content.Only(func(g accumulator.Group) bool { return slices.Contains(groups, g) }))
	for _, g := range groups {
		names = append(names, string(g))
	}
	return names, nil
}

// HashGroup spreads groups over slices.
func HashGroup(g accumulator.Group) uint64 { return xxhash.Sum64String(string(g)) }
