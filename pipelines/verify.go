package pipelines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// VerifyConfig tunes a Verifier. Zero fields take their defaults.
type VerifyConfig struct {
	// Timeout is how long to wait for the pipelines to pass the changes that
	// differing copies were read at. Default 30s; below 0 is not at all.
	Timeout time.Duration
	// PollInterval is the time between two looks at the checkpoints meanwhile.
	// Default 100ms.
	PollInterval time.Duration
	// PageItems bounds the items, or groups, of one page, at most 1000. Default 500.
	PageItems int
	// SuspectsMax bounds the differing items of one partition that are kept in
	// mind; the scan waits for them at the limit. Default 10,000.
	SuspectsMax int
	// PartitionsMax bounds the partitions that are scanned at a time. Default 4.
	PartitionsMax int
	// BytesMax bounds what is kept in memory of the groups of one aggregate, or the
	// rows of one projection. What is more is verified in several passes over its
	// source. Default 256 MiB.
	BytesMax int
	// ListMax bounds the differences of each pipeline that are listed, of each
	// kind; all are counted. Default 100.
	ListMax int
	// Bucket holds the leases. Default leases.DefaultBucket.
	Bucket string
	// Progress is called now and then with how far the work is, by one goroutine
	// at a time. It must not block. May be nil.
	Progress func(VerifyProgress)
}

// VerifyProgress tells how far a verification is.
type VerifyProgress struct {
	Items    int64 // scanned
	Total    int64 // to be scanned, as counted at the beginning
	Copies   int64 // compared
	Waiting  int64 // items whose copies differ and may be in flight
	Findings int64 // drift and dangling references found
}

// Verifier recomputes copies from their sources while writes go on, in a way of its
// own for each kind of pipeline.
//
// A cascade: every item of the target is read, page by page, and each copy in it
// compared with its source, read settled. A copy that differs may be in flight: the
// item or the source may have changed a moment ago. So the Verifier remembers the
// positions of both and waits until the pipeline has passed them: the check the
// item's, the fan-out the source's, with no fan-out of that source open. Then it
// reads both again. If they still differ and neither has changed since, nothing
// can explain it: that is drift. If one has changed, it begins anew with the new
// positions. What is not passed at the timeout is behind.
//
// That drift is no false alarm rests on the argument of package cascade: the
// check of the item read the source either as it is, and repaired the item, or
// before its last change, and then that change's fan-out, which is done, found
// the item. Both would have changed the item. An item that is created while the
// scan runs, or moves to a partition that was scanned, may be left out: it is
// checked by the pipeline, not by the Verifier.
//
// An aggregate: its accumulators are compared with its members as they are at
// exactly the place up to which the accumulators have folded them (groupCheck), and
// the fields of its targets with the accumulators (fieldCheck).
//
// A projection: the rows that the items have at exactly one place are compared with
// those of the sink. A row that was written while the sink was read may be as it
// was at any place in that time (rowCheck).
type Verifier struct {
	js       jetstream.JetStream
	registry *Registry
	client   *store.Client
	cfg      VerifyConfig
	pacer    *pacer // nil: as fast as it can
}

// NewVerifier returns a Verifier of the pipelines in registry.
func NewVerifier(js jetstream.JetStream, registry *Registry, client *store.Client, cfg VerifyConfig) *Verifier {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&cfg.PageItems, 500)
	def(&cfg.SuspectsMax, 10_000)
	def(&cfg.PartitionsMax, 4)
	def(&cfg.BytesMax, 256<<20)
	def(&cfg.ListMax, 100)
	cfg.PageItems = min(cfg.PageItems, 1000)
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.PollInterval <= 0 {
		cfg.PollInterval = 100 * time.Millisecond
	}
	return &Verifier{js: js, registry: registry, client: client, cfg: cfg}
}

// Verify compares all copies of the named pipelines, of all if none is named.
func (v *Verifier) Verify(ctx context.Context, names ...Metadata) (*Report, error) {
	report, err := v.run(ctx, nil, names)
	if err == nil {
		report.record(ctx)
	}
	return report, err
}

// run verifies pipelines, and mends what differs if there is a repair.
func (v *Verifier) run(ctx context.Context, r *repair, names []Metadata) (report *Report, err error) {
	started := time.Now()
	world, err := v.registry.World(ctx)
	if err != nil {
		return nil, err
	}
	records, err := v.choose(ctx, world.Pipelines, names)
	if err != nil {
		return nil, err
	}
	run := &verification{Verifier: v, repair: r}
	defer func() { err = errors.Join(err, run.close()) }()
	for i := range records {
		if err := run.add(&records[i], world.Containers); err != nil {
			return nil, err
		}
	}
	if err := run.all(ctx); err != nil {
		return nil, err
	}
	return run.report(time.Since(started)), nil
}

