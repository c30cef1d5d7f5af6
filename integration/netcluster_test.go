package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
	"github.com/millrace/millrace/store/upkeep"
)

// netCluster is three NATS servers, and Millrace over them, each process on a host
// of its own in a network that the test may break.
type netCluster struct {
	t       *testing.T
	net     *netns.Network
	nats    []*natsProcess
	url     string // of all servers
	store   *child
	worker  *child
	outside *netns.Host // where commands and the witness run
}

// natsProcess is a plain NATS server on a host of its own.
type natsProcess struct {
	*netns.Host
	t    *testing.T
	dir  string // of its configuration, and of what JetStream keeps
	args []string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// natsConf is the part of deploy/nats/nats.conf that tells of failures.
const natsConf = `
server_name: %s
listen: "0.0.0.0:4222"
max_payload: 8MB
ping_interval: "2s"
ping_max: 2
jetstream { store_dir: %q, sync_interval: always }
cluster {
  name: millrace
  listen: "0.0.0.0:6222"
  ping_interval: "1s"
  ping_max: 2
  # Who is outside of the network reaches the servers at other addresses than they have.
  no_advertise: true
  routes: [%s]
}
`

// newNetCluster makes the hosts. Nothing runs yet.
func newNetCluster(t *testing.T) *netCluster {
	t.Helper()
	c := &netCluster{t: t, net: netns.New(t)}
	binary, err := natsServerBinary()
	if err != nil {
		t.Fatal(err)
	}
	var routes, urls []string
	for i := range 3 {
		n := &natsProcess{Host: c.net.Host(fmt.Sprint("n", i+1)), t: t}
		routes, urls = append(routes, "nats://"+n.Address+":6222"), append(urls, "nats://"+n.Address+":4222")
		c.nats = append(c.nats, n)
	}
	for _, n := range c.nats {
		n.dir = t.TempDir()
		conf := filepath.Join(n.dir, "nats.conf")
		text := fmt.Appendf(nil, natsConf, n.Name, n.data(), strings.Join(routes, ", "))
		if err := os.WriteFile(conf, text, 0o600); err != nil {
			t.Fatal(err)
		}
		n.args = []string{binary, "-c", conf}
	}
	c.url = strings.Join(urls, ",")
	c.outside = c.net.Host("cli")
	c.store, c.worker = c.member("store", "s1"), c.member("worker", "w1")
	return c
}

// data is the directory of JetStream.
func (n *natsProcess) data() string { return filepath.Join(n.dir, "jetstream") }

// member is a Millrace process on a host of its own, with more arguments. It does not run yet.
func (c *netCluster) member(role, host string, more ...string) *child {
	c.t.Helper()
	m := &child{
		t: c.t, name: role + " " + host, dir: c.t.TempDir(), host: c.net.Host(host),
		args: append([]string{role, "--server", c.url, "--dir", filepath.Join(c.t.TempDir(), role), "--durability", "replicas"}, more...),
	}
	c.t.Cleanup(func() {
		if m.Process != nil {
			m.kill()
		}
		if c.t.Failed() {
			c.t.Logf("%s said:\n%s", m.name, m.output())
		}
	})
	return m
}

// kill ends the server as kill -9 does.
func (n *natsProcess) kill() { n.end(syscall.SIGKILL) }

// end ends the server by a signal.
func (n *natsProcess) end(s syscall.Signal) {
	n.t.Helper()
	_ = n.cmd.Process.Signal(s) // it may have ended already
	_ = n.cmd.Wait()
}

func (n *natsProcess) start() {
	n.t.Helper()
	n.cmd = n.Command(context.Background(), n.args[0], n.args[1:]...)
	n.cmd.Stdout, n.cmd.Stderr = &n.log, &n.log
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	cmd := n.cmd
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()
		if n.t.Failed() {
			n.t.Logf("server %s said:\n%s", n.Name, &n.log)
		}
	})
}

// start starts all and declares the shop.
func (c *netCluster) start() {
	c.t.Helper()
	for _, n := range c.nats {
		n.start()
	}
	c.store.begin()
	c.worker.begin()
	if out, err := c.command("apply", "-f", "../pipelines/testdata/shop").CombinedOutput(); err != nil {
		c.t.Fatalf("apply: %v\n%s", err, out)
	}
	c.store.awaitReady()
	c.worker.awaitReady()
}

// replicated waits until every stream and bucket has its replicas: what was declared
// before a store ran has one each until a store has brought it more, and one of one is
// no quorum without its server.
func (c *netCluster) replicated() {
	c.t.Helper()
	poll.Until(c.t, func() error {
		out, err := c.command("doctor").CombinedOutput()
		return poll.Unless(err == nil, string(out))
	})
}

// whole waits until every replica of every stream has what its leader has. One that still
// catches up is no member of a quorum, though doctor counts it.
func (c *netCluster) whole() {
	c.t.Helper()
	cmd := c.outside.Command(c.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), wholeEnv+"="+c.url)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
}

// wholeEnv has the test binary wait until all replicas are whole.
const wholeEnv = "MILLRACE_TEST_WHOLE"

