package verify

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// fieldCheck compares the fields of an aggregate's targets with its accumulators.
//
// The owner sets the fields in the commit in which either changes, so they are equal
// in every view of a partition, and nothing needs to be waited for. A page of items
// and the accumulators of their groups are two views, though. An item that differs
// is read, then its group, then the item again: if it is the same, it was so when
// its group was read.
type fieldCheck struct {
	run   *verification
	p     *Verified
	rule  *accumulator.Rule
	paths []document.Path // of the fields
	// values are what the accumulators were a while ago: an item that equals them is
	// not looked at again.
	values *groupValues

	mu    sync.Mutex
	homes map[uint64]struct{} // hashes of the groups among values that have a target
}

func newFieldCheck(run *verification, p *Verified, values *groupValues) *fieldCheck {
	rule := p.Aggregate.Rule()
	return &fieldCheck{run: run, p: p, rule: rule, paths: rule.TargetWrites(), values: values, homes: map[uint64]struct{}{}}
}

// compareAll compares the fields in all partitions of the target.
func (c *fieldCheck) compareAll(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.run.cfg.PartitionsMax)
	for _, partition := range c.p.target.Partitions() {
		g.Go(func() error { return c.comparePartition(ctx, partition) })
	}
	return g.Wait()
}

// carrier is an item that carries the fields of a group.
type carrier struct {
	*store.Item
	group accumulator.Group
}

func (c *fieldCheck) comparePartition(ctx context.Context, partition feed.Partition) error {
	return c.run.pages(ctx, c.p.target, partition, func(items []store.Item) error {
		c.run.countRead(c.p, len(items))
		carriers := c.carriers(items)
		if len(carriers) == 0 {
			return nil
		}
		suspects, err := c.suspects(ctx, partition, carriers)
		if err != nil {
			return err
		}
		c.run.countEqual(c.p, len(carriers)-len(suspects))
		return c.judgeSuspects(ctx, partition, suspects)
	})
}

// suspects returns the items that seem to differ.
func (c *fieldCheck) suspects(ctx context.Context, partition feed.Partition, carriers []carrier) (suspects []store.ItemRef, err error) {
	suspect := func(item *carrier) {
		suspects = append(suspects, store.ItemRef{Key: item.Key, ID: item.ID})
	}
	// The accumulators were read a moment ago, all of them. Fields and
	// accumulators change in one commit, so an item that agrees with what they
	// were is as good as compared; only one that differs is looked at again.
	if c.values.known() {
		has := make([]document.FieldValue, len(c.paths))
		for i := range carriers {
			for k, path := range c.paths {
				has[k].Value, _ = document.Get(carriers[i].Body, path)
			}
			if digestOf(has) != c.digestWanted(carriers[i].group) {
				suspect(&carriers[i])
			}
		}
		return suspects, nil
	}
	states, err := c.readStates(ctx, partition, carriers)
	if err != nil {
		return nil, err
	}
	for i := range carriers {
		if c.differs(carriers[i].Body, states[carriers[i].group].Values()) {
			suspect(&carriers[i])
		}
	}
	return suspects, nil
}

// digestWanted returns the digest of what the fields of a group's targets must be.
func (c *fieldCheck) digestWanted(g accumulator.Group) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values.digestFor(g)
}

