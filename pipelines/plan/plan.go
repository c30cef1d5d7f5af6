package plan

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// Config tunes a Planner. Zero fields take their defaults.
type Config struct {
	// SamplesMax bounds the items or rows of each pipeline that are shown before and
	// after. Default 3; below 0 is none.
	SamplesMax int
	// WritesPerSecond is the rate by which the time is estimated. Default 0: one for
	// each kind of pipeline and sink, see Cost.
	WritesPerSecond int
	// PageItems bounds the items of one page, at most 1000. Default 1000.
	PageItems int
	// PartitionsMax bounds the partitions that are read at a time. Default 4.
	PartitionsMax int
	// BytesMax bounds what is kept in memory of the groups of one aggregate, or the
	// rows of one projection. What is more is counted in several passes over its
	// source. Default 256 MiB.
	BytesMax int
	// Progress is called now and then with how far the counting is, by one goroutine
	// at a time. It must not block. May be nil.
	Progress func(Progress)
}

// Progress tells how far a plan is.
type Progress struct {
	Items   int64 // read
	Total   int64 // to be read, as counted before each pipeline
	Changes int64 // items and rows that would change
}

// Planner tells what Apply would do. It reads the catalog, the registry, items, logs
// and sinks, and writes to none of them. Safe for concurrent use.
//
// What would change is counted on the data as it is: every copy, field or row that a
// new declaration asks for is computed and compared with the one that is there. While
// writes go on it is a little out of date, page by page. What a pipeline of the plan
// writes for another one to read is not there yet and is not counted; a note says so.
type Planner struct {
	js       jetstream.JetStream
	registry *registry.Registry
	client   *store.Client
	cfg      Config
}

// New returns a Planner of what would be applied to registry.
func New(js jetstream.JetStream, registry *registry.Registry, client *store.Client, cfg Config) *Planner {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&cfg.SamplesMax, 3)
	def(&cfg.PageItems, 1000)
	def(&cfg.PartitionsMax, 4)
	def(&cfg.BytesMax, 256<<20)
	cfg.SamplesMax, cfg.PageItems = max(cfg.SamplesMax, 0), min(max(cfg.PageItems, 1), 1000)
	return &Planner{js: js, registry: registry, client: client, cfg: cfg}
}

// Plan is what Apply would do.
type Plan struct {
	// Hash identifies it: registry.ApplyOptions.Plan. See registry.PlanHash.
	Hash string `json:"hash"`
	// Choice says that Apply asks how pipelines begin anew that change their meaning,
	// and refuses to do it without Backfill or FromNow of registry.ApplyOptions. They are
	// counted as with Backfill.
	Choice bool `json:"choice,omitempty"`
	// Backfill and FromNow are the options that were planned with.
	Backfill bool `json:"backfill,omitempty"`
	FromNow  bool `json:"fromNow,omitempty"`
	// Resources are what becomes of each that is declared, in the order of Apply.
	Resources []Resource `json:"resources"`
	// Graph tells which field decides which.
	Graph spec.FieldGraph `json:"graph"`
	// Cost is that of all resources together.
	Cost Cost `json:"cost"`
	// Duration is what making the plan took.
	Duration time.Duration `json:"-"`
	Seconds  float64       `json:"seconds"` // Duration in seconds
}

// Resource is what becomes of one resource.
type Resource struct {
	registry.Outcome
	// Choice tells what Apply asks of this pipeline, "" if nothing.
	Choice string `json:"choice,omitempty"`
	// Definition tells where a changed declaration differs from the one that is there.
	Definition []Edit `json:"definition,omitempty"`
	// Indexes are those that are added to containers.
	Indexes []Index `json:"indexes,omitempty"`
	// Effect is what a pipeline does to the items or rows that are there; nil if
	// nothing is written anew.
	Effect *Effect `json:"effect,omitempty"`
}

