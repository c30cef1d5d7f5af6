package owner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

// Server owns physical partitions: those whose leases this process holds. It
// serves them to the clients of this process and, over NATS, to all others.
type Server struct {
	// Set by NewServer.
	cfg     Config
	nc      *nats.Conn
	js      jetstream.JetStream
	catalog *store.Catalog
	leases  *leases.Manager

	engineScrubbed atomic.Pointer[store.ScrubState] // stored by scrubLoop

	opened   chan struct{} // holds a token when a partition was opened; for the scrub
	relisted chan struct{} // holds a token when the catalog has changed; for dropLoop
	pinAsked chan struct{} // holds a token when somebody waits for a pin
	copying  chan struct{} // holds a token while a split copies, or a snapshot is taken
	planned  chan struct{} // holds a token when the catalog has changed, or a partition was opened; for splitLoop

	told map[feed.Partition]string // why state is kept that the catalog does not list; of dropLoop

	confirming sync.Mutex // guards confirmed
	confirmed  map[feed.ResourceID]confirmation

	mu         sync.Mutex // guards what follows
	home       *home
	containers map[feed.ResourceID]store.ContainerInfo // that are ready; nil before the catalog was read
	listed     map[feed.ResourceID]bool                // in whatever state; nil before the catalog was read
	lists      string                                  // identity of the catalog that lists those; see undeleted
	open       map[feed.Partition]*serving
	followed   map[feed.Partition]*engine.Partition // whose copies are written by who follows their logs; see noteFollowed
	lacking    map[feed.Partition]int               // how often their leases were given up for want of room
	heirs      map[feed.Partition]*heirship         // whose copies are made ready by who splits their parent
	ready      map[string]readyHeir                 // heirs that are, by their leases
}

// serving is one partition that is open.
type serving struct {
	p     *Partition
	wants chan store.ContainerInfo // holds the newest wish
}

// NewServer returns a server that owns nothing yet. The manager's group must be
// that of store partitions; the server sets its resources from the catalog.
func NewServer(nc *nats.Conn, catalog *store.Catalog, db *engine.DB, manager *leases.Manager, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("owner: %w", err)
	}
	if cfg.snapshots, err = cfg.openSnapshots(js); err != nil {
		return nil, err
	}
	if cfg.snapshots != nil {
		cfg.others = cfg.otherSnapshots(js)
	}
	cfg.openLog = func(ctx context.Context, p feed.Partition) (Log, error) { return feed.OpenLog(ctx, js, p, cfg.Log) }
	return &Server{
		cfg: cfg, nc: nc, js: js, catalog: catalog, home: newHome(db), leases: manager, opened: make(chan struct{}, 1), pinAsked: make(chan struct{}, 1),
		relisted: make(chan struct{}, 1), planned: make(chan struct{}, 1), copying: make(chan struct{}, 1),
		open: map[feed.Partition]*serving{}, followed: map[feed.Partition]*engine.Partition{}, lacking: map[feed.Partition]int{},
		heirs: map[feed.Partition]*heirship{}, ready: map[string]readyHeir{},
		confirmed: map[feed.ResourceID]confirmation{}, told: map[feed.Partition]string{},
	}, nil
}

// LeaseGroup is the group of the leases on physical partitions.
const LeaseGroup = "store"

// LeaseResource is the name of the lease on a physical partition.
func LeaseResource(p feed.Partition) string { return "store/" + p.String() }

func partitionOf(resource string) (feed.Partition, error) {
	const prefix = "store/"
	if len(resource) <= len(prefix) || resource[:len(prefix)] != prefix {
		return feed.Partition{}, fmt.Errorf("lease %q is not of a store partition", resource)
	}
	return feed.ParsePartition(resource[len(prefix):])
}

// Run owns and serves partitions until ctx ends, then finishes what was decided
// and hands its leases over.
func (s *Server) Run(ctx context.Context) error {
	work, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { s.watchCatalog(work) })
	wg.Go(func() { s.dropLoop(work) })
	wg.Go(func() { s.cfg.level.Follow(work, s.js, s.cfg.Logger) })
	wg.Go(func() { s.syncLoop(work) })
	wg.Go(func() { s.diskLoop(work) })
	wg.Go(func() { s.checkLoop(work) })
	wg.Go(func() { s.scrubLoop(work) })
	wg.Go(func() { s.digestLoop(work) })
	wg.Go(func() { s.snapshotLoop(work) })
	wg.Go(func() { s.trimLoop(work) })
	wg.Go(func() { s.splitLoop(work) })
	wg.Go(func() { s.formerLoop(work) })
	wg.Go(func() { s.heldLoop(work) })
	wg.Go(func() { s.heatLoop(work) })
	wg.Go(func() { s.remakeLoop(work) })
	err := s.leases.Run(work, s.own)
	stop()
	wg.Wait()
	return err
}

