package sim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/standby"
)

// node is one machine: its directory stays, its processes come and go.
type node struct {
	w    *world
	name string
	dir  string // of the engine
	dirs int
	run  *process
}

// process is one process of a node, with all the real roles of a store.
type process struct {
	host   *host
	dir    string // of the engine
	nc     *nats.Conn
	db     *engine.DB
	cancel context.CancelFunc
	done   chan struct{}
}

// leaseTTL is shorter than the default, so that a lease passes on often in a short run.
const leaseTTL = 2 * time.Second

var logConfig = feed.LogConfig{AppendTimeout: 500 * time.Millisecond}

var quiet = slog.New(slog.DiscardHandler)

// connect connects a process to the simulated server.
func connect(h *host) (*nats.Conn, jetstream.JetStream) {
	nc := must(nats.Connect("nats://sim:4222", nats.InProcessServer(h), nats.SkipHostLookup(), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(0, 0), nats.RetryOnFailedConnect(true), nats.Timeout(time.Hour),
		nats.PingInterval(time.Hour), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})))
	return nc, must(jetstream.New(nc))
}

// start starts a process on the node's directory.
func (n *node) start() {
	w := n.w
	w.starts++
	p := &process{host: w.server.host(fmt.Sprintf("%s.%d", n.name, w.starts)), dir: n.dir, done: make(chan struct{})}
	n.run = p
	w.net.note(n.name, "start")
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.db = must(engine.Open(n.dir, engine.Config{}, quiet))
	var js jetstream.JetStream
	p.nc, js = connect(p.host)
	w.wg.Go(func() {
		defer close(p.done)
		w.serve(ctx, n.name, p, js)
		p.nc.Close()
		if err := p.db.Close(); err != nil {
			w.failf("close the engine of %s: %v", n.name, err)
		}
	})
}

// serve runs the roles of a store until ctx ends. What cannot be reached at the beginning is
// asked for again, as the command does.
func (w *world) serve(ctx context.Context, name string, p *process, js jetstream.JetStream) {
	for ctx.Err() == nil {
		err := w.tryServe(ctx, name, p, js)
		if ctx.Err() != nil {
			return
		}
		w.net.note(name, fmt.Sprintf("the store ended: %v", err))
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

func (w *world) tryServe(ctx context.Context, name string, p *process, js jetstream.JetStream) error {
	begin, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	catalog, err := store.OpenCatalog(begin, js, store.CatalogConfig{})
	if err != nil {
		return err
	}
	cfg := leases.Config{Group: "store", Node: name, NodeLocked: true, TTL: leaseTTL, Log: w.log(name)}
	if w.plan.Rights {
		cfg.Deposes, cfg.TTL = true, leases.DefaultTTL
	}
	manager, err := leases.Open(begin, js, cfg)
	if err != nil {
		return err
	}
	serve := func(ctx context.Context, holds owner.Holds) error {
		cfg := owner.Config{
			DiskReserve: -1, TrimBytes: 1, Holds: holds, Logger: w.log(name),
			Snapshots: owner.SnapshotConfig{Store: owner.SnapshotsStream, LogBytes: w.plan.SnapshotBytes, Rest: 3 * time.Second, SharePercent: 100},
			Log:       logConfig, SyncInterval: 500 * time.Millisecond, CheckInterval: time.Second, CompressBytesMin: -1, DigestInterval: -1,
		}
		if w.plan.Compress {
			cfg.CompressBytesMin = 1
		}
		if w.plan.Standbys {
			return w.standBy(ctx, name, p, js, manager, func(standbys *standby.Standbys) (*owner.Server, error) {
				cfg.Standbys = standbys
				if w.plan.Pipelines == 0 {
					cfg.DigestInterval = digestInterval
				}
				return owner.NewServer(p.nc, catalog, p.db, manager, cfg)
			})
		}
		server, err := owner.NewServer(p.nc, catalog, p.db, manager, cfg)
		if err != nil {
			return err
		}
		return server.Run(ctx)
	}
	if w.plan.Pipelines > 0 {
		return w.both(ctx, name, p, js, catalog, serve)
	}
	return serve(ctx, nil)
}

// kill ends the node's process as kill -9 does: nothing of it reaches anybody any more, and
// its directory stays as it is at this moment, unless it is lost. What still runs of it is
// without effect, and ends by and by.
func (n *node) kill(lost bool) {
	p := n.run
	n.run = nil
	if p == nil {
		return
	}
	n.dirs++
	dir := filepath.Join(n.w.dir, fmt.Sprintf("%s-%d", n.name, n.dirs))
	// While everything is at rest, so that nobody writes to the directory meanwhile.
	n.w.net.now(func() {
		p.host.killLocked()
		if lost {
			n.w.net.trace.add(n.name, "its directory is lost")
		} else if err := copyDir(n.dir, dir); err != nil {
			panic(err)
		}
	})
	n.dir = dir
	p.cancel()
}

// stop ends the node's process as SIGTERM does.
func (n *node) stop() {
	if p := n.run; p != nil {
		n.run = nil
		n.w.net.note(n.name, "stop")
		p.cancel()
		<-p.done
	}
}

// copyDir copies the files of a directory, with their holes.
func copyDir(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if os.IsNotExist(err) {
		return nil // removed at this moment
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := out.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); {
		first, end, err := extent(in, at)
		if err != nil {
			return err
		}
		if first == end {
			break
		}
		buf := make([]byte, end-first)
		if _, err := in.ReadAt(buf, first); err != nil {
			return err
		}
		if _, err := out.WriteAt(buf, first); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// logLines keeps what the processes say, for the trace of a run that fails.
type logLines struct {
	n    *network
	name string
	more string
}

func (l *logLines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message + l.more
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	l.n.note(l.name, text)
	return nil
}

func (l *logLines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logLines) WithGroup(string) slog.Handler      { return l }

func (w *world) log(name string) *slog.Logger { return slog.New(&logLines{n: w.net, name: name}) }