// Edit is a place in a JSON document that is not as it was. A side that has no such
// place is empty.
type Edit struct {
	Path string          `json:"path"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// Index is an index that is built, while writes go on, over all items of a
// container.
type Index struct {
	Container string `json:"container"`
	Path      string `json:"path"`
	// Where restricts the items in it; "" is all.
	Where string `json:"where,omitempty"`
	// Items is how many there are in the container.
	Items int64 `json:"items"`
}

// Effect is what a pipeline does to the items that hold its copies or fields, or to
// the rows of its tables.
type Effect struct {
	// Into is the container, or the sink and its place.
	Into string `json:"into"`
	// Rows says that rows are counted, else items.
	Rows bool `json:"rows,omitempty"`
	// Compared are the items or rows that were looked at, Equal those among them that
	// are as they must be.
	Compared int64 `json:"compared"`
	Equal    int64 `json:"equal"`
	// Created, Changed and Deleted are the items or rows that would be.
	Created int64 `json:"created"`
	Changed int64 `json:"changed"`
	Deleted int64 `json:"deleted"`
	// Copies are single copies among the changed items, of which one item can hold
	// several; only of a cascade.
	Copies int64 `json:"copies,omitempty"`
	// Dangling are copies whose source, or groups whose target, is not there. Nothing
	// becomes of them.
	Dangling int64 `json:"dangling,omitempty"`
	// Rejected are rows that cannot be, and Waiting those whose key the row of another
	// item holds.
	Rejected int64 `json:"rejected,omitempty"`
	Waiting  int64 `json:"waiting,omitempty"`
	// Left are rows of the sink that no item has any more, and that stay.
	Left int64 `json:"left,omitempty"`
	// Samples are some of what would change.
	Samples []Sample `json:"samples,omitempty"`
	// Notes say what the counts do not.
	Notes []string `json:"notes,omitempty"`
	Cost  Cost     `json:"cost"`
}

// Changes is how many items or rows would not be as they are.
func (e *Effect) Changes() int64 { return e.Created + e.Changed + e.Deleted }

// Sample is an item or a row before and after.
type Sample struct {
	Action SampleAction `json:"action"`
	// Item is the item, by its partition key and id.
	Item string `json:"item,omitempty"`
	// Table and Row are the table and the key of a row, Source the item that it is
	// made from.
	Table  string          `json:"table,omitempty"`
	Row    json.RawMessage `json:"row,omitempty"`
	Source string          `json:"source,omitempty"`
	// Edits are what differs, at most EditsMax; More counts the others.
	Edits []Edit `json:"edits,omitempty"`
	More  int    `json:"more,omitempty"`
	// Reason says why a row is rejected.
	Reason string `json:"reason,omitempty"`
}

// EditsMax bounds what is shown of one Sample.
const EditsMax = 20

// SampleAction is what becomes of a Sample.
type SampleAction string

// What becomes of a Sample.
const (
	SampleCreated  SampleAction = "created"
	SampleChanged  SampleAction = "changed"
	SampleDeleted  SampleAction = "deleted"
	SampleRejected SampleAction = "rejected"
)

// Plan tells what Apply would do with declared and the same options. Where Apply would
// ask for a choice, it is planned as with Backfill.
//
// The error is Findings if the declarations are wrong; the Plan then tells of Graph
// alone, in which the cycles are that may be among what is wrong. It is *RefusedError
// or *registry.OutsideError if Apply refuses them with these options.
func (p *Planner) Plan(ctx context.Context, declared *spec.Resources, opts ...registry.ApplyOptions) (*Plan, error) {
	began := time.Now()
	w, err := p.registry.World(ctx)
	if err != nil {
		return nil, err
	}
	var o registry.ApplyOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	if err := o.Bounds.Check(declared, w); err != nil {
		return nil, err
	}
	placed, err := p.registry.Place(ctx, declared, w)
	if err != nil {
		return nil, err
	}
	declared = placed.Resources
	shapes := spec.NewShapes(declared, w.Existing())
	graph := shapes.FieldGraph()
	if err := placed.Check(); err != nil {
		return &Plan{Graph: graph}, err
	}
	run := &planning{Planner: p, world: w, shapes: shapes, placed: placed, opts: o}
	if err := run.opts.CheckPlan(declared, w); err != nil {
		return nil, err
	}
	if run.opts.Backfill && run.opts.FromNow {
		return nil, run.opts.Refuse(declared, w) // which says so
	}
	run.plan = &Plan{Hash: registry.PlanHash(declared, w), Graph: graph, Backfill: run.opts.Backfill, FromNow: run.opts.FromNow}
	if err := run.all(ctx, declared); err != nil {
		return nil, err
	}
	if p.cfg.Progress != nil {
		p.cfg.Progress(run.progress)
	}
	run.plan.Duration = time.Since(began)
	run.plan.Seconds = run.plan.Duration.Seconds()
	return run.plan, nil
}

// Changes says whether Apply would change anything.
func (p *Plan) Changes() bool {
	return slices.ContainsFunc(p.Resources, func(r Resource) bool { return r.Action != registry.Unchanged })
}

// planning is the making of one plan.
type planning struct {
	*Planner
	opts   registry.ApplyOptions
	world  registry.World
	shapes *spec.Checker
	placed *registry.Placed
	after  []store.ContainerInfo // as they would be
	plan   *Plan
	works  []planWork // of pipelines whose effect is to be counted

	mu       sync.Mutex // guards what follows
	progress Progress
	told     time.Time
}

// planWork is a pipeline whose effect is to be counted.
type planWork struct {
	resource int // in the plan
	declared *spec.Pipeline
	there    registry.Record // zero if it is new
	next     registry.Record
	bound    registry.Bound // as they would be
}

// all plans containers and pipelines, then counts.
func (run *planning) all(ctx context.Context, declared *spec.Resources) error {
	run.after = slices.Clone(run.world.Containers)
	for i := range declared.Containers {
		if err := run.container(ctx, &declared.Containers[i]); err != nil {
			return err
		}
	}
	var refused spec.Findings
	for i := range declared.Pipelines {
		reason, err := run.pipeline(ctx, &declared.Pipelines[i])
		if err != nil {
			return err
		}
		if reason != "" {
			refused.Add(declared.Pipelines[i].At("spec"), "%s", reason)
		}
	}
	if len(refused) > 0 {
		return &registry.RefusedError{Findings: refused.Sorted()}
	}
	for i := range run.works {
		if err := run.count(ctx, &run.works[i]); err != nil {
			return err
		}
	}
	run.compose()
	for i := range run.plan.Resources {
		if e := run.plan.Resources[i].Effect; e != nil {
			run.plan.Cost.add(&e.Cost)
		}
	}
	return nil
}

// tell changes the progress and shows it, at most ten times a second.
func (run *planning) tell(change func(*Progress)) {
	run.mu.Lock()
	defer run.mu.Unlock()
	change(&run.progress)
	if now := time.Now(); run.cfg.Progress != nil && now.Sub(run.told) >= 100*time.Millisecond {
		run.told = now
		run.cfg.Progress(run.progress)
	}
}
