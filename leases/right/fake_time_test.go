package right

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// fakeServer is a key-value store in memory, for tests under synctest.
type fakeServer struct {
	mu       sync.Mutex
	revision uint64
	keys     map[string]bucket.Entry
	watches  map[*fakeWatch]bool
	puts     int
	stored   func(e bucket.Entry) // called under mu
	flights  sync.WaitGroup
}

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	s := &fakeServer{keys: map[string]bucket.Entry{}, watches: map[*fakeWatch]bool{}}
	t.Cleanup(s.flights.Wait) // what has left arrives, also when nobody is there any more
	return s
}

// latency is what one way to the server takes.
const latency = time.Millisecond

// put is a conditional write at the server; a nil value deletes.
func (s *fakeServer) put(key string, value []byte, last uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present := s.keys[key]
	if present.Deleted && last == 0 {
		last = present.Revision
	}
	if present.Revision != last {
		return 0, fmt.Errorf("put %s: %w", key, bucket.ErrMismatch)
	}
	s.revision++
	s.puts++
	e := bucket.Entry{Key: key, Value: value, Revision: s.revision, Deleted: value == nil}
	s.keys[key] = e
	for w := range s.watches {
		w.offer(bucket.Update{Entry: e})
	}
	if s.stored != nil {
		s.stored(e)
	}
	return s.revision, nil
}

func (s *fakeServer) get(key string) bucket.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key]
}

// key returns what is stored of a node in group "g".
func (s *fakeServer) key(t *testing.T, node string) *record {
	t.Helper()
	f := read(s.get(keyOf("g", node)))
	if f.rec == nil {
		t.Fatalf("key of %s: %q, %v", node, f.Value, f.err)
	}
	return f.rec
}

// nextWrite waits until the node has written its key once more.
func (s *fakeServer) nextWrite(t *testing.T, node string) {
	t.Helper()
	for before := s.key(t, node).Write; s.key(t, node).Write == before; {
		time.Sleep(latency / 10)
	}
}

// fakeState is what a fakeServer had at some moment.
type fakeState struct {
	revision uint64
	keys     map[string]bucket.Entry
}

func (s *fakeServer) state() *fakeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &fakeState{revision: s.revision, keys: maps.Clone(s.keys)}
}

// goBack makes then, an earlier state, the present one. As with JetStream the watches that there are go on behind the last
// revision that they know.
func (s *fakeServer) goBack(then *fakeState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.from = max(w.from, s.revision)
	}
	s.revision, s.keys = then.revision, maps.Clone(then.keys)
}

// faults are those of one process's way to the server.
type faults struct {
	down  bool          // nothing arrives, nothing comes back
	lose  int           // replies of the next puts that are lost
	delay time.Duration // by which puts arrive late, unless down
	mute  bool          // watches deliver nothing, now or later
	stale *fakeState    // what reads are answered from, as by a leader that was succeeded
	put   func()        // called when a put leaves
}

// fakeClient is one process's way to a fakeServer.
type fakeClient struct {
	*fakeServer
	mu     sync.Mutex
	faults faults
	paused chan struct{} // closed when the process goes on; nil: it runs
}

func (s *fakeServer) client() *fakeClient { return &fakeClient{fakeServer: s} }

// set changes the faults.
func (c *fakeClient) set(change func(f *faults)) {
	c.mu.Lock()
	change(&c.faults)
	c.mu.Unlock()
	c.fakeServer.mu.Lock()
	defer c.fakeServer.mu.Unlock()
	for w := range c.watches {
		w.notify()
	}
}

func (c *fakeClient) now() faults {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faults
}

// pause stops the process: nothing leaves it, and it does not come to read what arrives. Its clock goes on.
func (c *fakeClient) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused == nil {
		c.paused = make(chan struct{})
	}
}

func (c *fakeClient) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused != nil {
		close(c.paused)
		c.paused = nil
	}
}

// runs waits while the process is stopped.
func (c *fakeClient) runs() {
	c.mu.Lock()
	paused := c.paused
	c.mu.Unlock()
	if paused != nil {
		<-paused
	}
}

func (c *fakeClient) Get(ctx context.Context, key string) (bucket.Entry, error) {
	c.runs()
	defer c.runs()
	sleep(ctx, 2*latency)
	f := c.now()
	if f.down {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return bucket.Entry{}, ctx.Err()
	}
	c.fakeServer.mu.Lock()
	defer c.fakeServer.mu.Unlock()
	keys := c.keys
	if f.stale != nil {
		keys = f.stale.keys
	}
	e, ok := keys[key]
	if !ok {
		return bucket.Entry{}, bucket.ErrNotFound
	}
	return e, nil
}

