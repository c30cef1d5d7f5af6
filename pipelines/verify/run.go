package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// verification is one run of a Verifier.
//
// What one goroutine owns is in the checks of the kinds (scan, groupCheck, fieldCheck,
// rowCheck); what these share is here.
type verification struct {
	// Set once by runOn. A Verifier never changes, so all goroutines read it.
	*Verifier
	repair    *repair // nil if nothing is to be repaired
	pipelines []*Verified

	// Guarded by mu, with result and expired of all pipelines.
	mu       sync.Mutex
	progress Progress
	told     time.Time
	at       registry.Checkpoints // of the processors, as it was when asked
	asked    time.Time
}

// Verified is one pipeline that is verified. mu of the verification guards its
// result and expired.
type Verified struct {
	Record           registry.Record
	bound            registry.Bound
	compile.Compiled                  // nothing if a container is gone
	Source           *store.Container // of the originals, or the members
	target           *store.Container // nil for a projection
	expired          bool             // a wait has reached the timeout; there is no other
	result           PipelineReport
}

// addPipeline takes a pipeline into the run.
func (run *verification) addPipeline(ctx context.Context, rec *registry.Record, containers []store.ContainerInfo) (err error) {
	p := &Verified{Record: *rec, result: PipelineReport{
		Database: rec.Database, Name: rec.Name, Kind: rec.Spec.Kind(), Generation: rec.Generation, Verdict: VerdictEqual,
	}}
	run.pipelines = append(run.pipelines, p)
	if rec, err = run.registry.Located(ctx, rec); err != nil {
		return err
	}
	p.Record = *rec
	var gone string
	if p.bound, gone = rec.Bound(containers); gone != "" {
		p.result.Reason = fmt.Sprintf("container %s, for which it was registered, was deleted, or made again; apply the pipeline again", gone)
		return nil
	}
	switch rec.Spec.Kind() {
	case spec.CascadeKind:
		if p.Cascade, err = rec.Cascade(run.client, &p.bound, cascade.Limits{}); err == nil {
			p.Source, p.target = p.Cascade.Source(), p.Cascade.Target()
		}
	case spec.AggregateKind:
		if p.Aggregate, err = compile.Aggregate(run.client, rec, &p.bound); err == nil {
			p.Source, p.target = p.Aggregate.Source(), p.Aggregate.Target()
		}
	case spec.ProjectKind:
		if p.Projection, err = compile.Projection(run.client, rec, &p.bound, compile.Reading(run.registry)); err == nil {
			p.Source = p.Projection.Source()
		}
	}
	return err
}

// close frees the sinks of projections.
func (run *verification) close() error {
	var errs []error
	if run.repair != nil {
		errs = append(errs, run.repair.close())
	}
	for _, p := range run.pipelines {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// verifyAll verifies all pipelines: cascades first, every partition of a target once for
// all cascades into it; then aggregates, then projections, one after the other, for
// each may read what those before it have repaired.
func (run *verification) verifyAll(ctx context.Context) error {
	if err := run.countItems(ctx); err != nil {
		return err
	}
	if err := run.scanTargets(ctx); err != nil {
		return err
	}
	for _, p := range run.pipelines {
		if p.Aggregate == nil {
			continue
		}
		if err := run.errorAsVerdict(ctx, p, run.throughSplits(ctx, p, run.verifyAggregate)); err != nil {
			return err
		}
	}
	for _, p := range run.pipelines {
		if p.Projection == nil {
			continue
		}
		if err := run.errorAsVerdict(ctx, p, run.throughSplits(ctx, p, run.verifyRows)); err != nil {
			return err
		}
	}
	return nil
}

// errorAsVerdict makes an error the reason why a pipeline is not judged, where that is all it
// says; it returns any other error.
func (run *verification) errorAsVerdict(ctx context.Context, p *Verified, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errForgotten):
		run.mu.Lock()
		defer run.mu.Unlock()
		p.result.Reason, p.result.unjudged = err.Error(), true
		return nil
	case run.lenient && ctx.Err() == nil:
		run.mu.Lock()
		defer run.mu.Unlock()
		p.result.Reason, p.result.unjudged = "it could not be judged: "+err.Error(), true
		return nil
	}
	return fmt.Errorf("pipeline %s: %w", p.Record.Metadata(), err)
}

// countItems tells how many items there are to be read, if anybody wants to know.
func (run *verification) countItems(ctx context.Context) error {
	if run.cfg.Progress == nil {
		return nil
	}
	counted := map[feed.ResourceID]bool{} // targets of cascades, which are read once
	var containers []*store.Container
	for _, p := range run.pipelines {
		switch {
		case p.Cascade != nil && !counted[p.target.Info().ID]:
			counted[p.target.Info().ID] = true
			containers = append(containers, p.target)
		case p.Aggregate != nil:
			containers = append(containers, p.Source, p.target)
		case p.Projection != nil:
			containers = append(containers, p.Source)
		}
	}
	for _, c := range containers {
		for _, partition := range c.Partitions() {
			total, err := c.Count(ctx, partition, store.Scope{})
			if err != nil {
				return fmt.Errorf("count the items of %s: %w", partition, err)
			}
			run.updateProgress(func(p *Progress) { p.Total += int64(total) })
		}
	}
	return nil
}

