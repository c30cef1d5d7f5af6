package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// group plays several processes on one fakeServer and watches over what must
// hold at every moment.
type group struct {
	t      *testing.T
	server fakeServer
	began  time.Time

	mu     sync.Mutex
	held   map[string]map[*Held]*proc // by resource
	epochs map[string]uint64          // greatest seen of each resource
	fences map[string]uint64          // the epoch of the last takeover in each resource's log, where rights are held
	starts int                        // runs of work
	procs  []*proc
}

// proc is one process.
type proc struct {
	g      *group
	m      *Manager
	client *fakeClient
	cancel context.CancelFunc
	begin  func() // lets it run
	done   chan error
	skew   time.Duration // added to its clock: time spent suspended
	rate   float64
	dead   bool
	work   func(ctx context.Context, h *Held) error
	settle func(ctx context.Context, h *Held) error // nil: behind a takeover; only where rights are held
}

func newGroup(t *testing.T) *group {
	t.Helper()
	return &group{
		t: t, server: newFakeServer(t), began: time.Now(),
		held: map[string]map[*Held]*proc{}, epochs: map[string]uint64{}, fences: map[string]uint64{},
	}
}

func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	if os.Getenv("LEASES_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// start starts a process; adjust may be nil.
func (g *group) start(node string, resources []string, adjust func(p *proc, cfg *Config)) *proc {
	g.t.Helper()
	p := g.open(node, resources, adjust)
	p.begin()
	return p
}

// open announces a process that does not run yet; adjust may be nil.
func (g *group) open(node string, resources []string, adjust func(p *proc, cfg *Config)) *proc {
	g.t.Helper()
	p := &proc{g: g, client: g.server.Client(), done: make(chan error, 1), rate: 1}
	cfg := Config{Group: "g", Node: node, NodeLocked: true, Log: testLog(g.t)}
	if adjust != nil {
		adjust(p, &cfg)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(g.t.Context())
	p.cancel = cancel
	p.m, err = open(ctx, p.client, p.clock, cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	p.m.SetResources(resources, nil)
	g.mu.Lock()
	g.procs = append(g.procs, p)
	g.mu.Unlock()
	p.begin = func() { go func() { p.done <- p.m.Run(ctx, p.run) }() }
	return p
}

func (p *proc) clock() time.Duration {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	return p.skew + time.Duration(float64(time.Since(p.g.began))*p.rate) + time.Hour
}

// suspend lets d pass for p's clock at once.
func (p *proc) suspend(d time.Duration) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.skew += d
}

// kill cuts p off for good and stops looking at it.
func (p *proc) kill() {
	p.client.Set(func(c *faults) { c.Down = true })
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.dead = true
}

// run is the work of p.
func (p *proc) run(ctx context.Context, h *Held) error {
	if p.m.cfg.Deposes {
		if !p.takeOver(h) {
			return nil
		}
		settle := p.settle
		if settle == nil {
			settle = func(ctx context.Context, h *Held) error { return h.Settle(ctx, true) }
		}
		if settle(ctx, h) != nil {
			return nil // its context has ended
		}
	}
	p.g.mu.Lock()
	p.g.starts++
	if !p.dead && h.Epoch() <= p.g.epochs[h.Resource()] {
		p.g.t.Errorf("%s starts %s in epoch %d after epoch %d", p.m.Holder(), h.Resource(), h.Epoch(), p.g.epochs[h.Resource()])
	}
	p.g.epochs[h.Resource()] = max(p.g.epochs[h.Resource()], h.Epoch())
	if p.g.held[h.Resource()] == nil {
		p.g.held[h.Resource()] = map[*Held]*proc{}
	}
	p.g.held[h.Resource()][h] = p
	work := p.work
	p.g.mu.Unlock()
	defer func() {
		p.g.mu.Lock()
		defer p.g.mu.Unlock()
		delete(p.g.held[h.Resource()], h)
	}()
	if work != nil {
		return work(ctx, h)
	}
	return idle(ctx, h)
}

// idle turns until its context ends.
func idle(ctx context.Context, h *Held) error {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
			h.Progress()
		}
	}
}

// valid returns who may act on a resource at this moment.
func (g *group) valid(resource string) []*proc {
	g.mu.Lock()
	var all []*Held
	owner := map[*Held]*proc{}
	for h, p := range g.held[resource] {
		all, owner[h] = append(all, h), p
	}
	g.mu.Unlock()
	var valid []*proc
	for _, h := range all {
		if h.Valid() {
			valid = append(valid, owner[h])
		}
	}
	return valid
}

// count returns how many of the resources p may act on.
func (p *proc) count(resources []string) int {
	n := 0
	for _, resource := range resources {
		for _, holder := range p.g.valid(resource) {
			if holder == p {
				n++
			}
		}
	}
	return n
}

// check fails if two processes may act on one resource.
func (g *group) check(resources []string) {
	g.t.Helper()
	for _, resource := range resources {
		if valid := g.valid(resource); len(valid) > 1 {
			g.t.Fatalf("%v: %s is held by %s and by %s", time.Since(g.began), resource, valid[0].m.Holder(), valid[1].m.Holder())
		}
	}
}

// pass lets d pass and checks every few milliseconds.
func (g *group) pass(d time.Duration, resources []string) {
	g.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		g.check(resources)
	}
}

// until lets time pass until ok, at most limit, and returns how long it took.
func (g *group) until(what string, limit time.Duration, resources []string, ok func() bool) time.Duration {
	g.t.Helper()
	begun := time.Now()
	for !ok() {
		if time.Since(begun) > limit {
			g.t.Fatalf("%s: not within %v: %s", what, limit, g.state(resources))
		}
		time.Sleep(5 * time.Millisecond)
		g.check(resources)
	}
	return time.Since(begun)
}

