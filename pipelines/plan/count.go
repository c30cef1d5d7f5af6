package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// Cost estimates what it takes to bring a plan about.
type Cost struct {
	// Reads are the source items whose changes are read again. Their logs may hold
	// more than one change of each.
	Reads int64 `json:"reads"`
	// Writes are the items, rows and accumulators that are written, an item with
	// several copies once for each, and Bytes their JSON.
	Writes int64 `json:"writes"`
	Bytes  int64 `json:"bytes"`
	// Seconds is what both take at the rates below.
	Seconds float64 `json:"seconds"`
	// ReadsPerSecond and WritesPerSecond are the rates; 0 in a sum.
	ReadsPerSecond  int `json:"readsPerSecond,omitempty"`
	WritesPerSecond int `json:"writesPerSecond,omitempty"`
}

// The rates by which a Cost is estimated. A machine with two processors, whose disk syncs in a
// quarter of a millisecond, was measured to do more than that.
const (
	ReadsPerSecond        = 50_000  // changes of the source
	CopiesPerSecond       = 20_000  // written by a cascade
	FieldsPerSecond       = 20_000  // accumulators and targets of an aggregate
	ItemRowsPerSecond     = 10_000  // rows that are items of containers
	ParquetRowsPerSecond  = 100_000 // rows in Parquet files
	PostgresRowsPerSecond = 20_000  // rows in PostgreSQL
)

// planSecondsMin is what beginning and ending anything takes.
const planSecondsMin = 0.1

// rateOf is how fast a pipeline writes.
func rateOf(s *spec.PipelineSpec) int {
	switch {
	case s.Cascade != nil:
		return CopiesPerSecond
	case s.Aggregate != nil:
		return FieldsPerSecond
	case s.Project.Sink.Parquet != nil:
		return ParquetRowsPerSecond
	case s.Project.Sink.Postgres != nil:
		return PostgresRowsPerSecond
	}
	return ItemRowsPerSecond
}

// add adds up costs that are paid one after the other.
func (c *Cost) add(o *Cost) {
	c.Reads, c.Writes, c.Bytes, c.Seconds = c.Reads+o.Reads, c.Writes+o.Writes, c.Bytes+o.Bytes, c.Seconds+o.Seconds
}

// estimate fills in the time.
func (c *Cost) estimate(writesPerSecond int) {
	c.ReadsPerSecond, c.WritesPerSecond = ReadsPerSecond, writesPerSecond
	c.Seconds = float64(c.Reads)/ReadsPerSecond + float64(c.Writes)/float64(writesPerSecond)
	if c.Reads+c.Writes > 0 {
		c.Seconds = max(c.Seconds, planSecondsMin)
	}
}

// counting counts the effect of one pipeline.
type counting struct {
	run            *planning
	declared       *spec.Pipeline
	there, next    *registry.Record
	bound          *registry.Bound
	source, target *store.Container // no target for a projection

	mu      sync.Mutex // guards what follows while partitions are read
	effect  Effect
	samples map[feed.Partition][]Sample
	extra   []Sample // shown besides
}

// count counts the effect of one pipeline.
func (run *planning) count(ctx context.Context, w *planWork) (err error) {
	c := &counting{
		run: run, declared: w.declared, there: &w.there, next: &w.next, bound: &w.bound, samples: map[feed.Partition][]Sample{},
	}
	if c.source, err = run.client.Open(*w.bound.Source); err != nil {
		return err
	}
	if w.bound.Target != nil {
		if c.target, err = run.client.Open(*w.bound.Target); err != nil {
			return err
		}
	}
	c.effect.Into = w.declared.Spec.Destination()
	if p := w.declared.Spec.Project; p != nil {
		c.effect.Into = p.Sink.Kind() + " " + run.placed.Where(&w.declared.Spec)
	}
	if c.effect.Cost.Reads, err = run.items(ctx, w.bound.Source); err != nil {
		return err
	}
	// A container that is made by the same plan has no log yet.
	if len(w.bound.Source.Partitions) > 0 && (w.bound.Target == nil || len(w.bound.Target.Partitions) > 0) {
		begins, err := run.registry.Beginning(ctx, &w.next, &w.bound)
		if err != nil {
			return fmt.Errorf("pipeline %s: %w", w.declared.Metadata, err)
		}
		c.note("%s", begins)
	}
	switch w.declared.Spec.Kind() {
	case spec.CascadeKind:
		err = c.cascade(ctx)
	case spec.AggregateKind:
		err = c.aggregate(ctx)
	case spec.ProjectKind:
		err = c.rows(ctx)
	}
	if err != nil {
		return fmt.Errorf("pipeline %s: %w", w.declared.Metadata, err)
	}
	rate := run.cfg.WritesPerSecond
	if rate <= 0 {
		rate = rateOf(&w.declared.Spec)
	}
	c.effect.Cost.estimate(rate)
	c.gather()
	run.plan.Resources[w.resource].Effect = &c.effect
	return nil
}

// gather takes the samples of partitions by turns. Partitions are read concurrently, so taking
// samples as they come would show others each time, and a plan could not be compared with the
// one before:
//
//	partition 0: a b c   partition 1: d e   three samples: a d b
func (c *counting) gather() {
	partitions := make([]feed.Partition, 0, len(c.samples))
	for p := range c.samples {
		partitions = append(partitions, p)
	}
	slices.SortFunc(partitions, func(a, b feed.Partition) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Number, b.Number))
	})
	e := &c.effect
	for i, more := 0, true; more; i++ {
		more = false
		for _, p := range partitions {
			if i < len(c.samples[p]) && len(e.Samples) < c.run.cfg.SamplesMax {
				e.Samples, more = append(e.Samples, c.samples[p][i]), true
			}
		}
	}
	e.Samples = append(e.Samples, c.extra...)
}

