package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases/boottime"
	"github.com/millrace/millrace/leases/bucket"
)

// Manager holds this process's share of one group's leases. A process may run
// several, of different groups, on one bucket. Its methods are safe for
// concurrent use.
type Manager struct {
	cfg         Config
	store       store
	clock       clock
	log         *slog.Logger
	incarnation string
	writes      atomic.Uint64
	beat        beat
	rights      *rights // nil: its leases rest on their lifetime alone
	endAnswer   func()  // ends what is answered for this process; nil if nothing is
	started     atomic.Bool
	group       atomic.Pointer[Group]

	mu        sync.Mutex // guards resources, copied, weights and mine
	resources []string   // ordered
	copied    map[string]bool
	weights   map[string]float64
	mine      map[string]bool // what this process takes, holds or releases
	changed   chan struct{}   // holds a token when resources or weights changed
}

// store is what leases need of a bucket.
type store interface {
	bucket.Store
	// Delete removes key if its revision is last; 0 means whatever it is.
	Delete(ctx context.Context, key string, last uint64) error
}

// Open announces this process to the group, and creates the bucket if it is missing. From
// then on an earlier process of the same node is superseded. Run takes the leases.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Manager, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	store, err := bucket.Open(ctx, js, cfg.Bucket, "Millrace: leases and members", cfg.Replicas)
	if err != nil {
		return nil, err
	}
	if cfg.Fenced || cfg.Deposes {
		cfg.prober = newNATSProber(js.Conn(), cfg.Group)
	}
	return open(ctx, store, boottime.Clock(), cfg)
}

// open is Open on any store and clock. cfg has its defaults.
func open(ctx context.Context, store store, now clock, cfg Config) (*Manager, error) {
	incarnation := newID(8)
	switch {
	case cfg.Node == "":
		cfg.Node = newID(8)
	case !cfg.NodeLocked:
		// Another process may run under this node, so this one gets a node name of its own.
		cfg.Node += "-" + incarnation
	}
	m := &Manager{
		cfg: cfg, store: store, clock: now, incarnation: incarnation,
		changed: make(chan struct{}, 1), mine: map[string]bool{},
	}
	m.log = cfg.Log.With("group", cfg.Group, "holder", m.Holder())
	m.cfg.Log = m.log
	m.beat.init(m)
	// The leases of an earlier process of this node rest on a right that is over when this returns.
	if cfg.Deposes {
		var err error
		if m.rights, err = openRights(ctx, m); err != nil {
			return nil, err
		}
		m.beat.rec.Right = m.rights.now().right.Incarnation()
	}
	// Before the group knows of this process: a member that answers nobody counts as gone.
	if cfg.prober != nil {
		end, err := cfg.prober.answer(m.Holder())
		if err != nil {
			return nil, err
		}
		m.endAnswer = end
	}
	if err := m.beat.announce(ctx); err != nil {
		m.stopAnswering()
		return nil, fmt.Errorf("announce %s to group %s: %w", m.Holder(), cfg.Group, err)
	}
	return m, nil
}

func (m *Manager) stopAnswering() {
	if m.endAnswer != nil {
		m.endAnswer()
	}
}

// Holder returns "node/incarnation". The incarnation is new at every Open.
func (m *Manager) Holder() string { return m.cfg.Node + "/" + m.incarnation }

