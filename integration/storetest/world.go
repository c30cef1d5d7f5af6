package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// World is a store with its owners in one process, and workers whose leases and
// requests the test controls.
type World struct {
	*Store
	Book
	Catalog     *store.Catalog
	Gate        *Gate // of the owners' connection
	DeadLetters *processors.DeadLetters
	// ParkedRest lets Quiet pass over what is parked until somebody asks for it again.
	ParkedRest bool
	// Processors tunes the hosts of workers that are made from now on.
	Processors processors.Config

	t           testing.TB
	hub         *feed.Hub
	logs        sync.Map // feed.Partition to *feed.Log
	ownerConfig owner.Config
}

// NewOwner ends the owner of all partitions, and lets another one take its place, which has
// its snapshots and not its engine. The client is another one: workers come after it.
func (w *World) NewOwner() {
	w.t.Helper()
	w.StopOwner()
	w.own(w.t, w.Server.Connect(w.t, nats.InProcessServer(w.Gate)), w.ownerConfig)
}

// Walk pins a snapshot for a reader of a partition, and returns what it is to begin with.
// c is the container as the reader's worker has it.
func (w *World) Walk(c *store.Container, r processors.Resource) *processors.Walk {
	w.t.Helper()
	pin, err := c.PinSnapshot(w.t.Context(), r.Partition, store.PinSnapshot{Holder: r.PinHolder()})
	if err != nil || pin.State != store.PinReady {
		w.t.Fatalf("pin a snapshot of %s: %+v, %v", r.Partition, pin, err)
	}
	return &processors.Walk{Container: c, Snapshot: pin.ID, LSN: pin.LSN, Items: pin.Items}
}

// NewWorld starts a world without workers, whose owners are tuned.
func NewWorld(t testing.TB, tune ...func(*owner.Config)) *World {
	t.Helper()
	w := &World{Store: System(t), t: t}
	w.Catalog = w.Client.Catalog()
	w.hub = w.Hub(t)
	w.Gate = newGate(w.Server.Server)
	w.ownerConfig = owner.Config{ExpiryInterval: 20 * time.Millisecond, Snapshots: owner.SnapshotConfig{Directory: t.TempDir()}}
	for _, f := range tune {
		f(&w.ownerConfig)
	}
	w.own(t, w.Server.Connect(t, nats.InProcessServer(w.Gate)), w.ownerConfig)
	var err error
	if w.DeadLetters, err = processors.OpenDeadLetters(t.Context(), w.Client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Gate.Open) // or the owners cannot end
	return w
}

// End is the LSN of the last commit of a partition.
func (w *World) End(p feed.Partition) feed.LSN {
	w.t.Helper()
	_, last, err := w.Log(p).Bounds(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return last
}

// Log returns the log of a partition.
func (w *World) Log(p feed.Partition) *feed.Log {
	w.t.Helper()
	if l, ok := w.logs.Load(p); ok {
		return l.(*feed.Log)
	}
	l, err := feed.OpenLog(w.t.Context(), w.JS, p, feed.LogConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.Close)
	w.logs.Store(p, l)
	return l
}

// Quiet waits until the workers have processed everything, and nothing that they wrote
// is left to be processed.
func (w *World) Quiet(workers ...*Worker) {
	w.t.Helper()
	var before map[feed.Partition]feed.LSN
	poll.Until(w.t, func() error {
		at, err := w.idle(workers)
		if err != nil {
			before = nil
			return err
		}
		// What was idle twice, and whose logs have not grown in between, has nothing on
		// its way from one log to another.
		for p, lsn := range at {
			if before[p] != lsn {
				before = at
				return fmt.Errorf("%s grows", p)
			}
		}
		return nil
	})
}

// idle returns the ends of the logs that the workers read, if they have processed all.
func (w *World) idle(workers []*Worker) (map[feed.Partition]feed.LSN, error) {
	w.t.Helper()
	at := map[feed.Partition]feed.LSN{}
	for _, k := range workers {
		for _, err := range k.Failures() {
			w.t.Fatalf("a term ended: %v", err)
		}
		activities := k.Host.Activities()
		if len(activities) < len(k.Leases) {
			return nil, fmt.Errorf("%d of %d processors run", len(activities), len(k.Leases))
		}
		for _, a := range activities {
			end, ok := at[a.Partition]
			if !ok {
				end = w.End(a.Partition)
				at[a.Partition] = end
			}
			cp := a.Checkpoint
			if !cp.Position.Reached(end) || len(cp.Jobs) > 0 || len(cp.Parked) > 0 && !w.ParkedRest {
				return nil, fmt.Errorf("%s is at %s of %s with %d open: %+v, %s", a.Resource, cp.Position, end, cp.Open(), cp.Jobs, cp.LastError)
			}
		}
	}
	return at, nil
}

// Worker runs processors under leases that only the test takes away.
type Worker struct {
	Host   *processors.Host
	Tap    *Tap          // between the processors and the owners
	Client *store.Client // whose requests Tap sees
	Leases []*Lease
	// Again says that its terms are not the first of their leases, as if their instances had been replaced.
	Again bool

	w      *World
	local  *store.Local
	ctx    context.Context //nolint:containedctx // a worker is a scope
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu   sync.Mutex
	errs []error
}

// Worker makes a worker that runs nothing yet.
func (w *World) Worker() *Worker {
	w.t.Helper()
	k := &Worker{w: w, Tap: &Tap{inner: w.Client}, local: &store.Local{}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.Client = store.NewClient(nil, w.Catalog, store.ClientConfig{Local: k.local})
	cfg := w.Processors
	cfg.CheckpointInterval = cmp.Or(cfg.CheckpointInterval, 20*time.Millisecond)
	cfg.CheckpointBusyInterval = cmp.Or(cfg.CheckpointBusyInterval, 100*time.Millisecond)
	cfg.Logger = Quiet()
	var err error
	if k.Host, err = processors.NewHost(w.hub, w.DeadLetters, cfg); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(k.Stop)
	return k
}

// Own returns a container as the worker's client has it: what processors ask of it goes
// through Tap.
func (k *Worker) Own(c *store.Container) *store.Container {
	k.w.t.Helper()
	for _, p := range c.Partitions() {
		k.local.Add(p, k.Tap)
	}
	own, err := k.Client.Open(c.Info())
	if err != nil {
		k.w.t.Fatal(err)
	}
	return own
}

// Run takes the lease of a task and runs it.
func (k *Worker) Run(task processors.Task) {
	l := k.w.Take(task.Resource)
	k.Leases = append(k.Leases, l)
	task.FirstOfLease = !k.Again
	k.done.Go(func() {
		if err := k.Host.Run(k.ctx, l, task); err != nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.errs = append(k.errs, err)
		}
	})
}

// Stop ends the worker as a drain does.
func (k *Worker) Stop() {
	k.Tap.Release()
	k.cancel()
	k.done.Wait()
}

// Crash ends the worker without a last checkpoint.
func (k *Worker) Crash() {
	for _, l := range k.Leases {
		l.Die()
	}
	k.Stop()
}

// Failures are the errors with which terms have ended.
func (k *Worker) Failures() []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.errs)
}
