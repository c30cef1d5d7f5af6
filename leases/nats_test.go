package leases_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/feed/natsd/ports"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
)

// connect opens a connection of its own.
func connect(tb testing.TB, s *natstest.Server) (jetstream.JetStream, *nats.Conn) {
	tb.Helper()
	nc := s.Connect(tb)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	return js, nc
}

// process is a Manager that runs in the background.
type process struct {
	m       *leases.Manager
	stop    context.CancelFunc
	done    chan error
	mu      sync.Mutex
	held    map[string]*leases.Held
	changed chan struct{} // closed and replaced at every change of held
}

// fast is a configuration that makes tests short.
func fast(node string) leases.Config {
	return leases.Config{
		Group: "store", Node: node, NodeLocked: true,
		TTL: 1400 * time.Millisecond, BalanceInterval: 100 * time.Millisecond,
		RetryBackoff: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	}
}

// lasting is fast where nothing expires.
func lasting(node string) leases.Config {
	cfg := fast(node)
	cfg.TTL, cfg.RenewInterval = time.Minute, 10*time.Second
	return cfg
}

func open(tb testing.TB, js jetstream.JetStream, cfg leases.Config) *process {
	tb.Helper()
	m, err := leases.Open(tb.Context(), js, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return &process{m: m, done: make(chan error, 1), held: map[string]*leases.Held{}, changed: make(chan struct{})}
}

// start opens and runs a Manager that holds resources until told to end.
func start(tb testing.TB, js jetstream.JetStream, cfg leases.Config, resources ...string) *process {
	tb.Helper()
	p := open(tb, js, cfg)
	p.m.SetResources(resources, nil)
	p.run(tb, nil)
	return p
}

// run runs the Manager; during, if given, is the work beside noting what is held.
func (p *process) run(tb testing.TB, during func(ctx context.Context, h *leases.Held) error) {
	tb.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() {
		p.done <- p.m.Run(ctx, func(ctx context.Context, h *leases.Held) error {
			p.note(func() { p.held[h.Resource()] = h })
			defer p.note(func() { delete(p.held, h.Resource()) })
			if during != nil {
				return during(ctx, h)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	tb.Cleanup(stop)
}

func (p *process) note(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait waits until the leases held satisfy ok.
func (p *process) wait(tb testing.TB, what string, ok func(held map[string]*leases.Held) bool) {
	tb.Helper()
	timeout := time.After(poll.Most)
	for {
		p.mu.Lock()
		satisfied, changed := ok(p.held), p.changed
		var names []string
		for name := range p.held {
			names = append(names, name)
		}
		p.mu.Unlock()
		if satisfied {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			slices.Sort(names)
			tb.Fatalf("%s: not within %s, holds %v", what, poll.Most, names)
		}
	}
}

func (p *process) waitCount(tb testing.TB, n int) {
	tb.Helper()
	p.wait(tb, fmt.Sprintf("hold %d", n), func(held map[string]*leases.Held) bool { return len(held) == n })
}

func (p *process) get(resource string) *leases.Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[resource]
}

func (p *process) end(tb testing.TB) {
	tb.Helper()
	p.stop()
	if err := p.result(tb); err != nil {
		tb.Fatalf("Run: %v", err)
	}
}

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

func names(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("c7k2x4ab/%d", i))
	}
	return out
}

func TestManagersShareAndHandOver(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	resources := names(9)
	jsA, _ := connect(t, s)
	slow := func(node string) leases.Config { // nothing expires in this test
		cfg := fast(node)
		cfg.TTL = 2 * poll.Most
		cfg.RenewInterval = 10 * time.Second // a release that takes longer is left to expire
		return cfg
	}
	a := start(t, jsA, slow("a"), resources...)
	a.waitCount(t, 9)
	if err := a.get("c7k2x4ab/3").Save(t.Context(), []byte("at 17.2")); err != nil {
		t.Fatal(err)
	}

	jsB, _ := connect(t, s)
	b := start(t, jsB, slow("b"), resources...)
	b.waitCount(t, 4)
	a.waitCount(t, 5)

	begun := time.Now()
	a.end(t)
	b.waitCount(t, 9)
	t.Logf("hand-over of 5 leases took %v", time.Since(begun))
	h := b.get("c7k2x4ab/3")
	if got := string(h.Checkpoint()); got != "at 17.2" {
		t.Errorf("checkpoint handed over: %q", got)
	}
	if h.Epoch() != 2 || !h.Valid() {
		t.Errorf("epoch %d valid %v, want 2 true", h.Epoch(), h.Valid())
	}
	b.end(t)

	all, err := leases.List(t.Context(), jsB, "")
	if err != nil || len(all) != 9 {
		t.Fatalf("List: %d leases, %v", len(all), err)
	}
	for _, lease := range all {
		if lease.Owner != "" || lease.Last != b.m.Holder() || lease.Group != "store" {
			t.Errorf("after both stopped: %+v", lease)
		}
	}
}

func TestSameDirectoryTakesItsLeasesAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js, nc := connect(t, s)
	cfg := fast("a")
	cfg.TTL = 2 * poll.Most // nothing expires in this test
	cfg.RenewInterval = 10 * time.Second
	dead := start(t, js, cfg, names(4)...)
	dead.waitCount(t, 4)
	nc.Close() // killed: releases nothing

	js2, _ := connect(t, s)
	again := start(t, js2, cfg, names(4)...)
	again.waitCount(t, 4)
	if got := again.get("c7k2x4ab/0").Epoch(); got != 2 {
		t.Errorf("epoch %d, want 2", got)
	}
	if again.m.Holder() == dead.m.Holder() {
		t.Errorf("holder %s used twice", again.m.Holder())
	}
	again.end(t)
}

func TestDeadHoldersLeasesPassOn(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	jsA, ncA := connect(t, s)
	jsB, _ := connect(t, s)
	cfg := fast("")
	cfg.TTL, cfg.NodeLocked = 5*time.Second, false
	a := start(t, jsA, cfg, names(6)...)
	a.waitCount(t, 6)
	var lost atomic.Pointer[leases.Held]
	b := open(t, jsB, cfg)
	b.m.SetResources(names(6), nil)
	b.run(t, func(ctx context.Context, h *leases.Held) error {
		if l := lost.Load(); l != nil && l.Resource() == h.Resource() && l.Valid() {
			t.Error("the lease passed on before its holder's trust ended")
		}
		<-ctx.Done()
		return nil
	})
	b.waitCount(t, 3)
	a.wait(t, "hold 3", func(held map[string]*leases.Held) bool {
		for _, h := range held {
			lost.Store(h)
		}
		return len(held) == 3
	})

	begun := time.Now()
	ncA.Close()
	<-lost.Load().Trust().Done()
	if cause := context.Cause(lost.Load().Trust()); !errors.Is(cause, leases.ErrLost) || lost.Load().Valid() {
		t.Errorf("trust ended with %v, valid %v", cause, lost.Load().Valid())
	}
	b.waitCount(t, 6)
	// How long it may take is measured in TestPassesOnWithinTenSeconds, where time is the test's own.
	t.Logf("passed on after %v with a lifetime of %v", time.Since(begun), cfg.TTL)
	if err := lost.Load().Save(t.Context(), []byte("late")); !errors.Is(err, leases.ErrLost) {
		t.Errorf("late Save: %v", err)
	}
	b.end(t)
}

func TestTwoGroupsInOneProcess(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js, _ := connect(t, s)
	store := start(t, js, lasting("a"), names(3)...)
	cfg := lasting("a")
	cfg.Group = "worker"
	worker := start(t, js, cfg, "category-names.v1/1/c7k2x4ab/0", "c7k2x4ab/0")
	store.waitCount(t, 3)
	worker.waitCount(t, 2)
	store.end(t)
	if h := worker.get("c7k2x4ab/0"); h == nil || !h.Valid() || h.Epoch() != 1 {
		t.Errorf("the other group's lease was touched: %+v", h)
	}
	worker.end(t)
}

func TestSupersededManagerStops(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js, _ := connect(t, s)
	first := start(t, js, fast("a"), names(3)...)
	first.waitCount(t, 3)
	second := start(t, js, fast("a"), names(3)...)
	if err := first.result(t); !errors.Is(err, leases.ErrSuperseded) {
		t.Errorf("Run: %v, want ErrSuperseded", err)
	}
	second.waitCount(t, 3)
	second.end(t)
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
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	cfg := fast("a")
	cfg.TTL = 5 * time.Second // the server answers within it, while there is one
	p := start(t, js, cfg, names(3)...)
	p.waitCount(t, 3)
	first := p.get("c7k2x4ab/0")
	if err := first.Save(t.Context(), []byte("kept")); err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	s.WaitForShutdown()
	<-first.Trust().Done() // self-fenced without the server
	p.waitCount(t, 0)

	s = run()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	p.waitCount(t, 3)
	again := p.get("c7k2x4ab/0")
	if again.Epoch() <= first.Epoch() || string(again.Checkpoint()) != "kept" {
		t.Errorf("after the outage: epoch %d, checkpoint %q", again.Epoch(), again.Checkpoint())
	}
	p.end(t)
}

// BenchmarkValid is paid by every read that a lease covers.
func BenchmarkValid(b *testing.B) {
	s := natstest.Start(b)
	js, _ := connect(b, s)
	p := start(b, js, fast("a"), names(1)...)
	p.waitCount(b, 1)
	h := p.get("c7k2x4ab/0")
	b.ReportAllocs()
	for b.Loop() {
		if !h.Valid() {
			b.Fatal("lease lost")
		}
	}
}

// BenchmarkSave is a checkpoint of 200 bytes, without syncing to disk.
func BenchmarkSave(b *testing.B) {
	s := natstest.Start(b)
	js, _ := connect(b, s)
	p := start(b, js, fast("a"), names(1)...)
	p.waitCount(b, 1)
	h := p.get("c7k2x4ab/0")
	checkpoint := make([]byte, 200)
	b.ReportAllocs()
	for b.Loop() {
		if err := h.Save(b.Context(), checkpoint); err != nil {
			b.Fatal(err)
		}
	}
}
