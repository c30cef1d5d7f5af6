// Package connections bounds the connections of a listener of HTTP.
//
// A new connection beyond the bound replaces the one that has been idle longest, and is refused only
// if none is idle. A client that finds its idle connection closed opens another; so a client gets
// through however many connections others hold without using them.
//
// A connection is idle unless a handler holds it: one that carries out a request for a client that it
// knows, see Hold. So it is idle before the headers of a request have come, while its sender is not known
// yet, while a refusal is sent, and while the body of a refused request comes only to be thrown away; what
// a stranger does or leaves undone keeps nobody out. One that is held is not closed for others until its
// answer has gone, or until it is yielded. Those that are slow then, with a body or with taking the
// answer, are for the server's timeouts: as long as all connections are held, new ones are refused.
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
	open map[net.Conn]*list.Element // its place in idle; nil: it is held
	idle *list.List                 // of net.Conn, the oldest in front
}

// New returns a Bound of so many connections.
func New(most int, counters Counters) *Bound {
	return &Bound{max: most, counters: counters, open: map[net.Conn]*list.Element{}, idle: list.New()}
}

// Listener returns a listener that accepts the connections of l that b admits, and closes all
// others. TLS comes above it. Its server must be one that b follows.
func (b *Bound) Listener(l net.Listener) net.Listener { return &listener{l, b} }

// Follow has b follow the connections of a server, by its ConnState and ConnContext. Its handlers must
// Hold the connections that are not to make room for others.
func (b *Bound) Follow(server *http.Server) {
	server.ConnState = b.stateChanged
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, &bounded{b, withoutTLS(conn)})
	}
}

// connKey is the key of the *bounded in the context of a connection.
type connKey struct{}

// bounded is a connection and its bound.
type bounded struct {
	bound *Bound
	conn  net.Conn
}

// Hold keeps the connection of a request from making room for others until the request is answered. ctx is
// that of the request. It returns false if the connection has made room, or was closed: nobody waits for an answer,
// so nothing is to be done. One without a bound is always held.
func Hold(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*bounded)
	if !ok {
		return true
	}
	c.bound.mu.Lock()
	defer c.bound.mu.Unlock()
	return c.bound.placeLocked(c.conn, false)
}

// Yield ends what Hold began, before the request ends: the connection may make room for others again.
func Yield(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*bounded); ok {
		c.bound.mu.Lock()
		defer c.bound.mu.Unlock()
		c.bound.placeLocked(c.conn, true)
	}
}

// stateChanged follows the state of each connection.
func (b *Bound) stateChanged(conn net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	conn = withoutTLS(conn)
	switch state {
	case http.StateNew, http.StateIdle, http.StateActive:
		// An active one too: net/http says so of whatever has sent a byte, and answers some by itself.
		b.placeLocked(conn, true)
	case http.StateClosed, http.StateHijacked:
		b.removeLocked(conn)
	}
}

// placeLocked puts a connection behind all that are idle, or takes it from among them. It returns false if
// the connection is not there any more.
func (b *Bound) placeLocked(conn net.Conn, idle bool) bool {
	element, known := b.open[conn]
	if !known {
		return false
	}
	if element != nil {
		b.idle.Remove(element)
	}
	b.open[conn] = nil
	if idle {
		b.open[conn] = b.idle.PushBack(conn)
	}
	return true
}

// CloseIdle closes the connections that are idle. Of one whose request has come and is not held yet, Hold returns
// false from then on.
func (b *Bound) CloseIdle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for oldest := b.idle.Front(); oldest != nil; oldest = b.idle.Front() {
		b.closeLocked(oldest.Value.(net.Conn))
	}
}

// closeLocked closes a connection. It is no connection of b any more, so nothing is done for its requests.
func (b *Bound) closeLocked(conn net.Conn) {
	b.removeLocked(conn)
	_ = conn.Close() // its server sees that it is closed
}

func (b *Bound) removeLocked(conn net.Conn) {
	if b.placeLocked(conn, false) {
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
		b.closeLocked(oldest.Value.(net.Conn))
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
