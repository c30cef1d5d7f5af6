package standby_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/standby"
)

// cluster is a NATS server to which stores connect.
type cluster struct {
	t       testing.TB
	srv     *natstest.Server
	catalog *store.Catalog
	client  *store.Client
	cfg     owner.Config  // of stores
	ttl     time.Duration // of leases; a minute if 0
	locked  bool          // a store keeps its name when it starts again, as one does that has its directory's lock
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	return newClusterOn(t, natstest.Start(t))
}

func newClusterOn(t testing.TB, srv *natstest.Server) *cluster {
	t.Helper()
	c := &cluster{t: t, srv: srv}
	var err error
	if c.catalog, err = store.OpenCatalog(t.Context(), c.srv.JS, store.CatalogConfig{}); err != nil {
		t.Fatal(err)
	}
	c.client = store.NewClient(c.srv.NC, c.catalog, store.ClientConfig{Timeout: time.Minute, HandoverWait: time.Minute})
	return c
}

func (c *cluster) container(name string, spec store.ContainerSpec) *store.Container {
	c.t.Helper()
	if _, err := c.catalog.Create(c.t.Context(), "default", name, spec); err != nil {
		c.t.Fatal(err)
	}
	ct, err := c.client.Container(c.t.Context(), "default", name)
	if err != nil {
		c.t.Fatal(err)
	}
	return ct
}

// things is a container of one partition of which copies are wanted, and the store that owns it.
func (c *cluster) things() (ct *store.Container, id feed.Partition, owner *process) {
	c.t.Helper()
	ct = c.container("things", followed)
	id = ct.Partitions()[0]
	owner = c.start("a", c.t.TempDir())
	owner.owns(id)
	return ct, id, owner
}

// logged is what a store has logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// process is a store with standbys.
type process struct {
	c        *cluster
	nc       *nats.Conn
	owners   *owner.Server
	standbys *standby.Standbys
	leases   *leases.Manager
	log      *logged
	killed   atomic.Bool
	stop     func()
}

// start starts a store on a directory.
func (c *cluster) start(name, dir string) *process {
	c.t.Helper()
	p := &process{c: c, nc: c.srv.Connect(c.t), log: &logged{}}
	log := slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	js, err := jetstream.New(p.nc)
	if err != nil {
		c.t.Fatal(err)
	}
	db, err := engine.Open(dir, engine.Config{MemTableBytes: 8 << 20}, log)
	if err != nil {
		c.t.Fatal(err)
	}
	p.leases, err = leases.Open(c.t.Context(), js, leases.Config{
		Group: "store", Node: name, NodeLocked: c.locked, TTL: cmp.Or(c.ttl, time.Minute), RenewInterval: 1400 * time.Millisecond, DrainTimeout: time.Minute, Log: log,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	hub := feed.NewHub(func(ctx context.Context, id feed.Partition) (*feed.Log, error) {
		return feed.OpenLog(ctx, js, id, feed.LogConfig{})
	}, feed.HubConfig{})
	p.standbys = standby.New(standby.Config{Hub: hub, Leases: p.leases, Settle: time.Millisecond, File: dir + ".standbys", Logger: log})
	cfg := c.cfg
	cfg.Logger, cfg.Standbys = log, p.standbys
	if p.owners, err = owner.NewServer(p.nc, c.catalog, db, p.leases, cfg); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.owners.Run(ctx); err != nil && !p.killed.Load() {
			c.t.Errorf("%s stopped with %v", name, err)
		}
	})
	running.Go(func() { p.standbys.Run(ctx, p.owners) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		hub.Close()
		if err := p.owners.Engine().Close(); err != nil {
			c.t.Error(err)
		}
		if c.t.Failed() {
			c.t.Logf("log of %s:\n%s", name, p.log)
		}
	})
	c.t.Cleanup(p.stop)
	return p
}

// kill cuts the store off for ever, as its death does for all others.
func (p *process) kill() {
	p.killed.Store(true)
	p.nc.Close()
}

// copy returns what the store's engine has of a partition.
func (p *process) copy(id feed.Partition) *engine.Partition {
	p.c.t.Helper()
	part, err := p.owners.Engine().Partition(id)
	if err != nil {
		p.c.t.Fatal(err)
	}
	return part
}

