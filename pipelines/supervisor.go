package pipelines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// SupervisorConfig tunes a Supervisor.
type SupervisorConfig struct {
	// Cascade bounds the work of each cascade in this process.
	Cascade cascade.Limits `yaml:"cascade"`
	// Logger gets what an operator should know. Default slog.Default.
	Logger *slog.Logger `yaml:"-"`
}

// Supervisor runs a worker's share of all pipelines. It follows the registry and
// the catalog, tells the lease manager what there is to hold, one resource for
// each unpaused pipeline, role and physical partition, and runs a processor for
// each lease that the manager takes.
type Supervisor struct {
	registry *Registry
	client   *store.Client
	manager  *leases.Manager
	host     *processors.Host
	cfg      SupervisorConfig

	mu         sync.Mutex
	records    map[string]Record // by id; nil until the registry was seen
	containers []store.ContainerInfo
	seen       bool // the catalog was
	compiled   map[cascadeKey]*cascade.Cascade
}

// cascadeKey names one generation of a pipeline. Its processors of this process
// share a Cascade, and with it the limit of their rate.
type cascadeKey struct {
	id         string
	generation uint32
}

// NewSupervisor returns a Supervisor of the pipelines in registry. The manager's
// group is that of the workers.
func NewSupervisor(registry *Registry, client *store.Client, manager *leases.Manager, host *processors.Host, cfg SupervisorConfig) *Supervisor {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Supervisor{
		registry: registry, client: client, manager: manager, host: host, cfg: cfg, compiled: map[cascadeKey]*cascade.Cascade{},
	}
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
	g.Go(func() error { return s.manager.Run(working, s.work) })
	err := g.Wait()
	stop()
	watches.Wait()
	return err
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

func (s *Supervisor) setRecords(records []Record) {
	s.mu.Lock()
	s.records = make(map[string]Record, len(records))
	for _, rec := range records {
		s.records[rec.ID] = rec
	}
	maps.DeleteFunc(s.compiled, func(k cascadeKey, _ *cascade.Cascade) bool {
		return s.records[k.id].Generation != k.generation
	})
	s.mu.Unlock()
	s.publish()
}

func (s *Supervisor) setContainers(containers []store.ContainerInfo) {
	s.mu.Lock()
	s.containers, s.seen = containers, true
	s.mu.Unlock()
	s.publish()
}

// publish tells the manager what there is to hold, once both lists were seen.
func (s *Supervisor) publish() {
	s.mu.Lock()
	ready := s.records != nil && s.seen
	records, containers := slices.Collect(maps.Values(s.records)), s.containers
	s.mu.Unlock()
	if ready {
		s.manager.SetResources(resourceNames(records, containers), nil)
	}
}

// resourceNames returns the names of the leases that records need, in order.
func resourceNames(records []Record, containers []store.ContainerInfo) []string {
	var names []string
	for i := range records {
		for _, r := range records[i].resources(containers) {
			names = append(names, r.String())
		}
	}
	slices.Sort(names)
	return names
}

// resources returns what the processors of a pipeline hold leases on: none while
// it is paused or a container that it was registered for is not there.
func (r *Record) resources(containers []store.ContainerInfo) []processors.Resource {
	source, target := r.find(containers, r.Source), r.find(containers, r.Target)
	if r.Paused || source == nil || target == nil {
		return nil
	}
	return r.readers(source, target)
}

// readers returns one resource for each partition that the pipeline reads.
func (r *Record) readers(source, target *store.ContainerInfo) []processors.Resource {
	var all []processors.Resource
	add := func(role processors.Role, c *store.ContainerInfo) {
		for _, p := range c.Partitions {
			all = append(all, processors.Resource{
				Pipeline: r.ID, Generation: r.Generation, Role: role, Partition: feed.Partition{Container: c.ID, Number: p.Number},
			})
		}
	}
	add(processors.RoleSource, source)
	add(processors.RoleTarget, target)
	return all
}

// find returns the container with an id, nil if it is not there or not ready.
func (r *Record) find(containers []store.ContainerInfo, id feed.ResourceID) *store.ContainerInfo {
	for i := range containers {
		if containers[i].ID == id && containers[i].State == store.ContainerReady {
			return &containers[i]
		}
	}
	return nil
}

// work runs the processor of one lease until the lease ends.
func (s *Supervisor) work(ctx context.Context, held *leases.Held) error {
	resource, err := processors.ParseResource(held.Resource())
	if err != nil {
		return err
	}
	rec, cas, err := s.compile(resource)
	if err != nil {
		return err
	}
	task := processors.Task{Resource: resource, Processor: newProcessor(cas, resource)}
	if resource.Role == processors.RoleTarget {
		task.Start = rec.start(resource.Partition.Number)
	}
	err = s.host.Run(ctx, held, task)
	if errors.Is(err, processors.ErrLost) {
		return nil // another holds it now, which is no fault of the pipeline
	}
	return err
}

// compile returns the record of a resource and its cascade, compiled once.
func (s *Supervisor) compile(resource processors.Resource) (*Record, *cascade.Cascade, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, ok := s.records[resource.Pipeline]
	if !ok || rec.Generation != resource.Generation {
		return nil, nil, fmt.Errorf("pipeline %s has no generation %d any more", resource.Pipeline, resource.Generation)
	}
	source, target := rec.find(s.containers, rec.Source), rec.find(s.containers, rec.Target)
	if source == nil || target == nil {
		return nil, nil, fmt.Errorf("pipeline %s: a container that it copies from or into is gone", rec.Metadata())
	}
	key := cascadeKey{rec.ID, rec.Generation}
	if c := s.compiled[key]; c != nil {
		return &rec, c, nil
	}
	c, err := compileCascade(s.client, &rec, source, target, s.cfg.Cascade)
	if err != nil {
		return nil, nil, err
	}
	s.compiled[key] = c
	return &rec, c, nil
}
