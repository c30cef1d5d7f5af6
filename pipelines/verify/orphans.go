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
	if err != nil {
		return err
	}
	// Most verifications end here: the groups are read once more only if a hash of theirs was
	// not met among the targets, or if there are too many to remember which were.
	if fields.values.known() && len(fields.homes) == len(fields.values.digests) {
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
			if err := run.pacer.Pace(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// orphan is a group that was seen without its target.
type orphan struct {
	group accumulator.Group
	ref   store.ItemRef
	taken bool // another item, which is no target, has its id
	state *accumulator.State
}

// addOrphans tells of those among groups of a partition that have no target.
func (c *groupCheck) addOrphans(ctx context.Context, fields *fieldCheck, partition feed.Partition, groups []accumulator.Group) error {
	var found []orphan
	for _, g := range groups {
		if _, home := fields.homes[HashGroup(g)]; home {
			continue
		}
		if ref, ok := c.targetRef(g); ok {
			found = append(found, orphan{group: g, ref: ref})
			continue
		}
		if !fields.values.known() {
			continue // it may have targets: nothing tells which
		}
		c.run.addDifference(c.p, Difference{Kind: DifferenceDangling, Group: g.String(), Element: -1})
	}
	left, err := c.stillOrphans(ctx, found)
	if err != nil {
		return err
	}
	// One that has expired is hidden until its owner writes so, and makes it again: where targets expire, none is missing
	// for sure.
	if !c.rule.Spec().Create || c.p.target.Info().Spec.TTL != 0 {
		for i := range left {
			c.run.addDifference(c.p, left[i].difference(DifferenceDangling))
		}
		return nil
	}
	return c.judgeOrphans(ctx, fields, partition, left)
}

func (o *orphan) difference(kind DifferenceKind) Difference {
	return Difference{Kind: kind, Item: o.ref.String(), Group: o.group.String(), Element: -1, Missing: kind == DifferenceDrift}
}

// stillOrphans returns those among orphans whose targets are not there now.
func (c *groupCheck) stillOrphans(ctx context.Context, all []orphan) (left []orphan, err error) {
	refs := make([]store.ItemRef, len(all))
	for i := range all {
		refs[i] = all[i].ref
	}
	items, err := c.p.target.ReadMany(ctx, refs, true)
	if err != nil {
		return nil, fmt.Errorf("read the targets of groups: %w", err)
	}
	for i := range items {
		there := items[i].ETag != (store.ETag{})
		if g, ok := c.rule.TargetGroup(items[i].Body); there && ok && g == all[i].group {
			continue
		}
		all[i].taken = there
		left = append(left, all[i])
	}
	return left, nil
}

// judgeOrphans tells of groups whose targets are to be created, and are not there. An owner makes one when its group
// changes, and one that could not, since another item had the id, may have no other change. One that was removed is
// made again soon; so only what is missing at each of some looks is.
func (c *groupCheck) judgeOrphans(ctx context.Context, fields *fieldCheck, partition feed.Partition, left []orphan) (err error) {
	for round := 0; len(left) > 0; round++ {
		if left, err = c.withTargets(ctx, fields, partition, left); err != nil {
			return err
		}
		if round == suspectRounds-1 || len(left) == 0 {
			break
		}
		if err = c.run.wait(ctx, c.run.cfg.PollInterval); err != nil {
			return err
		}
		if left, err = c.stillOrphans(ctx, left); err != nil {
			return err
		}
	}
	for i := range left {
		if err := c.tellMissing(ctx, &left[i]); err != nil {
			return err
		}
	}
	return nil
}

// withTargets returns those among orphans that have members, and for which an owner would make a target. It tells of those
// with members for which none can be made.
func (c *groupCheck) withTargets(ctx context.Context, fields *fieldCheck, partition feed.Partition, all []orphan) (left []orphan, err error) {
	carriers := make([]carrier, len(all))
	for i := range all {
		carriers[i].group = all[i].group
	}
	states, err := fields.readStates(ctx, partition, carriers)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		if o.state = states[o.group]; o.state.Empty() {
			continue
		}
		// where may ask for more than match and its equalities fix.
		if _, ok := c.rule.NewTarget(o.group, o.state, c.keys); !ok {
			c.run.addDifference(c.p, o.difference(DifferenceDangling))
			continue
		}
		left = append(left, o)
	}
	return left, nil
}

// tellMissing tells of a target that is not there. A repair makes it.
func (c *groupCheck) tellMissing(ctx context.Context, o *orphan) error {
	d := o.difference(DifferenceDrift)
	if o.taken {
		d.Note = "another item, which is no target, has its id: delete that, and repair"
	}
	if o.taken || c.run.repair == nil {
		c.run.addDifference(c.p, d)
		return nil
	}
	return c.run.repair.createTarget(ctx, c, o, d)
}
