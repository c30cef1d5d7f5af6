package natsd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// monitorTimeout bounds a request for monitoring.
const monitorTimeout = 10 * time.Second

// monitor serves the NATS server's own monitoring to those who have credentials. The listener
// that the NATS server itself would open requires none.
type monitor struct {
	http     *http.Server
	listener net.Listener
	ended    chan struct{}
}

// openMonitor starts the monitoring. It returns nil if the configuration names no address.
func openMonitor(ctx context.Context, s *Server) (*monitor, error) {
	if s.cfg.Monitor == "" {
		return nil, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Monitor)
	if err != nil {
		return nil, fmt.Errorf("%w for monitoring at %s: choose another address: %w", ErrPort, s.cfg.Monitor, err)
	}
	m := &monitor{listener: l, ended: make(chan struct{})}
	m.http = &http.Server{
		Handler: s.monitoring(), ReadHeaderTimeout: monitorTimeout, ReadTimeout: monitorTimeout,
		WriteTimeout: monitorTimeout, IdleTimeout: monitorTimeout,
	}
	go func() {
		defer close(m.ended)
		if err := m.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Log.Error("monitoring of the embedded NATS server ended", "error", err)
		}
	}()
	return m, nil
}

func (m *monitor) close() {
	_ = m.http.Close() // requests under way are cut off: they only read figures
	<-m.ended
}

// monitoring answers the pages of a NATS server's monitoring port, except /stacksz, which
// shows the stacks of the process.
func (s *Server) monitoring() http.Handler {
	mux := http.NewServeMux()
	for path, handle := range map[string]func(*server.Server, http.ResponseWriter, *http.Request){
		"/varz":    (*server.Server).HandleVarz,
		"/connz":   (*server.Server).HandleConnz,
		"/routez":  (*server.Server).HandleRoutez,
		"/subsz":   (*server.Server).HandleSubsz,
		"/jsz":     (*server.Server).HandleJsz,
		"/healthz": (*server.Server).HandleHealthz,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			// Reopen replaces the server, so each request asks for the present one.
			n, err := s.server()
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			handle(n, w, r)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if allowed, _ := s.access.rights(Credentials{User: user, Password: password}); !allowed {
			w.Header().Set("WWW-Authenticate", `Basic realm="millrace"`)
			http.Error(w, "monitoring asks for the user and the password of "+FileAdmin+" or "+FileReadOnly, http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
