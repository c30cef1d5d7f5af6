package verify

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
)

// groupCheck compares the accumulators of an aggregate with the members of its
// source, while both change.
//
// A partition of the target tells, in one view, what its groups hold and how far it
// has folded each source partition (ReadGroups). A history of each source partition
// tells what the members are at exactly that place. So the two are compared at one
// place, and nothing is in flight between them:
//
//   - what the aggregate's processor folds is in the view if the position that is
//     recorded for it there, or its checkpoint as it was before the view, has passed
//     the change;
//   - what the owner folds is in the view if its LSN has passed the change.
//
// delta is what the members say less what the accumulators say. Where it is not
// zero, the two differ. What it takes to hold is bounded by taking the groups slice
// by slice.
type groupCheck struct {
	// Set once by newGroupCheck, and judge by accumulators.
	run   *verification
	p     *Verified
	rule  *accumulator.Rule
	keys  []document.Path            // of the target's partition key
	only  map[accumulator.Group]bool // the groups that are looked at; nil for all
	judge func(ctx context.Context, partition feed.Partition, view *groupView, differ []accumulator.Group) (again []accumulator.Group, err error)

	// Guarded by mu while members scans the sources, a goroutine for each; before and
	// after that they are the caller's of compareSlice alone, as what follows.
	mu      sync.Mutex
	slices  SliceQueue
	delta   *accumulator.Delta
	roomFor int // bytes of delta from which on it is bounded again

	// Owned by the caller of compareSlice, anew for each slice. A source is its
	// goroutine's while members runs.
	began    store.ContainerInfo // the source, with the partitions of sources
	sources  []*groupSource
	scratch  *accumulator.Delta
	expected map[feed.Partition][]accumulator.Group        // of delta, in order
	fresh    map[feed.Partition]map[accumulator.Group]bool // that came up since
	done     map[feed.Partition]bool                       // partitions that were compared
	at       groupCursor                                   // in the partition at hand

	// Owned by the caller of all, over all slices.
	values  *groupValues
	looks   map[accumulator.Group]look
	differs []accumulator.Group
	reason  string // why some groups could not be compared
}

// groupCursor is how far the groups of a partition were compared.
type groupCursor struct {
	partition feed.Partition
	after     accumulator.Group // the last one; "" before the first page
}

// passed says whether a group was compared. The one group of an aggregate without match is "".
func (c *groupCursor) passed(g accumulator.Group) bool { return c.after != "" && g <= c.after }

// look is by how much a group differed when it was looked at, and how many times in a
// row.
type look struct {
	by    string // an accumulator.Delta
	times int
}

// groupSource is a partition of the source.
type groupSource struct {
	*history
	ahead [2]aheads // of those that the processor folds, and of those that the owner does
}

// aheads are shares behind what delta holds, in order; those before taken were
// merged for the target partition at hand.
type aheads struct {
	shares []ahead
	taken  int
}

// ahead is what one change means.
type ahead struct {
	at   feed.Position
	data []byte // an accumulator.Delta
}

func newGroupCheck(run *verification, p *Verified, only map[accumulator.Group]bool) (*groupCheck, error) {
	c := &groupCheck{run: run, p: p, rule: p.Aggregate.Rule(), only: only, slices: NewSliceQueue()}
	for _, pointer := range p.target.Info().Spec.PartitionKey {
		path, err := document.ParsePointer(pointer)
		if err != nil {
			return nil, fmt.Errorf("container %s: partition key: %w", p.target.Info().Name, err)
		}
		c.keys = append(c.keys, path)
	}
	c.scratch, c.values = c.rule.NewDelta(), newGroupValues(c.rule, run.cfg.BytesMax)
	return c, nil
}

// compareAll compares the groups, slice by slice, and gathers those that differ.
func (c *groupCheck) compareAll(ctx context.Context) error {
	for c.reason == "" && c.slices.Next() {
		if err := c.compareSlice(ctx); err != nil {
			return err
		}
	}
	return nil
}

// compareSlice compares the groups of one slice.
func (c *groupCheck) compareSlice(ctx context.Context) error {
	c.delta, c.roomFor = c.rule.NewDelta(), 0
	c.done, c.fresh = map[feed.Partition]bool{}, map[feed.Partition]map[accumulator.Group]bool{}
	defer c.closeSources()
	if err := c.foldMembers(ctx); err != nil {
		return err
	}
	c.expected = map[feed.Partition][]accumulator.Group{}
	// What the members say now is fixed before any accumulator is read: a group
	// that has members and no accumulator would never come up in a page.
	for _, g := range c.delta.Groups() {
		if partition, ok := c.partitionOf(g); ok {
			c.expected[partition] = append(c.expected[partition], g)
		}
	}
	for _, partition := range c.p.target.Partitions() {
		if err := c.comparePartition(ctx, partition); err != nil || c.reason != "" {
			return err
		}
		// From here on drain leaves out what concerns this partition.
		c.done[partition] = true
	}
	return nil
}

func (c *groupCheck) closeSources() {
	for _, s := range c.sources {
		s.close()
	}
}

