package verify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/pace"
)

const (
	// ContinuousResource is the lease of the continuous verification, one for all pipelines.
	ContinuousResource = "verify"
	// continuousPageItems keeps it from occupying an owner for long.
	continuousPageItems = 200
	// continuousPollInterval keeps it from reading the leases often.
	continuousPollInterval = 500 * time.Millisecond
	// continuousListMax is how many differences of each kind and pipeline are logged.
	continuousListMax = 5
	// continuousSaveInterval is the time between two saves of what was found in one round,
	// while it is no news.
	continuousSaveInterval = time.Minute
	// waitedSharePercent is the part of its time in which a pipeline is verified on
	// whose verification somebody waits.
	waitedSharePercent = 25
)

// Continuous verifies pipelines, in one process for all. If the configuration says so, it goes
// round over all of them for ever, in a small share of its time. It verifies pipelines that
// wait for it (Record.Unverified) in any case, and at once. It publishes what it finds as
// metrics,
//
//	millrace.verify.coverage      share of copies that the last pass found equal
//	millrace.verify.position      LSN up to which changes were last found to be copied
//	millrace.verify.position_age  age of the state that was last found equal
//	millrace.verify.drift         copies that the last pass found to differ for no reason
//
// each for each pipeline, and keeps it in its lease (CONTINUOUS.md), where status finds it
// and from where the next holder goes on. It repairs nothing: it logs what it finds, and
// millrace repair repairs.
//
// It writes nothing else but Record.Unverified, by compare-and-set. So two at a time do no
// harm; the lease only saves work.
type Continuous struct {
	verifier *Verifier
	registry *registry.Registry
	world    func() (registry.World, bool)
	cfg      ContinuousConfig
	tick     time.Duration // between two looks at what waits to be verified
	log      *slog.Logger

	mu       sync.Mutex
	findings map[string]*Finding // by pipeline id
	saved    time.Time           // when they were saved last; zero if something has to be said
}

// Lease is what Continuous asks of its lease, a leases.Held.
type Lease interface {
	// Checkpoint is what was saved last, by whoever held the lease.
	Checkpoint() []byte
	Progress()
	Save(ctx context.Context, checkpoint []byte) error
}

// NewContinuous returns a Continuous that looks every tick at what waits to be verified, in
// the world that it is told. bucket holds the leases of processors.
func NewContinuous(r *registry.Registry, client *store.Client, world func() (registry.World, bool), bucket string, cfg ContinuousConfig, tick time.Duration, log *slog.Logger) *Continuous {
	cfg = cfg.withDefaults()
	return &Continuous{
		registry: r, world: world, cfg: cfg, tick: tick, log: log, findings: map[string]*Finding{},
		verifier: New(r.JetStream, r, client, Config{
			Bucket: bucket, BytesMax: cfg.BytesMax, PartitionsMax: 1, PageItems: continuousPageItems, ListMax: continuousListMax,
			PollInterval: continuousPollInterval,
		}),
	}
}

// Run verifies until ctx ends.
func (a *Continuous) Run(ctx context.Context, held Lease) error {
	if err := a.restoreFindings(held.Checkpoint()); err != nil {
		a.log.WarnContext(ctx, "what was verified before is not known", slog.Any("error", err))
	}
	forget, err := observeFindings(a.eachFinding)
	if err != nil {
		return err
	}
	defer forget()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.verifyWaiting(ctx, held) })
	if a.cfg.On() {
		g.Go(func() error { return a.verifyAll(ctx, held) })
	}
	return g.Wait()
}

// paced returns a verifier that works in a share of its time.
func (a *Continuous) paced(lease Lease, percent int) *Verifier {
	v := *a.verifier
	v.pacer = pace.New(float64(percent)/100, lease.Progress)
	return &v
}

