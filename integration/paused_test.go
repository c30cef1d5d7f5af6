package integration_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// relay is a TCP proxy in front of a NATS server that can keep to itself what
// its client sends, as a network does when a process stops in the middle of a
// request.
type relay struct {
	url    string
	server string

	mu     sync.Mutex
	change *sync.Cond
	shut   bool
	held   bytes.Buffer // of what came while it is shut
	conns  []net.Conn
}

func newRelay(t testing.TB, server string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{url: "nats://" + l.Addr().String(), server: strings.TrimPrefix(server, "nats://")}
	r.change = sync.NewCond(&r.mu)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", r.server)
			if err != nil {
				_ = in.Close() // the client dials again
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, in, out)
			r.mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
			wg.Go(func() { r.up(in, out); _ = out.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.open()
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		wg.Wait()
	})
	return r
}

// up passes on what the client sends while the relay is open.
func (r *relay) up(in, out net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		r.mu.Lock()
		if r.shut {
			r.held.Write(buf[:n])
		}
		for r.shut && n > 0 {
			r.change.Wait()
		}
		r.mu.Unlock()
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = true
	r.held.Reset()
}

func (r *relay) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = false
	r.change.Broadcast()
}

// holdsPage says whether a page of a fan-out of tag names to a partition is held. A check sends
// requests there too, which nobody need refuse: its successor may have nothing to write.
func (r *relay) holdsPage(p feed.Partition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sent := range bytes.Split(r.held.Bytes(), []byte("PUB "+store.RequestSubject(p)+" "))[1:] {
		sent, _, _ = bytes.Cut(sent, []byte("PUB ")) // the next message
		if bytes.Contains(sent, []byte("tag-names")) && bytes.Contains(sent, []byte("source:")) {
			return true
		}
	}
	return false
}

// metric reads a counter of the member, all its attributes added up.
func (m *member) metric(t testing.TB, name string) (total float64) {
	t.Helper()
	for _, line := range m.scrape(t) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == '{' || rest[0] == ' ') {
			v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			total += v
		}
	}
	return total
}

func (m *member) scrape(t testing.TB) (lines []string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.http+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	scan := bufio.NewScanner(resp.Body)
	for scan.Scan() {
		lines = append(lines, scan.Text())
	}
	if scan.Err() != nil {
		t.Fatal(scan.Err())
	}
	return lines
}

// TestI5_PausedWorkerIsRefused stops a worker process, with pages of a fan-out
// on their way, for longer than its leases live. Another goes on, with newer
// names too. When the first wakes up, its pages are refused and counted, no page sets
// an older name, and it takes part again.
func TestI5_PausedWorkerIsRefused(t *testing.T) {
	t.Parallel()
	const items = 1000
	c := newCluster(t, 1, 0, "--set", "leases.ttl=2s")
	meta, product := c.load(items)
	mustRun(t, c.server, "apply", "-f", "../configs/webstore")
	network := newRelay(t, c.server)
	sleeper := c.spawn("worker", network.url, "--set", "leases.ttl=2s")
	c.workers = append(c.workers, sleeper)
	w := c.watch(product, "tag-names", tagVersion)
	named := func(version int) {
		t.Helper()
		poll.Until(t, func() error {
			n, _ := w.written(fmt.Sprint("v", version))
			return poll.Unless(n == items, fmt.Sprintf("%d of %d products have name v%d", n, items, version))
		})
	}
	c.renameTag(meta, 1)
	named(1)

	// The worker learns of a rename, and its pages stay under way. It does not
	// learn of it if it is just asking for something, whose answer does not come.
	v := 2
	for !c.held(network, product, func() { c.renameTag(meta, v) }) {
		network.open()
		named(v)
		v++
	}
	if err := sleeper.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleeper.Cmd.Process.Signal(syscall.SIGCONT) }) // or it cannot be stopped

	// Its leases pass on, and its successor finishes this rename and another.
	stopped := time.Now()
	c.workers = append(c.workers, c.spawn("worker", c.server, "--set", "leases.ttl=2s"))
	named(v)
	t.Logf("its leases had passed on, and the work was done, %s after it stopped", time.Since(stopped).Round(time.Millisecond))
	c.renameTag(meta, v+1)
	named(v + 1)
	before := c.stores[0].metric(t, "millrace_fenced_total") // of one that lost a lease on a busy machine, if any

	network.open()
	if err := sleeper.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		return poll.Unless(c.stores[0].metric(t, "millrace_fenced_total") > before, "no write of the paused worker was refused")
	})
	t.Logf("refused: %d by the store; the worker counted %d", int(c.stores[0].metric(t, "millrace_fenced_total")-before),
		int(sleeper.metric(t, "millrace_processor_fenced_writes_total")))
	c.alone(sleeper)
	c.renameTag(meta, v+2)
	named(v + 2)
	r := verifyCopies(t, c.server)
	r.equal(t, "at rest", map[string]int64{"category-names": items, "tag-names": 2 * items})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, why := range w.wrong {
		t.Error(why)
	}
	for what, n := range w.paged {
		if n > 1 {
			t.Errorf("pages wrote name %s %d times", what, n)
		}
	}
}

// held shuts the network, renames, and says whether a page of the fan-out is held
// up while the worker still has its leases.
func (c *cluster) held(network *relay, product *store.Container, rename func()) bool {
	c.t.Helper()
	network.close()
	rename()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Second)
	for {
		if slices.ContainsFunc(product.Partitions(), network.holdsPage) {
			return true
		}
		select {
		case <-tick.C:
		case <-late:
			return false
		}
	}
}

// alone stops every worker but one, which takes their leases.
func (c *cluster) alone(left *member) {
	c.t.Helper()
	for _, other := range c.workers {
		if other != left {
			other.stop()
		}
	}
	poll.Until(c.t, func() error {
		_, at := c.fanOutRole("tag-names")
		return poll.Unless(at == left, "the worker that was paused takes no lease any more")
	})
}
