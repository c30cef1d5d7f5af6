package owner

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
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

// lease is a right that the test ends when it likes.
type lease struct {
	ctx      context.Context //nolint:containedctx // a lease is a scope
	cancel   context.CancelCauseFunc
	epoch    uint64
	valid    atomic.Bool
	extended atomic.Int64 // calls of Extend
	lapsed   atomic.Bool  // the right of the process has run out, the lease has not
	user     string       // the node that used it last, if anybody has, and since when
	since    uint64
	uses     atomic.Int64 // calls of Use that were not taken back
	bound    atomic.Bool
}

func newLease(t testing.TB, epoch uint64) *lease {
	t.Helper()
	l := &lease{epoch: epoch}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.valid.Store(true)
	t.Cleanup(func() { l.cancel(nil) })
	return l
}

func (l *lease) Trust() context.Context { return l.ctx }
func (l *lease) Valid() bool            { return l.valid.Load() && !l.lapsed.Load() }
func (l *lease) Lasts() bool            { return l.valid.Load() }
func (l *lease) Epoch() uint64          { return l.epoch }
func (l *lease) Progress()              {}

func (l *lease) Settle(context.Context, bool) error { return nil }
func (l *lease) Now() time.Duration                 { return 0 }
func (l *lease) Extend(time.Duration)               { l.extended.Add(1) }

func (l *lease) Use(context.Context) error         { l.uses.Add(1); return nil }
func (l *lease) LeaveUnused(context.Context) error { l.uses.Add(-1); return nil }
func (l *lease) Bind(bound bool)                   { l.bound.Store(bound) }
func (l *lease) User() (node string, since uint64) { return l.user, l.since }

// world is a NATS server with one container of one physical partition, on which
// nodes can be started and stopped.
type world struct {
	t       testing.TB
	js      jetstream.JetStream
	catalog *store.Catalog
	info    store.ContainerInfo
	id      feed.Partition
	epoch   uint64
	clock   atomic.Int64
}

func newWorld(t testing.TB, spec store.ContainerSpec) *world {
	t.Helper()
	js := natstest.Start(t).JS
	w := &world{t: t, js: js}
	w.clock.Store(time.Now().Add(time.Hour).UnixMilli())
	var err error
	if w.catalog, err = store.OpenCatalog(t.Context(), js, store.CatalogConfig{}); err != nil {
		t.Fatal(err)
	}
	if w.info, err = w.catalog.Create(t.Context(), "default", "things", spec); err != nil {
		t.Fatal(err)
	}
	w.id = feed.Partition{Container: w.info.ID}
	return w
}

// node is one process's view of the partition.
type node struct {
	*Partition
	w       *world
	lease   *lease
	log     *faultyLog
	db      *engine.DB
	stopped chan error
	cancel  context.CancelFunc
}

// start opens the partition on an engine in dir under a new lease epoch and
// serves it.
func (w *world) start(dir string) *node {
	w.t.Helper()
	n := w.open(dir)
	if err := n.open(w.t.Context(), w.info.Partitions[0].Log); err != nil {
		w.t.Fatal(err)
	}
	n.serve()
	return n
}

// open makes a node that has not taken over yet.
func (w *world) open(dir string) *node {
	w.t.Helper()
	db, err := engine.Open(dir, engine.Config{MemTableBytes: 8 << 20}, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	part, err := db.Partition(w.id)
	if err != nil {
		w.t.Fatal(err)
	}
	log, err := feed.OpenLog(w.t.Context(), w.js, w.id, feed.LogConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.epoch++
	cfg, err := Config{Logger: slog.New(slog.DiscardHandler), now: w.clock.Load, ExpiryInterval: time.Millisecond, ClockAheadMax: -1}.withDefaults()
	if err != nil {
		w.t.Fatal(err)
	}
	n := &node{w: w, lease: newLease(w.t, w.epoch), log: &faultyLog{Log: log}, db: db, stopped: make(chan error, 1)}
	n.Partition = newPartition(w.id, cfg, n.log, part, n.lease, fmt.Sprintf("node-%d/1", w.epoch))
	return n
}

func (n *node) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.stopped <- n.run(ctx)
	}()
	var once sync.Once
	n.w.t.Cleanup(func() {
		once.Do(func() {
			cancel()
			n.lease.valid.Store(false)
			n.lease.cancel(errStopped)
			<-done
			n.log.Close()
			_ = n.db.Close()
		})
	})
}

// stop ends the node as a drain does and returns what run returned.
func (n *node) stop() error {
	n.w.t.Helper()
	n.cancel()
	select {
	case err := <-n.stopped:
		n.stopped <- err
		if err := n.db.Close(); err != nil {
			n.w.t.Fatal(err)
		}
		return err
	case <-time.After(time.Minute):
		n.w.t.Fatal("the partition did not stop")
		return nil
	}
}

