package verify

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/pace"
)

// Config tunes a Verifier. Zero fields take their defaults.
type Config struct {
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
	Progress func(Progress)
}

// Progress tells how far a verification is.
type Progress struct {
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
// was at any place in that time (rowCheck). What rows items that are gone must have is
// in the log alone; what is not in it any more is VerdictUnjudged.
type Verifier struct {
	js       jetstream.JetStream
	registry *registry.Registry
	client   *store.Client
	cfg      Config
	pacer    *pace.Pacer // nil: as fast as it can
	lenient  bool        // what cannot be judged is no error
}

// New returns a Verifier of the pipelines in registry.
func New(js jetstream.JetStream, registry *registry.Registry, client *store.Client, cfg Config) *Verifier {
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

// Verify compares all copies of the named pipelines, of all if none is named. A
// pipeline of which something cannot be read here, such as a sink whose secret this
// process does not have, is VerdictUnjudged, and the others are judged.
func (v *Verifier) Verify(ctx context.Context, names ...spec.Metadata) (*Report, error) {
	lenient := *v
	lenient.lenient = true
	report, err := lenient.run(ctx, nil, names)
	if err == nil {
		report.record(ctx)
	}
	return report, err
}

// run verifies the named pipelines, and repairs what differs if there is a repair.
func (v *Verifier) run(ctx context.Context, r *repair, names []spec.Metadata) (*Report, error) {
	started := time.Now()
	world, err := v.registry.World(ctx)
	if err != nil {
		return nil, err
	}
	records, err := v.choose(ctx, world.Pipelines, names)
	if err != nil {
		return nil, err
	}
	report, err := v.runOn(ctx, r, world.Containers, records)
	if err == nil {
		report.Duration, report.Seconds = time.Since(started), time.Since(started).Seconds()
	}
	return report, err
}

// runOn verifies pipelines whose records, and those of the containers, are known.
func (v *Verifier) runOn(ctx context.Context, r *repair, containers []store.ContainerInfo, records []registry.Record) (report *Report, err error) {
	started := time.Now()
	run := &verification{Verifier: v, repair: r}
	defer func() { err = errors.Join(err, run.close()) }()
	for i := range records {
		err := run.addPipeline(ctx, &records[i], containers)
		if err = run.errorAsVerdict(ctx, run.pipelines[len(run.pipelines)-1], err); err != nil {
			return nil, err
		}
	}
	if err := run.verifyAll(ctx); err != nil {
		return nil, err
	}
	return run.report(time.Since(started)), nil
}

// choose returns the records of the named pipelines.
func (v *Verifier) choose(ctx context.Context, all []registry.Record, names []spec.Metadata) ([]registry.Record, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []registry.Record
	for _, m := range names {
		at := slices.IndexFunc(all, func(r registry.Record) bool { return r.Metadata() == m })
		if at < 0 {
			return nil, v.registry.NoPipeline(ctx, m)
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}
