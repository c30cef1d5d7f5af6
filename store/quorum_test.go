package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
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
	servers := startCluster(t)
	nc, err := nats.Connect(servers[0].ClientURL(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var catalog *store.Catalog
	wait(t, func(ctx context.Context) error {
		catalog, err = store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: 3, Log: feed.LogConfig{Replicas: 3}})
		return err
	})
	var info store.ContainerInfo
	wait(t, func(ctx context.Context) error {
		info, err = catalog.Create(ctx, "default", "things", store.ContainerSpec{PartitionKey: []string{"/pk"}})
		return err
	})
	things, err := store.NewClient(nc, catalog, store.ClientConfig{Timeout: time.Hour}).Open(info)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers[1:] {
		s.Shutdown()
		s.WaitForShutdown()
	}
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
		wait(t, func(ctx context.Context) error {
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
	servers := startCluster(t)
	js := jetStreamOf(t, servers[0])
	var catalog *store.Catalog
	wait(t, func(ctx context.Context) (err error) {
		catalog, err = store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: 3})
		return err
	})
	wait(t, func(ctx context.Context) error {
		_, err := catalog.CreateDatabase(ctx, "shop")
		return err
	})
	var only string // the server that alone has the copies
	wait(t, func(ctx context.Context) error {
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
	at := slices.IndexFunc(servers, func(s *server.Server) bool { return s.Name() == only })
	servers[at].Shutdown()
	servers[at].WaitForShutdown()
	js = jetStreamOf(t, servers[(at+1)%len(servers)])
	wait(t, func(ctx context.Context) (err error) {
		catalog, err = store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: 3})
		return err
	})
	wait(t, func(ctx context.Context) error {
		_, err := catalog.Database(ctx, "shop")
		return err
	})
	if _, err := catalog.Database(t.Context(), "lost"); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("a database of which only the copies could tell: %v; want that nobody knows", err)
	}
}

func jetStreamOf(t *testing.T, s *server.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// wait tries until f succeeds, for two minutes.
func wait(t *testing.T, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		attempt, over := context.WithTimeout(ctx, 10*time.Second) // a request may be lost while there is no leader
		err := f(attempt)
		over()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after two minutes: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// startCluster runs three NATS servers that replicate.
func startCluster(t *testing.T) []*server.Server {
	t.Helper()
	var routes []*url.URL
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var servers []*server.Server
	for i := range 3 {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, MaxPayload: 8 << 20,
			JetStream: true, StoreDir: t.TempDir(), Routes: routes,
			Cluster: server.ClusterOpts{Name: "store", Host: "127.0.0.1", Port: ports[i]},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("server not ready")
		}
	}
	return servers
}