// watchRetry is the time after which a watch is made anew that could not be made,
// or that broke.
const watchRetry = time.Second

// watchCatalog follows the catalog until ctx ends. What was seen last stays in force
// while the catalog cannot be reached.
func (s *Server) watchCatalog(ctx context.Context) {
	for {
		identity, err := store.CatalogIdentity(ctx, s.js)
		if err == nil {
			err = s.catalog.Watch(ctx, func(infos []store.ContainerInfo) { s.catalogChanged(identity, infos) })
		}
		if ctx.Err() != nil {
			return
		}
		s.cfg.Logger.Warn("the watch of the catalog ended and is made anew", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(watchRetry):
		}
	}
}

// catalogChanged makes the partitions of all containers that a catalog lists the resources of this group, and
// passes wishes on to the open ones.
func (s *Server) catalogChanged(identity string, infos []store.ContainerInfo) {
	s.adoptContainers(identity, infos)
	for _, changed := range []chan struct{}{s.relisted, s.planned} {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

func (s *Server) adoptContainers(identity string, infos []store.ContainerInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = identity
	s.containers, s.listed = map[feed.ResourceID]store.ContainerInfo{}, map[feed.ResourceID]bool{}
	var resources, copied []string
	for _, info := range infos {
		s.listed[info.ID] = true
		if info.State != store.ContainerReady {
			continue
		}
		s.containers[info.ID] = info
		for _, p := range info.Partitions {
			id := feed.Partition{Container: info.ID, Number: p.Number}
			resources = append(resources, LeaseResource(id))
			if info.Spec.Standbys > 0 {
				copied = append(copied, LeaseResource(id))
			}
			if o := s.open[id]; o != nil {
				o.setWish(info)
			}
		}
	}
	s.leases.SetCopied(copied) // first: a lease that is new here is not to move cold
	s.leases.SetResources(resources, nil)
}

// setWish replaces the wish that waits. It never blocks: Server.mu is held.
func (o *serving) setWish(info store.ContainerInfo) {
	// There is room: wants holds one, the lock lets only one send at a time, and whoever
	// receives in between only makes more room.
	select {
	case <-o.wants:
	default:
	}
	o.wants <- info
}

// logOf returns the log that the catalog names for a partition; false if the
// catalog does not know the partition.
func (s *Server) logOf(id feed.Partition) (log feed.LogID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.containers[id.Container].Partitions {
		if p.Number == id.Number {
			return p.Log, true
		}
	}
	return log, false
}

// containerOf returns the container of a partition; nil if it was deleted.
func (s *Server) containerOf(id feed.Partition) *store.ContainerInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	if info, ok := s.containers[id.Container]; ok {
		return &info
	}
	return nil
}

// ErrNotFollowed says that a partition cannot be followed now: its engine is made anew, or the
// catalog does not name it.
var ErrNotFollowed = errors.New("the partition cannot be followed now")

// Containers are those that the catalog lists and that are ready; false before it was read.
func (s *Server) Containers() ([]store.ContainerInfo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.containers)), s.containers != nil
}

// serve opens one partition and serves it. After errHealed, errGoesOn and
// errLogChanged it is to be opened anew.
func (s *Server) serve(ctx context.Context, engine *engine.DB, id feed.Partition, held *leases.Held, stand *standIn) error {
	logID, ok := s.logOf(id)
	if !ok {
		return nil // deleted meanwhile
	}
	db, err := engine.Partition(id)
	if err != nil {
		return fmt.Errorf("partition %s: %w", id, err)
	}
	if err := notSuperseded(id, db, logID, held.Epoch()); err != nil {
		return err
	}
	log, err := feed.OpenLog(ctx, s.js, id, s.cfg.Log)
	if err != nil && !errors.Is(err, feed.ErrNoLog) {
		return fmt.Errorf("partition %s: %w", id, err)
	}
	if err != nil {
		p := newPartition(id, s.cfg, noLog{id: logID}, db, held, s.leases.Holder())
		return s.serveDamaged(ctx, p, p.lacksStream())
	}
	defer log.Close()
	if err := s.noteListed(engine, id, log.ID(), logID); err != nil {
		return err
	}
	p := newPartition(id, s.cfg, log, db, held, s.leases.Holder())
	p.container = s.containerOf(id)
	err = p.open(ctx, logID)
	if wrong := db.Sound(); wrong != nil {
		return wrong // what it was opened from is not to be believed
	}
	stand.stop()
	if damage, ok := errors.AsType[*DamagedError](err); ok {
		return s.serveDamaged(ctx, p, damage)
	}
	if ended, ok := errors.AsType[*splitError](err); ok {
		return s.endSplit(ctx, p, ended.split)
	}
	if err != nil {
		return err
	}
	// Or each failure of its life would lengthen the pause after the next one.
	held.Works()
	// Before subscribe, as register sets what requests read. At the end it goes the other way
	// round: the subscription ends first, and what p was asked for is counted last.
	o := s.register(p)
	defer s.countHeat(context.WithoutCancel(ctx), p)
	defer s.unregister(p)
	sub, err := s.subscribe(ctx, p)
	if err != nil {
		return err
	}
	defer sub.stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	wishes, stopWishes := context.WithCancel(ctx)
	defer stopWishes()
	wg.Go(func() { s.followWishes(wishes, o) })
	return p.run(ctx)
}

