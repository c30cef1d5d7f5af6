package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/aggregate"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
)

var quiet = slog.New(slog.DiscardHandler)

// world is a store with its owners in one process, and workers whose leases and
// requests the test controls.
type world struct {
	t       testing.TB
	js      jetstream.JetStream
	catalog *store.Catalog
	client  *store.Client // of the test
	hub     *feed.Hub
	letters *processors.DeadLetters
	logs    sync.Map // feed.Partition to *feed.Log

	mu   sync.Mutex
	book map[processors.Resource]*entry
}

// entry is the lease of one resource.
type entry struct {
	epoch      uint64
	checkpoint []byte
}

func newWorld(t testing.TB) *world {
	t.Helper()
	// Nobody pulls the plug here, so the disk need not be waited for.
	srv, err := natsd.Open(t.Context(), natsd.Config{Dir: t.TempDir(), DontListen: true, Log: quiet, SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	nc, err := srv.Conn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	w := &world{t: t, book: map[processors.Resource]*entry{}}
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
	server, err := owner.NewServer(nc, w.catalog, db, manager, owner.Config{Local: local, Logger: quiet, ExpiryInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w.client = store.NewClient(nc, w.catalog, store.ClientConfig{Local: local, Timeout: time.Minute})
	if w.letters, err = processors.OpenDeadLetters(t.Context(), w.client); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("owners: %v", err)
		}
	})
	return w
}

// container declares a container and waits until its partitions have owners.
func (w *world) container(name string, spec store.ContainerSpec) *store.Container {
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

// want puts the rule of an aggregate in force and waits until it is everywhere.
func (w *world) want(cfg aggregate.Config, source, published bool) {
	w.t.Helper()
	info := cfg.Target.Info()
	err := w.catalog.WantRule(w.t.Context(), info.Database, info.Name, store.RuleWish{
		Pipeline: cfg.Pipeline, Generation: cfg.Generation, Spec: cfg.Spec, Source: source, Published: published,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range cfg.Target.Partitions() {
		eventually(w.t, func() (bool, string) {
			status, err := cfg.Target.Status(w.t.Context(), p)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, r := range status.Rules {
				if r.Pipeline == cfg.Pipeline && r.Generation == cfg.Generation {
					return r.Active && r.Folds == source && r.Published == published && r.Swept == published, fmt.Sprintf("%s: %+v", p, r)
				}
			}
			return false, fmt.Sprintf("%s does not know the rule", p)
		})
	}
}

// log returns the log of a partition.
func (w *world) log(p feed.Partition) *feed.Log {
	w.t.Helper()
	if l, ok := w.logs.Load(p); ok {
		return l.(*feed.Log)
	}
	l, err := feed.OpenLog(w.t.Context(), w.js, p, feed.LogConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.Close)
	w.logs.Store(p, l)
	return l
}

// end is the LSN of the last commit of a partition.
func (w *world) end(p feed.Partition) feed.LSN {
	w.t.Helper()
	_, last, err := w.log(p).Bounds(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return last
}

// worker runs processors under leases that only the test takes away.
type worker struct {
	w      *world
	host   *processors.Host
	tap    *tap
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	errs   []error
	leases []*lease
}

// start takes the leases of an aggregate on all partitions of its source. It is
// compiled with the worker's client, whose requests tap sees.
func (w *world) start(cfg aggregate.Config) *worker {
	w.t.Helper()
	k := &worker{w: w, tap: &tap{inner: w.client}}
	var err error
	k.host, err = processors.NewHost(w.hub, w.letters, processors.Config{
		CheckpointInterval: 20 * time.Millisecond, CheckpointBusyInterval: 100 * time.Millisecond, Logger: quiet,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	local := &store.Local{}
	client := store.NewClient(nil, w.catalog, store.ClientConfig{Local: local})
	for _, c := range []**store.Container{&cfg.Source, &cfg.Target} {
		for _, p := range (*c).Partitions() {
			local.Add(p, k.tap)
		}
		own, err := client.Open((*c).Info())
		if err != nil {
			w.t.Fatal(err)
		}
		*c = own
	}
	a, err := aggregate.Compile(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	for _, p := range a.Source().Partitions() {
		resource := processors.Resource{Pipeline: cfg.Pipeline, Generation: cfg.Generation, Role: processors.RoleSource, Partition: p}
		l := w.take(resource)
		k.leases = append(k.leases, l)
		k.done.Go(func() {
			if err := k.host.Run(ctx, l, processors.Task{Resource: resource, Processor: a.Fold(p)}); err != nil {
				k.mu.Lock()
				k.errs = append(k.errs, err)
				k.mu.Unlock()
			}
		})
	}
	w.t.Cleanup(k.stop)
	return k
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
func (w *world) take(r processors.Resource) *lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.book[r]
	if e == nil {
		e = &entry{}
		w.book[r] = e
	}
	e.epoch++
	return &lease{w: w, r: r, epoch: e.epoch, checkpoint: e.checkpoint}
}

// setBack lets the next holders begin at the beginning, as a redelivery does.
func (w *world) setBack() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.book {
		e.checkpoint = nil
	}
}

// checkpoint is the durable one of a resource.
func (w *world) checkpoint(r processors.Resource) *processors.Checkpoint {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	cp, err := processors.DecodeCheckpoint(w.book[r].checkpoint)
	if err != nil {
		w.t.Fatal(err)
	}
	return cp
}

// lease is a holder's view of a lease.
type lease struct {
	w          *world
	r          processors.Resource
	epoch      uint64
	checkpoint []byte
	dead       atomic.Bool
}

func (l *lease) Epoch() uint64      { return l.epoch }
func (l *lease) Checkpoint() []byte { return l.checkpoint }
func (l *lease) Progress()          {}

func (l *lease) Save(_ context.Context, checkpoint []byte) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	e := l.w.book[l.r]
	if l.dead.Load() || e.epoch != l.epoch {
		return leases.ErrLost
	}
	e.checkpoint = checkpoint
	return nil
}

// quiet waits until the workers have processed everything, and nothing of what
// they wrote is left to be processed.
func (w *world) quiet(workers ...*worker) {
	w.t.Helper()
	eventually(w.t, func() (bool, string) {
		for _, k := range workers {
			for _, err := range k.failures() {
				w.t.Fatalf("a term ended: %v", err)
			}
			activities := k.host.Activities()
			if len(activities) < len(k.leases) {
				return false, fmt.Sprintf("%d of %d processors run", len(activities), len(k.leases))
			}
			for _, a := range activities {
				end := w.end(a.Partition)
				if cp := a.Checkpoint; cp.Position.LSN < end || len(cp.Jobs) > 0 {
					return false, fmt.Sprintf("%s is at %s of %s: %s", a.Resource, cp.Position, end, cp.LastError)
				}
			}
		}
		return true, ""
	})
}

// eventually polls ok under a deadline and reports its last reason.
func eventually(t testing.TB, ok func() (bool, string)) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		done, why := ok()
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within a minute: %s", why)
		}
	}
}

// tap is a handler before the owners: a test can look at a worker's requests, hold
// them up, refuse them, and lose or alter their answers.
type tap struct {
	inner *store.Client

	mu     sync.Mutex
	before func(*store.Request) *store.Error
	after  func(*store.Request, *store.Response) *store.Response
	holds  []chan struct{}
}

// Handle passes a request on, with the hooks around it.
func (t *tap) Handle(ctx context.Context, r *store.Request) *store.Response {
	t.mu.Lock()
	before, after := t.before, t.after
	t.mu.Unlock()
	if before != nil {
		if refusal := before(r); refusal != nil {
			return &store.Response{Err: refusal}
		}
	}
	resp, err := t.inner.Do(context.WithoutCancel(ctx), r)
	if err != nil {
		var refusal *store.Error
		if !errors.As(err, &refusal) {
			refusal = &store.Error{Status: store.StatusUnavailable, Message: err.Error()}
		}
		resp = &store.Response{Err: refusal}
	}
	if after != nil {
		return after(r, resp)
	}
	return resp
}

// onRequest sets the hook before requests, onResponse the one after them.
func (t *tap) onRequest(f func(*store.Request) *store.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before = f
}

func (t *tap) onResponse(f func(*store.Request, *store.Response) *store.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.after = f
}

// hold holds up the first request that f selects, before the owner sees it. The
// channel is closed when the request is there; let lets it go on.
func (t *tap) hold(f func(*store.Request) bool) (there <-chan struct{}, let func()) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	t.mu.Lock()
	t.holds = append(t.holds, goOn)
	t.mu.Unlock()
	t.onRequest(func(r *store.Request) *store.Error {
		if f(r) {
			once.Do(func() {
				close(arrived)
				<-goOn
			})
		}
		return nil
	})
	return arrived, func() { t.open(goOn) }
}

func (t *tap) open(hold chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, h := range t.holds {
		if h == hold {
			t.holds = append(t.holds[:i], t.holds[i+1:]...)
			close(h)
			return
		}
	}
}

// release lets all held requests go on.
func (t *tap) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.holds {
		close(h)
	}
	t.holds = nil
}