// ended waits until run returns by itself.
func (n *node) ended() error {
	n.w.t.Helper()
	select {
	case err := <-n.stopped:
		n.stopped <- err
		return err
	case <-time.After(time.Minute):
		n.w.t.Fatal("the partition did not stop")
		return nil
	}
}

func (n *node) ask(r *store.Request) *store.Response {
	n.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r.Partition = n.id
	return n.Handle(ctx, r)
}

// decided waits until count requests are decided into the commit that comes next.
func (n *node) decided(count int) {
	n.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for got := -1; got < count; {
		if !n.onDecider(ctx, func(d *decider) { got = len(d.draft.replies) }) {
			n.w.t.Fatalf("%d of %d requests were decided", got, count)
		}
	}
}

// batch runs operations as one batch on one logical partition.
func (n *node) batch(key feed.PartitionKey, ops ...store.Operation) (*store.TransactResult, error) {
	n.w.t.Helper()
	resp := n.ask(&store.Request{Transact: &store.Transact{Key: key, Ops: ops, Batch: true}})
	if resp.Err != nil {
		return nil, resp.Err
	}
	return resp.Transact, nil
}

func (n *node) one(key feed.PartitionKey, op store.Operation) (store.Item, error) {
	n.w.t.Helper()
	resp := n.ask(&store.Request{Transact: &store.Transact{Key: key, Ops: []store.Operation{op}}})
	if resp.Err != nil {
		return store.Item{}, resp.Err
	}
	return resp.Transact.Results[0].Item, nil
}

func (n *node) mustOne(key feed.PartitionKey, op store.Operation) store.Item {
	n.w.t.Helper()
	item, err := n.one(key, op)
	if err != nil {
		n.w.t.Fatalf("%s %s: %v", op.Kind, op.ID, err)
	}
	return item
}

func (n *node) read(key feed.PartitionKey, id string) string {
	n.w.t.Helper()
	item, err := n.one(key, store.Operation{Kind: store.OpRead, ID: id})
	if errors.Is(err, store.ErrNotFound) {
		return ""
	}
	if err != nil {
		n.w.t.Fatal(err)
	}
	return string(item.Body)
}

// commits returns the whole log.
func (w *world) commits() []*feed.Commit {
	w.t.Helper()
	log, err := feed.OpenLog(w.t.Context(), w.js, w.id, feed.LogConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	_, last, err := log.Bounds(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	tail, err := log.Tail(w.t.Context(), 1, feed.TailOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer tail.Close()
	var all []*feed.Commit
	for range last {
		c, err := tail.Next(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// faultyLog is a log in which the next append can be held, failed or answered
// wrongly.
type faultyLog struct {
	Log
	mu   sync.Mutex
	next func(ctx context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error)

	fails func() bool

	asked []*feed.Shape // answers to the next questions for the log's shape
}

func (l *faultyLog) Shape(ctx context.Context) (*feed.Shape, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.asked) > 0 {
		shape := l.asked[0]
		l.asked = l.asked[1:]
		return shape, nil
	}
	return l.Log.Shape(ctx)
}

// fault makes f stand for the next append.
func (l *faultyLog) fault(f func(ctx context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = f
}

func (l *faultyLog) Append(ctx context.Context, after feed.LSN, id feed.CommitID, data []byte) (feed.LSN, error) {
	l.mu.Lock()
	f := l.next
	l.next = nil
	fails := l.fails != nil && l.fails()
	l.mu.Unlock()
	if fails {
		return 0, feed.ErrStorage
	}
	real := func() (feed.LSN, error) { return l.Log.Append(ctx, after, id, data) }
	if f != nil {
		return f(ctx, real)
	}
	return real()
}

// each makes every append fail for which fails is true; nil ends that.
func (l *faultyLog) each(fails func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = fails
}

// hold makes the next append wait; it returns a channel that tells that the
// append has arrived, and a function that lets it go on.
func (l *faultyLog) hold() (arrived <-chan struct{}, release func()) {
	in, out := make(chan struct{}), make(chan struct{})
	l.fault(func(ctx context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error) {
		close(in)
		select {
		case <-out:
			return appendIt()
		case <-ctx.Done():
			return 0, feed.ErrUnknown
		}
	})
	return in, sync.OnceFunc(func() { close(out) })
}

func pk(t testing.TB, components ...any) feed.PartitionKey {
	t.Helper()
	k, err := feed.NewPartitionKey(components...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func create(body string) store.Operation {
	return store.Operation{Kind: store.OpCreate, Body: []byte(body)}
}

func upsert(body string) store.Operation {
	return store.Operation{Kind: store.OpUpsert, Body: []byte(body)}
}

func patch(id string, ops ...document.Op) store.Operation {
	return store.Operation{Kind: store.OpPatch, ID: id, Patch: ops}
}

func set(path, value string) document.Op {
	return document.Op{Kind: "set", Path: path, Value: []byte(value)}
}

var byA = store.ContainerSpec{PartitionKey: []string{"/a"}}
