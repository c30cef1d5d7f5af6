package pipelines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/internal/live"
	"github.com/millrace/millrace/pipelines/internal/roots"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// SupervisorConfig tunes a Supervisor. Zero fields take their defaults.
type SupervisorConfig struct {
	// Cascade bounds the work of each cascade in this process, Project that of each
	// projection.
	Cascade cascade.Limits `yaml:"cascade"`
	Project project.Limits `yaml:"project"`
	// Sinks tunes the sinks of projections in this process.
	Sinks compile.SinkLimits `yaml:"sinks"`
	// Reconciler tunes the duties that one worker of the group has for all.
	Reconciler ReconcilerConfig `yaml:"reconciler"`
	// Verify tunes the continuous verification, likewise of one worker.
	Verify verify.ContinuousConfig `yaml:"verify"`
	// Bucket holds the leases of the manager. Default leases.DefaultBucket.
	Bucket string `yaml:"-"`
	// Logger gets what an operator should know. Default slog.Default.
	Logger *slog.Logger `yaml:"-"`
}

// Supervisor runs a worker's share of all pipelines. It follows the registry and
// the catalog, tells the lease manager what there is to hold, one resource for
// each generation that runs, role and physical partition, one for the reconciler and
// one for the continuous verification, and runs a processor for each lease that the manager takes.
type Supervisor struct {
	// Set once by NewSupervisor.
	registry   *registry.Registry
	client     *store.Client
	manager    *leases.Manager
	host       *processors.Host
	cfg        SupervisorConfig
	reconciler *reconciler
	verifier   *verify.Continuous

	// Guarded by mu: the watches write, terms and the reconciler read.
	mu         sync.Mutex
	records    map[string]registry.Record // by id; nil until the registry was seen
	containers []store.ContainerInfo
	seen       bool // the catalog was
	instances  map[instanceKey]*instance

	// publishing is held from the reading of the lists until the manager knows what follows from them, so that an older
	// list does not come behind a newer one.
	publishing sync.Mutex
	lineage    chan struct{} // told when it is to be looked how far readers are of what was split; holds one
}

// errReplaced ends a term whose processor is to be made anew.
var errReplaced = errors.New("pipelines: the declaration has changed")

// NewSupervisor returns a Supervisor of the pipelines in registry. The manager's
// group is that of the workers.
func NewSupervisor(registry *registry.Registry, client *store.Client, manager *leases.Manager, host *processors.Host, cfg SupervisorConfig) *Supervisor {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Supervisor{
		registry: registry, client: client, manager: manager, host: host, cfg: cfg, instances: map[instanceKey]*instance{},
		lineage: make(chan struct{}, 1),
	}
	s.reconciler = newReconciler(s)
	s.verifier = verify.NewContinuous(registry, client, s.world, cfg.Bucket, cfg.Verify, s.reconciler.cfg.Interval, cfg.Logger)
	return s
}

// Run works until ctx ends and its leases are handed over. An error tells why it
// could not go on; what it held passes on by itself then.
func (s *Supervisor) Run(ctx context.Context) error {
	// The watches outlive ctx: a lease that drains still finds its record.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, working := errgroup.WithContext(ctx)
	var watches sync.WaitGroup
	watches.Go(func() {
		s.watch(watching, func() error { return s.registry.Watch(watching, s.setRecords) })
	})
	watches.Go(func() {
		s.watch(watching, func() error { return s.client.Catalog().Watch(watching, s.setContainers) })
	})
	watches.Go(func() { s.followSplits(watching) })
	announcing, hush := context.WithCancel(ctx)
	defer hush()
	watches.Go(func() { s.announce(announcing) })
	watches.Go(func() {
		s.watch(watching, func() error {
			return live.Serve(watching, s.registry.JetStream.Conn(), s.manager.Holder(), s.host, s.cfg.Logger)
		})
	})
	g.Go(func() error { return s.manager.Run(working, s.work) })
	err := g.Wait()
	stop()
	hush()
	watches.Wait()
	return err
}

// Announce tells those who declare pipelines where this worker's sinks may write; Run
// does so again and again. Who calls it before saying that it is ready can be declared
// to at once.
func (s *Supervisor) Announce(ctx context.Context) error {
	w, err := s.rooted()
	if w == nil || err != nil {
		return err
	}
	return roots.Announce(ctx, s.registry.KV, w)
}

// announce does so until ctx ends.
func (s *Supervisor) announce(ctx context.Context) {
	w, err := s.rooted()
	if w == nil || err != nil {
		return // whoever takes a lease is told
	}
	roots.KeepAnnounced(ctx, s.registry.KV, w, func(err error) {
		s.cfg.Logger.WarnContext(ctx, "apply cannot know where this worker's sinks may write; it is tried again", slog.Any("error", err))
	})
}

// rooted is what this worker announces; nil if its sinks may write everywhere.
func (s *Supervisor) rooted() (*roots.Worker, error) {
	allowed, err := roots.New(s.cfg.Sinks.Roots, s.cfg.Sinks.Own)
	if err != nil || allowed == nil {
		return nil, err
	}
	node, _, _ := strings.Cut(s.manager.Holder(), "/")
	host, _ := os.Hostname() // for people
	return &roots.Worker{Node: node, Host: host, Roots: allowed.Paths()}, nil
}

