package gateway

import (
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
	"github.com/millrace/millrace/store/connections"
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
	bound       *connections.Bound
	certificate *certificate.Certificate // nil: plain HTTP
}

// Listen opens the configured address. With TLS the certificate is the configured one, or one
// that is made and kept in Config.Dir. The error is an *AddressError if the server cannot
// listen there. The caller closes the Listener.
func (s *Server) Listen(ctx context.Context) (*Listener, error) {
	l := &Listener{server: s}
	var secure *tls.Config
	if s.cfg.TLS != Off {
		var err error
		if l.certificate, err = certificate.Open(s.cfg.certificate()); err != nil {
			return nil, err
		}
		secure = l.certificate.TLS()
		secure.NextProtos = append(secure.NextProtos, "h2") // where a client offers nothing else, to be told so
	}
	inner, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = errors.New("another process listens there")
	}
	if err != nil {
		return nil, &AddressError{s.cfg.Listen, err}
	}
	l.bound = connections.New(s.cfg.ConnectionsMax, connections.Counters{Open: meters.connections, Evicted: meters.evicted})
	l.listener = l.bound.Listener(inner)
	if secure != nil {
		l.listener = tls.NewListener(l.listener, secure)
	} else if at, ok := inner.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		s.cfg.Logger.Warn("the gateway listens beyond this machine without TLS: items and signatures of requests cross the network readably; set gateway.tls: on",
			slog.String("listen", s.cfg.Listen))
	}
	// HTTP/1.1 alone: every client speaks it, one slow stream holds up no other, and
	// the times below bound each request by itself. Who asks by HTTP/2 is told.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	told := map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) { connections.RequireHTTP1(conn) },
	}
	l.http = &http.Server{
		Handler: s, Protocols: protocols, TLSNextProto: told, MaxHeaderBytes: headerBytesMax,
		ReadHeaderTimeout: s.cfg.HeaderTimeout, ReadTimeout: s.cfg.BodyTimeout,
		WriteTimeout: s.cfg.AnswerTimeout, IdleTimeout: s.cfg.IdleTimeout,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	l.bound.Follow(l.http)
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

// drainDefault is the default of Config.Drain.
const drainDefault = 5 * time.Second

// drainInterval is how often idle connections are closed during a drain: Shutdown would wait for
// a connection that has sent nothing yet.
const drainInterval = 50 * time.Millisecond

// Run serves until ctx ends, and then finishes the requests that are under way, for at most
// Config.Drain. It returns earlier only with an error of the network.
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
	ctx, cancel := context.WithTimeout(ctx, l.server.cfg.Drain)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.http.Shutdown(ctx) }()
	ticker := time.NewTicker(drainInterval)
	defer ticker.Stop()
	for {
		l.bound.CloseIdle() //nolint:contextcheck // it counts connections, which are of no request
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
