package node

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/millrace/console"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/store/certificate"
	"github.com/millrace/millrace/store/connections"
	"github.com/millrace/millrace/store/gateway"
)

const (
	// adminHeaderMax bounds the headers of a request, in bytes.
	adminHeaderMax = 64 << 10
	// adminHeaderTimeout bounds the sending of headers, and of a body that nobody asked for; adminIdleTimeout the time
	// between two requests.
	adminHeaderTimeout = 5 * time.Second
	adminIdleTimeout   = time.Minute
	// adminTimeout bounds the taking of an answer. The console has bounds of its own where it goes on for longer, and
	// for the sending of forms.
	adminTimeout = 2 * time.Minute
)

// AddressError says that the HTTP listener cannot listen at its address.
type AddressError struct {
	Address string
	Err     error
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("http cannot listen at %s: %v", e.Address, e.Err)
}

func (e *AddressError) Unwrap() error { return e.Err }

// admin is the listener of health, metrics and the console.
type admin struct {
	net.Listener
	host        string                   // of http.listen; "" if it names none
	loopback    bool                     // nobody reaches it from elsewhere
	bound       *connections.Bound       // of its connections
	certificate *certificate.Certificate // nil: plain HTTP
	keys        *gateway.KeyRing         // nil: nobody has a key
}

// open tells whether the listener answers everything to everybody. One on the loopback does:
// whoever is on this machine may see names and numbers, and the machine's own Prometheus needs no
// secret. Where TLS is asked for there, keys are too.
func (a *admin) open() bool { return a.loopback && a.certificate == nil }

// named tells whether a request names this machine, where the listener asks nobody who they are. A web
// page can have its own name lead to 127.0.0.1, and read there what the browser of this machine may.
func (a *admin) named(r *http.Request) bool {
	if a == nil || !a.open() || console.IsLoopback(r.Host) {
		return true
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return a.host != "" && strings.EqualFold(host, a.host)
}

// url is where this machine reaches the listener.
func (a *admin) url() string {
	scheme := "http"
	if a.certificate != nil {
		scheme = "https"
	}
	address := a.Addr().String()
	// 0.0.0.0 is no address to connect to.
	if host, port, err := net.SplitHostPort(address); err == nil && net.ParseIP(host).IsUnspecified() {
		address = net.JoinHostPort("localhost", port)
	}
	return scheme + "://" + address
}

// Close frees the address. It may be called twice.
func (a *admin) Close() error {
	if err := a.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// openHTTP opens the listener's address, unless it is off. An error of the network is an
// *AddressError.
func (n *Node) openHTTP(ctx context.Context) error {
	cfg := &n.cfg.HTTP
	if cfg.Listen == configs.Off {
		return nil
	}
	inner, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = errors.New("another process listens there")
		}
		return &AddressError{cfg.Listen, err}
	}
	at, ok := inner.Addr().(*net.TCPAddr)
	host, _, _ := net.SplitHostPort(cfg.Listen) // Listen has parsed it
	bound := connections.New(cfg.ConnectionsMax, connections.Counters{Open: meters.connections, Evicted: meters.evicted})
	n.listener = &admin{Listener: bound.Listener(inner), bound: bound, host: host, loopback: ok && at.IP.IsLoopback()}
	if cfg.Encrypted(n.listener.loopback) {
		if err := n.encrypt(); err != nil {
			return err
		}
	}
	if !n.listener.open() {
		n.listener.keys = n.keysForMetrics()
	}
	if !n.listener.loopback && n.listener.certificate == nil {
		n.log.Warn("health and metrics listen beyond this machine without TLS: the keys that /metrics asks for cross the network readably; set http.tls: on",
			slog.String("listen", cfg.Listen))
	}
	return nil
}

// encrypt puts TLS on the listener.
func (n *Node) encrypt() (err error) {
	cfg := &n.cfg.HTTP
	dir := cfg.Dir
	if n.roles.Anonymous {
		dir = "" // it keeps nothing
	}
	c := certificate.Config{
		Section: "http", Cert: cfg.Cert, Key: cfg.Key, Dir: dir, Hosts: certificate.Hosts(cfg.Listen, cfg.Names...), Logger: n.log,
	}
	n.listener.certificate, err = certificate.Open(c)
	if err != nil && c.Cert == "" && c.Dir != "" {
		// The node's work is worth more than who trusts its certificate.
		n.log.Error("the certificate of http.listen is kept in memory, so clients that trust ca.pem refuse it", slog.String("dir", c.Dir), slog.Any("error", err))
		c.Dir = ""
		n.listener.certificate, err = certificate.Open(c)
	}
	if err != nil {
		return err
	}
	n.listener.Listener = tls.NewListener(n.listener.Listener, n.listener.certificate.TLS())
	return nil
}

