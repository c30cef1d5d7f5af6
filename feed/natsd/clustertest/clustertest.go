// Package clustertest runs three NATS servers that replicate, in the process of a test.
//
// This package is no API for other programs.
package clustertest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/ports"
)

const (
	size = 3
	// patience bounds every wait: elections take seconds, and more on a busy machine.
	patience = 2 * time.Minute
	// attempt bounds one try: a request is lost while there is no leader.
	attempt = 10 * time.Second
	// starts is how often the servers are started, and ready how long one may take.
	starts = 5
	ready  = 30 * time.Second
)

// Cluster is three servers, which end with the test.
type Cluster struct {
	Servers []*server.Server
	tb      testing.TB
}

// Start runs the servers and returns when clients can connect. There may be no leader
// yet: see [Cluster.JetStream].
func Start(tb testing.TB) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for range starts {
		if c.start() {
			return c
		}
	}
	tb.Fatal("the servers are not ready")
	return nil
}

// start runs the servers; false if they could not have their ports. Servers have to name each
// other's ports before they listen there, and somebody else may take one.
func (c *Cluster) start() bool {
	c.tb.Helper()
	routes := c.freePorts()
	c.Servers = nil
	stop := func() {
		for _, s := range c.Servers {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	for i := range size {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, MaxPayload: 8 << 20,
			JetStream: true, StoreDir: c.tb.TempDir(), Routes: routes,
			// Another test's servers at a port of these are not to become a part of them.
			Cluster: server.ClusterOpts{Name: "of-" + routes[0].Port(), Host: "127.0.0.1", Port: port(routes[i])},
		})
		if err != nil {
			c.tb.Fatal(err)
		}
		s.Start()
		c.Servers = append(c.Servers, s)
	}
	for _, s := range c.Servers {
		if !s.ReadyForConnections(ready) {
			stop()
			return false
		}
	}
	c.tb.Cleanup(stop)
	return true
}

// freePorts returns where nobody listens.
func (c *Cluster) freePorts() (routes []*url.URL) {
	c.tb.Helper()
	for range size {
		routes = append(routes, &url.URL{Scheme: "nats", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.Free(c.tb)))})
	}
	return routes
}

func port(route *url.URL) int {
	n, _ := strconv.Atoi(route.Port()) // of a listener
	return n
}

// URL names all servers.
func (c *Cluster) URL() string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.ClientURL())
	}
	return strings.Join(urls, ",")
}

// Dial connects to one of some servers; of all, if none is named. The connection is
// closed with the test, and outlives the absence of servers.
func (c *Cluster) Dial(servers ...*server.Server) *nats.Conn {
	c.tb.Helper()
	to := c.URL()
	if len(servers) > 0 {
		to = (&Cluster{Servers: servers}).URL()
	}
	nc, err := nats.Connect(to, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(time.Minute))
	if err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(nc.Close)
	return nc
}

// JetStream connects like Dial and returns when JetStream has a leader.
func (c *Cluster) JetStream(servers ...*server.Server) jetstream.JetStream {
	c.tb.Helper()
	js, err := jetstream.New(c.Dial(servers...))
	if err != nil {
		c.tb.Fatal(err)
	}
	c.Wait(func(ctx context.Context) error {
		_, err := js.AccountInfo(ctx)
		return err
	})
	return js
}

// Wait tries until f succeeds.
func (c *Cluster) Wait(f func(ctx context.Context) error) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	for {
		try, over := context.WithTimeout(ctx, attempt)
		err := f(try)
		over()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.tb.Fatalf("after %s: %v", patience, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Named returns a server by its name, as JetStream tells it of leaders and replicas.
func (c *Cluster) Named(name string) *server.Server {
	c.tb.Helper()
	at := slices.IndexFunc(c.Servers, func(s *server.Server) bool { return s.Name() == name })
	if at < 0 {
		c.tb.Fatalf("no server has the name %q", name)
	}
	return c.Servers[at]
}

// Others returns all servers but one.
func (c *Cluster) Others(but *server.Server) []*server.Server {
	return slices.DeleteFunc(slices.Clone(c.Servers), func(s *server.Server) bool { return s == but })
}

// Stop ends servers and returns when they have.
func (c *Cluster) Stop(servers ...*server.Server) {
	for _, s := range servers {
		s.Shutdown()
	}
	for _, s := range servers {
		s.WaitForShutdown()
	}
}
