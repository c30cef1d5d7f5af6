package right_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/feed/natsd/ports"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases/bucket"
	"github.com/millrace/millrace/leases/right"
)

// connect opens a connection of its own.
func connect(tb testing.TB, s *natstest.Server) jetstream.JetStream {
	tb.Helper()
	js, err := jetstream.New(s.Connect(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

const nodesBucket = "nodes"

// nodes opens the bucket of the nodes' keys.
func nodes(tb testing.TB, js jetstream.JetStream) bucket.Store {
	tb.Helper()
	b, err := bucket.Open(tb.Context(), js, nodesBucket, "", 1)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// lasting is a configuration with which nothing runs out in a test.
func lasting(node string) right.Config {
	return right.Config{
		Group: "store", Node: node, NodeLocked: true, Host: "host-" + node,
		Trust: poll.Most, RenewInterval: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	}
}

// process is a node that runs.
type process struct {
	r    *right.Right
	s    *right.Sight
	stop context.CancelFunc
	done chan error // what Run of the right returned
}

// start opens and runs a node. It ends with the test.
func start(tb testing.TB, js jetstream.JetStream, cfg right.Config) *process {
	tb.Helper()
	r, err := right.Open(tb.Context(), nodes(tb, js), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &process{r: r, s: right.NewSight(r), stop: stop, done: make(chan error, 1)}
	looked := make(chan error, 1)
	go func() { p.done <- r.Run(ctx) }()
	go func() { looked <- p.s.Run(ctx) }()
	tb.Cleanup(func() {
		stop()
		if err := <-looked; err != nil {
			tb.Error(err)
		}
	})
	return p
}

// wait waits until the nodes that p sees satisfy ok.
func (p *process) wait(tb testing.TB, what string, ok func(nodes []right.Node) bool) {
	tb.Helper()
	poll.Until(tb, func() error { return poll.Unless(ok(p.s.Nodes()), what) })
}

// result returns what Run returned.
func (p *process) result(tb testing.TB) error {
	tb.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(poll.Most):
		tb.Fatalf("Run has not returned within %s", poll.Most)
		return nil
	}
}

func TestNodesSeeAndDeposeEachOther(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a := start(t, connect(t, s), lasting("a"))
	b := start(t, connect(t, s), lasting("b"))
	b.wait(t, "both are up", func(nodes []right.Node) bool {
		return len(nodes) == 2 && nodes[0].Host == "host-a" && nodes[0].State == right.StateUp && nodes[1].Incarnation == b.r.Incarnation()
	})
	if !a.r.Holds() || !b.r.Holds() {
		t.Errorf("a holds %v, b %v", a.r.Holds(), b.r.Holds())
	}

	for range 2 { // the second time it stands there already
		if err := b.s.Depose(t.Context(), "a", a.r.Incarnation(), b.r.Holder(), "the test says so"); err != nil {
			t.Fatal(err)
		}
	}
	err := a.result(t)
	if gone, ok := errors.AsType[*right.DeposedError](err); !ok || gone.By != b.r.Holder() || gone.Why != "the test says so" || gone.At.IsZero() {
		t.Errorf("Run: %v", err)
	}
	if a.r.Holds() || a.r.Deposed().Err() == nil {
		t.Errorf("holds %v, ended with %v", a.r.Holds(), context.Cause(a.r.Deposed()))
	}
	b.wait(t, "a is deposed", func(nodes []right.Node) bool { return nodes[0].DeposedBy == b.r.Holder() })

	again := start(t, connect(t, s), lasting("a"))
	b.wait(t, "a is back", func(nodes []right.Node) bool { return nodes[0].Incarnation == again.r.Incarnation() })
	err = b.s.Depose(t.Context(), "a", a.r.Incarnation(), b.r.Holder(), "late")
	if gone, ok := errors.AsType[*right.SucceededError](err); !ok || gone.By != again.r.Incarnation() {
		t.Errorf("deposing the incarnation before: %v", err)
	}
	if !again.r.Holds() {
		t.Error("the next incarnation does not hold")
	}
}

func TestClosedNodeHasLeft(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a := start(t, connect(t, s), lasting("a"))
	b := start(t, connect(t, s), lasting("b"))
	if err := a.r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.result(t); !errors.Is(err, right.ErrClosed) || a.r.Holds() {
		t.Errorf("Run: %v, holds %v", err, a.r.Holds())
	}
	b.wait(t, "a has left", func(nodes []right.Node) bool { return len(nodes) == 2 && nodes[0].State == right.StateLeft })
}

// TestBucket looks at what Open creates.
func TestBucket(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	r, err := right.Open(t.Context(), nodes(t, s.JS), lasting("a"))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := s.JS.KeyValue(t.Context(), nodesBucket)
	if err != nil {
		t.Fatal(err)
	}
	status, err := kv.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info := status.(*jetstream.KeyValueBucketStatus).StreamInfo()
	if status.History() != 1 || info.Config.Storage != jetstream.FileStorage || info.Config.Replicas != 1 || info.Config.MaxAge != 0 {
		t.Errorf("history %d, %v, %d replicas, kept for %v", status.History(), info.Config.Storage, info.Config.Replicas, info.Config.MaxAge)
	}
	// A key that was deleted by hand is no hindrance.
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "node.store.a"); err != nil {
		t.Fatal(err)
	}
	again, err := right.Open(t.Context(), nodes(t, s.JS), lasting("a"))
	if err != nil || !again.Holds() {
		t.Fatalf("Open: %v", err)
	}
	// Nor one of a later release, but nothing is written over it.
	if _, err := kv.Put(t.Context(), "node.store.b", []byte(`{"v":2}`)); err != nil {
		t.Fatal(err)
	}
	_, err = right.Open(t.Context(), nodes(t, s.JS), lasting("b"))
	if later, ok := errors.AsType[*right.VersionError](err); !ok || later.Version != 2 || later.Key != "node.store.b" {
		t.Errorf("Open: %v", err)
	}
}

// TestKeyDeletedUnderARight ends it.
func TestKeyDeletedUnderARight(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a := start(t, connect(t, s), lasting("a"))
	kv, err := s.JS.KeyValue(t.Context(), nodesBucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Purge(t.Context(), "node.store.a"); err != nil {
		t.Fatal(err)
	}
	if gone, ok := errors.AsType[*right.DeposedError](a.result(t)); !ok || gone.By != a.r.Holder() {
		t.Errorf("Run: %v", gone)
	}
	b := start(t, connect(t, s), lasting("b"))
	b.wait(t, "a has deposed itself", func(nodes []right.Node) bool { return len(nodes) == 2 && nodes[0].DeposedBy == a.r.Holder() })
	// Whom nobody has heard of is deposed too.
	if err := b.s.Depose(t.Context(), "c", "x", b.r.Holder(), "it never was"); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "c is deposed", func(nodes []right.Node) bool { return len(nodes) == 3 && nodes[2].DeposedBy == b.r.Holder() })
}

func TestServerGoneAndBack(t *testing.T) {
	t.Parallel()
	opts := &server.Options{
		JetStream: true, StoreDir: t.TempDir(), Host: "127.0.0.1", Port: ports.Free(t), NoLog: true, NoSigs: true,
	}
	run := func() *server.Server {
		s, err := server.NewServer(opts)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(poll.Most) {
			t.Fatal("server not ready")
		}
		return s
	}
	s := run()
	conn := func() jetstream.JetStream {
		nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	cfg := lasting("a")
	cfg.Trust = 2 * time.Second // the server answers within half of it, while there is one
	a := start(t, conn(), cfg)
	cfg.Node = "b"
	b := start(t, conn(), cfg)
	s.Shutdown()
	s.WaitForShutdown()
	poll.Until(t, func() error { return poll.Unless(!a.r.Holds() && !b.r.Holds(), "they hold without the bucket") })
	if still := a.s.Still("b"); still > 0 {
		t.Errorf("it counts %v in which it could not see", still)
	}

	s = run()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	poll.Until(t, func() error { return poll.Unless(a.r.Holds() && b.r.Holds(), "they do not hold again") })
	if a.r.Deposed().Err() != nil || b.r.Deposed().Err() != nil {
		t.Errorf("ended with %v, %v", context.Cause(a.r.Deposed()), context.Cause(b.r.Deposed()))
	}
	// The watch is there again too: who dies now is seen to stand still.
	b.stop()
	poll.Until(t, func() error {
		return poll.Unless(a.s.Still("b") >= 200*time.Millisecond, "a dead node does not stand still")
	})
	if err := a.s.Depose(t.Context(), "b", b.r.Incarnation(), a.r.Holder(), "it stands still"); err != nil {
		t.Error(err)
	}
}

// BenchmarkHolds is paid by every read.
func BenchmarkHolds(b *testing.B) {
	s := natstest.Start(b)
	r, err := right.Open(b.Context(), nodes(b, s.JS), lasting("a"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !r.Holds() {
			b.Fatal("it does not hold")
		}
	}
}

// BenchmarkOpen is a read and a write of the key, without syncing to disk.
func BenchmarkOpen(b *testing.B) {
	s := natstest.Start(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := right.Open(b.Context(), nodes(b, s.JS), lasting("a")); err != nil {
			b.Fatal(err)
		}
	}
}
