//go:build linux

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/integration/netns/hosts"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
)

// quietLog lets warnings and errors of what is measured through.
func quietLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// session is what clients have of a Millrace, in this process or in others.
type session struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	catalog  *store.Catalog
	client   *store.Client
	registry *registry.Registry
	monitor  *status.Monitor
}

// newSession opens what clients need; local may be nil. What it makes has so many replicas.
func newSession(ctx context.Context, nc *nats.Conn, local *store.Local, replicas int) (s session, err error) {
	s.nc = nc
	if s.js, err = jetstream.New(nc); err != nil {
		return s, fmt.Errorf("JetStream: %w", err)
	}
	if s.catalog, err = store.OpenCatalog(ctx, s.js, store.CatalogConfig{Replicas: replicas}); err != nil {
		return s, err
	}
	s.client = store.NewClient(nc, s.catalog, store.ClientConfig{Local: local})
	if s.registry, err = registry.Open(ctx, s.js, s.client, registry.Config{Replicas: replicas}); err != nil {
		return s, err
	}
	s.monitor = status.NewMonitor(s.js, s.registry, status.MonitorConfig{})
	return s, nil
}

// user and password are those of NATS for everything that runs here.
const user, password = "bench", "no secret: it holds figures"

// masterKey signs in to the console of what runs here.
var masterKey = base64.StdEncoding.EncodeToString([]byte(password))

// dial opens a session over the network.
func dial(ctx context.Context, url string) (s session, err error) { return dialFrom(ctx, nil, url, 1) }

// dialFrom opens a session from a host, or from this one if that is nil. What it makes has so many replicas.
func dialFrom(ctx context.Context, host *hosts.Host, url string, replicas int) (s session, err error) {
	nc, err := nats.Connect(url, dialOptions(host)...)
	if err != nil {
		return s, fmt.Errorf("connect to %s: %w", url, err)
	}
	if s, err = newSession(ctx, nc, nil, replicas); err != nil {
		nc.Close()
	}
	return s, err
}

// dialOptions are those of a client's connection. It leaves a server that says nothing for three seconds, though it is asked.
func dialOptions(host *hosts.Host) []nats.Option {
	options := []nats.Option{
		nats.UserInfo(user, password), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
	}
	if host != nil {
		options = append(options, nats.SetCustomDialer(hostDialer{host}))
	}
	return options
}

// hostDialer dials from a host.
type hostDialer struct{ host *hosts.Host }

// Dial implements nats.CustomDialer.
func (d hostDialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), nats.DefaultTimeout)
	defer cancel()
	return d.host.DialContext(ctx, network, address)
}

// close ends a session that dial opened.
func (s *session) close() {
	if s.nc != nil {
		s.monitor.Close()
		s.nc.Close()
	}
}

// millrace is a whole Millrace in this process: the node that millrace up runs,
// with its default configuration, without a network and HTTP.
type millrace struct {
	session
	node   *node.Node
	cancel context.CancelFunc
	ended  chan error
}

// openMillrace starts one in dir and waits until it is ready.
func openMillrace(ctx context.Context, dir string) (*millrace, error) {
	cfg, err := configs.Load("", nil, []string{"dir=" + dir, "sinks.roots=" + filepath.Dir(dir), "nats.dontListen=true", "http.listen=off", "gateway.listen=off"})
	if err != nil {
		return nil, fmt.Errorf("configure Millrace: %w", err)
	}
	n, err := node.Open(ctx, cfg, node.Roles{NATS: true, Store: true, Worker: true}, nil, quietLog())
	if err != nil {
		return nil, err
	}
	m := &millrace{node: n, ended: make(chan error, 1)}
	// It is stopped by close, in good order, even if ctx ends before.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	go func() { m.ended <- n.Run(running) }()
	m.session, err = newSession(ctx, n.Conn(), n.Local(), 1)
	for err == nil && !n.Look(ctx).Ready {
		err = wait(ctx, 20*time.Millisecond)
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// close stops the roles in good order, then what is under them.
func (m *millrace) close() error {
	m.cancel()
	err := <-m.ended
	if m.monitor != nil {
		m.monitor.Close()
	}
	return errors.Join(err, m.node.Close())
}
