package gateway

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/store/certificate"
)

// AddressError says that the gateway cannot listen at its address.
type AddressError struct {
	Address string
	Err     error
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("the gateway cannot listen at %s: %v", e.Address, e.Err)
}

func (e *AddressError) Unwrap() error { return e.Err }

// Listener is a Server on the network.
type Listener struct {
	server      *Server
	listener    net.Listener
	http        *http.Server
	idle        *idleConns
	certificate *certificate.Certificate // nil: plain HTTP
	drainMax    time.Duration
}

// Listen opens the configured address. With TLS the certificate is the configured one, or one
// that is made and kept in Config.Dir. The error is an *AddressError if the server cannot
// listen there. The caller closes the Listener.
func (s *Server) Listen(ctx context.Context) (*Listener, error) {
	l := &Listener{server: s, drainMax: drainTimeout}
	var secure *tls.Config
	if s.cfg.TLS != Off {
		var err error
		if l.certificate, err = certificate.Open(s.cfg.certificate()); err != nil {
			return nil, err
		}
		secure = l.certificate.TLS()
	}
	inner, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = errors.New("another process listens there")
	}
	if err != nil {
		return nil, &AddressError{s.cfg.Listen, err}
	}
	l.idle = newIdleConns(s.cfg.ConnectionsMax)
	l.listener = &boundedListener{inner, l.idle}
	if secure != nil {
		l.listener = tls.NewListener(l.listener, secure)
	}
	// HTTP/1.1 alone: every client speaks it, one slow stream holds up no other, and
	// the times below bound each request by itself.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	l.http = &http.Server{
		Handler: s, Protocols: protocols, MaxHeaderBytes: headerBytesMax,
		ReadHeaderTimeout: s.cfg.HeaderTimeout, ReadTimeout: s.cfg.BodyTimeout,
		WriteTimeout: s.cfg.AnswerTimeout, IdleTimeout: s.cfg.IdleTimeout,
		ConnState: l.idle.stateChanged, ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	return l, nil
}

// Address returns the address at which the listener listens, as host:port.
func (l *Listener) Address() string { return l.listener.Addr().String() }

// URL returns the endpoint for clients on this machine: Config.PublicURL if it is set.
func (l *Listener) URL() string {
	if l.server.cfg.public != nil {
		return l.server.cfg.PublicURL
	}
	scheme := "https"
	if l.certificate == nil {
		scheme = "http"
	}
	host, port, err := net.SplitHostPort(l.Address())
	if err != nil {
		return scheme + "://" + l.Address()
	}
	// 0.0.0.0 is no address to connect to, and the certificate has localhost.
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() || ip.IsLoopback() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Authority returns the file of the authority that the server made itself, which clients must be
// told to trust; "" if the certificate is configured or there is none.
func (l *Listener) Authority() string {
	if l.certificate == nil {
		return ""
	}
	return l.certificate.Authority()
}

// drainTimeout bounds the finishing of requests that are under way at the end.
const drainTimeout = 5 * time.Second

// drainInterval is how often idle connections are closed during a drain: Shutdown would wait for
// a connection that has sent nothing yet.
const drainInterval = 50 * time.Millisecond

// Run serves until ctx ends, and then finishes the requests that are under way, for at most five
// seconds. It returns earlier only with an error of the network.
func (l *Listener) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	wg.Go(func() { l.server.Run(ctx) })
	failed := make(chan error, 1)
	wg.Go(func() {
		err := l.http.Serve(l.listener)
		if !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("gateway: %w", err)
		}
	})
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	l.drain(context.WithoutCancel(ctx))
	return nil
}

// drain finishes the requests that are under way.
func (l *Listener) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.drainMax)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.http.Shutdown(ctx) }()
	ticker := time.NewTicker(drainInterval)
	defer ticker.Stop()
	for {
		l.idle.close()
		select {
		case err := <-ended:
			if err != nil {
				_ = l.http.Close() // the remaining requests are cut off
			}
			return
		case <-ticker.C:
		}
	}
}

// Close frees the address. It may be called twice.
func (l *Listener) Close() error {
	if err := l.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// idleConns bounds connections. A new one beyond the bound replaces the one that has been idle
// longest, and is refused only if none is idle. A client that finds its idle connection
// closed opens another; so a client gets through however many connections others hold
// without using them.
type idleConns struct {
	max int

	mu   sync.Mutex                 // guards what follows
	open map[net.Conn]*list.Element // its place in idle; nil: a request is under way
	idle *list.List                 // of net.Conn, the oldest in front
}

func newIdleConns(most int) *idleConns {
	return &idleConns{max: most, open: map[net.Conn]*list.Element{}, idle: list.New()}
}

// stateChanged follows the state of each connection. The HTTP server calls it.
func (c *idleConns) stateChanged(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn = withoutTLS(conn)
	element, known := c.open[conn]
	if element != nil {
		c.idle.Remove(element)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		// A connection that has sent nothing yet is as idle as one between two requests.
		if known {
			c.open[conn] = c.idle.PushBack(conn)
		}
	case http.StateActive:
		if known {
			c.open[conn] = nil
		}
	case http.StateClosed, http.StateHijacked:
		c.removeLocked(conn)
	}
}

// close closes the connections that are idle.
func (c *idleConns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.idle.Front(); e != nil; e = e.Next() {
		_ = e.Value.(net.Conn).Close() // its server sees that it is closed
	}
}

func (c *idleConns) removeLocked(conn net.Conn) {
	if _, known := c.open[conn]; known {
		delete(c.open, conn)
		meters.connections.Add(context.Background(), -1)
	}
}

// admit adds a new connection. It returns false if there are too many and none is idle.
func (c *idleConns) admit(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) >= c.max {
		meters.evicted.Add(context.Background(), 1)
		oldest := c.idle.Front()
		if oldest == nil {
			return false
		}
		victim := c.idle.Remove(oldest).(net.Conn)
		c.removeLocked(victim)
		_ = victim.Close() // its server sees that it is closed
	}
	c.open[conn] = nil
	meters.connections.Add(context.Background(), 1)
	return true
}

// withoutTLS returns the connection below TLS, which is the one that was admitted.
func withoutTLS(conn net.Conn) net.Conn {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return conn
}

// boundedListener accepts connections that idleConns admits, and closes all others.
type boundedListener struct {
	net.Listener
	conns *idleConns
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.conns.admit(conn) {
			return conn, nil
		}
		_ = conn.Close() // refused
	}
}