// choose returns the records of the named pipelines.
func (v *Verifier) choose(ctx context.Context, all []Record, names []Metadata) ([]Record, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []Record
	for _, m := range names {
		at := slices.IndexFunc(all, func(r Record) bool { return r.Metadata() == m })
		if at < 0 {
			return nil, v.registry.none(ctx, m)
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

// verification is one run of a Verifier.
type verification struct {
	*Verifier
	repair    *repair // nil if nothing is to be mended
	pipelines []*verified

	mu       sync.Mutex // guards what follows, and the results of pipelines
	progress VerifyProgress
	told     time.Time
	at       progress // of the processors, as it was when asked
	asked    time.Time
}

// verified is one pipeline that is verified. mu of the verification guards its
// result and expired.
type verified struct {
	record   Record
	bound    bound
	compiled                  // nothing if a container is gone
	source   *store.Container // of the originals, or the members
	target   *store.Container // nil for a projection
	expired  bool             // a wait has reached the timeout; there is no other
	result   PipelineReport
}

// add takes a pipeline into the run.
func (run *verification) add(rec *Record, containers []store.ContainerInfo) (err error) {
	p := &verified{record: *rec, result: PipelineReport{
		Database: rec.Database, Name: rec.Name, Kind: rec.Spec.Kind(), Generation: rec.Generation, Verdict: VerdictEqual,
	}}
	run.pipelines = append(run.pipelines, p)
	var gone string
	if p.bound, gone = rec.bound(containers); gone != "" {
		p.result.Reason = fmt.Sprintf("container %s, for which it was registered, was deleted, or made again; apply the pipeline again", gone)
		return nil
	}
	switch rec.Spec.Kind() {
	case CascadeKind:
		if p.cascade, err = compileCascade(run.client, rec, p.bound.source, p.bound.target, cascade.Limits{}); err == nil {
			p.source, p.target = p.cascade.Source(), p.cascade.Target()
		}
	case AggregateKind:
		if p.aggregate, err = compileAggregate(run.client, rec, &p.bound); err == nil {
			p.source, p.target = p.aggregate.Source(), p.aggregate.Target()
		}
	case ProjectKind:
		if p.projection, err = compileProject(run.client, rec, &p.bound, project.Limits{}); err == nil {
			p.source = p.projection.Source()
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
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}

// all verifies all pipelines: cascades first, every partition of a target once for
// all cascades into it; then aggregates, then projections, one after the other, for
// each may read what those before it have mended.
func (run *verification) all(ctx context.Context) error {
	if err := run.count(ctx); err != nil {
		return err
	}
	if err := run.scan(ctx); err != nil {
		return err
	}
	for _, p := range run.pipelines {
		if p.aggregate == nil {
			continue
		}
		if err := run.aggregate(ctx, p); err != nil {
			return fmt.Errorf("pipeline %s: %w", p.record.Metadata(), err)
		}
	}
	for _, p := range run.pipelines {
		if p.projection == nil {
			continue
		}
		if err := run.rows(ctx, p); err != nil {
			return fmt.Errorf("pipeline %s: %w", p.record.Metadata(), err)
		}
	}
	return nil
}

// count tells how many items there are to be read, if anybody wants to know.
func (run *verification) count(ctx context.Context) error {
	if run.cfg.Progress == nil {
		return nil
	}
	counted := map[feed.ResourceID]bool{} // targets of cascades, which are read once
	var containers []*store.Container
	for _, p := range run.pipelines {
		switch {
		case p.cascade != nil && !counted[p.target.Info().ID]:
			counted[p.target.Info().ID] = true
			containers = append(containers, p.target)
		case p.aggregate != nil:
			containers = append(containers, p.source, p.target)
		case p.projection != nil:
			containers = append(containers, p.source)
		}
	}
	for _, c := range containers {
		for _, partition := range c.Partitions() {
			total, err := c.Count(ctx, partition, store.Scope{})
			if err != nil {
				return fmt.Errorf("count the items of %s: %w", partition, err)
			}
			run.tell(func(p *VerifyProgress) { p.Total += int64(total) })
		}
	}
	return nil
}

// scan scans every partition of every target of cascades.
func (run *verification) scan(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(run.cfg.PartitionsMax)
	groups := map[feed.ResourceID][]*verified{}
	var order []feed.ResourceID
	for _, p := range run.pipelines {
		if p.cascade == nil {
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
			s := &scan{run: run, pipelines: groups[id], target: groups[id][0].target, partition: partition}
			g.Go(func() error { return s.all(ctx) })
		}
	}
	return g.Wait()
}

// tell changes the progress and shows it, at most ten times a second.
func (run *verification) tell(change func(*VerifyProgress)) {
	run.mu.Lock()
	defer run.mu.Unlock()
	change(&run.progress)
	if now := time.Now(); run.cfg.Progress != nil && now.Sub(run.told) >= 100*time.Millisecond {
		run.told = now
		run.cfg.Progress(run.progress)
	}
}

// read notes items that were read.
func (run *verification) read(p *verified, items int) {
	run.tell(func(progress *VerifyProgress) {
		progress.Items += int64(items)
		p.result.Items += int64(items)
	})
}

// proved notes copies that equal their source.
func (run *verification) proved(p *verified, copies int) {
	run.tell(func(progress *VerifyProgress) {
		progress.Copies += int64(copies)
		p.result.Copies += int64(copies)
	})
}

// provedGroups notes accumulators that equal their members.
func (run *verification) provedGroups(p *verified, groups int) {
	run.tell(func(*VerifyProgress) { p.result.Groups += int64(groups) })
}

// kept notes a row that is there, as it must be, though its item has expired.
func (run *verification) kept(p *verified) {
	run.tell(func(*VerifyProgress) { p.result.Kept++ })
}

// found counts a difference and lists it, unless there are enough of its kind.
func (run *verification) found(p *verified, d Difference) {
	run.tell(func(progress *VerifyProgress) {
		progress.Findings++
		p.result.add(d, run.cfg.ListMax)
	})
}

// late notes why a pipeline could not be judged as a whole.
func (run *verification) late(p *verified, reason string) {
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
