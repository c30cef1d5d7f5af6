package owner_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
)

// On a disk that is nearly full the first write of a container that was just made is
// refused too: its partition is opened with the refusal, and does not wait for the next
// look at the disk.
func TestDisk_TheReserveHoldsForTheFirstWriteOfANewContainer(t *testing.T) {
	c := newCluster(t)
	nc := c.conn()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	db, err := engine.Open(dir, engine.Config{}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	manager, err := leases.Open(t.Context(), js, leases.Config{Group: "store", Node: "one", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	local := &store.Local{}
	srv, err := owner.NewServer(nc, c.catalog, db, manager, owner.Config{Local: local, Logger: quiet, DataDir: dir, DiskReserve: 1 << 60})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	client := store.NewClient(nc, c.catalog, store.ClientConfig{Local: local})
	for _, name := range []string{"one", "two", "three", "four"} {
		if _, err := c.catalog.Create(t.Context(), "default", name, store.ContainerSpec{PartitionKey: []string{"/a"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.container(client, name).Create(t.Context(), []byte(`{"id":"1","a":"x"}`)); !errors.Is(err, store.ErrDiskFull) {
			t.Errorf("the first write of %s: %v", name, err)
		}
	}
}
