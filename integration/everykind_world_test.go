package integration_test

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/verify"
)

// town is Millrace in one process: a NATS server, and nodes that a test crashes and
// cuts off from it.
type town struct {
	*node.Node // with the server and no other role, which stays up

	t       testing.TB
	store   *machine
	workers []*machine
}

// machine is a node, life after life in the same directory.
type machine struct {
	t       testing.TB
	roles   node.Roles
	sets    []string
	network *relay
	up      *node.Node
	stop    context.CancelFunc
	running sync.WaitGroup
}

// newTown starts one store and some workers. sets are settings of all of them.
func newTown(t testing.TB, workers int, sets ...string) *town {
	t.Helper()
	port := strconv.Itoa(freePort(t))
	// Nobody pulls the plug here, so the disk need not be waited for.
	base := &machine{t: t, roles: node.Roles{NATS: true}, sets: append([]string{
		"dir=" + t.TempDir(), "nats.port=" + port, "nats.syncInterval=1m", "http.listen=off", "gateway.listen=off",
	}, sets...)}
	base.start()
	w := &town{Node: base.up, t: t}
	spawn := func(roles node.Roles) *machine {
		m := &machine{t: t, roles: roles, network: newRelay(t, "nats://127.0.0.1:"+port)}
		m.sets = append([]string{
			"dir=" + t.TempDir(), "server=" + m.network.url, "http.listen=off", "gateway.listen=off", "leases.ttl=5s", "leases.drainTimeout=1s",
			"leases.retryBackoffMax=1s", "store.expiryInterval=50ms", "engine.memTableBytes=8MiB",
		}, sets...)
		m.start()
		t.Cleanup(func() {
			m.network.open()
			m.end()
		})
		return m
	}
	t.Cleanup(base.end)
	w.store = spawn(node.Roles{Store: true})
	for range workers {
		w.workers = append(w.workers, spawn(node.Roles{Worker: true}))
	}
	return w
}

// start begins a life.
func (m *machine) start() {
	cfg, err := configs.Load("", natsEnviron(), m.sets)
	if err != nil {
		m.t.Fatal(err)
	}
	if m.up, err = node.Open(context.WithoutCancel(m.t.Context()), cfg, m.roles, nil, slog.New(slog.DiscardHandler)); err != nil {
		m.t.Error(err)
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(m.t.Context()))
	m.stop = stop
	up := m.up
	m.running.Go(func() {
		if err := up.Run(ctx); err != nil {
			m.t.Logf("a node ended with %v", err) // as one that has crashed does
		}
	})
}

// end ends a life as SIGTERM does.
func (m *machine) end() {
	if m.up == nil {
		return
	}
	m.stop()
	m.running.Wait()
	if err := m.up.Close(); err != nil {
		m.t.Errorf("close: %v", err)
	}
	m.up = nil
}

// restart ends a life in order and begins another.
func (m *machine) restart() {
	m.end()
	m.start()
}

// crash begins another life where the last one has lost its network for ever: it
// wrote no checkpoint, released nothing, and never learned what became of its last
// requests.
func (m *machine) crash() {
	m.up.Conn().Close()
	m.restart()
}

// stall cuts a node off for longer than its leases last, so that others take
// these, and lets what it has sent meanwhile go then.
func (m *machine) stall() {
	m.network.close()
	time.Sleep(6 * time.Second) //nolint:forbidigo // what is tested is that time passes
	m.network.open()
}

// apply declares resources, given as YAML.
func (w *town) apply(yaml string, opts ...registry.ApplyOptions) {
	w.t.Helper()
	file := w.t.TempDir() + "/all.yaml"
	writeText(w.t, file, yaml)
	declared, err := spec.Load(file)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.Registry().Apply(w.t.Context(), declared, opts...); err != nil {
		w.t.Fatal(err)
	}
}

// ends are the lengths of the logs of containers.
func (w *town) ends(names ...string) map[feed.Partition]feed.LSN {
	w.t.Helper()
	at := map[feed.Partition]feed.LSN{}
	for _, name := range names {
		for _, p := range open(w.t, w.Client(), name).Partitions() {
			log, err := feed.OpenLog(w.t.Context(), w.JetStream(), p, feed.LogConfig{})
			if err != nil {
				w.t.Fatal(err)
			}
			_, last, err := log.Bounds(w.t.Context())
			log.Close()
			if err != nil {
				w.t.Fatal(err)
			}
			at[p] = last
		}
	}
	return at
}

// equal fails the test unless every copy of every pipeline, or of those named, is
// proved equal.
func (w *town) equal(when string, names ...string) {
	w.t.Helper()
	var chosen []spec.Metadata
	for _, name := range names {
		chosen = append(chosen, spec.Metadata{Database: "default", Name: name})
	}
	verifier := verify.New(w.JetStream(), w.Registry(), w.Client(), verify.Config{Timeout: time.Minute})
	got, err := verifier.Verify(w.t.Context(), chosen...)
	if err != nil {
		w.t.Fatalf("%s: %v", when, err)
	}
	if got.Verdict != verify.VerdictEqual {
		w.t.Errorf("%s:\n%s", when, &report{Report: *got})
	}
}