// keysForMetrics opens the keys that /metrics asks for; nil if there are none.
func (n *Node) keysForMetrics() *gateway.KeyRing {
	if n.roles.Anonymous && n.cfg.Gateway.Keys == (gateway.Keys{}) && n.cfg.Gateway.KeyFile == "" {
		n.log.Warn("/metrics answers nobody: a worker without --dir has no keys; set gateway.keys.primaryReadOnly or gateway.keyFile",
			slog.String("listen", n.cfg.HTTP.Listen))
		return nil
	}
	keys, err := n.openKeys()
	if err != nil {
		n.log.Error("/metrics answers nobody", slog.Any("error", err))
		return nil // the node's work is worth more
	}
	return keys
}

// web serves health, metrics and the console.
func (n *Node) web() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "alive"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ready := n.Ready()
		status := http.StatusOK
		if !ready.Ready {
			status = http.StatusServiceUnavailable
		}
		// The reasons have names of pipelines and what disks and servers say: probes need none of it, nor do
		// web pages of others.
		if count := len(ready.Problems); count > 0 && !n.listener.allows(r) {
			ready.Problems = []string{fmt.Sprintf("%d: the log and millrace status tell them, and this page to a key, or on the loopback as localhost", count)}
		}
		answer(w, status, ready)
	})
	if n.telemetry != nil {
		mux.Handle("GET /metrics", n.listener.guarded(n.telemetry.Handler()))
	}
	if n.operator != nil {
		mux.Handle("/operator/", n.operator)
	}
	if n.console != nil {
		mux.Handle("/", n.console)
	}
	server := &http.Server{
		ReadHeaderTimeout: adminHeaderTimeout, IdleTimeout: adminIdleTimeout, MaxHeaderBytes: adminHeaderMax,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug), // handshakes that others break off
	}
	server.Handler = timed(server, mux)
	if n.listener != nil && n.listener.bound != nil {
		n.listener.bound.Follow(server)
	}
	return server
}

// timed bounds how long a client may hold a connection with one request. The server's own timeouts would
// end the events of the console too: behind the headers it reads on, to learn whether the client has gone,
// and takes the end of ReadTimeout for that.
//
// Health, readiness and metrics read no body, but the server reads the one that the headers announce before
// it answers. So a body has as long as headers have; the forms of the console ask for more.
func timed(server *http.Server, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !connections.Hold(r.Context()) {
			return // it has made room for another
		}
		conn, now := http.NewResponseController(w), time.Now()
		_ = conn.SetWriteDeadline(now.Add(adminTimeout)) // tests have no connection
		if r.ContentLength != 0 {
			_ = conn.SetReadDeadline(now.Add(server.ReadHeaderTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

// allows tells whether a request may see everything: it shows a key, as Prometheus does with
// authorization.credentials_file, or the listener asks for none.
func (a *admin) allows(r *http.Request) bool {
	if a == nil || a.open() {
		return a.named(r)
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if a.keys == nil || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	read, _ := a.keys.Allows(strings.TrimSpace(key))
	return read
}

// guarded answers requests that the listener allows.
func (a *admin) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.named(r) {
			http.Error(w, "metrics are served to this machine alone; ask localhost or 127.0.0.1, or name the host in http.listen", http.StatusMisdirectedRequest)
			return
		}
		if !a.allows(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="millrace"`)
			http.Error(w, "send a read-only key of millrace keys show: Authorization: Bearer KEY", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // an error: the client has gone
}

// Authority is the file of the authority whose certificate HTTP shows, which clients must be told to
// trust; "" if it is no authority that the node made and keeps.
func (n *Node) Authority() string {
	if n.listener == nil || n.listener.certificate == nil {
		return ""
	}
	return n.listener.certificate.Authority()
}
