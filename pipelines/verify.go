package pipelines

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/cascade"
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
	// PageItems bounds the items of one page, at most 1000. Default 500.
	PageItems int
	// SuspectsMax bounds the differing items of one partition that are kept in
	// mind; the scan waits for them at the limit. Default 10,000.
	SuspectsMax int
	// PartitionsMax bounds the partitions that are scanned at a time. Default 4.
	PartitionsMax int
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

// Verifier recomputes copies from their sources while writes go on.
//
// Every item of a target is read, page by page, and each copy in it compared
// with its source, read settled. A copy that differs may be in flight: the item
// or the source may have changed a moment ago. So the Verifier remembers the
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
type Verifier struct {
	js       jetstream.JetStream
	registry *Registry
	client   *store.Client
	cfg      VerifyConfig
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
	started := time.Now()
	world, err := v.registry.World(ctx)
	if err != nil {
		return nil, err
	}
	records, err := v.choose(ctx, world.Pipelines, names)
	if err != nil {
		return nil, err
	}
	run := &verification{Verifier: v}
	for i := range records {
		if err := run.add(&records[i], world.Containers); err != nil {
			return nil, err
		}
	}
	if err := run.scan(ctx); err != nil {
		return nil, err
	}
	report := run.report(time.Since(started))
	report.record(ctx)
	return report, nil
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
	pipelines []*verified

	mu       sync.Mutex // guards what follows, and the results of pipelines
	progress VerifyProgress
	told     time.Time
}

// verified is one pipeline that is verified. mu of the verification guards its
// result and expired.
type verified struct {
	record  Record
	cascade *cascade.Cascade // nil if a container is gone
	target  *store.Container
	source  *store.Container
	expired bool // a wait has reached the timeout; there is no other
	result  PipelineReport
}

// add takes a pipeline into the run.
func (run *verification) add(rec *Record, containers []store.ContainerInfo) error {
	p := &verified{record: *rec, result: PipelineReport{
		Database: rec.Database, Name: rec.Name, Generation: rec.Generation, Verdict: VerdictEqual,
	}}
	run.pipelines = append(run.pipelines, p)
	source, target := rec.find(containers, rec.Source), rec.find(containers, rec.Target)
	if source == nil || target == nil {
		p.result.Verdict = VerdictBehind
		p.result.Reason = "a container that it was registered for was deleted, or made again; apply the pipeline again"
		return nil
	}
	var err error
	if p.cascade, err = compileCascade(run.client, rec, source, target, cascade.Limits{}); err != nil {
		return err
	}
	p.source, p.target = p.cascade.Source(), p.cascade.Target()
	return nil
}

// scan scans every partition of every target, once for all pipelines into it.
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
		target := groups[id][0].target
		for _, partition := range target.Partitions() {
			total, err := target.Count(ctx, partition, store.Scope{})
			if err != nil {
				return fmt.Errorf("count the items of %s: %w", partition, err)
			}
			run.tell(func(p *VerifyProgress) { p.Total += int64(total) })
		}
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

// report puts the results together.
func (run *verification) report(took time.Duration) *Report {
	r := &Report{Verdict: VerdictEqual, Duration: took, Seconds: took.Seconds()}
	for _, p := range run.pipelines {
		if p.cascade != nil {
			p.result.Verdict = p.result.verdict()
		}
		r.Verdict = worseVerdict(r.Verdict, p.result.Verdict)
		r.Pipelines = append(r.Pipelines, p.result)
	}
	if run.cfg.Progress != nil {
		run.cfg.Progress(run.progress)
	}
	return r
}
