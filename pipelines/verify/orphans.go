package verify

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// findOrphans counts groups whose members name a target that is not there.
func (run *verification) findOrphans(ctx context.Context, fields *fieldCheck) error {
	c, err := newGroupCheck(run, fields.p, nil)
	if err != nil || !fields.values.known() {
		return err
	}
	// Most verifications end here: the groups are read once more only if some hash of theirs
	// was not met among the targets.
	left := len(fields.values.digests)
	for hash := range fields.values.digests {
		if _, home := fields.homes[hash]; home {
			left--
		}
	}
	if left == 0 {
		return nil
	}
	for _, partition := range c.p.target.Partitions() {
		page := &store.ReadGroups{Pipeline: c.p.Record.ID, Generation: c.p.Record.Generation, Max: run.cfg.PageItems}
		for {
			result, err := c.p.target.ReadGroups(ctx, partition, page)
			if err != nil {
				return fmt.Errorf("read the accumulators of %s in %s: %w", c.p.Record.Metadata(), partition, err)
			}
			content, err := c.rule.DecodeDelta(result.Content)
			if err == nil {
				err = c.addOrphans(ctx, fields, partition, content.Groups())
			}
			if err != nil {
				return err
			}
			if page.After = result.Last; page.After == "" {
				break
			}
		}
	}
	return nil
}

// addOrphans tells of those among groups of a partition that have no target.
func (c *groupCheck) addOrphans(ctx context.Context, fields *fieldCheck, partition feed.Partition, groups []accumulator.Group) error {
	var refs []store.ItemRef
	var homeless []accumulator.Group
	for _, g := range groups {
		if _, home := fields.homes[HashGroup(g)]; home {
			continue
		}
		if ref, ok := c.targetRef(g); ok {
			refs, homeless = append(refs, ref), append(homeless, g)
			continue
		}
		c.run.addDifference(c.p, Difference{Kind: DifferenceDangling, Group: g.String(), Element: -1})
	}
	items, err := c.p.target.ReadMany(ctx, refs, true)
	if err != nil {
		return fmt.Errorf("read the targets of groups: %w", err)
	}
	for i := range items {
		switch {
		case c.isTarget(&items[i], homeless[i]): // it was made meanwhile
		case c.rule.Spec().Create:
			if err := c.judgeOrphan(ctx, fields, partition, homeless[i], refs[i]); err != nil {
				return err
			}
		default:
			c.run.addDifference(c.p, Difference{Kind: DifferenceDangling, Item: refs[i].String(), Group: homeless[i].String(), Element: -1})
		}
	}
	return nil
}

// isTarget says whether an item is there and is the target of a group.
func (c *groupCheck) isTarget(item *store.Item, g accumulator.Group) bool {
	if item.ETag == (store.ETag{}) {
		return false
	}
	is, ok := c.rule.TargetGroup(item.Body)
	return ok && is == g
}

// judgeOrphan tells of a group whose target is to be created, and is not there. An owner makes it when the group
// changes, and one that could not, since another item had the id, may have no other change. One that somebody has
// removed is made again behind that, so a second look decides.
func (c *groupCheck) judgeOrphan(ctx context.Context, fields *fieldCheck, partition feed.Partition, g accumulator.Group, ref store.ItemRef) error {
	d := Difference{Kind: DifferenceDrift, Item: ref.String(), Group: g.String(), Element: -1, Missing: true}
	for round := 0; ; round++ {
		states, err := fields.readStates(ctx, partition, []carrier{{group: g}})
		if err != nil || states[g].Empty() {
			return err
		}
		items, err := c.p.target.ReadMany(ctx, []store.ItemRef{ref}, true)
		if err != nil {
			return fmt.Errorf("read the target of group %s: %w", g, err)
		}
		item := &items[0]
		switch taken := item.ETag != (store.ETag{}); {
		case c.isTarget(item, g):
			return nil
		case round == 0:
			if err := c.run.wait(ctx, c.run.cfg.PollInterval); err != nil {
				return err
			}
			continue
		case taken:
			d.Note = "another item, which is no target, has its id: delete that, and repair"
			c.run.addDifference(c.p, d)
			return nil
		case c.run.repair == nil:
			c.run.addDifference(c.p, d)
			return nil
		}
		again, err := c.run.repair.createTarget(ctx, c, g, states[g], d)
		if err != nil || !again {
			return err
		}
		if round == judgeRoundsMax { // not its id, which would be seen above
			c.run.notRepaired(c.p, d, "something of it that must be unique is taken")
			return nil
		}
	}
}
