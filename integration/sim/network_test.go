package sim

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// elapse lets time go by, which costs none: the bubble's clock moves on when everybody waits.
func elapse(d time.Duration) { <-time.After(d) }

// network is the simulated world outside of the processes: the ways between them and the
// server, and what goes wrong there. One goroutine, run, does all that happens in it, one
// event after the other; before each next event everything else has come to rest.
type network struct {
	seed   uint64
	faults faults

	mu       sync.Mutex
	events   events
	count    uint64 // of events that were made, which orders those of one moment
	wake     chan struct{}
	ended    bool
	conns    int
	lied     int // by a mutation
	mutation mutation
	trace    trace
}

// faults are the probabilities, of a thousand, by which one message is lost or late, one way
// or back. Others overtake a late request to JetStream and a late answer, as where a cluster of
// servers passes them on and chooses a leader meanwhile. What owners are asked stays in order.
type faults struct {
	Lose, Late int
	LateMax    time.Duration
}

func newNetwork(seed uint64) *network {
	return &network{seed: seed, wake: make(chan struct{}, 1)}
}

// event is something that happens at a moment.
type event struct {
	at    time.Time
	order uint64
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if e[i].at.Equal(e[j].at) {
		return e[i].order < e[j].order
	}
	return e[i].at.Before(e[j].at)
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// atLocked lets something happen at a moment, with mu held.
func (n *network) atLocked(t time.Time, do func()) {
	n.count++
	heap.Push(&n.events, event{t, n.count, do})
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// now lets something happen when everything is at rest, and waits until it has.
func (n *network) now(do func()) {
	done := make(chan struct{})
	n.mu.Lock()
	n.atLocked(time.Now(), func() {
		do()
		close(done)
	})
	n.mu.Unlock()
	<-done
}

// run lets events happen until end.
func (n *network) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		synctest.Wait()
		n.mu.Lock()
		if n.ended {
			n.mu.Unlock()
			return
		}
		wait := time.Hour
		if len(n.events) > 0 {
			wait = time.Until(n.events[0].at)
		}
		if wait <= 0 {
			e := heap.Pop(&n.events).(event)
			e.do()
			n.mu.Unlock()
			continue
		}
		n.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-n.wake:
		}
	}
}

func (n *network) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// host is one simulated process, as the network sees it.
type host struct {
	n      *network
	server *server
	name   string
	safe   bool // no message of it is lost or late

	// Guarded by network.mu.
	conns []*conn
	dead  bool
	until time.Time // nothing leaves it or reaches it before
	// Nothing reaches the leases' bucket before, nor comes from there.
	stranded time.Time
	jammed   time.Time // likewise, of all of JetStream; clients reach the host
}

func (s *server) host(name string) *host { return &host{n: s.n, server: s, name: name} }

// killLocked cuts all connections of a host for ever. Of what is on its way from it some
// arrives.
func (h *host) killLocked() {
	h.dead = true
	h.n.trace.add(h.name, "killed")
	h.cutLocked()
}

// cut breaks the host's connections; it may make new ones.
func (h *host) cut() {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.n.trace.add(h.name, "cut")
	h.cutLocked()
}

func (h *host) cutLocked() {
	for _, c := range h.conns {
		c.closeLocked(io.EOF)
	}
	h.conns = nil
}

// silence holds up everything between the host and the server for a while, as a link does
// that is down and is not known to be.
func (h *host) silence(d time.Duration) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.n.trace.add(h.name, "silent for "+d.String())
	h.until = time.Now().Add(d)
}

// strand loses what is between the host and the leases' bucket for a while, as where the bucket's leader is cut off
// from the server to which the host is connected.
func (h *host) strand(d time.Duration) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.n.trace.add(h.name, "stranded for "+d.String())
	h.stranded = time.Now().Add(d)
}

// jam keeps JetStream out of the host's reach for a while; clients reach the host.
func (h *host) jam(d time.Duration) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.n.trace.add(h.name, "jammed for "+d.String())
	h.jammed = time.Now().Add(d)
}