// node is the store's name in the group.
func (p *process) node() string {
	node, _, _ := strings.Cut(p.leases.Holder(), "/")
	return node
}

// freed waits until the store's engine has nothing of a partition.
func (p *process) freed(id feed.Partition) {
	p.c.t.Helper()
	poll.Until(p.c.t, func() error {
		there, err := p.owners.Engine().Partitions()
		return errors.Join(err, poll.Unless(!slices.Contains(there, id), "the copy is still there"))
	})
}

// warm returns the stores that say that their copy of a partition is warm, and how far it is.
func (c *cluster) warm(id feed.Partition) map[string]feed.LSN {
	c.t.Helper()
	processes, err := leases.Processes(c.t.Context(), c.srv.JS, "")
	if err != nil {
		c.t.Fatal(err)
	}
	warm := map[string]feed.LSN{}
	for i := range processes {
		if at, ok := processes[i].Warm[owner.LeaseResource(id)]; ok {
			warm[processes[i].Node] = feed.LSN(at)
		}
	}
	return warm
}

// beat returns the revision of the last beat of a store.
func (c *cluster) beat(node string) uint64 {
	c.t.Helper()
	kv, err := c.srv.JS.KeyValue(c.t.Context(), leases.DefaultBucket)
	if err != nil {
		c.t.Fatal(err)
	}
	e, err := kv.Get(c.t.Context(), "member.store."+node)
	if err != nil {
		c.t.Fatal(err)
	}
	return e.Revision()
}

// end returns the last LSN of a partition's log.
func (c *cluster) end(id feed.Partition) feed.LSN {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), poll.Most) // a busy machine takes longer than the log's own
	defer cancel()
	log, err := feed.OpenLog(ctx, c.srv.JS, id, feed.LogConfig{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	_, last, err := log.Bounds(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return last
}

// ready waits until the copy of p is warm, is told to the group, and holds all that the log has.
func (p *process) ready(id feed.Partition) {
	p.c.t.Helper()
	poll.Until(p.c.t, func() error {
		end, warm := p.c.end(id), p.c.warm(id)
		if warm[p.node()] < end {
			return fmt.Errorf("partition %s ends at %d, warm are %v", id, end, warm)
		}
		return nil
	})
}

// owns waits until p serves a partition.
func (p *process) owns(ids ...feed.Partition) {
	p.c.t.Helper()
	poll.Until(p.c.t, func() error {
		serving := map[feed.Partition]bool{}
		for _, id := range p.owners.Serving() {
			serving[id] = true
		}
		for _, id := range ids {
			if !serving[id] {
				return fmt.Errorf("partition %s is not served", id)
			}
		}
		return nil
	})
}

// digest returns the digest of what an engine holds, and as of which LSN.
func digest(t testing.TB, p *engine.Partition) (feed.LSN, uint64) {
	t.Helper()
	snap := p.Snapshot()
	defer snap.Close()
	state, err := snap.State()
	if err != nil {
		t.Fatal(err)
	}
	sum, err := snap.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return state.Applied, sum
}

// replayed returns the digest of the state that a partition's log makes in an empty engine up to an LSN.
func (c *cluster) replayed(id feed.Partition, upTo feed.LSN) (sum uint64) {
	c.t.Helper()
	c.replay(id, upTo, func(p *engine.Partition, _ *owner.Replayer) { _, sum = digest(c.t, p) })
	return sum
}

// replay shows the state that a partition's log makes in an empty engine up to an LSN.
func (c *cluster) replay(id feed.Partition, upTo feed.LSN, show func(*engine.Partition, *owner.Replayer)) {
	c.t.Helper()
	db, err := engine.Open(c.t.TempDir(), engine.Config{MemTableBytes: 8 << 20}, slog.New(slog.DiscardHandler))
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	part, err := db.Partition(id)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := owner.NewReplayer(part, slog.New(slog.DiscardHandler))
	if err != nil {
		c.t.Fatal(err)
	}
	log, err := feed.OpenLog(c.t.Context(), c.srv.JS, id, feed.LogConfig{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	tail, err := log.Tail(c.t.Context(), 1, feed.TailOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer tail.Close()
	for r.LSN() < upTo {
		commit, err := tail.Next(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		if err := r.Apply(commit); err != nil {
			c.t.Fatal(err)
		}
	}
	show(part, r)
}
