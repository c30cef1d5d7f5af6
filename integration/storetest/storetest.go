// Package storetest is what tests above the store have in common: a store that runs in
// the test's process, and texts that are compared with files.
package storetest

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
)

// Store is a NATS server, a catalog and the owner of all partitions. It ends with its
// test.
type Store struct {
	NC     *nats.Conn
	JS     jetstream.JetStream
	Client *store.Client // reaches the owner without NATS
}

// Start starts a Store of its own for a test.
func Start(t testing.TB) *Store {
	t.Helper()
	local := &store.Local{}
	s := System(t, local)
	db, err := engine.Open(t.TempDir(), engine.Config{MemTableBytes: 8 << 20}, Quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	server, err := owner.NewServer(s.NC, s.Client.Catalog(), db, Manager(t, s.JS, "store"), owner.Config{Local: local, Logger: Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	Run(t, server.Run)
	return s
}

// System is a Store without an owner: containers can be declared, and nothing be
// written. Requests go through local first if it is not nil.
func System(t testing.TB, local *store.Local) *Store {
	t.Helper()
	server, err := natsd.Open(t.Context(), natsd.Config{Dir: t.TempDir(), DontListen: true, SyncInterval: time.Minute, Log: Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	s := &Store{}
	if s.NC, err = server.Conn(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.NC.Close)
	if s.JS, err = jetstream.New(s.NC); err != nil {
		t.Fatal(err)
	}
	catalog, err := store.OpenCatalog(t.Context(), s.JS, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s.Client = store.NewClient(s.NC, catalog, store.ClientConfig{Local: local})
	return s
}

// Manager returns a member of a group that shares leases.
func Manager(t testing.TB, js jetstream.JetStream, group string) *leases.Manager {
	t.Helper()
	m, err := leases.Open(t.Context(), js, leases.Config{Group: group, Log: Quiet()})
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
		if err := <-done; err != nil {
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
