package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"
)

// AddressError says that the HTTP listener's address is not to be had.
type AddressError struct {
	Address string
	Err     error
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("http cannot listen at %s: %v", e.Address, e.Err)
}

func (e *AddressError) Unwrap() error { return e.Err }

func (n *Node) openHTTP(ctx context.Context) error {
	address := n.cfg.HTTP.Listen
	if address == "off" {
		return nil
	}
	var err error
	if n.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = errors.New("another process listens there")
		}
		return &AddressError{address, err}
	}
	return nil
}

// web serves health, metrics and the console.
func (n *Node) web() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "alive"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := n.Ready()
		status := http.StatusOK
		if !r.Ready {
			status = http.StatusServiceUnavailable
		}
		answer(w, status, r)
	})
	if n.telemetry != nil {
		mux.Handle("GET /metrics", n.telemetry.Handler())
	}
	if n.console != nil {
		mux.Handle("/", n.console)
	}
	return &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // who asked may have gone
}
