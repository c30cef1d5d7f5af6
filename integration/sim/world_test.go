package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

// world is one run of a plan.
type world struct {
	plan   plan
	net    *network
	server *server
	dir    string    // below which nodes have theirs
	began  time.Time // when the nodes were started first
	nodes  []*node
	// containers are what clients write to: things, and categories where there are pipelines. When all
	// is at rest they are as the catalog has them then.
	containers []store.ContainerInfo
	roots      []store.ContainerInfo // as they were made
	hosts      []*host               // of clients
	wg         sync.WaitGroup        // of processes and clients

	mu       sync.Mutex
	clock    int64
	calls    []*call
	starts   int
	failures []string
	asked    []*store.SplitResult          // that were planned
	compared int                           // digests, which were equal
	told     int                           // digests
	old      int                           // reads of what was not the newest, rightly
	ranges   map[feed.Partition]feed.Range // of all that the judge has met

	turn     chan struct{} // holds a token while something befalls a node
	ambushed chan ambushed // that is to be killed

	// Guarded by network.mu.
	steps map[splitStep]int // that were taken
	held  []record          // that were registered to the end
}

// result is what became of a run.
type result struct {
	counts
	failures []string
	trace    *trace
}

// failf says that something is wrong.
func (w *world) failf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failures) < 20 {
		w.failures = append(w.failures, fmt.Sprintf(format, args...))
	}
}

// must panics: the simulation itself is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// note adds a line to the trace.
func (n *network) note(who, what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trace.add(who, what)
}

// run runs a plan in a bubble of its own.
func run(t *testing.T, p plan) (r result) {
	t.Helper()
	dir := must(os.MkdirTemp(scratch(), "sim")) //nolint:usetesting // in memory, where the system has that
	defer func() { _ = os.RemoveAll(dir) }()
	// Timers and channels of one bubble must not be met in another, and the client of NATS
	// keeps timers in a pool of the process, which two collections empty.
	runtime.GC()
	runtime.GC()
	synctest.Test(t, func(*testing.T) {
		w := &world{plan: p, dir: dir, net: newNetwork(p.Seed), ranges: map[feed.Partition]feed.Range{}, turn: make(chan struct{}, 1), ambushed: make(chan ambushed, 1)}
		w.server = newServer(w.net)
		w.server.purged = w.purged
		w.server.stored = w.stored
		w.live()
		w.mu.Lock()
		defer w.mu.Unlock()
		r.failures = w.failures
		r.trace = &w.net.trace
		w.measure(&r.counts)
	})
	return r
}

// scratch is where engines are for the time of a run: in memory, where the system has that,
// because what they sync is of no use to anybody.
func scratch() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// live lets the world come to be, run, come to rest, and be judged.
func (w *world) live() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.net.run()
	}()
	defer func() {
		w.net.end()
		<-ended
	}()
	w.create()
	w.began = time.Now()
	for i := range w.plan.Nodes {
		n := &node{w: w, name: fmt.Sprintf("node%d", i)}
		n.dir = filepath.Join(w.dir, n.name)
		w.nodes = append(w.nodes, n)
		n.start()
	}
	w.net.setFaults(w.plan.Message, w.plan.Mutation)
	var clients sync.WaitGroup
	for i := range w.plan.Clients {
		w.hosts = append(w.hosts, w.server.host(fmt.Sprintf("client%d", i)))
	}
	for i := range w.hosts {
		clients.Go(func() { w.client(context.Background(), i) })
	}
	done := make(chan struct{})
	w.wg.Go(func() { w.cut(done) })
	var ambushes sync.WaitGroup
	ambushes.Go(func() { w.ambush(done) })
	if w.plan.Pipelines > 0 {
		clients.Go(w.declare)
	}
	if len(w.plan.Splits) > 0 {
		clients.Go(w.split)
	}
	w.fate()
	clients.Wait()
	close(done)
	ambushes.Wait()
	w.net.setFaults(faults{}, "")
	w.rest()
	for _, n := range w.nodes {
		n.stop()
	}
	w.wg.Wait()
	w.judge()
}

// create declares the container.
func (w *world) create() {
	nc, js := connect(w.server.host("operator"))
	defer nc.Close()
	catalog := must(store.OpenCatalog(context.Background(), js, store.CatalogConfig{}))
	none := store.Retention(0)
	names := []string{"things"}
	if w.plan.Pipelines > 0 {
		names = append(names, "cats")
		must(registry.Open(context.Background(), js, store.NewClient(nc, catalog, store.ClientConfig{}), registryConfig))
	}
	standbys := 0
	if w.plan.Standbys {
		standbys = 1
	}
	for _, name := range names {
		w.containers = append(w.containers, must(catalog.Create(context.Background(), "default", name, store.ContainerSpec{
			PartitionKey: []string{"/a"}, Partitions: w.plan.Partitions, Indexes: []string{"/tag"},
			ChangeFeed: store.ChangeFeedSpec{Retention: &none}, Standbys: standbys,
		})))
	}
	w.roots = w.containers
}

func (n *network) setFaults(f faults, m mutation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults, n.mutation = f, m
}

// fate does to the nodes what the plan says.
func (w *world) fate() {
	began := time.Now()
	var restarts sync.WaitGroup
	for _, f := range w.plan.Faults {
		elapse(f.At - time.Since(began))
		w.turn <- struct{}{}
		n := w.nodes[f.Node]
		if n.run == nil {
			<-w.turn
			continue
		}
		w.net.note(n.name, string(f.Kind))
		switch f.Kind {
		case jams:
			n.run.host.jam(f.For)
			<-w.turn
			continue
		case silences:
			n.run.host.silence(f.For)
			<-w.turn
			continue
		case cuts:
			n.run.host.cut()
			<-w.turn
			continue
		case strands:
			n.run.host.strand(f.For)
			<-w.turn
			continue
		case stops:
			n.stop()
		case kills, loses:
			n.kill(f.Kind == loses)
		}
		restarts.Go(func() {
			elapse(f.For)
			n.start()
		})
		restarts.Wait()
		<-w.turn
	}
}

// cut breaks connections of clients, as the plan says, until done.
func (w *world) cut(done <-chan struct{}) {
	began := time.Now()
	for _, c := range w.plan.Cuts {
		select {
		case <-time.After(c.At - time.Since(began)):
			if c.Client < len(w.hosts) {
				w.hosts[c.Client].cut()
			}
		case <-done:
			return
		}
	}
}

// rest waits until everything works again, reads each item, and ends with a look whether
// the engine of the owner is what the log says.
func (w *world) rest() {
	for _, n := range w.nodes {
		if n.run == nil {
			n.start()
		}
	}
	nc, js := connect(w.server.host("reader"))
	defer nc.Close()
	elapse(8 * time.Second)
	w.awaitSplits(js)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := w.open(ctx, nc, js)
	if w.plan.Pipelines > 0 {
		w.settle()
		ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
	}
	for i := range w.plan.Items {
		for {
			c := &call{client: -1, number: i, kind: store.OpRead, container: "things", item: fmt.Sprintf("i%d", i)}
			w.begin(c)
			item, err := w.make(ctx, o, c, &session{}, rand.New(rand.NewPCG(0, 0)))
			c.err = err
			w.end(c, item)
			if c.outcome == acknowledged || c.status == store.StatusNotFound {
				break
			}
			if ctx.Err() != nil {
				w.failf("a minute after the last fault the partition does not answer: %v", c.err)
				return
			}
		}
	}
}
