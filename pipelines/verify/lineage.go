package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// A partition may be split while a pipeline is verified. What was read of it says nothing of what its children have done
// since, and that may be in what is read next:
//
//	members of partition 0   40 orders
//	0 is split into 1, 2     an order is written to 1, and the reader of 1 folds it
//	group                    has 41: one too many, as far as 0 knows
//
// The count is right, and a repair would take the order out of it. So a check ends with errSplit when it meets a partition that it did
// not begin with, or the end of one that it did, before it judges by that; and the pipeline is verified anew, with the
// partitions that there are then. The evidence is in what is read, and not in the catalog, which may be told later:
//
//	of the processor   a fold records its reader's position in the commit that adds it, so a view that holds what a
//	                   child has folded names the child (groupCheck.checkLineage)
//	of the log         the split commit is the last one, and stands before all that a child does (history.showCommit)
//	of an owner        what is asked of a partition that was split is refused with *store.SplitError
//
// A cascade is not begun anew: its items are read in the order in which the children have them, and each is judged by the
// reader of the partition that holds it (scan.judgeSuspects).

// errSplit says that a partition was split since the pipeline's verification began.
var errSplit = errors.New("a partition was split meanwhile")

const (
	// beginningsMax bounds how often the verification of a pipeline begins.
	beginningsMax = 5
	// catalogTime is how long it is waited at least until the catalog names children of which a log, or a reader, tells.
	catalogTime = 10 * time.Second
)

// throughSplits verifies a pipeline by verify, and anew where one of its partitions is split meanwhile. What was repaired
// stays counted; everything else is what the last time has found.
func (run *verification) throughSplits(ctx context.Context, p *Verified, verify func(context.Context, *Verified) error) error {
	for n := 1; ; n++ {
		if err := p.refresh(ctx); err != nil {
			return err
		}
		began := p.partitions()
		err := verify(ctx, p)
		if split, unsure := run.isSplitSince(ctx, p, began, err); unsure != nil || !split {
			return unsure
		}
		run.beginAnew(p)
		if n == beginningsMax {
			run.mu.Lock()
			p.result.Reason = fmt.Sprintf("a partition was split each of the %d times that it was looked at; look at it again", n)
			p.result.unjudged = true
			run.mu.Unlock()
			return nil
		}
	}
}

// refresh reads the containers of a pipeline from the catalog again.
func (p *Verified) refresh(ctx context.Context) error {
	for _, c := range []*store.Container{p.Source, p.target} {
		if c == nil {
			continue
		}
		if err := c.Refresh(ctx); err != nil {
			return fmt.Errorf("look for the partitions of container %s: %w", c.Info().Name, err)
		}
		info := c.Info()
		if c == p.Source {
			p.bound.Source = &info
		} else {
			p.bound.Target = &info
		}
	}
	return nil
}

// partitions returns those of the source and of the target, as far as they are known.
func (p *Verified) partitions() []feed.Partition {
	all := p.Source.Partitions()
	if p.target != nil {
		all = append(all, p.target.Partitions()...)
	}
	return all
}

// isSplitSince tells whether a verification that has begun with some partitions, and ended with err, is worth nothing
// because one of them was split since. Else unsure is err.
func (run *verification) isSplitSince(ctx context.Context, p *Verified, began []feed.Partition, err error) (split bool, unsure error) {
	_, refused := errors.AsType[*store.SplitError](err)
	switch {
	case ctx.Err() != nil:
		return false, err
	case refused: // and whoever sent the request has looked into the catalog
		return true, nil
	case err == nil && run.isEqual(p):
		return false, nil
	}
	// The catalog names the children a moment after the log does.
	for deadline := time.Now().Add(max(run.cfg.Timeout, catalogTime)); ; {
		if p.refresh(ctx) != nil {
			return false, err
		}
		if !slices.Equal(p.partitions(), began) {
			return true, nil
		}
		if !errors.Is(err, errSplit) || !time.Now().Before(deadline) || run.wait(ctx, run.cfg.PollInterval) != nil {
			return false, err
		}
	}
}

// isEqual says that nothing that was found of p so far speaks against its being equal.
func (run *verification) isEqual(p *Verified) bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	return p.result.verdict() == VerdictEqual
}

// beginAnew forgets what was found of p, but for what was repaired.
func (run *verification) beginAnew(p *Verified) {
	run.updateProgress(func(progress *Progress) {
		was := p.result
		progress.Findings -= was.Drift + was.Behind + was.Dangling + was.Unjudged
		if run.cfg.Progress != nil {
			progress.Total += was.Items // which are read again
		}
		p.expired = false
		p.result = PipelineReport{
			Database: was.Database, Name: was.Name, Kind: was.Kind, Generation: was.Generation, Verdict: VerdictEqual,
			Splits: was.Splits + 1, Repaired: was.Repaired,
			Differences: slices.DeleteFunc(was.Differences, func(d Difference) bool { return d.Kind != DifferenceRepaired }),
		}
	})
}

// checkLineage returns errSplit if a reader has folded into accumulators whose partition is none that the check began with,
// nor one of before. Of what it has folded, sources that were split since know nothing.
func (c *groupCheck) checkLineage(positions []store.ProducerPosition) error {
	for _, at := range positions {
		reader, _, _ := feed.Producer{Source: at.Source}.Parent() // also of a change that it has given up
		name, ok := strings.CutPrefix(reader.Source, string(processors.RoleSource)+":")
		partition, err := feed.ParsePartition(name)
		if !ok || err != nil || partition.Container != c.began.ID {
			continue // it is a repair's
		}
		is := func(s *groupSource) bool { return s.partition == partition }
		if !slices.ContainsFunc(c.sources, is) && !c.began.WasSplit(partition.Number) {
			return fmt.Errorf("%s has folded changes: %w", partition, errSplit)
		}
	}
	return nil
}