// verifyAll verifies all pipelines, one after the other, for ever. It passes over those that
// were found equal and have not changed since.
func (a *Continuous) verifyAll(ctx context.Context, lease Lease) error {
	v := a.paced(lease, a.cfg.SharePercent)
	equal := map[string]*equalPass{} // by pipeline id
	for ctx.Err() == nil {
		began := time.Now()
		w, ready := a.world()
		passes := map[string]*equalPass{}
		for i := range w.Pipelines {
			if ready && ctx.Err() == nil {
				rec := &w.Pipelines[i]
				passes[rec.ID] = a.verifyChanged(ctx, v, lease, &w, rec, equal[rec.ID])
			}
		}
		equal = passes
		a.saveFindings(ctx, lease, time.Second)
		left := a.cfg.Interval - time.Since(began)
		if !ready {
			left = a.tick
		}
		_ = v.pacer.Rest(ctx, max(left, pace.WorkMin)) // that ctx has ended is seen above
	}
	return nil
}

// verifyChanged verifies a pipeline, unless it was found equal by the pass before and has not
// changed since. It returns the pass that found it equal, nil if none did.
func (a *Continuous) verifyChanged(ctx context.Context, v *Verifier, lease Lease, w *registry.World, rec *registry.Record, before *equalPass) *equalPass {
	now := &equalPass{revision: rec.Revision}
	// Before the pass: what is written meanwhile makes another one due.
	ends, err := a.logEnds(ctx, w, rec)
	if err == nil && a.foundEqual(rec) && before.unchanged(rec, ends, a.cfg.UnchangedInterval) {
		return before
	}
	now.ends = ends
	if !a.verifyOne(ctx, v, lease, w, rec) || err != nil {
		return nil
	}
	now.ended = time.Now()
	return now
}

// foundEqual reports whether the last verification of a pipeline found it equal: verifyWaiting,
// too, may have found that its sink was changed by somebody else.
func (a *Continuous) foundEqual(rec *registry.Record) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.findings[rec.ID]
	return one != nil && one.Verdict == VerdictEqual
}

// verifyWaiting verifies pipelines that wait for it. One that was not found equal is looked
// at again when it has changed, or after a while.
func (a *Continuous) verifyWaiting(ctx context.Context, lease Lease) error {
	v := a.paced(lease, max(a.cfg.SharePercent, waitedSharePercent))
	type try struct {
		revision uint64
		at       time.Time
	}
	tried := map[string]try{}
	for ctx.Err() == nil {
		w, ready := a.world()
		if ready {
			a.forgetGone(&w)
		}
		waits := map[string]try{}
		for i := range w.Pipelines {
			rec := &w.Pipelines[i]
			if !rec.Unverified || !rec.InForce || rec.Paused {
				continue
			}
			last := tried[rec.ID]
			if last.revision != rec.Revision || time.Since(last.at) >= a.cfg.Interval {
				last = try{rec.Revision, time.Now()}
				// By the revision: a record that has changed asks another question, and one
				// that has not is not asked again before the interval is over.
				if a.verifyOne(ctx, v, lease, &w, rec) {
					a.markVerified(ctx, rec)
				}
			}
			waits[rec.ID] = last
		}
		tried = waits
		lease.Progress()
		_ = v.pacer.Rest(ctx, a.tick) // that ctx has ended is seen above
	}
	return nil
}

// verifyOne verifies one pipeline and notes what is found. It tells whether all copies
// were found to be equal.
func (a *Continuous) verifyOne(ctx context.Context, v *Verifier, lease Lease, w *registry.World, rec *registry.Record) (equal bool) {
	began := time.Now()
	v.pacer.Resume()
	heads, err := a.sourceHeads(ctx, w, rec)
	var report *Report
	if err == nil {
		report, err = v.runOn(ctx, nil, w.Containers, []registry.Record{*rec})
	}
	var now registry.Record
	if err == nil {
		now, err = a.registry.Get(ctx, rec.Database, rec.Name)
	}
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		a.noteFailure(ctx, rec, err)
		return false
	// Read after the verification, not before: what was declared meanwhile would
	// be marked as verified otherwise.
	case now.Revision != rec.Revision:
		return false // what was verified is not what is declared now
	}
	r := &report.Pipelines[0]
	if r.Splits > 0 {
		a.log.InfoContext(ctx, "a partition was split while a pipeline was verified, which began anew", slog.String("pipeline", rec.Metadata().String()), slog.Int("times", r.Splits))
	}
	a.noteReport(ctx, rec, r, heads, began)
	a.saveFindings(ctx, lease, continuousSaveInterval)
	return r.Verdict == VerdictEqual
}