// strands reports whether a message of this subject, or with this reply, is lost.
func (h *host) strands(subjects ...string) bool {
	if h.jams() && slices.ContainsFunc(subjects, ofJetStream) {
		return true
	}
	return time.Now().Before(h.stranded) && slices.ContainsFunc(subjects, func(s string) bool {
		return strings.HasPrefix(s, "$KV.millrace_leases.") || strings.HasPrefix(s, "$JS.") && strings.Contains(s, "KV_millrace_leases")
	})
}

// jams says whether nothing of JetStream reaches the host, or leaves it.
func (h *host) jams() bool { return time.Now().Before(h.jammed) }

// ofJetStream says whether a subject is not one of requests to owners and of their answers.
func ofJetStream(subject string) bool {
	return subject != "" && !strings.HasPrefix(subject, "_INBOX.") && !strings.HasPrefix(subject, "millrace.store.") && !strings.HasPrefix(subject, "millrace.read.")
}

// InProcessConn implements nats.InProcessConnProvider.
func (h *host) InProcessConn() (net.Conn, error) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	if h.dead || time.Now().Before(h.until) {
		return nil, errors.New("simulated: no route to host")
	}
	h.n.conns++
	c := &conn{
		n: h.n, host: h, name: fmt.Sprintf("%s#%d", h.name, h.n.conns), ready: make(chan struct{}, 1), subs: map[string]*subscription{},
		rng: rand.New(rand.NewPCG(h.n.seed, uint64(h.n.conns)*2)), back: rand.New(rand.NewPCG(h.n.seed, uint64(h.n.conns)*2+1)),
	}
	h.conns = append(h.conns, c)
	h.server.conns = append(h.server.conns, c)
	c.in = []byte(greeting)
	return c, nil
}

const greeting = `INFO {"server_id":"SIM","server_name":"sim","version":"2.12.0","proto":1,"headers":true,"max_payload":8388608,"jetstream":true,"go":"go","host":"sim","port":4222}` + "\r\n"

// conn is one connection, as the client has it.
type conn struct {
	n    *network
	host *host
	name string

	// Used by the client's writer alone.
	rest []byte

	// Guarded by network.mu.
	rng, back *rand.Rand // for what goes to the server, and comes back
	closed    error
	connected bool
	in        []byte
	subs      map[string]*subscription
	out, home time.Time         // when the last message in order arrives
	cache     map[string][]byte // what the mutation readsNothingBack has sent
	ready     chan struct{}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	for {
		c.n.mu.Lock()
		k := copy(p, c.in)
		c.in = c.in[k:]
		closed := c.closed
		c.n.mu.Unlock()
		if k > 0 {
			return k, nil
		}
		if closed != nil {
			return 0, closed
		}
		<-c.ready
	}
}

