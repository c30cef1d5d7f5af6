package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
)

// cascadeWorld is a store with its owners in one process, and workers whose
// leases and requests the test controls.
type cascadeWorld struct {
	t       testing.TB
	js      jetstream.JetStream
	client  *store.Client // of the test
	catalog *store.Catalog
	gate    *gate // of the owners' connection
	hub     *feed.Hub
	letters *processors.DeadLetters
	logs    sync.Map // feed.Partition to *feed.Log

	mu   sync.Mutex
	book map[processors.Resource]*bookEntry
}

// bookEntry is the lease of one resource.
type bookEntry struct {
	epoch      uint64
	checkpoint []byte
}

func newCascadeWorld(t testing.TB) *cascadeWorld {
	t.Helper()
	return newCascadeWorldOn(t, natsd.Config{SyncInterval: time.Minute})
}

// newCascadeWorldOn makes a world on a server of the given kind.
func newCascadeWorldOn(t testing.TB, cfg natsd.Config) *cascadeWorld {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	cfg.Dir, cfg.DontListen, cfg.Log = t.TempDir(), true, quiet
	srv, err := natsd.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	connect := func(opts ...nats.Option) *nats.Conn {
		nc, err := srv.Conn(opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	w := &cascadeWorld{t: t, gate: newGate(srv), book: map[processors.Resource]*bookEntry{}}
	nc, owners := connect(), connect(nats.InProcessServer(w.gate))
	if w.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if w.catalog, err = store.OpenCatalog(t.Context(), w.js, store.CatalogConfig{}); err != nil {
		t.Fatal(err)
	}
	w.hub = feed.NewHub(func(ctx context.Context, p feed.Partition) (*feed.Log, error) {
		return feed.OpenLog(ctx, w.js, p, feed.LogConfig{})
	}, feed.HubConfig{})
	t.Cleanup(w.hub.Close)

	db, err := engine.Open(t.TempDir(), engine.Config{MemTableBytes: 8 << 20}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	manager, err := leases.Open(t.Context(), w.js, leases.Config{Group: "store", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	local := &store.Local{}
	server, err := owner.NewServer(owners, w.catalog, db, manager, owner.Config{Local: local, Logger: quiet, ExpiryInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w.client = store.NewClient(nc, w.catalog, store.ClientConfig{Local: local, Timeout: time.Minute})
	if w.letters, err = processors.OpenDeadLetters(t.Context(), w.client); err != nil {
		t.Fatal(err)
	}
	background(t, "owners", server.Run)
	t.Cleanup(w.gate.open)
	return w
}

// background runs f until the test ends.
func background(t testing.TB, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	})
}

// container declares a container and waits until its partitions have owners.
func (w *cascadeWorld) container(name string, spec store.ContainerSpec) *store.Container {
	w.t.Helper()
	if _, err := w.catalog.Create(w.t.Context(), "default", name, spec); err != nil {
		w.t.Fatal(err)
	}
	c, err := w.client.Container(w.t.Context(), "default", name)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range c.Partitions() {
		if _, err := c.Count(w.t.Context(), p, store.Scope{}); err != nil {
			w.t.Fatal(err)
		}
	}
	return c
}

// webstore declares the containers of the store's catalogue.
func (w *cascadeWorld) webstore() (meta, product *store.Container) {
	w.t.Helper()
	meta = w.container("productMeta", store.ContainerSpec{PartitionKey: []string{"/type"}, Partitions: 2})
	product = w.container("product", store.ContainerSpec{
		PartitionKey: []string{"/categoryId"}, Partitions: 3, Indexes: []string{"/tags/*/id"},
	})
	return meta, product
}

// log returns the log of a partition.
func (w *cascadeWorld) log(p feed.Partition) *feed.Log {
	w.t.Helper()
	if l, ok := w.logs.Load(p); ok {
		return l.(*feed.Log)
	}
	l, err := feed.OpenLog(w.t.Context(), w.js, p, feed.LogConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.logs.Store(p, l)
	return l
}

// end is the LSN of the last commit of a partition.
func (w *cascadeWorld) end(p feed.Partition) feed.LSN {
	w.t.Helper()
	_, last, err := w.log(p).Bounds(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return last
}

// worker runs processors under leases that only the test takes away.
type worker struct {
	w      *cascadeWorld
	host   *processors.Host
	client *store.Client
	tap    *tap
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	errs   []error
	leases []*bookLease
}

// start takes the leases of all roles, or of those named, of some cascades. The
// cascades are compiled with the worker's client, whose requests tap sees.
func (w *cascadeWorld) start(configs []cascade.Config, roles ...processors.Role) *worker {
	w.t.Helper()
	if len(roles) == 0 {
		roles = []processors.Role{processors.RoleSource, processors.RoleTarget}
	}
	k := &worker{w: w, tap: &tap{inner: w.client}}
	host, err := processors.NewHost(w.hub, w.letters, processors.Config{
		CheckpointInterval: 20 * time.Millisecond, CheckpointBusyInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	k.host = host
	local := &store.Local{}
	k.client = store.NewClient(nil, w.catalog, store.ClientConfig{Local: local})
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	for _, cfg := range configs {
		for _, c := range []**store.Container{&cfg.Source, &cfg.Target} {
			for _, p := range (*c).Partitions() {
				local.Add(p, k.tap)
			}
			own, err := k.client.Open((*c).Info())
			if err != nil {
				w.t.Fatal(err)
			}
			*c = own
		}
		cas, err := cascade.Compile(cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		source := cas.Source().Info()
		if err := w.catalog.WantTombstones(w.t.Context(), source.Database, source.Name, cas.Tombstones()); err != nil {
			w.t.Fatal(err)
		}
		for _, role := range roles {
			c, processor := cas.Source(), cas.FanOut
			if role == processors.RoleTarget {
				c, processor = cas.Target(), cas.Check
			}
			for _, p := range c.Partitions() {
				resource := processors.Resource{Pipeline: cfg.Pipeline, Generation: cfg.Generation, Role: role, Partition: p}
				k.run(ctx, processors.Task{Resource: resource, Processor: processor(p)})
			}
		}
	}
	w.t.Cleanup(k.stop)
	return k
}

func (k *worker) run(ctx context.Context, task processors.Task) {
	l := k.w.take(task.Resource)
	k.leases = append(k.leases, l)
	k.done.Go(func() {
		if err := k.host.Run(ctx, l, task); err != nil {
			k.mu.Lock()
			k.errs = append(k.errs, err)
			k.mu.Unlock()
		}
	})
}

// stop ends the worker as a drain does.
func (k *worker) stop() {
	k.tap.release()
	k.cancel()
	k.done.Wait()
}

// crash ends the worker without a last checkpoint.
func (k *worker) crash() {
	for _, l := range k.leases {
		l.dead.Store(true)
	}
	k.stop()
}

// failures are the errors with which terms have ended.
func (k *worker) failures() []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]error{}, k.errs...)
}

// take gives a lease to a new holder. The old one does not know.
func (w *cascadeWorld) take(r processors.Resource) *bookLease {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.book[r]
	if e == nil {
		e = &bookEntry{}
		w.book[r] = e
	}
	e.epoch++
	return &bookLease{w: w, r: r, epoch: e.epoch, checkpoint: e.checkpoint}
}

// bookLease is a holder's view of a lease.
type bookLease struct {
	w          *cascadeWorld
	r          processors.Resource
	epoch      uint64
	checkpoint []byte
	dead       atomic.Bool
}

func (l *bookLease) Epoch() uint64      { return l.epoch }
func (l *bookLease) Checkpoint() []byte { return l.checkpoint }
func (l *bookLease) Progress()          {}

func (l *bookLease) Save(_ context.Context, checkpoint []byte) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	e := l.w.book[l.r]
	if l.dead.Load() || e.epoch != l.epoch {
		return leases.ErrLost
	}
	e.checkpoint = checkpoint
	return nil
}

// quiet waits until the workers have processed everything and nothing they wrote
// is left to be processed.
func (w *cascadeWorld) quiet(workers ...*worker) {
	w.t.Helper()
	var why string
	idle := func() (map[feed.Partition]feed.LSN, bool) {
		at := map[feed.Partition]feed.LSN{}
		for _, k := range workers {
			for _, err := range k.failures() {
				w.t.Fatalf("a term ended: %v", err)
			}
			activities := k.host.Activities()
			if len(activities) < len(k.leases) {
				why = fmt.Sprintf("%d of %d processors run", len(activities), len(k.leases))
				return nil, false
			}
			for _, a := range activities {
				end, ok := at[a.Partition]
				if !ok {
					end = w.end(a.Partition)
					at[a.Partition] = end
				}
				if a.Checkpoint.Position.LSN < end || a.Checkpoint.Open() > 0 {
					why = fmt.Sprintf("%s is at %s of %s with %d open: %+v", a.Resource, a.Checkpoint.Position, end, a.Checkpoint.Open(), a.Checkpoint.Jobs)
					return nil, false
				}
			}
		}
		return at, true
	}
	eventually(w.t, func() (bool, string) {
		before, ok := idle()
		if !ok {
			return false, why
		}
		after, ok := idle()
		for p, lsn := range before {
			if after[p] != lsn {
				return false, fmt.Sprintf("%s grows", p)
			}
		}
		return ok, why
	})
}

// eventually polls ok under a deadline and reports its last reason.
func eventually(t testing.TB, ok func() (bool, string)) {
	t.Helper()
	deadline := time.NewTimer(5 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, why := ok()
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within five minutes: %s", why)
		}
	}
}
