package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// groupView is a page of accumulators, and up to where it has folded each source.
type groupView struct {
	*store.GroupsResult
	through     map[feed.Partition]feed.Position
	checkpoints registry.Checkpoints // as they were before it
}

// readView reads accumulators, when they have folded all that delta holds.
func (c *groupCheck) readView(ctx context.Context, partition feed.Partition, r *store.ReadGroups) (view *groupView, err error) {
	r.Pipeline, r.Generation = c.p.Record.ID, c.p.Record.Generation
	c.reason, err = c.run.await(ctx, c.p, func(at registry.Checkpoints) (string, error) {
		result, err := c.p.target.ReadGroups(ctx, partition, r)
		if err != nil {
			return "", fmt.Errorf("read the accumulators of %s in %s: %w", c.p.Record.Metadata(), partition, err)
		}
		if err := c.checkLineage(result.Positions); err != nil {
			return "", err
		}
		view = &groupView{result, map[feed.Partition]feed.Position{}, at}
		for _, s := range c.sources {
			// Two witnesses of how far the processor has folded, and the further counts:
			//
			//	checkpoint   what is behind it was folded in all partitions, also where
			//	             it meant nothing and no fold was sent
			//	recorded     by the fold itself, in this partition; ahead of a checkpoint
			//	             that is yet to be saved
			//
			// A recorded position can stand within a commit, so of that commit only the
			// changes up to it count as folded: whole stays one LSN behind.
			through := at.Of(&c.p.Record, processors.RoleSource, s.partition).Position
			whole := through.LSN // of which all changes have been folded
			if _, walking := through.Walked(); walking {
				whole-- // the item of any change may still come
			}
			if recorded := view.recorded(&c.p.Record, s.partition); through.Before(recorded) {
				through, whole = recorded, max(whole, recorded.LSN-1)
			}
			// delta holds the members up to high. An accumulator that is older cannot be
			// compared with it: what lies between can be added to delta, not taken away.
			if view.through[s.partition] = through; whole < s.high {
				return c.p.behind(s.partition, through, s.high), nil
			}
		}
		return "", nil
	})
	return view, err
}

// readOf parts the groups that were asked for into those that the view has, and those for which the
// message had no room.
func (v *groupView) readOf(asked []string) (read, rest []string) {
	if v.Last == "" {
		return asked, nil
	}
	n := slices.Index(asked, v.Last) + 1
	return asked[:n], asked[n:]
}

// recorded returns the position recorded for the reader of a source partition.
func (v *groupView) recorded(rec *registry.Record, source feed.Partition) feed.Position {
	producer := processors.Resource{Pipeline: rec.ID, Generation: rec.Generation, Role: processors.RoleSource, Partition: source}.Producer()
	at := slices.IndexFunc(v.Positions, func(p store.ProducerPosition) bool { return p.Source == producer.Source })
	if at < 0 {
		return feed.Position{}
	}
	return v.Positions[at].Position
}

// advance merges into delta what has been folded since, of the groups of a
// partition that are still to be compared.
func (c *groupCheck) advance(ctx context.Context, partition feed.Partition, view *groupView) error {
	for _, s := range c.sources {
		to := view.through[s.partition].LSN
		if s.partition == partition {
			// The owner folds changes of its own partition as they are committed, so up
			// to the view's LSN, which the processor's position need not have reached.
			to = max(to, view.LSN)
		}
		if err := s.follow(ctx, to, func(e *event) error { return c.collect(s, e) }); err != nil {
			return err
		}
		for by := range s.ahead {
			passed := func(a *ahead) bool { return !view.through[s.partition].Before(a.at) }
			if by == byOwner {
				passed = func(a *ahead) bool { return s.partition == partition && a.at.LSN <= view.LSN }
			}
			if err := c.mergePassed(&s.ahead[by], passed); err != nil {
				return err
			}
		}
	}
	return nil
}

// Who folds a change.
const (
	byProcessor = iota
	byOwner
)

// collect notes what a change means that delta does not hold.
func (c *groupCheck) collect(s *groupSource, e *event) error {
	c.scratch.Reset()
	if err := c.fold(c.scratch, e); err != nil {
		return err
	}
	share := c.scratch.Only(c.selected)
	if share.Empty() {
		return nil
	}
	by := byProcessor
	if c.p.foldedByOwner(e.transaction) {
		by = byOwner
	}
	s.ahead[by].shares = append(s.ahead[by].shares, ahead{e.at, share.Append(nil)})
	return nil
}

// foldedByOwner says whether the owner has folded the changes of a transaction: its
// fold is of them, unless it is of what a processor has sent.
func (p *Verified) foldedByOwner(t *feed.Transaction) bool {
	own := func(pipeline string, generation uint32) bool {
		return pipeline == p.Record.ID && generation == p.Record.Generation
	}
	if t.Effect != nil && own(t.Effect.Producer.Pipeline, t.Effect.Producer.Generation) {
		return false
	}
	return slices.ContainsFunc(t.Folds, func(f feed.Fold) bool { return own(f.Pipeline, f.Generation) })
}
