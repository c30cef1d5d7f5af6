package project_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
)

// node is a store in this process.
type node struct {
	js      jetstream.JetStream
	client  *store.Client
	catalog *store.Catalog
	made    atomic.Int64
}

func newNode(t testing.TB) *node {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	srv, err := natsd.Open(t.Context(), natsd.Config{Dir: t.TempDir(), DontListen: true, SyncInterval: time.Minute, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	nc, err := srv.Conn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{js: js}
	if n.catalog, err = store.OpenCatalog(t.Context(), js, store.CatalogConfig{}); err != nil {
		t.Fatal(err)
	}
	db, err := engine.Open(t.TempDir(), engine.Config{MemTableBytes: 8 << 20}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	manager, err := leases.Open(t.Context(), js, leases.Config{Group: "store", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	local := &store.Local{}
	server, err := owner.NewServer(nc, n.catalog, db, manager, owner.Config{Local: local, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the store stopped with %v", err)
		}
	})
	n.client = store.NewClient(nc, n.catalog, store.ClientConfig{Local: local})
	return n
}

// container makes a container of its own.
func (n *node) container(t testing.TB, name string, partitions int, key ...string) *store.Container {
	t.Helper()
	name = fmt.Sprintf("%s-%d", name, n.made.Add(1))
	if _, err := n.catalog.Create(t.Context(), "default", name, store.ContainerSpec{PartitionKey: key, Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	c, err := n.client.Container(t.Context(), "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