// watch keeps a watch going until ctx ends.
func (s *Supervisor) watch(ctx context.Context, watch func() error) {
	pauses := processors.NewPauses()
	for {
		err := watch()
		if ctx.Err() != nil {
			return
		}
		s.cfg.Logger.WarnContext(ctx, "a watch ended and is made anew", slog.Any("error", err))
		if pauses.Wait(ctx, err) != nil {
			return
		}
	}
}

func (s *Supervisor) setRecords(records []registry.Record) {
	s.mu.Lock()
	s.records = make(map[string]registry.Record, len(records))
	for _, rec := range records {
		s.records[rec.ID] = rec
	}
	s.replaceLocked()
	s.mu.Unlock()
	s.publish()
}

func (s *Supervisor) setContainers(containers []store.ContainerInfo) {
	s.mu.Lock()
	s.containers, s.seen = containers, true
	s.replaceLocked()
	s.mu.Unlock()
	s.publish()
}

// world returns all pipelines and containers as they were seen last; false before
// both were.
func (s *Supervisor) world() (registry.World, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := registry.World{Containers: s.containers, Pipelines: slices.Collect(maps.Values(s.records))}
	registry.SortRecords(w.Pipelines)
	return w, s.records != nil && s.seen
}

// replaceLocked replaces the instances that are not any more as they would be made now. s.mu is held.
func (s *Supervisor) replaceLocked() {
	for key, m := range s.instances {
		// The fingerprint is part of the key: a change that keeps the generation, such
		// as another commit interval, replaces the instance too.
		if s.keyOf(key.id, key.generation) != key || s.isSplit(m) {
			delete(s.instances, key)
			close(m.replaced)
		}
	}
}

// publish tells the manager what there is to hold, once both lists were seen. Where partitions were split that depends on
// how far their readers have come.
func (s *Supervisor) publish() {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	w, ready := s.world()
	switch {
	case !ready:
	case registry.HasSplits(w.Pipelines, w.Containers):
		s.lookAtSplits()
	default:
		s.setResources(&w, nil)
	}
}

func (s *Supervisor) setResources(w *registry.World, at registry.Checkpoints) {
	names := append(registry.ResourceNames(w.Pipelines, w.Containers, at), registry.ReconcilerResource, verify.ContinuousResource)
	s.manager.SetResources(names, map[string]float64{registry.ReconcilerResource: reconcilerWeight, verify.ContinuousResource: reconcilerWeight})
	s.reconciler.tellChanged()
}

// fenced returns what the lease is to know of a term that was fenced. Another holds it now, which
// is no fault of the pipeline and would be no error; or the leases' records were lost, and the
// next holding needs a greater epoch. The lease finds out which, when it is released.
func fenced(err error) error {
	if behind, ok := errors.AsType[*leases.EpochBehindError](err); ok {
		return behind
	}
	return nil
}

// work does what one lease gives the right to until the lease ends.
func (s *Supervisor) work(ctx context.Context, held *leases.Held) error {
	switch held.Resource() {
	case registry.ReconcilerResource:
		return s.reconciler.run(ctx, held)
	case verify.ContinuousResource:
		return s.verifier.Run(ctx, held)
	}
	resource, err := processors.ParseResource(held.Resource())
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		replaced, err := s.term(ctx, held, resource, first)
		if errors.Is(err, processors.ErrEnded) {
			s.lookAtSplits()
			return awaitEnd(ctx)
		}
		if !replaced || ctx.Err() != nil {
			return err
		}
		//	instance replaced, resource runs   the next term, under the same lease
		//	instance replaced, it does not     the lease will be withdrawn; to return
		//	                                   now would count as work that failed
		if !s.runs(resource) {
			return awaitEnd(ctx)
		}
	}
}

// runs tells whether a resource is still one of a generation that runs.
func (s *Supervisor) runs(r processors.Resource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keyOf(r.Pipeline, r.Generation) != instanceKey{}
}

// withdrawMax is how long work that is of no use any more waits to be told so.
const withdrawMax = 2 * time.Second

// awaitEnd waits for the lease to be withdrawn, so that it is not counted as one
// whose work ended by itself.
func awaitEnd(ctx context.Context) error {
	timer := time.NewTimer(withdrawMax)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return nil
}

// term runs a processor until the lease ends, or its instance is replaced; first is the first term
// of the lease.
func (s *Supervisor) term(ctx context.Context, held *leases.Held, resource processors.Resource, first bool) (replaced bool, err error) {
	m, err := s.acquire(resource)
	if err != nil {
		return false, err
	}
	defer s.release(ctx, m)
	if err := s.checkBegun(held, resource, m); err != nil {
		return false, err
	}
	// Per term, not per instance: what lies at the path can have changed since the
	// instance was made.
	if err := s.cfg.Sinks.Admit(ctx, &m.record); err != nil {
		return false, fmt.Errorf("spec.project.sink.parquet.path: %w", err)
	}
	if err := s.checkWhole(ctx, m); err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-m.replaced:
			cancel(errReplaced)
		case <-ctx.Done():
		}
	})
	watch.Go(func() {
		if err := s.watchWhole(ctx, m); err != nil {
			cancel(err)
		}
	})
	task := m.task(resource)
	task.FirstOfLease, task.BeginChild, task.Amend = first, s.beginChild, s.amendLease
	err = s.host.Run(ctx, held, task)
	divided, _ := errors.AsType[*DividedError](context.Cause(ctx))
	cancel(nil)
	watch.Wait()
	if errors.Is(err, processors.ErrFenced) {
		err = fenced(err)
	}
	if divided != nil && err == nil {
		err = divided
	}
	return errors.Is(context.Cause(ctx), errReplaced), err
}