func (c *fakeClient) Put(ctx context.Context, key string, value []byte, last uint64) (uint64, error) {
	c.runs()
	c.mu.Lock()
	f := c.faults
	c.faults.lose = max(c.faults.lose-1, 0)
	c.mu.Unlock()
	if f.put != nil {
		f.put()
	}
	type result struct {
		revision uint64
		err      error
	}
	replied := make(chan result, 1)
	if f.down {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	c.flights.Go(func() {
		// What has left arrives, whatever becomes of the sender.
		time.Sleep(latency + f.delay)
		revision, err := c.put(key, value, last)
		time.Sleep(latency)
		if f.lose == 0 && !c.now().down {
			replied <- result{revision, err}
		}
	})
	select {
	case r := <-replied:
		c.runs() // it has come, and nobody reads it
		return r.revision, r.err
	case <-ctx.Done():
	}
	c.runs()
	select {
	case r := <-replied: // meanwhile
		return r.revision, r.err
	default:
		return 0, ctx.Err()
	}
}

// fakeWatch is one watch; all but client and wake is guarded by the server's mutex.
type fakeWatch struct {
	client  *fakeClient
	wake    chan struct{}
	pattern string
	queue   []bucket.Update
	dead    bool   // delivers nothing any more, and does not say so
	broken  bool   // ends, and says so
	from    uint64 // changes up to this revision are not delivered
}

func (w *fakeWatch) offer(u bucket.Update) {
	if u.Revision > w.from && strings.HasPrefix(u.Key, strings.TrimSuffix(w.pattern, ">")) {
		w.queue = append(w.queue, u)
		w.notify()
	}
}

func (w *fakeWatch) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next returns what is to be delivered next, and whether the watch goes on.
func (w *fakeWatch) next() (u bucket.Update, ok, on bool) {
	f := w.client.now()
	silent := f.mute || f.down
	w.client.fakeServer.mu.Lock()
	defer w.client.fakeServer.mu.Unlock()
	if w.broken {
		return bucket.Update{}, false, false
	}
	if len(w.queue) == 0 || w.dead || silent {
		return bucket.Update{}, false, true
	}
	u, w.queue = w.queue[0], w.queue[1:]
	return u, true, true
}

func (c *fakeClient) Watch(ctx context.Context, patterns ...string) (<-chan bucket.Update, error) {
	c.runs()
	sleep(ctx, 2*latency)
	if c.now().down {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	w := &fakeWatch{client: c, pattern: patterns[0], wake: make(chan struct{}, 1)}
	c.fakeServer.mu.Lock()
	for _, e := range slices.SortedFunc(maps.Values(c.keys), func(a, b bucket.Entry) int { return int(a.Revision) - int(b.Revision) }) {
		w.offer(bucket.Update{Entry: e})
	}
	w.queue = append(w.queue, bucket.Update{Ready: true})
	w.notify()
	c.watches[w] = true
	c.fakeServer.mu.Unlock()
	out := make(chan bucket.Update)
	go w.deliver(ctx, out)
	return out, nil
}

func (w *fakeWatch) deliver(ctx context.Context, out chan<- bucket.Update) {
	c := w.client
	defer close(out)
	defer func() {
		c.fakeServer.mu.Lock()
		defer c.fakeServer.mu.Unlock()
		delete(c.watches, w)
	}()
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		sleep(ctx, latency)
		for {
			c.runs()
			u, ok, on := w.next()
			if !on {
				return
			}
			if !ok {
				break
			}
			c.runs()
			select {
			case out <- u:
			case <-ctx.Done():
				return
			}
		}
	}
}

// spoil changes the client's present watches.
func (c *fakeClient) spoil(change func(w *fakeWatch)) {
	c.fakeServer.mu.Lock()
	defer c.fakeServer.mu.Unlock()
	for w := range c.watches {
		if w.client == c {
			change(w)
			w.notify()
		}
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
func prepare(t *testing.T, s *fakeServer, node string, adjust func(p *proc)) *proc {
	t.Helper()
	p := &proc{t: t, client: s.client(), rate: 1, ran: make(chan error, 1), stop: func() {}}
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
func start(t *testing.T, s *fakeServer, node string, adjust func(p *proc)) *proc {
	t.Helper()
	p := prepare(t, s, node, adjust).open().run()
	<-p.s.seen
	return p
}

// end ends the process as a kill does: nothing more leaves it.
func (p *proc) end() {
	p.client.resume()
	p.client.set(func(f *faults) { f.down = true })
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