// scanTargets scans every partition of every target of cascades.
func (run *verification) scanTargets(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(run.cfg.PartitionsMax)
	groups := map[feed.ResourceID][]*Verified{}
	var order []feed.ResourceID
	for _, p := range run.pipelines {
		if p.Cascade == nil {
			continue
		}
		// A cascade that is still being backfilled leaves copies that differ all over
		// the container; each would be a suspect that waits for its timeout.
		if full, err := run.awaitBackfill(ctx, p); err != nil {
			return err
		} else if !full {
			continue
		}
		id := p.target.Info().ID
		if groups[id] == nil {
			order = append(order, id)
		}
		groups[id] = append(groups[id], p)
	}
	for _, id := range order {
		for _, partition := range groups[id][0].target.Partitions() {
			// One scan for all cascades into a container: a page is read once, however
			// many pipelines write into its items.
			s := &scan{run: run, pipelines: groups[id], target: groups[id][0].target, partition: partition}
			g.Go(func() error { return s.scanAll(ctx) })
		}
	}
	return g.Wait()
}

// updateProgress changes the progress and shows it, at most ten times a second.
func (run *verification) updateProgress(change func(*Progress)) {
	run.mu.Lock()
	defer run.mu.Unlock()
	change(&run.progress)
	// Under the lock, so that what is shown never goes backwards.
	if now := time.Now(); run.cfg.Progress != nil && now.Sub(run.told) >= 100*time.Millisecond {
		run.told = now
		run.cfg.Progress(run.progress)
	}
}

// countRead notes items that were read.
func (run *verification) countRead(p *Verified, items int) {
	run.updateProgress(func(progress *Progress) {
		progress.Items += int64(items)
		p.result.Items += int64(items)
	})
}

// countEqual notes copies that equal their source.
func (run *verification) countEqual(p *Verified, copies int) {
	run.updateProgress(func(progress *Progress) {
		progress.Copies += int64(copies)
		p.result.Copies += int64(copies)
	})
}

// countEqualGroups notes accumulators that equal their members.
func (run *verification) countEqualGroups(p *Verified, groups int) {
	run.updateProgress(func(*Progress) { p.result.Groups += int64(groups) })
}

// countKept notes a row that is there, as it must be, though its item has expired.
func (run *verification) countKept(p *Verified) {
	run.updateProgress(func(*Progress) { p.result.Kept++ })
}

// countUnjudged notes rows of which nobody can tell whether they are right.
func (run *verification) countUnjudged(p *Verified, rows int) {
	run.updateProgress(func(*Progress) { p.result.Unjudged += int64(rows) })
}

// sayUnjudged gives the reason why rows could not be judged, if there were any. forgotten says
// that others may be missing of which nobody knows, grown that some may be of before their table
// gained columns.
func (run *verification) sayUnjudged(p *Verified, forgotten, grown bool) {
	run.mu.Lock()
	defer run.mu.Unlock()
	why := "the log of its source was trimmed, and does not tell any more which items have expired or were deleted"
	if grown && !forgotten {
		why = "nothing tells which items had expired before columns or tables were added"
	}
	n := p.result.Unjudged
	switch {
	case forgotten && n == 0:
		p.result.Reason = "whether rows of expired items are missing could not be judged: " + why
	case n > 0:
		p.result.Reason = format.Plural(n, "row", "rows") + " could not be judged: " + why
	default:
		return
	}
	p.result.unjudged = true
}

// addDifference counts a difference and lists it, unless there are enough of its kind.
func (run *verification) addDifference(p *Verified, d Difference) {
	run.updateProgress(func(progress *Progress) {
		progress.Findings++
		p.result.add(d, run.cfg.ListMax)
	})
}

// notJudged notes why a pipeline could not be judged as a whole.
func (run *verification) notJudged(p *Verified, reason string) {
	run.mu.Lock()
	defer run.mu.Unlock()
	p.result.Reason = reason
}

// report puts the results together.
func (run *verification) report(took time.Duration) *Report {
	r := &Report{Verdict: VerdictEqual, Duration: took, Seconds: took.Seconds()}
	for _, p := range run.pipelines {
		p.result.Verdict = p.result.verdict()
		r.Verdict = worseVerdict(r.Verdict, p.result.Verdict)
		r.Pipelines = append(r.Pipelines, p.result)
	}
	if run.cfg.Progress != nil {
		run.cfg.Progress(run.progress)
	}
	return r
}
