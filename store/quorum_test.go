package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/clustertest"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/spare"
)

// Without a majority of the NATS servers a request is answered with that, for reads
// and writes alike, and as soon as NATS knows: not with a guess at the end of its time
// that no store process runs.
func TestClient_WithoutAQuorumTheAnswerNamesIt(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster takes seconds to elect its leaders and to notice that it has none")
	}
	t.Parallel()
	three := clustertest.Start(t)
	js := three.JetStream(three.Servers[0])
	var catalog *store.Catalog
	three.Wait(func(ctx context.Context) (err error) {
		catalog, err = store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: 3, Log: feed.LogConfig{Replicas: 3}})
		return err
	})
	var info store.ContainerInfo
	three.Wait(func(ctx context.Context) (err error) {
		info, err = catalog.Create(ctx, "default", "things", store.ContainerSpec{PartitionKey: []string{"/pk"}})
		return err
	})
	things, err := store.NewClient(js.Conn(), catalog, store.ClientConfig{Timeout: time.Hour}).Open(info)
	if err != nil {
		t.Fatal(err)
	}
	three.Stop(three.Servers[1:]...)
	key, err := things.KeyOf([]byte(`{"id":"1","pk":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(context.Context) error{
		"write": func(ctx context.Context) error {
			_, err := things.Create(ctx, []byte(`{"id":"1","pk":"a"}`))
			return err
		},
		"read": func(ctx context.Context) error { _, err := things.Read(ctx, key, "1"); return err },
	} {
		// A server takes some seconds to notice; who asks before waits as for an owner.
		three.Wait(func(ctx context.Context) error {
			err := ask(ctx)
			if e, ok := errors.AsType[*store.NoQuorumError](err); !ok || !strings.Contains(e.Error(), "no quorum") || !errors.Is(err, store.ErrUnavailable) {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
}

// The bucket of copies may be out of reach while the catalog is not. The catalog opens
// then, and only what the copies alone know is not answered.
func TestCatalog_OpensWithoutItsCopies(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster takes seconds to elect its leaders and to notice that it has none")
	}
	t.Parallel()
	three := clustertest.Start(t)
	js := three.JetStream()
	var catalog *store.Catalog
	three.Wait(func(ctx context.Context) (err error) {
		catalog, err = store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: 3})
		return err
	})
	three.Wait(func(ctx context.Context) error {
		_, err := catalog.CreateDatabase(ctx, "shop")
		return err
	})
	var only string // the server that alone has the copies
	three.Wait(func(ctx context.Context) error {
		stream, err := js.Stream(ctx, "KV_"+spare.Bucket)
		if err != nil {
			return err
		}
		cfg := stream.CachedInfo().Config
		if cfg.Replicas != 1 {
			cfg.Replicas = 1
			if stream, err = js.UpdateStream(ctx, cfg); err != nil {
				return err
			}
		}
		info := stream.CachedInfo()
		if info.Cluster == nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) > 0 {
			return fmt.Errorf("the copies are still at %+v", info.Cluster)
		}
		only = info.Cluster.Leader
		return nil
	})
	lost := three.Named(only)
	three.Stop(lost)
	js = three.JetStream(three.Others(lost)...)
	three.Wait(func(ctx context.Context) (err error) {
		catalog, err = store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: 3})
		return err
	})
	three.Wait(func(ctx context.Context) error {
		_, err := catalog.Database(ctx, "shop")
		return err
	})
	if _, err := catalog.Database(t.Context(), "lost"); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("a database of which only the copies could tell: %v; want that nobody knows", err)
	}
}