// expect tells how much there is to be read.
func (c *counting) expect(ctx context.Context, containers ...*store.Container) error {
	var total int64
	for _, ct := range containers {
		info := ct.Info()
		n, err := c.run.items(ctx, &info)
		if err != nil {
			return err
		}
		total += n
	}
	c.run.tell(func(p *Progress) { p.Total += total })
	return nil
}

// errEnough ends a scan that has seen enough.
var errEnough = errors.New("plan: enough was seen")

// scan reads the items of a container, some partitions at a time, page by page. visit
// is called with several partitions at a time; its error ends the scan.
func (c *counting) scan(ctx context.Context, of *store.Container, visit func(context.Context, feed.Partition, []store.Item) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.run.cfg.PartitionsMax)
	for _, partition := range of.Partitions() {
		g.Go(func() error { return c.partition(ctx, of, partition, visit) })
	}
	return g.Wait()
}

func (c *counting) partition(ctx context.Context, of *store.Container, partition feed.Partition, visit func(context.Context, feed.Partition, []store.Item) error) error {
	page := store.Scan{ItemsMax: c.run.cfg.PageItems}
	for {
		result, err := of.Scan(ctx, partition, page)
		if err != nil {
			return fmt.Errorf("scan %s of container %s: %w", partition, of.Info().Name, err)
		}
		if err := visit(ctx, partition, result.Items); err != nil {
			return err
		}
		c.run.tell(func(p *Progress) { p.Items += int64(len(result.Items)) })
		if page.After = result.Cursor; page.After == nil {
			return nil
		}
	}
}

// found adds what a page has shown. samples are of the partition, in order.
func (c *counting) found(partition feed.Partition, page *Effect, samples []Sample) {
	c.mu.Lock()
	e := &c.effect
	e.Compared, e.Equal, e.Copies = e.Compared+page.Compared, e.Equal+page.Equal, e.Copies+page.Copies
	e.Created, e.Changed, e.Deleted = e.Created+page.Created, e.Changed+page.Changed, e.Deleted+page.Deleted
	e.Dangling, e.Rejected, e.Waiting, e.Left = e.Dangling+page.Dangling, e.Rejected+page.Rejected, e.Waiting+page.Waiting, e.Left+page.Left
	e.Cost.Writes, e.Cost.Bytes = e.Cost.Writes+page.Cost.Writes, e.Cost.Bytes+page.Cost.Bytes
	c.samples[partition] = append(c.samples[partition], samples...)
	c.mu.Unlock()
	if n := page.Changes(); n > 0 {
		c.run.tell(func(p *Progress) { p.Changes += n })
	}
}

// room is how many samples of a partition are still wanted.
func (c *counting) room(partition feed.Partition) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run.cfg.SamplesMax - len(c.samples[partition])
}

func (c *counting) note(format string, args ...any) {
	c.effect.Notes = append(c.effect.Notes, fmt.Sprintf(format, args...))
}

// compose notes where what a pipeline of the plan is yet to write decides what another
// one does. That goes on from one to the next.
func (run *planning) compose() {
	// Until nothing new is found: a writes what b reads, and b what c reads, so c is out of date
	// if a is, even if b alone would change nothing. Each round marks one work at least.
	leads := run.leads()
	pending := make([]bool, len(run.works))
	for i := range run.works {
		pending[i] = run.plan.Resources[run.works[i].resource].Effect.Changes() > 0
	}
	for again := true; again; {
		again = false
		for i := range leads {
			for _, to := range leads[i] {
				if pending[i] && !pending[to] {
					pending[to], again = true, true
				}
			}
		}
	}
	for i := range leads {
		for _, to := range leads[i] {
			if pending[i] {
				effect := run.plan.Resources[run.works[to].resource].Effect
				effect.Notes = append(effect.Notes, fmt.Sprintf("what pipeline %s is yet to write comes on top of it", run.works[i].declared.Metadata.Name))
			}
		}
	}
}

// leads returns for each work the others that read what it writes.
func (run *planning) leads() [][]int {
	sets := run.shapes.SetPaths()
	leads := make([][]int, len(run.works))
	for i := range run.works {
		for j := range run.works {
			if i != j && leading(run.shapesOf(&run.works[i]), run.shapesOf(&run.works[j]), sets) {
				leads[i] = append(leads[i], j)
			}
		}
	}
	return leads
}

// leading tells whether a field of some shapes decides one of others.
func leading(some, others []*spec.Shape, sets map[string][]document.Path) (leads bool) {
	for _, from := range some {
		for _, to := range others {
			from.Lead(to, false, sets[from.Target], func(int, int) { leads = true })
		}
	}
	return leads
}

// shapesOf returns what a pipeline reads and writes, that of a projection out of the
// store too.
func (run *planning) shapesOf(w *planWork) []*spec.Shape {
	declared := &w.declared.Spec
	if declared.Project == nil || declared.Project.Sink.Container != nil {
		at := slices.IndexFunc(run.shapes.Pipelines, func(p *spec.KnownPipeline) bool { return p.Metadata == w.declared.Metadata })
		return run.shapes.Pipelines[at].Shapes
	}
	p := spec.KnownPipeline{Metadata: w.declared.Metadata, Spec: declared.Clone()}
	p.Spec.Project.Sink = spec.Sink{Container: &spec.ContainerSink{}}
	shapes := run.shapes.ShapesOf(&p)
	for _, s := range shapes {
		s.Target = "" // no container of the store
	}
	return shapes
}
