package upkeep_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd"
)

var quiet = slog.New(slog.DiscardHandler)

// eventually polls until done is true, and reports the last reason.
func eventually(tb testing.TB, done func() (bool, string)) {
	tb.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		ok, why := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatal("after a minute: " + why)
		}
		select {
		case <-tb.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// alone runs one embedded server.
func alone(tb testing.TB) jetstream.JetStream {
	tb.Helper()
	srv, err := natsd.Open(tb.Context(), natsd.Config{Dir: tb.TempDir(), DontListen: true, SyncInterval: time.Minute, Log: quiet})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(srv.Close)
	nc, err := srv.Conn()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// three runs three servers that replicate, and returns when they have a leader.
func three(tb testing.TB) (servers []*server.Server, js jetstream.JetStream) {
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
	var urls []string
	for i := range 3 {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, MaxPayload: 8 << 20,
			JetStream: true, StoreDir: tb.TempDir(), Routes: routes,
			Cluster: server.ClusterOpts{Name: "upkeep", Host: "127.0.0.1", Port: ports[i]},
		})
		if err != nil {
			tb.Fatal(err)
		}
		s.Start()
		tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(time.Minute) {
			tb.Fatal("a server is not ready")
		}
		urls = append(urls, s.ClientURL())
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		tb.Fatal(err)
	}
	eventually(tb, func() (bool, string) {
		ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Second)
		defer cancel()
		_, err := js.AccountInfo(ctx)
		return err == nil, fmt.Sprint(err)
	})
	return servers, js
}
