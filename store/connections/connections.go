// Package connections bounds the connections of a listener of HTTP.
//
// A new connection beyond the bound replaces the one that has been idle longest, and is refused only
// if none is idle. A client that finds its idle connection closed opens another; so a client gets
// through however many connections others hold without using them.
//
// A connection is idle before the headers of its first request have come, and between two requests,
// and may be replaced; so slow headers keep nobody out. One whose headers have come is active until
// the answer has gone, and is not replaced. Those that are slow then, with a body or with taking the
// answer, are for the server's timeouts: as long as all connections are active, new ones are refused.
//
// It is no API: gateway and node use it, and it changes without notice.
package connections

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// Counters are the instruments of one listener.
type Counters struct {
	Open    metric.Int64UpDownCounter
	Evicted metric.Int64Counter
}

// Bound bounds the connections of one listener. It is safe for concurrent use.
type Bound struct {
	max      int
	counters Counters

	mu   sync.Mutex                 // guards what follows
	open map[net.Conn]*list.Element // its place in idle; nil: a request is under way
	idle *list.List                 // of net.Conn, the oldest in front
}

// New returns a Bound of so many connections.
func New(most int, counters Counters) *Bound {
	return &Bound{max: most, counters: counters, open: map[net.Conn]*list.Element{}, idle: list.New()}
}

// Listener returns a listener that accepts the connections of l that b admits, and closes all
// others. TLS comes above it. Its server must tell b of states by StateChanged.
func (b *Bound) Listener(l net.Listener) net.Listener { return &listener{l, b} }

// StateChanged follows the state of each connection. It is a http.Server's ConnState.
func (b *Bound) StateChanged(conn net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	conn = withoutTLS(conn)
	element, known := b.open[conn]
	if element != nil {
		b.idle.Remove(element)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		// A connection that has sent nothing yet, or not all headers, is as idle as one between two
		// requests: net/http tells that it is active when it has read them.
		if known {
			b.open[conn] = b.idle.PushBack(conn)
		}
	case http.StateActive:
		if known {
			b.open[conn] = nil
		}
	case http.StateClosed, http.StateHijacked:
		b.removeLocked(conn)
	}
}

// CloseIdle closes the connections that are idle.
func (b *Bound) CloseIdle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for e := b.idle.Front(); e != nil; e = e.Next() {
		_ = e.Value.(net.Conn).Close() // its server sees that it is closed
	}
}

func (b *Bound) removeLocked(conn net.Conn) {
	if _, known := b.open[conn]; known {
		delete(b.open, conn)
		b.counters.Open.Add(context.Background(), -1)
	}
}

// admit adds a new connection. It returns false if there are too many and none is idle.
func (b *Bound) admit(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) >= b.max {
		b.counters.Evicted.Add(context.Background(), 1)
		oldest := b.idle.Front()
		if oldest == nil {
			return false
		}
		victim := b.idle.Remove(oldest).(net.Conn)
		b.removeLocked(victim)
		_ = victim.Close() // its server sees that it is closed
	}
	b.open[conn] = nil
	b.counters.Open.Add(context.Background(), 1)
	return true
}

// withoutTLS returns the connection below TLS, which is the one that was admitted.
func withoutTLS(conn net.Conn) net.Conn {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return conn
}

// listener accepts connections that a Bound admits, and closes all others.
type listener struct {
	net.Listener
	bound *Bound
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.bound.admit(conn) {
			return conn, nil
		}
		_ = conn.Close() // refused
	}
}
