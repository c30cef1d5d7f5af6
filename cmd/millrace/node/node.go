// Package node starts and stops the roles of a Millrace process, and is the one
// place that sets up telemetry.
//
// A node is made of layers; each is opened after those below it and stopped
// before them:
//
//	HTTP: /healthz /readyz /metrics, console, /operator/  off the loopback with TLS and keys
//	gateway: the Cosmos DB protocol                       finishes requests, then
//	worker: lease manager, host, pipelines.Supervisor     drains first
//	store:  lease manager, engine, owner.Server           then this
//	catalog, registry, client, change feed hub
//	NATS: embedded (natsd) or a connection
//	directory: its lock, and the node's identity          last
//
// Which roles a node has is decided by the verb: up has all of them with an
// embedded server, store and worker have one each and connect to a server.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cmd/millrace/console"
	"github.com/millrace/millrace/cmd/millrace/internal/await"
	"github.com/millrace/millrace/cmd/millrace/internal/memory"
	"github.com/millrace/millrace/cmd/millrace/internal/operator"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/guard"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/script"
	"github.com/millrace/millrace/store/standby"
	"github.com/millrace/millrace/store/upkeep"
)

// openTimeout bounds the opening of the embedded server, which may have to read
// every stream.
const openTimeout = reopenTimeout

// standbyRingBytes bounds what a store that runs no pipelines keeps of the commits that it read.
const standbyRingBytes = 1 << 20

// The lease groups.
const (
	GroupStore  = owner.LeaseGroup
	GroupWorker = "worker"
)

// Roles say what a node does.
type Roles struct {
	// NATS is to run a NATS server in the process. Without it the node connects to
	// Config.Server.
	NATS bool
	// Store is to own physical partitions.
	Store bool
	// Worker is to run pipelines.
	Worker bool
	// Anonymous is to keep nothing in Config.Dir: a worker needs no directory, but
	// when it starts again it waits for the leases of its earlier life to expire.
	Anonymous bool
}

// Node is a Millrace process: what is open, and what runs.
type Node struct {
	// Set by Open, step by step, and not changed since.
	cfg       *configs.Config
	roles     Roles
	log       *slog.Logger
	telemetry *Telemetry
	memory    *memory.Keeper

	lock     *leases.DirLock
	server   *natsd.Server // nil: remote
	nc       *nats.Conn
	readers  *nats.Conn // of guard: what readers get does not stand before what nc writes
	guard    *guard.Guard
	js       jetstream.JetStream
	local    *store.Local
	queries  *query.Room // what queries hold in memory, wherever they run in the process
	catalog  *store.Catalog
	client   *store.Client
	registry *registry.Registry
	hub      *feed.Hub

	db         *engine.DB            // of a store
	owners     *owner.Server         // of a store
	standbys   *standby.Standbys     // of a store
	keeper     *upkeep.Keeper        // of a store
	storeHeld  *leases.Manager       // of a store
	supervisor *pipelines.Supervisor // of a worker
	workerHeld *leases.Manager       // of a worker
	keys       *gateway.KeyRing      // nil: nobody needs them
	listener   *admin                // nil: off
	console    *console.Console      // nil: off
	operator   *operator.Server      // nil: off
	gateway    *gateway.Listener     // nil: off
	scripts    *script.Engine        // nil: scripts are not run

	watch *watch
	// Why the embedded server writes nothing, if its disk is full; nil before the first look.
	diskFull atomic.Pointer[string]

	// Guarded by stopMu.
	stopMu  sync.Mutex
	stopped *stopping // nil: not yet
}

