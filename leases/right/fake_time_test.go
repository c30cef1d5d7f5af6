package right

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/leases/bucket/buckettest"
)

// fakeServer is a key-value store in memory, for tests under synctest.
type fakeServer struct{ *buckettest.Server }

func newFakeServer(t *testing.T) fakeServer {
	t.Helper()
	return fakeServer{buckettest.NewServer(t)}
}

// latency is what one way to the server takes.
const latency = buckettest.Latency

type (
	fakeClient = buckettest.Client
	fakeWatch  = buckettest.Watch
	fakeState  = buckettest.State
	faults     = buckettest.Faults
)

// key returns what is stored of a node in group "g".
func (s fakeServer) key(t *testing.T, node string) *record {
	t.Helper()
	f := read(s.Get(keyOf("g", node)))
	if f.rec == nil {
		t.Fatalf("key of %s: %q, %v", node, f.Value, f.err)
	}
	return f.rec
}

// nextWrite waits until the node has written its key once more.
func (s fakeServer) nextWrite(t *testing.T, node string) {
	t.Helper()
	for before := s.key(t, node).Write; s.key(t, node).Write == before; {
		time.Sleep(latency / 10)
	}
}

// proc is a process: its right, its sight, its clock, and its way to the server.
type proc struct {
	t      *testing.T
	client *fakeClient
	cfg    Config
	r      *Right
	s      *Sight
	rate   float64
	skew   atomic.Int64 // added to its clock: time spent suspended
	tasks  sync.WaitGroup
	stop   context.CancelFunc
	ran    chan error // what Run of the right returned
}

func testLog() *slog.Logger {
	if os.Getenv("RIGHT_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// prepare returns a process of a locked node that has not opened its right yet. adjust may be nil.
func prepare(t *testing.T, s fakeServer, node string, adjust func(p *proc)) *proc {
	t.Helper()
	p := &proc{t: t, client: s.Client(), rate: 1, ran: make(chan error, 1), stop: func() {}}
	began := time.Now()
	p.cfg = Config{
		Group: "g", Node: node, NodeLocked: true, Log: testLog(),
		Now: func() time.Duration {
			return time.Hour + time.Duration(float64(time.Since(began))*p.rate) + time.Duration(p.skew.Load())
		},
	}
	if adjust != nil {
		adjust(p)
	}
	var err error
	if p.cfg, err = p.cfg.withDefaults(); err != nil {
		t.Fatal(err)
	}
	return p
}

// open opens the right, and leaves it to run out.
func (p *proc) open() *proc {
	p.t.Helper()
	r, err := Open(p.t.Context(), p.client, p.cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.r, p.s = r, NewSight(r)
	return p
}

// run renews the right and looks at the others. It ends with the test.
func (p *proc) run() *proc {
	ctx, stop := context.WithCancel(p.t.Context())
	p.stop = stop
	p.tasks.Go(func() { p.ran <- p.r.Run(ctx) })
	p.tasks.Go(func() {
		if err := p.s.Run(ctx); err != nil {
			p.t.Errorf("Sight.Run: %v", err)
		}
	})
	return p
}

// start opens and runs the right of a process, and waits until it has seen the others.
func start(t *testing.T, s fakeServer, node string, adjust func(p *proc)) *proc {
	t.Helper()
	p := prepare(t, s, node, adjust).open().run()
	<-p.s.seen
	return p
}

// end ends the process as a kill does: nothing more leaves it.
func (p *proc) end() {
	p.client.Resume()
	p.client.Set(func(f *faults) { f.Down = true })
	p.stop()
	p.tasks.Wait()
}

// takeOver deposes an incarnation and waits as a successor does.
func (p *proc) takeOver(victim *Right) error {
	if err := p.s.Depose(p.t.Context(), victim.cfg.Node, victim.incarnation, p.r.Holder(), "it was silent"); err != nil {
		return err
	}
	return waitOut(p.t.Context(), p.cfg.Now, p.s.Wait())
}

// mustTakeOver takes over from a right, and fails if that holds when the wait is over.
func (p *proc) mustTakeOver(victim *Right) {
	p.t.Helper()
	if err := p.takeOver(victim); err != nil {
		p.t.Fatal(err)
	}
	if victim.Holds() {
		p.t.Errorf("%s holds its right when its successor's wait is over", victim.Holder())
	}
}

// watchHolds calls look every millisecond for d.
func watchHolds(d time.Duration, look func()) {
	for begun := time.Now(); time.Since(begun) < d; time.Sleep(time.Millisecond) {
		look()
	}
}