// SetResources sets the resources that the group is to hold. Every member must be given the
// same set; while sets differ, no lease moves between their members. A held resource that is
// no longer in the set is given up with ErrWithdrawn.
//
// A weight is a resource's cost, such as a measured lag, where an ordinary resource costs 1.
// A missing weight is 1. The weights of held resources are published to the group, rounded
// to powers of two between 1/16 and 1024, at most once in Config.WeightInterval.
//
// SetResources panics if a name is empty, longer than ResourceBytesMax, or not UTF-8.
func (m *Manager) SetResources(resources []string, weights map[string]float64) {
	for _, resource := range resources {
		if err := checkResource(resource); err != nil {
			panic(err)
		}
	}
	// Sorted and without doubles: members compare their sets by a digest of the names in order.
	resources = slices.Compact(slices.Sorted(slices.Values(resources)))
	m.mu.Lock()
	m.resources, m.weights = resources, maps.Clone(weights)
	m.mu.Unlock()
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// SetWarm tells the group which resources this process is prepared to take, such as those whose state it
// follows, and how far it is with each. A lease that is free goes to a member that is warm for it,
// unless that has too much already; others leave it to that member for half a TTL. The group is told of other
// resources at once, and of how far it is with the next beat.
func (m *Manager) SetWarm(warm map[string]uint64) { m.beat.setWarm(maps.Clone(warm)) }

// SetLoading tells the group, with the next beat, for which resources this process is about to become warm: it works on
// that, or waits for its turn. What it cannot become warm for now, as for want of room, is none of them.
func (m *Manager) SetLoading(resources []string) {
	m.beat.setLoading(slices.Sorted(slices.Values(resources)))
}

// SetRemarks says what people are to know of resources at this process. Nobody acts on it but people.
func (m *Manager) SetRemarks(remarks map[string]string) { m.beat.setRemarks(maps.Clone(remarks)) }

// Group is what one process sees of its group.
type Group struct {
	// Nodes are the members that live, this process among them, in order.
	Nodes []string
	// Drains has the nodes that are to drain, whether they live or not, see [Drain].
	Drains map[string]bool
	// Leases are those of the resources that this process was told. The Owner of one that can be taken is empty,
	// and Last is who had it.
	Leases []Lease
	// Warm is what each of the nodes has given to SetWarm, as of its last beat.
	Warm map[string]map[string]uint64
	// Next has the resources that are to move to a node when that is warm for them, see [Balance].
	Next map[string]string

	members []Member
}

// Stays returns the nodes that live and are not to drain, in order.
func (g *Group) Stays() []string {
	return slices.DeleteFunc(slices.Clone(g.Nodes), func(node string) bool { return g.Drains[node] })
}

// Takes reports whether a node would take a resource if that were free and no other could do anything with it: one of
// its processes lives, is not about to end and does not decline it.
func (g *Group) Takes(node, resource string) bool {
	return slices.ContainsFunc(g.members, func(m Member) bool {
		return NodeOf(m.Holder) == node && !m.Closed && !slices.Contains(m.Declines, resource)
	})
}

// Group returns what this process saw of its group lately: each second at least it looks again. It is
// nil before the first look, and must not be changed.
func (m *Manager) Group() *Group { return m.group.Load() }

// Has reports whether this process takes, holds or releases a resource. It is true from before the lease
// is written until after the release is, so whoever finds it false and does not want work to begin meanwhile
// must keep the work from beginning.
func (m *Manager) Has(resource string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mine[resource]
}

// Forget deletes the record of a resource that this process neither holds nor is to hold; see [Forget].
func (m *Manager) Forget(ctx context.Context, resource string) error {
	return m.store.Delete(ctx, leaseKey(m.cfg.Group, resource), 0)
}

func (m *Manager) setMine(resource string, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mine {
		m.mine[resource] = true
	} else {
		delete(m.mine, resource)
	}
}

func (m *Manager) wanted() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resources
}

func (m *Manager) weightOf(resource string) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return weightOrOne(m.weights[resource])
}

// Work is the function that runs under a lease. It returns when h.Context ends, or earlier if
// it cannot continue. ctx is h.Context().
type Work = func(ctx context.Context, h *Held) error

// Run keeps a balanced share of the resources and runs work, in a goroutine of
// its own, for each lease that it holds. When work returns, its lease is
// released with its checkpoint. This process takes it again after a backoff; if
// work returned an error while its context had not ended, the error is recorded
// in Lease.LastError and the backoff grows with Lease.Attempts, until Held.Works or
// Held.Save ends the row.
//
// When ctx ends, Run drains: it ends the work with ErrDraining, releases each
// lease as its work returns, and returns nil, or ErrDrainTimeout if some work
// did not return within Config.DrainTimeout. It returns ErrSuperseded if a later
// process announced itself under the same locked node. An unreachable bucket
// is waited for. Run can be called once.
func (m *Manager) Run(ctx context.Context, work Work) error {
	if m.started.Swap(true) {
		return errors.New("leases: Run called twice")
	}
	return newLoop(m, work).run(ctx)
}
