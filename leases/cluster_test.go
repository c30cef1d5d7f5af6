package leases_test

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases"
)

// startCluster runs three nats-servers that replicate.
func startCluster(tb testing.TB) []*server.Server {
	tb.Helper()
	var routes []*url.URL
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		if err := l.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	var servers []*server.Server
	for i := range 3 {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
			JetStream: true, StoreDir: tb.TempDir(), Routes: routes,
			Cluster: server.ClusterOpts{Name: "leases", Host: "127.0.0.1", Port: ports[i]},
		})
		if err != nil {
			tb.Fatal(err)
		}
		s.Start()
		tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(20 * time.Second) {
			tb.Fatal("server not ready")
		}
	}
	return servers
}

// TestReplicatedBucket hands over and survives the loss of a server on a bucket
// with three replicas, whose refusals have another code.
func TestReplicatedBucket(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster takes seconds to elect its leaders")
	}
	t.Parallel()
	servers := startCluster(t)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	dial := func() jetstream.JetStream {
		nc, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
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
	js := dial()
	for deadline := time.Now().Add(time.Minute); ; { // until there is a leader
		_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: leases.DefaultBucket, Replicas: 3})
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	cfg := fast("a")
	cfg.TTL = 7 * time.Second
	a := start(t, js, cfg, names(6)...)
	a.waitCount(t, 6)
	cfg.Node = "b"
	b := start(t, dial(), cfg, names(6)...)
	b.waitCount(t, 3)
	a.waitCount(t, 3)
	begun := time.Now()
	a.end(t)
	b.waitCount(t, 6)
	if took := time.Since(begun); took > cfg.TTL*3/4 {
		t.Errorf("hand-over took %v: the leases expired", took)
	}
	cfg.Node = "a"
	again := start(t, dial(), cfg, names(6)...)
	again.waitCount(t, 3)

	status, err := js.Stream(t.Context(), "KV_"+leases.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	leader := status.CachedInfo().Cluster.Leader
	for _, s := range servers {
		if s.Name() == leader {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	// Whatever is lost meanwhile is held again.
	h := func(p *process) *leases.Held {
		for _, name := range names(6) {
			if h := p.get(name); h != nil && h.Valid() {
				return h
			}
		}
		return nil
	}
	eventually(t, func() error {
		for _, p := range []*process{b, again} {
			held := h(p)
			if held == nil {
				return fmt.Errorf("%s holds nothing", p.m.Holder())
			}
			if err := held.Save(t.Context(), []byte("after")); err != nil {
				return err
			}
		}
		return nil
	})
	b.end(t)
	again.end(t)
}

// eventually polls until ok returns nil.
func eventually(tb testing.TB, ok func() error) {
	tb.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(time.Minute)
	var last error
	for {
		select {
		case <-ticker.C:
			if last = ok(); last == nil {
				return
			}
		case <-timeout:
			tb.Fatalf("not within a minute: %v", last)
		}
	}
}
