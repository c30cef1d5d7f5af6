//go:build linux

package integration_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/integration/netns"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

const (
	chaosStores  = 3
	chaosWorkers = 2
	// chaosDiskMegabytes are those of each host's disk.
	chaosDiskMegabytes = 768
)

// The roles of hosts.
const (
	roleNATS   = "NATS"
	roleStore  = "store"
	roleWorker = "worker"
)

// chaosFleet is three NATS servers, three stores and two workers, each on a host with a disk of its own. Clients of this
// process are on another host, which nothing befalls.
type chaosFleet struct {
	*netCluster
	hosts  []*chaosHost
	files  string // of tables: a disk that all workers have
	nc     *nats.Conn
	js     jetstream.JetStream
	client *store.Client
	town   *town // a node of this process, which looks
}

// chaosHost is a host that something may befall.
type chaosHost struct {
	*netns.Host
	role string
	disk *disk
	nats *natsProcess // or
	node *child
}

// newChaosFleet starts the fleet, and waits until it is as it should be.
func newChaosFleet(t *testing.T) *chaosFleet {
	t.Helper()
	f := &chaosFleet{netCluster: newNetCluster(t), files: t.TempDir()}
	for _, n := range f.nats {
		f.hosts = append(f.hosts, &chaosHost{Host: n.Host, role: roleNATS, disk: mountDiskAt(t, n.data(), chaosDiskMegabytes), nats: n})
	}
	for i := range chaosStores {
		// Snapshots are taken, and copies loaded from them, as often as on a store that is much larger.
		f.host(roleStore, i, "--set", "store.diskReserve=32MiB", "--set", "store.snapshots.logBytes=262144", "--set", "store.snapshots.sharePercent=100")
	}
	for i := range chaosWorkers {
		f.host(roleWorker, i, "--set", "sinks.roots="+f.files)
	}
	for _, h := range f.hosts {
		h.begin()
	}
	f.connect()
	for _, h := range f.hosts {
		if h.node != nil {
			h.node.awaitReady()
		}
	}
	return f
}

// host adds the host of a store or a worker. The first of each were made with the network.
func (f *chaosFleet) host(role string, i int, more ...string) {
	f.t.Helper()
	d := mountDisk(f.t, chaosDiskMegabytes)
	more = append(more, "--dir", filepath.Join(d.dir, role))
	node := map[string]*child{roleStore: f.store, roleWorker: f.worker}[role]
	if i == 0 {
		node.args = append(node.args, more...)
	} else {
		node = f.member(role, fmt.Sprint(role[:1], i+1), more...)
	}
	f.hosts = append(f.hosts, &chaosHost{Host: node.host, role: role, disk: d, node: node})
}

// connect connects this process from outside.
func (f *chaosFleet) connect() {
	f.t.Helper()
	f.nc = f.dial()
	var err error
	if f.js, err = jetstream.New(f.nc); err != nil {
		f.t.Fatal(err)
	}
	f.client = f.clientOn(f.nc)
	cfg, err := configs.Load("", nil, []string{
		"dir=" + f.t.TempDir(), "server=" + f.relayed(), "http.listen=off", "gateway.listen=off", "connect.silenceMax=3s", "sinks.roots=" + f.files,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Minute)
	defer cancel()
	n, err := node.Open(ctx, cfg, node.Roles{}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := n.Close(); err != nil {
			f.t.Error(err)
		}
	})
	f.town = &town{Node: n, t: f.t}
}

// dial connects to the servers as a program does on the host outside.
func (f *chaosFleet) dial() *nats.Conn {
	f.t.Helper()
	nc, err := nats.Connect(f.url, nats.SetCustomDialer(f.outside), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.RetryOnFailedConnect(true), nats.Timeout(2*time.Second))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(nc.Close)
	return nc
}

// clientOn is a client that waits for answers as long as an outage may last.
func (f *chaosFleet) clientOn(nc *nats.Conn) *store.Client {
	f.t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		f.t.Fatal(err)
	}
	var catalog *store.Catalog
	poll.Until(f.t, func() (err error) {
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second) // who asks servers without a leader gets no answer
		defer cancel()
		catalog, err = store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: 3})
		return err
	})
	return store.NewClient(nc, catalog, store.ClientConfig{Timeout: time.Minute})
}

// relayed are addresses of this machine that lead to the servers.
func (f *chaosFleet) relayed() string {
	f.t.Helper()
	var urls []string
	for _, n := range f.nats {
		urls = append(urls, relayInto(f.t, f.outside, n.Address+":4222"))
	}
	return strings.Join(urls, ",")
}

// relayInto relays what connects to an address of this machine to one of a network.
func relayInto(t testing.TB, from *netns.Host, to string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	pass := func(into, of net.Conn) {
		_, _ = io.Copy(into, of) // whichever ends, ends both
		_ = into.Close()
		_ = of.Close()
	}
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				out, err := from.Dial("tcp", to)
				if err != nil {
					_ = in.Close() // the client dials again
					return
				}
				wg.Go(func() { pass(in, out) })
				pass(out, in)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close() }) // connections end with their clients
	return "nats://" + l.Addr().String()
}

// process is the one that runs, or ran last.
func (h *chaosHost) process() *os.Process {
	if h.nats != nil {
		return h.nats.cmd.Process
	}
	return h.node.Cmd.Process
}

// begin starts the process and does not wait.
func (h *chaosHost) begin() {
	if h.nats != nil {
		h.nats.start()
		return
	}
	h.node.begin()
}

// end ends the process by a signal and waits until it is gone.
func (h *chaosHost) end(s syscall.Signal) {
	if h.nats != nil {
		h.nats.end(s)
		return
	}
	h.node.signal(s)
}

// gone says whether the process of a store or a worker has ended, though nobody ended it.
func (h *chaosHost) gone() bool {
	if h.nats != nil {
		return false
	}
	select {
	case <-h.node.Ended:
		return true
	default:
		return false
	}
}
