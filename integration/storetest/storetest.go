// Package storetest is the house of tests above the log: a store that runs in the
// test's process, workers whose leases and requests the test controls, and texts that
// are compared with files.
//
//	Store   a NATS server, a catalog, the owner of all partitions, a client
//	World   a Store whose owners are behind a Gate, with a feed and dead letters
//	Worker  processors of a World, under leases of its Book, with a Tap between
//	        them and the owners
//
// All of it ends with the test that has started it. A test whose package storetest
// itself needs takes natstest, which is a server alone.
package storetest

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
)

// Store is a NATS server, a catalog and the owner of all partitions.
type Store struct {
	Server *natstest.Server
	NC     *nats.Conn
	JS     jetstream.JetStream
	Client *store.Client // reaches the owner without NATS
	Local  *store.Local  // by which the client does
	DB     *engine.DB    // the owner's
	// StopOwner ends the owner: nobody has the partitions any more.
	StopOwner func()
}

// Start starts a Store of its own for a test.
func Start(t testing.TB) *Store {
	t.Helper()
	return StartWith(t, owner.Config{})
}

// StartWith starts a Store whose owner is tuned.
func StartWith(t testing.TB, cfg owner.Config) *Store {
	t.Helper()
	s := System(t)
	s.own(t, s.NC, cfg)
	return s
}

// Own runs the owner of all partitions of a System.
func (s *Store) Own(t testing.TB, cfg owner.Config) {
	t.Helper()
	s.own(t, s.NC, cfg)
}

// own runs the owner of all partitions, which reaches the server through nc.
func (s *Store) own(t testing.TB, nc *nats.Conn, cfg owner.Config) {
	t.Helper()
	var err error
	if s.DB, err = engine.Open(t.TempDir(), engine.Config{MemTableBytes: 8 << 20}, Quiet()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
	})
	s.Local = &store.Local{}
	cfg.Local, cfg.Logger = s.Local, Quiet()
	server, err := owner.NewServer(nc, s.Client.Catalog(), s.DB, Manager(t, s.JS, "store"), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.StopOwner = Run(t, server.Run)
	// On a machine that is slow and busy an answer, or the way back of a lease that was
	// lost, may take longer than clients wait.
	s.Client = store.NewClient(s.NC, s.Client.Catalog(), store.ClientConfig{Local: s.Local, Timeout: time.Minute, HandoverWait: time.Minute})
}

// System is a Store without an owner: containers can be declared, and nothing be
// written.
func System(t testing.TB) *Store {
	t.Helper()
	server := natstest.Start(t)
	s := &Store{Server: server, NC: server.NC, JS: server.JS}
	catalog, err := store.OpenCatalog(t.Context(), s.JS, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s.Client = store.NewClient(s.NC, catalog, store.ClientConfig{})
	return s
}

// Owned makes a container "things", of whose partitions each has the owner that is given for it, and a client that
// reaches those.
func (s *Store) Owned(t testing.TB, owners ...store.Handler) *store.Client {
	t.Helper()
	info, err := s.Client.Catalog().Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/k"}, Partitions: len(owners)})
	if err != nil {
		t.Fatal(err)
	}
	local := &store.Local{}
	for i, p := range info.Partitions {
		local.Add(feed.Partition{Container: info.ID, Number: p.Number}, owners[i])
	}
	return store.NewClient(s.NC, s.Client.Catalog(), store.ClientConfig{Local: local, Timeout: time.Minute})
}

// Container declares a container of the default database and waits until its
// partitions have owners.
func (s *Store) Container(t testing.TB, name string, spec store.ContainerSpec) *store.Container {
	t.Helper()
	if _, err := s.Client.Catalog().Create(t.Context(), "default", name, spec); err != nil {
		t.Fatal(err)
	}
	c, err := s.Client.Container(t.Context(), "default", name)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Partitions() {
		if _, err := c.Count(t.Context(), p, store.Scope{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// Hub returns a hub of the logs.
func (s *Store) Hub(t testing.TB) *feed.Hub {
	t.Helper()
	hub := feed.NewHub(func(ctx context.Context, p feed.Partition) (*feed.Log, error) {
		return feed.OpenLog(ctx, s.JS, p, feed.LogConfig{})
	}, feed.HubConfig{})
	t.Cleanup(hub.Close)
	return hub
}

// Manager returns a member of a group that shares leases. They last for a minute: no other process
// waits for them, and on a machine that is slow and busy a renewal may take seconds, as may the end
// of work.
func Manager(t testing.TB, js jetstream.JetStream, group string) *leases.Manager {
	t.Helper()
	m, err := leases.Open(t.Context(), js, leases.Config{Group: group, TTL: time.Minute, RenewInterval: 2 * time.Second, DrainTimeout: time.Minute, Log: Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Run runs f until the test ends, before what it uses is closed, or until it is
// stopped.
func Run(t testing.TB, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("stop: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Quiet is a log that nobody reads.
func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

var update = flag.Bool("update", false, "write golden files anew")

// Update says whether golden files are to be written anew, by the flag -update.
func Update() bool { return *update }

// Golden compares a text with a file of the test's package.
func Golden(t testing.TB, file, got string) {
	t.Helper()
	file = filepath.FromSlash(file)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test -update):\n%s", file, got)
	}
}