// foldMembers folds the items of the source, each partition up to the LSN at which its
// history is complete.
func (c *groupCheck) foldMembers(ctx context.Context) error {
	c.sources, c.began = nil, c.p.Source.Info()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.run.cfg.PartitionsMax)
	for _, at := range c.began.Partitions {
		partition := feed.Partition{Container: c.began.ID, Number: at.Number}
		s := &groupSource{history: c.run.history(c.p.Source, partition)}
		c.sources = append(c.sources, s)
		g.Go(func() error {
			page := c.rule.NewDelta()
			if err := c.foldPages(ctx, s, page); err != nil {
				return err
			}
			// A container with a time to live is read from its log alone (replays), and
			// its pages never come: the page is emptied every so many changes instead.
			changes := 0
			err := s.follow(ctx, s.high, func(e *event) error {
				if changes++; changes%c.run.cfg.PageItems == 0 {
					c.run.countRead(c.p, c.run.cfg.PageItems)
					c.merge(page)
				}
				return c.fold(page, e)
			})
			c.merge(page)
			return err
		})
	}
	return g.Wait()
}

// foldPages folds what the pages of a source partition hold.
func (c *groupCheck) foldPages(ctx context.Context, s *groupSource, page *accumulator.Delta) error {
	if s.replays() {
		return s.replay(ctx, 0)
	}
	return s.scan(ctx, c.run.cfg.PageItems, func(items []store.Item) error {
		for i := range items {
			c.rule.Fold(page, items[i].Key, items[i].ID, nil, items[i].Body)
		}
		c.run.countRead(c.p, len(items))
		c.merge(page)
		return nil
	}, func(e *event) error { return c.fold(page, e) })
}

// fold adds what a change means to d.
func (c *groupCheck) fold(d *accumulator.Delta, e *event) error {
	before, err := e.BeforeBody()
	if err != nil {
		return err
	}
	c.rule.Fold(d, e.Key, e.ID, before, e.After)
	return nil
}

// merge adds what a page means, as far as it is looked at, and empties it. When
// delta has become too large, half of its groups are left for later.
func (c *groupCheck) merge(page *accumulator.Delta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Partitions fold into pages of their own and meet here, so the lock is
	// taken once a page and not once an item.
	c.delta.Merge(page.Only(c.selected))
	page.Reset()
	for c.compact(); c.delta.Memory() > c.run.cfg.BytesMax && c.slices.Halve(); {
		c.roomFor = 0
		c.compact()
	}
}

// compact makes delta anew from the groups that are looked at now, once it has grown. What
// is written again and again leaves entries that cancel out: an order that is replaced a
// thousand times stands a thousand times in delta, and once afterwards.
func (c *groupCheck) compact() {
	const roomMin = 1 << 20
	if c.delta.Memory() < c.roomFor {
		return
	}
	kept := c.rule.NewDelta()
	kept.Merge(c.delta.Only(c.selected))
	c.delta = kept
	// Twice what is left, so that each entry is copied about once; less above the bound, and
	// never so little that one group which is too large is copied for each page.
	left := kept.Memory()
	c.roomFor = max(min(2*left, c.run.cfg.BytesMax), left+left/4, roomMin)
}

// selected tells whether a group is looked at now.
func (c *groupCheck) selected(g accumulator.Group) bool {
	return (c.only == nil || c.only[g]) && c.slices.Now.Has(HashGroup(g))
}

// partitionOf returns the partition that keeps a group; ok is false if none can.
func (c *groupCheck) partitionOf(g accumulator.Group) (p feed.Partition, ok bool) {
	key, ok := c.rule.TargetKey(g, c.keys)
	if !ok {
		return p, false
	}
	return c.p.target.PartitionFor(key), true
}

// comparePartition compares the groups of one partition of the target.
func (c *groupCheck) comparePartition(ctx context.Context, partition feed.Partition) error {
	c.at = groupCursor{partition: partition}
	for _, s := range c.sources {
		for by := range s.ahead {
			// Another partition begins: for it nothing was merged yet of what stays.
			s.ahead[by].taken = 0
		}
	}
	at, err := c.run.checkpoints(ctx)
	if err == nil {
		err = c.drain(at)
	}
	if err != nil {
		return err
	}
	if c.only != nil {
		return c.compareOnly(ctx, partition)
	}
	for {
		view, err := c.readView(ctx, partition, &store.ReadGroups{After: string(c.at.after), Max: c.run.cfg.PageItems})
		if err != nil || c.reason != "" {
			return err
		}
		// First the members up to where the view stands, then the comparison:
		//
		//	delta at high    +3 of group g
		//	log to view      +1 of g, folded by the processor before the view
		//	view             g holds 4
		//	compare          3 + 1 - 4 = 0: equal, though writes went on
		if err := c.advance(ctx, partition, view); err != nil {
			return err
		}
		on := c.groupsOfPage(view)
		differ, err := c.compare(view, on)
		if err != nil {
			return err
		}
		c.differs = append(c.differs, differ...)
		// What was compared is not looked at again, and what every later view holds need not
		// be kept: a pass in a small share of the time lasts minutes, beside thousands of
		// changes a second.
		for g := range on {
			c.delta.Remove(g)
		}
		c.at.after = accumulator.Group(view.Last)
		if c.at.after == "" {
			return nil
		}
		if err := c.drain(view.checkpoints); err != nil {
			return err
		}
		if err := c.run.pacer.Pace(ctx); err != nil {
			return err
		}
	}
}