// wishRetry is the time after which settings are tried again that could not be
// put in force.
const wishRetry = time.Second

// followWishes brings the partition's settings to what the catalog asks.
func (s *Server) followWishes(ctx context.Context, o *serving) {
	var info store.ContainerInfo
	var again <-chan time.Time
	for {
		select {
		case info = <-o.wants:
		case <-again:
		case <-ctx.Done():
			return
		}
		again = nil
		if err := s.putInForce(ctx, o.p, &info); err != nil {
			o.p.log.Warn("settings could not be put in force; trying again", "error", err)
			again = time.After(wishRetry)
		}
	}
}

// register makes p known, with what the catalog wishes for it now: it may have
// changed while p was opened.
func (s *Server) register(p *Partition) *serving {
	p.engineScrubbed, p.pins.asked = &s.engineScrubbed, s.pinAsked
	p.planSplit = func(ctx context.Context, r *store.SplitPartition) *store.Response { return s.planSplit(ctx, p, r) }
	o := &serving{p: p, wants: make(chan store.ContainerInfo, 1)}
	s.mu.Lock()
	s.open[p.id] = o
	if info, ok := s.containers[p.id.Container]; ok {
		o.setWish(info)
	}
	s.mu.Unlock()
	if s.cfg.Local != nil {
		s.cfg.Local.Add(p.id, p)
	}
	for _, changed := range []chan struct{}{s.opened, s.planned} {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	return o
}

func (s *Server) unregister(p *Partition) {
	if s.cfg.Local != nil {
		s.cfg.Local.Remove(p.id, p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The partition may be opened anew already, and then another p stands there.
	if o := s.open[p.id]; o != nil && o.p == p {
		delete(s.open, p.id)
	}
}

func (s *Server) partitions() []*Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Partition, 0, len(s.open))
	for _, o := range s.open {
		all = append(all, o.p)
	}
	return all
}

// Serving returns the partitions that this process serves now, in order.
func (s *Server) Serving() []feed.Partition {
	var ids []feed.Partition
	for _, p := range s.partitions() {
		ids = append(ids, p.id)
	}
	slices.SortFunc(ids, func(a, b feed.Partition) int { return strings.Compare(a.String(), b.String()) })
	return ids
}

// Applied is a number that grows whenever a partition of this process applies a
// commit, for telling progress. It changes too when partitions come and go.
func (s *Server) Applied() (sum uint64) {
	for _, p := range s.partitions() {
		sum += uint64(p.state.Load().lsn)
	}
	return sum
}

// Appending are the partitions whose log has not answered an append yet, with the LSN
// that it is to have.
func (s *Server) Appending() map[feed.Partition]feed.LSN {
	found := map[feed.Partition]feed.LSN{}
	for _, p := range s.partitions() {
		if lsn := feed.LSN(p.inFlight.Load()); lsn > p.state.Load().lsn {
			found[p.id] = lsn
		}
	}
	return found
}

// syncLoop syncs the engine, so that a restart has little to replay.
func (s *Server) syncLoop(ctx context.Context) {
	t := time.NewTicker(s.cfg.SyncInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.syncEngine()
		}
	}
}

func (s *Server) syncEngine() {
	db := s.Engine()
	if db.Sound() != nil {
		return
	}
	var dirty []*engine.Partition
	for _, p := range s.partitions() {
		if synced, _, err := p.engine.Synced(); err == nil && synced < p.state.Load().lsn {
			dirty = append(dirty, p.engine)
		}
	}
	dirty = append(dirty, s.unsyncedFollowed()...)
	if len(dirty) == 0 {
		return
	}
	if err := db.SyncPartitions(dirty...); err != nil {
		s.cfg.Logger.Error("sync of the engine", "error", err)
	}
}

// unsyncedFollowed are the partitions that are followed here and have applied more than was synced.
func (s *Server) unsyncedFollowed() (dirty []*engine.Partition) {
	s.mu.Lock()
	followed := slices.Collect(maps.Values(s.followed))
	s.mu.Unlock()
	for _, p := range followed {
		if p == nil {
			continue
		}
		state, failed := p.State()
		if synced, _, err := p.Synced(); err == nil && failed == nil && synced < state.Applied {
			dirty = append(dirty, p)
		}
	}
	return dirty
}