// Open opens all that the roles need, and announces the node to its lease groups.
// Nothing is owned before Run. telemetry may be nil; then there are no metrics to
// scrape. What is not there yet, such as NATS, its JetStream or a quorum, is waited
// for until ctx ends. Errors that an operator can put right are of types:
// *leases.DirLockedError, natsd.ErrPort, *PayloadError, *CredentialsError, *store.DamageError,
// *store.EmptyError.
func Open(ctx context.Context, cfg *configs.Config, roles Roles, telemetry *Telemetry, log *slog.Logger) (*Node, error) {
	n := &Node{
		cfg: cfg, roles: roles, log: log, telemetry: telemetry, local: &store.Local{},
		queries: query.NewRoom(int64(cmp.Or(cfg.Store.QueriesBytesMax, owner.QueriesBytesDefault))),
	}
	n.memory = memory.Keep(cfg.Memory.Limit, log)
	cfg.Feed.Log.Cache = cmp.Or(cfg.Feed.Log.Cache, feed.NewTailCache()) // before anybody opens a log
	for _, step := range []func(context.Context) error{
		n.openDir, n.openNATS, n.openEngine, n.openCatalog, n.openKeeper, n.openStore, n.openWorker, n.openHTTP, n.openConsole, n.openGateway,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	n.watch = newWatch(n)
	return n, nil
}

// openDir locks the node's directory.
func (n *Node) openDir(context.Context) (err error) {
	if n.roles.Anonymous {
		return nil
	}
	n.lock, err = leases.LockDir(n.cfg.Dir)
	return err
}

// await does a step that needs others, again until it succeeds or ctx ends.
func (n *Node) await(ctx context.Context, what string, step func(context.Context) error) error {
	return await.Until(ctx, func(what string, waited time.Duration, err error) {
		if err == nil {
			n.log.Info("waited, and goes on", slog.String("for", what), slog.Duration("waited", waited))
			return
		}
		n.log.Warn("waiting, and trying again", slog.String("for", what), slog.Duration("waited", waited), slog.Any("error", err))
	}, what, step)
}

// openNATS starts the embedded server or connects to another.
func (n *Node) openNATS(ctx context.Context) (err error) {
	if n.roles.NATS {
		cfg := n.cfg.NATS
		cfg.Log = n.log
		opening, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		if n.server, err = natsd.Open(opening, cfg); err != nil {
			return err
		}
	}
	if n.nc, err = n.connect(ctx); err != nil {
		return err
	}
	if n.readers, err = n.connect(ctx); err != nil {
		return err
	}
	if n.guard, err = guard.New(ctx, n.readers, n.log); err != nil {
		return err
	}
	n.js, err = jetstream.New(n.nc)
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	return n.await(ctx, "JetStream", func(ctx context.Context) error { return AdoptReplicas(ctx, n.js, n.cfg) })
}

// connect connects to the embedded server or to those of others.
func (n *Node) connect(ctx context.Context) (*nats.Conn, error) {
	if n.server != nil {
		return n.server.Conn()
	}
	login, err := FindLogin(n.cfg)
	if err != nil {
		return nil, err
	}
	var nc *nats.Conn
	err = n.await(ctx, "NATS at "+Redacted(n.cfg.Server), func(ctx context.Context) (err error) {
		nc, err = Connect(ctx, n.cfg, &login, n.name(), n.log)
		return err
	})
	return nc, err
}

func (n *Node) name() string {
	switch {
	case n.roles.Store && n.roles.Worker:
		return "millrace up"
	case n.roles.Store:
		return "millrace store"
	}
	return "millrace worker"
}

// openEngine opens the engine of a store. What it holds decides whether a catalog may be made.
func (n *Node) openEngine(context.Context) error {
	if !n.roles.Store {
		return nil
	}
	dir := filepath.Join(n.cfg.Dir, "engine")
	db, aside, err := engine.OpenOrSetAside(dir, n.cfg.Engine, n.log)
	if err != nil {
		return fmt.Errorf("open the engine in %s: %w", dir, err)
	}
	n.db = db
	if aside != "" {
		n.log.Warn("the engine's directory could not be opened and was moved aside; its content is rebuilt from the logs",
			slog.String("dir", dir), slog.String("aside", aside))
	}
	return nil
}

// openCatalog opens what all roles share.
func (n *Node) openCatalog(ctx context.Context) (err error) {
	replicas := n.cfg.Replicas()
	// A worker has nothing that tells an empty system from one that has lost everything.
	cfg := store.CatalogConfig{Replicas: replicas, Log: n.cfg.Feed.Log, Await: n.roles.Worker && !n.roles.Store}
	if n.db != nil {
		held, err := n.db.Partitions()
		if err != nil {
			return fmt.Errorf("partitions of the engine: %w", err)
		}
		cfg.Held = len(held)
	}
	err = n.await(ctx, "the catalog", func(ctx context.Context) (err error) {
		n.catalog, err = store.OpenCatalog(ctx, n.js, cfg)
		return err
	})
	if err != nil {
		return err
	}
	if err := n.checkLevel(ctx); err != nil {
		return err
	}
	n.client = store.NewClient(n.nc, n.catalog, store.ClientConfig{Local: n.local, Trouble: n.trouble, Queries: n.queries})
	err = n.await(ctx, "the registry of pipelines", func(ctx context.Context) (err error) {
		n.registry, err = registry.Open(ctx, n.js, n.client, registry.Config{
			Replicas: replicas, Log: n.cfg.Feed.Log, SinkRoot: n.cfg.Sinks.Roots[0], SinkVariables: n.cfg.Sinks.Variables,
		})
		return err
	})
	if err != nil {
		return err
	}
	hub := n.cfg.Feed.Hub
	if !n.roles.Worker {
		// A store's standbys are its only readers, one for each partition: what a ring keeps is shared with nobody.
		hub.RingBytesMax = min(cmp.Or(hub.RingBytesMax, standbyRingBytes), standbyRingBytes)
	}
	n.hub = feed.NewHub(func(ctx context.Context, p feed.Partition) (*feed.Log, error) {
		return feed.OpenLog(ctx, n.js, p, n.cfg.Feed.Log)
	}, hub)
	return nil
}

// trouble says what keeps partitions without an owner, as far as this process knows. Where the
// server cannot write, leases are not renewed, and those who ask would hear only that nobody
// answers.
func (n *Node) trouble() string {
	if full := n.diskFull.Load(); full != nil {
		return *full
	}
	return ""
}

// checkLevel refuses data that a later release has made its own, and says when an
// upgrade to this one is not finished.
func (n *Node) checkLevel(ctx context.Context) error {
	level := 0
	err := n.await(ctx, "the feature level of the data", func(ctx context.Context) (err error) {
		level, err = featurelevel.Read(ctx, n.js)
		return err
	})
	if err == nil && level < featurelevel.Newest {
		n.log.Info("the data is shared with an earlier release, so that there is a way back to it; millrace upgrade --finish ends that",
			slog.Int("level", level), slog.Int("newest", featurelevel.Newest))
	}
	return err
}

// aloneTTL is the default of leases.ttl for a node that is alone. Nobody takes its leases when it dies, for NATS
// dies with it; the next process on its directory has the directory's lock and takes them at once. So all that
// a short lifetime would do is write, and each renewal is synced: with 7 s the demo's shop at rest took 3.8 % of a
// processor, with 30 s 3.0 %. Others that connect to it, such as a worker, have lifetimes of their own.
const aloneTTL = 30 * time.Second

// manager announces the node to a lease group.
func (n *Node) manager(ctx context.Context, group string) (m *leases.Manager, err error) {
	cfg := n.cfg.Leases
	cfg.Group, cfg.Log, cfg.Level = group, n.log, featurelevel.Newest
	if n.lock != nil {
		cfg.Node, cfg.NodeLocked = n.lock.Node(), true
	}
	cfg.Host, _ = os.Hostname() // for people; without it they see none
	// What a worker writes carries its lease's epoch, which its target refuses once it has seen a later one. Reads of
	// a partition are not fenced: who takes one over from an owner that may live deposes it and waits.
	cfg.Fenced = group == GroupWorker
	cfg.Deposes = group == GroupStore && !n.alone()
	if n.alone() {
		cfg.TTL = cmp.Or(cfg.TTL, aloneTTL)
	}
	err = n.await(ctx, "the leases", func(ctx context.Context) (err error) {
		m, err = leases.Open(ctx, n.js, cfg)
		return err
	})
	return m, err
}

// alone says whether no other process is meant to become the owner of this one's partitions.
func (n *Node) alone() bool { return n.roles.NATS && n.cfg.NATS.Cluster.Name == "" }

func (n *Node) openStore(ctx context.Context) (err error) {
	if !n.roles.Store {
		return nil
	}
	if n.storeHeld, err = n.manager(ctx, GroupStore); err != nil {
		return err
	}
	cfg := n.cfg.Store
	if need := n.cfg.Engine.Headroom(); cfg.DiskReserve != 0 && cfg.DiskReserve < need {
		n.log.Warn("store.diskReserve is less than the engine may need at once; a disk that is full then stops its partitions until there is room",
			slog.Int64("diskReserve", cfg.DiskReserve), slog.Int64("need", need))
	}
	if err := n.openScripts(); err != nil {
		return err
	}
	cfg.Scripts = n.scripts
	cfg.Local, cfg.Queries, cfg.Logger, cfg.Log = n.local, n.queries, n.log, n.cfg.Feed.Log
	if n.roles.NATS {
		cfg.LogDir = n.cfg.NATS.Dir
	}
	// With a server of its own in this very process, and no cluster, there is one directory:
	// who has its logs has its snapshots.
	cfg.Alone = n.alone()
	cfg.Holds = n.holds
	n.standbys = standby.New(standby.Config{Hub: n.hub, Leases: n.storeHeld, File: filepath.Join(n.cfg.Dir, "standbys.json"), Logger: n.log})
	cfg.Standbys = n.standbys
	n.owners, err = owner.NewServer(n.nc, n.catalog, n.db, n.storeHeld, cfg)
	return err
}

func (n *Node) openWorker(ctx context.Context) error {
	if !n.roles.Worker {
		return nil
	}
	var deadLetters *processors.DeadLetters
	err := n.await(ctx, "the container of dead letters", func(ctx context.Context) (err error) {
		deadLetters, err = processors.OpenDeadLetters(ctx, n.client)
		return err
	})
	if err != nil {
		return err
	}
	cfg := n.cfg.Processors
	cfg.Logger = n.log
	host, err := processors.NewHost(n.hub, deadLetters, cfg)
	if err != nil {
		return err
	}
	if n.workerHeld, err = n.manager(ctx, GroupWorker); err != nil {
		return err
	}
	n.supervisor = pipelines.NewSupervisor(n.registry, n.client, n.workerHeld, host, pipelines.SupervisorConfig{
		Cascade: n.cfg.Cascade, Project: n.cfg.Project, Sinks: n.cfg.Sinks, Reconciler: n.cfg.Reconciler, Verify: n.cfg.Verify,
		Bucket: n.cfg.Leases.Bucket, Logger: n.log,
	})
	// A bucket that has just been made may have no leader yet, or lose one.
	return n.await(ctx, "the announcement of where this worker's sinks may write", n.supervisor.Announce)
}

// Close frees what Open opened. It may be called twice, not while Run runs. The error
// is a *StopError if something did not end within Config.DrainTimeout; then the
// process should end, for it cannot be freed.
func (n *Node) Close() error {
	end := n.stop()
	var errs []error
	if n.listener != nil {
		errs = append(errs, n.listener.Close())
	}
	if n.gateway != nil {
		errs = append(errs, n.gateway.Close())
	}
	if n.scripts != nil {
		n.scripts.Close()
	}
	// Under what still runs nothing is closed: to lose the process harms no data, and
	// to pull the engine away from under an owner may.
	if end.clean() {
		n.closeLayers(end, &errs)
	}
	if n.lock != nil {
		errs = append(errs, n.lock.Close())
		n.lock = nil
	}
	return errors.Join(append(errs, end.err())...)
}

// closeLayers closes what holds data and connections, from above.
func (n *Node) closeLayers(end *stopping, errs *[]error) {
	end.step("readers", shareClose, func() {
		if n.watch != nil {
			n.watch.close()
		}
		if n.hub != nil {
			n.hub.Close()
		}
	}, nil)
	if db := n.db; db != nil && end.clean() {
		if n.owners != nil {
			db = n.owners.Engine() // it may have been made anew
		}
		n.db = nil
		var err error
		if end.step("engine", shareEngine, func() { err = db.Close() }, func() string { return "writing what is in memory to " + n.cfg.Dir }) && err != nil {
			*errs = append(*errs, fmt.Errorf("close the engine: %w", err))
		}
	}
	// NATS knows nothing of the engine, and is shut whatever becomes of it.
	end.step("NATS", shareClose, func() {
		if n.guard != nil {
			n.guard.Close()
		}
		for _, nc := range []*nats.Conn{n.readers, n.nc} {
			if nc != nil {
				nc.Close()
			}
		}
		if n.server != nil {
			n.server.Close()
		}
	}, nil)
}

// Conn is the node's connection to NATS. It is the node's to close.
func (n *Node) Conn() *nats.Conn { return n.nc }

// Local finds the partitions that this process owns.
func (n *Node) Local() *store.Local { return n.local }

// Client asks the owners of partitions.
func (n *Node) Client() *store.Client { return n.client }

// Registry is the list of pipelines.
func (n *Node) Registry() *registry.Registry { return n.registry }

// ServerURL is where other processes reach the embedded server; "" if there is
// none or it does not listen.
func (n *Node) ServerURL() string {
	if n.server == nil {
		return ""
	}
	return n.server.ClientURL()
}

// URL is where this machine reaches HTTP; "" if it is off.
func (n *Node) URL() string {
	if n.listener == nil {
		return ""
	}
	return n.listener.url()
}

// JetStream is the node's JetStream.
func (n *Node) JetStream() jetstream.JetStream { return n.js }