func wholeMain(server string) int {
	nc, err := nats.Connect(server)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer nc.Close()
	js := must(jetstream.New(nc))
	why := ""
	for deadline := time.Now().Add(poll.Most); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) { //nolint:forbidigo // it asks again, in a process of its own
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		report, err := upkeep.Look(ctx, js, upkeep.Wish{Replicas: 3})
		cancel()
		if err != nil {
			why = err.Error()
			continue
		}
		at := slices.IndexFunc(report.Streams, func(s upkeep.Stream) bool { return s.Short() || len(s.Offline)+len(s.Behind) > 0 || s.Error != "" })
		if at < 0 {
			return 0
		}
		why = fmt.Sprintf("%+v", report.Streams[at])
	}
	fmt.Fprintln(os.Stderr, why)
	return 1
}

// command is a command of the binary, outside of all other hosts.
func (c *netCluster) command(args ...string) *exec.Cmd {
	c.t.Helper()
	here := invocation(c.t, append(args, "--server", c.url)...)
	cmd := c.outside.Command(c.t.Context(), here.Path, here.Args[1:]...)
	cmd.Dir = here.Dir
	return cmd
}

// witnessEnv has the test binary be a witness: its value is the URL of the servers.
const witnessEnv = "MILLRACE_TEST_WITNESS"

// The events of a witness.
const (
	eventWrite = "write" // a write was acknowledged
	eventCopy  = "copy"  // a worker has brought a copy up to date
)

// witnessMain renames a category for ever and says when a rename is acknowledged,
// and when the product that shows the category's name has been brought up to date.
func witnessMain(server string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := witness1(context.Background(), server, log); err != nil {
		log.Error("the witness ends", "error", err)
	}
	return 1
}

func witness1(ctx context.Context, server string, log *slog.Logger) error {
	nc, err := node.Connect(ctx, &configs.Config{Server: server, Connect: configs.Connect{SilenceMax: 3 * time.Second}}, &node.Login{}, "witness", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	catalog, err := store.OpenCatalog(ctx, js, store.CatalogConfig{Replicas: 3})
	if err != nil {
		return err
	}
	client := store.NewClient(nc, catalog, store.ClientConfig{})
	meta, err := client.Container(ctx, "default", "productMeta")
	if err != nil {
		return err
	}
	product, err := client.Container(ctx, "default", "product")
	if err != nil {
		return err
	}
	if err := put(ctx, product, productItem{ID: "p", CategoryID: "c"}); err != nil {
		return err
	}
	tell := func(event string) { fmt.Fprintln(os.Stdout, event, time.Now().UnixNano()) }
	go func() {
		key, last := must(product.KeyOf([]byte(`{"id":"p","categoryId":"c"}`))), ""
		for range time.Tick(50 * time.Millisecond) {
			item, err := product.Read(ctx, key, "p")
			if err != nil {
				log.Warn("read", "error", err)
				continue
			}
			if name := string(item.Body); name != last {
				last = name
				tell(eventCopy)
			}
		}
	}()
	for n := 0; ; n++ {
		body := fmt.Appendf(nil, `{"id":"c","type":"category","name":"v%d"}`, n)
		if _, err := meta.Upsert(ctx, body, store.WriteOptions{IdempotencyKey: fmt.Sprint(os.Getpid(), "-", n)}); err != nil {
			log.Warn("write", "error", err)
			continue
		}
		tell(eventWrite)
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // the pace of a client, in a process of its own
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// witnessed is what a witness has told.
type witnessed struct {
	mu     sync.Mutex
	events map[string][]time.Time
	log    bytes.Buffer
}

// witness starts a witness outside.
func (c *netCluster) witness() *witnessed {
	c.t.Helper()
	w := &witnessed{events: map[string][]time.Time{}}
	cmd := c.outside.Command(c.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), witnessEnv+"="+c.url)
	cmd.Stderr = &w.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			event, at, _ := strings.Cut(lines.Text(), " ")
			nanos, err := strconv.ParseInt(at, 10, 64)
			if err != nil {
				continue
			}
			w.add(event, time.Unix(0, nanos))
		}
	}()
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		<-read
		_ = cmd.Wait()
		if c.t.Failed() {
			c.t.Logf("the witness said:\n%s", &w.log)
		}
	})
	return w
}

func (w *witnessed) add(event string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[event] = append(w.events[event], at)
}

// since returns when an event happened after a moment, n times at most.
func (w *witnessed) since(event string, after time.Time) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.events[event]
	return slices.Clone(all[len(all)-countAfter(all, after):])
}

func countAfter(all []time.Time, after time.Time) int {
	n := 0
	for n < len(all) && all[len(all)-1-n].After(after) {
		n++
	}
	return n
}

// flows waits until an event has happened several times after a moment.
func (w *witnessed) flows(t *testing.T, event string, after time.Time) {
	t.Helper()
	const enough = 5
	poll.Until(t, func() error {
		n := len(w.since(event, after))
		return poll.Unless(n >= enough, fmt.Sprintf("%d of %d events %q since %s", n, enough, event, after.Format(time.TimeOnly)))
	})
}

// gap is the longest time without an event from a moment on until now.
func (w *witnessed) gap(event string, from time.Time) (longest time.Duration) {
	last := from
	for _, at := range append(w.since(event, from), time.Now()) {
		longest = max(longest, at.Sub(last))
		last = at
	}
	return longest
}