// markVerified notes that a pipeline has the verification for which it waited.
func (a *Continuous) markVerified(ctx context.Context, rec *registry.Record) {
	done := false
	_, err := a.registry.Modify(ctx, rec.Metadata(), func(now *registry.Record) {
		if done = now.Revision == rec.Revision; done {
			now.Unverified = false
		}
	})
	switch {
	case err != nil && ctx.Err() == nil:
		a.log.WarnContext(ctx, "a verification could not be noted", slog.String("pipeline", rec.Metadata().String()), slog.Any("error", err))
	case err == nil && done:
		a.log.InfoContext(ctx, "a pipeline is in force and verified", slog.String("pipeline", rec.Metadata().String()))
	}
}

// sourceHeads returns the LSN up to which the source of a pipeline is applied.
func (a *Continuous) sourceHeads(ctx context.Context, w *registry.World, rec *registry.Record) ([]registry.Start, error) {
	b, gone := rec.Bound(w.Containers)
	if gone != "" {
		return nil, nil
	}
	source, err := a.verifier.client.Open(*b.Source)
	if err != nil {
		return nil, err
	}
	var heads []registry.Start
	for _, p := range source.Partitions() {
		status, err := source.Status(ctx, p)
		if _, split := errors.AsType[*store.SplitError](err); split {
			return nil, nil // its children have other LSNs: where the source stood cannot be said
		}
		if err != nil {
			return nil, fmt.Errorf("partition %s: %w", p, err)
		}
		heads = append(heads, registry.Start{Partition: p.Number, After: feed.Position{LSN: status.Applied}})
	}
	return heads, nil
}

// noteFailure says once that a pipeline cannot be verified.
func (a *Continuous) noteFailure(ctx context.Context, rec *registry.Record, err error) {
	a.mu.Lock()
	one := a.findingLocked(rec)
	told := one.failed
	one.failed = err.Error()
	a.mu.Unlock()
	if told != err.Error() {
		a.log.WarnContext(ctx, "a pipeline cannot be verified", slog.String("pipeline", rec.Metadata().String()), slog.Any("error", err))
	}
}

// forgetGone forgets what was found of pipelines that are gone.
func (a *Continuous) forgetGone(w *registry.World) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.findings, func(id string, _ *Finding) bool {
		return !slices.ContainsFunc(w.Pipelines, func(r registry.Record) bool { return r.ID == id })
	})
}

// noteReport takes over what was found of a pipeline.
func (a *Continuous) noteReport(ctx context.Context, rec *registry.Record, r *PipelineReport, heads []registry.Start, began time.Time) {
	a.mu.Lock()
	one := a.findingLocked(rec)
	before := one.Verification
	one.update(rec, r, heads, began)
	if before.Drift != one.Drift || before.Verdict != one.Verdict {
		a.saved = time.Time{}
	}
	a.mu.Unlock()
	if r.Drift > 0 && r.Drift != before.Drift {
		examples := make([]string, 0, continuousListMax)
		for i := range r.Differences {
			if r.Differences[i].Kind == DifferenceDrift {
				examples = append(examples, r.Differences[i].String())
			}
		}
		a.log.ErrorContext(ctx, "copies differ from their sources for no reason; millrace verify lists them, millrace repair repairs them",
			slog.String("pipeline", rec.Metadata().String()), slog.Int64("drift", r.Drift), slog.Any("examples", examples))
	}
}

// findingLocked returns what is known of a pipeline, which may be nothing yet.
func (a *Continuous) findingLocked(rec *registry.Record) *Finding {
	one := a.findings[rec.ID]
	if one == nil {
		one = &Finding{Database: rec.Database, Name: rec.Name, Since: time.Now()}
		a.findings[rec.ID] = one
	}
	return one
}
