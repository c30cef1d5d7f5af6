package store_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/owner"
)

// What a Go program imports to talk to a running Millrace: this package, feed for keys
// and positions, and feed/document for patches.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	nc, closed, err := running(ctx) // a program dials: nats.Connect("nats://...")
	if err != nil {
		log.Fatal(err)
	}
	if err := shop(ctx, nc, os.Stdout); err != nil {
		log.Fatal(err)
	}
	stop()
	closed()
	// Output:
	// {"id":"milk","shelf":"dairy","price":1.20}
	// {"id":"milk","shelf":"dairy","price":1.35}
	// {"id":"milk","dear":true}
	// create milk
	// replace milk
}

func shop(ctx context.Context, nc *nats.Conn, out io.Writer) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	catalog, err := store.OpenCatalog(ctx, js, store.CatalogConfig{})
	if err != nil {
		return err
	}
	client := store.NewClient(nc, catalog, store.ClientConfig{})
	if _, err := catalog.Create(ctx, "shop", "products", store.ContainerSpec{PartitionKey: []string{"/shelf"}}); err != nil {
		return err
	}
	products, err := client.Container(ctx, "shop", "products")
	if err != nil {
		return err
	}

	// Bodies are bytes: numbers come out as they went in.
	milk, err := products.Create(ctx, []byte(`{"id":"milk","shelf":"dairy","price":1.20}`))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, string(milk.Body))
	key, err := feed.NewPartitionKey("dairy")
	if err != nil {
		return err
	}
	milk, err = products.Patch(ctx, key, "milk", []document.Op{{Kind: "incr", Path: "/price", Value: []byte(`0.15`)}},
		store.WriteOptions{IfMatch: milk.ETag})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, string(milk.Body))

	page, err := products.Query(ctx, store.QueryRequest{Text: `SELECT c.id, c.price > 1.30 AS dear FROM c`})
	if err != nil {
		return err
	}
	for _, row := range page.Rows {
		_, _ = fmt.Fprintln(out, string(row))
	}
	changes, err := products.Changes(ctx, store.ChangesRequest{AllVersions: true, Start: feed.StartBeginning()})
	if err != nil {
		return err
	}
	for _, c := range changes.Changes {
		_, _ = fmt.Fprintln(out, c.Op, c.Item.ID)
	}
	return nil
}

// running starts a Millrace of one process, as "millrace store" does, until ctx ends.
// closed waits for that.
func running(ctx context.Context) (nc *nats.Conn, closed func(), err error) {
	dir, err := os.MkdirTemp("", "millrace")
	if err != nil {
		return nil, nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	server, err := natsd.Open(ctx, natsd.Config{Dir: filepath.Join(dir, "nats"), DontListen: true, Log: quiet})
	if err != nil {
		return nil, nil, err
	}
	if nc, err = server.Conn(); err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, err
	}
	catalog, err := store.OpenCatalog(ctx, js, store.CatalogConfig{})
	if err != nil {
		return nil, nil, err
	}
	db, err := engine.Open(filepath.Join(dir, "engine"), engine.Config{}, quiet)
	if err != nil {
		return nil, nil, err
	}
	manager, err := leases.Open(ctx, js, leases.Config{Group: "store", Log: quiet})
	if err != nil {
		return nil, nil, err
	}
	stores, err := owner.NewServer(nc, catalog, db, manager, owner.Config{Logger: quiet})
	if err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = stores.Run(ctx) // ends with ctx
	}()
	return nc, func() {
		<-done
		_ = db.Close()
		nc.Close()
		server.Close()
		_ = os.RemoveAll(dir)
	}, nil
}