// carriers returns the items that are targets.
func (c *fieldCheck) carriers(items []store.Item) []carrier {
	var found []carrier
	for i := range items {
		if items[i].ETag == (store.ETag{}) {
			continue
		}
		if g, ok := c.rule.TargetGroup(items[i].Body); ok {
			found = append(found, carrier{&items[i], g})
		}
	}
	if !c.values.known() {
		return found
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range found {
		// Of groups that values does not have nobody asks, and it is bounded.
		if hash := HashGroup(found[i].group); c.values.has(hash) {
			c.homes[hash] = struct{}{}
		}
	}
	return found
}

// readStates reads the accumulators of the groups of items.
func (c *fieldCheck) readStates(ctx context.Context, partition feed.Partition, items []carrier) (map[accumulator.Group]*accumulator.State, error) {
	states := make(map[accumulator.Group]*accumulator.State, len(items))
	var groups []string
	for i := range items {
		if _, known := states[items[i].group]; !known {
			states[items[i].group] = nil
			groups = append(groups, string(items[i].group))
		}
	}
	for some := range slices.Chunk(groups, c.run.cfg.PageItems) {
		result, err := c.p.target.ReadStates(ctx, partition, &store.ReadStates{
			Pipeline: c.p.Record.ID, Generation: c.p.Record.Generation, Groups: some,
		})
		if err != nil {
			return nil, fmt.Errorf("read the accumulators of %s in %s: %w", c.p.Record.Metadata(), partition, err)
		}
		for i, name := range some {
			g := accumulator.Group(name)
			if states[g], err = c.rule.DecodeState(g, result.States[i]); err != nil {
				return nil, fmt.Errorf("accumulators of %s in %s: %w", c.p.Record.Metadata(), partition, err)
			}
		}
	}
	return states, nil
}

// differs tells whether the fields of an item are not what they must be.
func (c *fieldCheck) differs(body []byte, want []document.FieldValue) bool {
	for i := range want {
		has, _ := document.Get(body, c.paths[i])
		if !SameRaw(has, want[i].Value) {
			return true
		}
	}
	return false
}

// SameRaw compares raw values, of which nil is an absent one.
func SameRaw(a, b []byte) bool {
	return (a == nil) == (b == nil) && (a == nil || document.Equal(a, b))
}

// judgeSuspects judges items that seemed to differ:
//
//	read the item, its group, the item again
//	item unchanged, and it differs   drift, because the group was read while the item was so
//	item changed                     once more, judgeRoundsMax times at most
func (c *fieldCheck) judgeSuspects(ctx context.Context, partition feed.Partition, refs []store.ItemRef) error {
	for round := 0; len(refs) > 0; round++ {
		before, err := c.p.target.ReadMany(ctx, refs, true)
		if err != nil {
			return fmt.Errorf("read items of %s again: %w", partition, err)
		}
		// An item that is gone, or is no target any more, drops out here: it has no fields to be wrong.
		carriers := c.carriers(before)
		states, err := c.readStates(ctx, partition, carriers)
		if err != nil {
			return err
		}
		after, err := c.p.target.ReadMany(ctx, refs, true)
		if err != nil {
			return fmt.Errorf("read items of %s again: %w", partition, err)
		}
		now := make(map[store.ItemRef]store.ETag, len(refs))
		for i := range after {
			now[refs[i]] = after[i].ETag
		}
		refs = refs[:0:0]
		for i := range carriers {
			ref := store.ItemRef{Key: carriers[i].Key, ID: carriers[i].ID}
			values := states[carriers[i].group].Values()
			switch {
			// Before the last round counts: what is right in it is right, however often it has changed.
			case !c.differs(carriers[i].Body, values):
				c.run.countEqual(c.p, 1)
			case round == judgeRoundsMax:
				c.run.addDifference(c.p, c.difference(&carriers[i], values, DifferenceBehind, "it keeps changing"))
			case now[ref] != carriers[i].ETag:
				refs = append(refs, ref)
			default:
				again, err := c.judgeDrift(ctx, &carriers[i], values)
				if err != nil {
					return err
				}
				if again {
					refs = append(refs, ref)
				}
			}
		}
	}
	return nil
}

// judgeRoundsMax is how often something that changes while it is judged is looked
// at again.
const judgeRoundsMax = 16

// judgeDrift tells of an item whose fields are not what its accumulator says. A repair
// repairs it; again says that it has changed before.
func (c *fieldCheck) judgeDrift(ctx context.Context, item *carrier, values []document.FieldValue) (again bool, err error) {
	d := c.difference(item, values, DifferenceDrift, "")
	if c.run.repair == nil {
		c.run.addDifference(c.p, d)
		return false, nil
	}
	return c.run.repair.repairFields(ctx, c, item, values, d)
}

func (c *fieldCheck) difference(item *carrier, values []document.FieldValue, kind DifferenceKind, reason string) Difference {
	d := Difference{
		Kind: kind, Item: store.ItemRef{Key: item.Key, ID: item.ID}.String(), ETag: item.ETag, Element: -1,
		Group: item.group.String(), Reason: reason,
	}
	for i := range values {
		if has, _ := document.Get(item.Body, c.paths[i]); !SameRaw(has, values[i].Value) {
			d.Fields = append(d.Fields, FieldDifference{c.paths[i].String(), slices.Clone(has), slices.Clone(values[i].Value)})
		}
	}
	return d
}