func (c *conn) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// Write implements net.Conn: it takes the messages apart and sends each on its way.
func (c *conn) Write(p []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed != nil {
		return 0, io.ErrClosedPipe
	}
	c.rest = append(c.rest, p...)
	for {
		o, rest, ok := parse(c.rest)
		if !ok {
			return len(p), nil
		}
		c.rest = rest
		// The client holds its lock until it is connected, and who waits for a lock is not at
		// rest, so that takes no time.
		if !c.connected {
			if o.verb == "PING" {
				c.connected = true
				c.in = append(c.in, "PONG\r\n"...)
				c.signal()
			}
			continue
		}
		c.sendLocked(o)
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.closeLocked(io.ErrClosedPipe)
	return nil
}

func (c *conn) closeLocked(why error) {
	if c.closed == nil {
		c.closed = why
		c.host.server.forget(c)
		c.signal()
	}
}

func (c *conn) LocalAddr() net.Addr              { return address{} }
func (c *conn) RemoteAddr() net.Addr             { return address{} }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

type address struct{}

func (address) Network() string { return "sim" }
func (address) String() string  { return "sim" }

// sendLocked sends one message to the server.
func (c *conn) sendLocked(o *operation) {
	at := time.Now().Add(delay(c.rng))
	if c.host.until.After(at) {
		at = c.host.until.Add(delay(c.rng))
	}
	if c.n.mutation.sent(c, o) {
		return
	}
	// Drawn for each message, so that leaving a fault out changes no other one.
	lose, late, by := c.draw(c.rng)
	faulty := o.verb == "PUB" && faultable(o.subject)
	switch {
	case o.verb == "PUB" && c.host.strands(o.subject):
		return
	case faulty && lose:
		c.n.trace.add(c.name, "lost: "+o.String())
		return
	case faulty && late:
		c.n.trace.add(c.name, "late by "+by.String()+": "+o.String())
		at = at.Add(by)
	}
	// What is late is overtaken, and overtakes nothing.
	if !at.After(c.out) {
		at = c.out.Add(1)
	}
	if !faulty || !late || ordered(o.subject) {
		c.out = at
	}
	c.n.atLocked(at, func() {
		// What a process sent before it died may arrive: half of it does.
		if c.closed != nil && (o.verb != "PUB" || len(o.data)%2 == 0) {
			return
		}
		c.n.trace.add(c.name, o.String())
		c.host.server.handle(c, o)
	})
}

// deliverLocked sends bytes to the client: a message of a subject, or "".
func (c *conn) deliverLocked(subject string, data []byte, faulty bool) {
	if c.host.strands(subject) {
		return
	}
	at := time.Now().Add(delay(c.back))
	if c.host.until.After(at) {
		at = c.host.until.Add(delay(c.back))
	}
	lose, late, by := c.draw(c.back)
	switch {
	case faulty && lose:
		c.n.trace.add(c.name, "answer lost")
		return
	case faulty && late:
		c.n.trace.add(c.name, "answer late by "+by.String())
		at = at.Add(by)
	}
	if !at.After(c.home) {
		at = c.home.Add(1)
	}
	if !faulty || !late || ordered(subject) {
		c.home = at
	}
	c.n.atLocked(at, func() {
		if c.closed == nil {
			c.in = append(c.in, data...)
			c.signal()
		}
	})
}

func (c *conn) draw(rng *rand.Rand) (lose, late bool, by time.Duration) {
	x, y := rng.IntN(1000), rng.Int64()
	f := &c.n.faults
	if c.host.safe {
		return false, false, 0
	}
	if f.LateMax > 0 {
		by = time.Duration(y % int64(f.LateMax))
	}
	return x < f.Lose, x >= f.Lose && x < f.Lose+f.Late, by
}

// ordered says whether messages of a subject keep their order, however late they are: what
// owners are asked does, on its way to the server and from there to the owner. A server passes
// on what one connection sends to one subscription as it came. What overtakes there, a second
// attempt its first one, does so after the connection of whoever asks was made anew.
func ordered(subject string) bool {
	return strings.HasPrefix(subject, "millrace.store.") || strings.HasPrefix(subject, "millrace.read.")
}

// delay is what one way takes: never the same twice, so that seldom two things happen at
// one moment.
func delay(rng *rand.Rand) time.Duration {
	return 100*time.Microsecond + upTo(rng, 900*time.Microsecond)
}

// faultable are the subjects of requests: to JetStream, to logs and buckets, to owners, and
// the answers of owners.
func faultable(subject string) bool {
	return strings.HasPrefix(subject, "$JS.API.") || strings.HasPrefix(subject, "$KV.") || strings.HasPrefix(subject, "_INBOX.") ||
		strings.HasPrefix(subject, "millrace.")
}

// trace remembers what happened.
type trace struct {
	began time.Time
	lines []line
}

type line struct {
	at        time.Duration
	who, what string
}

func (l line) String() string { return fmt.Sprintf("%12.6f %-8s %s", l.at.Seconds(), l.who, l.what) }

func (t *trace) add(who, what string) {
	if t.began.IsZero() {
		t.began = time.Now()
	}
	l := line{time.Since(t.began), who, what}
	t.lines = append(t.lines, l)
	if *liveFlag {
		fmt.Fprintln(os.Stderr, l)
	}
}

// String prints the trace, one event a line.
func (t *trace) String() string {
	var b strings.Builder
	for _, l := range t.lines {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}