// whole reports whether every resource is held.
func (g *group) whole(resources []string) func() bool {
	return func() bool {
		for _, resource := range resources {
			if len(g.valid(resource)) != 1 {
				return false
			}
		}
		return true
	}
}

// even reports whether the processes hold as many each.
func (g *group) even(resources []string, procs ...*proc) func() bool {
	return func() bool {
		least, most, sum := len(resources), 0, 0
		for _, p := range procs {
			n := p.count(resources)
			least, most, sum = min(least, n), max(most, n), sum+n
		}
		return sum == len(resources) && most-least <= 1
	}
}

// runs returns how often work was begun.
func (g *group) runs() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.starts
}

func (g *group) state(resources []string) string {
	var text strings.Builder
	for _, resource := range resources {
		rec, err := g.server.lease(resource)
		fmt.Fprintf(&text, "\n%s: owner %q epoch %d last %q error %q %v; valid at", resource, rec.Owner, rec.Epoch, rec.Last, rec.LastError, err)
		for _, p := range g.valid(resource) {
			text.WriteString(" " + p.m.Holder())
		}
	}
	return text.String()
}

// stop ends all processes, the dead ones too, and waits for them.
func (g *group) stop() {
	g.t.Helper()
	g.mu.Lock()
	procs := g.procs
	g.mu.Unlock()
	for _, p := range procs {
		p.cancel()
	}
	for _, p := range procs {
		err := <-p.done
		if err != nil && !p.dead && !errors.Is(err, ErrSuperseded) {
			g.t.Errorf("%s: Run: %v", p.m.Holder(), err)
		}
	}
}

func resourceNames(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("c7k2x4ab/%d", i))
	}
	return out
}

// TestAFreeLeaseWaitsForAMemberThatIsWarm hands a lease over while the member that is warm for it is slow, and while it
// does not take it at all.
func TestAFreeLeaseWaitsForAMemberThatIsWarm(t *testing.T) {
	tests := []struct {
		name  string
		slow  time.Duration // by which the warm member's writes are late
		takes bool          // whether it is given the resource
		want  string        // who has it in the end
		least time.Duration
		most  time.Duration
	}{
		{name: "slow", slow: 900 * time.Millisecond, takes: true, want: "b", most: 2 * time.Second},
		{name: "does not take it", want: "c", least: 3 * time.Second, most: 5 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t)
				defer g.stop()
				resources := resourceNames(1)
				a := g.start("a", resources, nil)
				g.until("hold", time.Second, resources, g.whole(resources))
				var knows []string
				if test.takes {
					knows = resources
				}
				b := g.start("b", knows, nil)
				b.m.SetWarm(map[string]uint64{resources[0]: 7})
				c := g.start("c", resources, nil)
				g.pass(5*time.Second, resources)
				b.client.Set(func(c *faults) { c.Delay = test.slow })
				a.cancel()
				owner := func() string { // once a has it no more
					for _, p := range []*proc{b, c} {
						if p.count(resources) > 0 {
							return p.m.cfg.Node
						}
					}
					return ""
				}
				took := g.until("hand over", 10*time.Second, resources, func() bool { return owner() != "" })
				if got := owner(); got != test.want || took < test.least || took > test.most {
					t.Errorf("%s took it after %v, want %s after %v to %v", got, took, test.want, test.least, test.most)
				}
			})
		})
	}
}

// TestWhoComesNextToAMemberThatIsWarm hands leases over of which a member is warm that does not take them. Those who
// are named in its place get their share: nobody takes all of them at once.
func TestWhoComesNextToAMemberThatIsWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(4)
		a := g.start("a", resources, nil)
		g.until("hold", time.Second, resources, g.whole(resources))
		warm := map[string]uint64{}
		for _, resource := range resources {
			warm[resource] = 7
		}
		c, d := g.start("c", resources, nil), g.start("d", resources, nil)
		g.until("share", time.Minute, resources, g.even(resources, a, c, d))
		g.start("b", nil, nil).m.SetWarm(warm) // it knows none of them, and takes none
		g.pass(10*time.Second, resources)
		a.cancel()
		g.until("hand over", 10*time.Second, resources, func() bool { return a.count(resources) == 0 })
		g.until("take", 10*time.Second, resources, g.whole(resources))
		if c.count(resources) != 2 || d.count(resources) != 2 {
			t.Errorf("c has %d and d %d of 4: %s", c.count(resources), d.count(resources), g.state(resources))
		}
	})
}

// TestHas is asked before the lease is written and until its release was.
func TestHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		defer g.stop()
		resources := resourceNames(1)
		var has []bool // at each write of the lease
		a := g.start("a", resources, func(p *proc, _ *Config) {
			p.client.Set(func(f *faults) {
				f.Put = func(key string) {
					if key == leaseKey("g", resources[0]) {
						has = append(has, p.m.Has(resources[0]))
					}
				}
			})
		})
		if a.m.Has(resources[0]) {
			t.Error("it has a lease before it looked at any")
		}
		g.until("hold", time.Second, resources, g.whole(resources))
		g.pass(5*time.Second, resources)
		a.m.SetResources(nil, nil)
		g.until("give up", time.Second, resources, func() bool { return !a.m.Has(resources[0]) })
		if rec, err := g.server.lease(resources[0]); err != nil || rec.Owner != "" {
			t.Errorf("it has it no more, and the record says %q, %v", rec.Owner, err)
		}
		if len(has) < 3 || slices.Contains(has, false) {
			t.Errorf("has it at its writes: %v", has)
		}
	})
}
