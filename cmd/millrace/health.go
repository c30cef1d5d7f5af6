package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
)

func newHealth(a *app) *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Tell whether the node on this machine is alive, for probes",
		Long: `Health asks the node at --listen whether it is alive, as a probe does, and exits with 0
if it is and with 1 if not. With --ready it asks whether the node makes progress, and
prints what keeps it from that. It needs no credentials, and nothing but this binary, so
it serves as the health check of an image that holds nothing else.`,
		Example: `  millrace health
  millrace health --ready --timeout 2s`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.quietConfig()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return a.health(ctx, &c.HTTP, ready)
		},
	}
	cmd.Flags().String("listen", configs.HTTPDefault, "where the node listens for probes (MILLRACE_HTTP_LISTEN)")
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether it makes progress, too")
	return cmd
}

// health asks the node that listens as cfg says.
func (a *app) health(ctx context.Context, cfg *configs.HTTP, ready bool) error {
	if cfg.Listen == configs.Off {
		return &usageError{errors.New("http.listen is off: a node without it cannot be asked; set it with --listen or MILLRACE_HTTP_LISTEN")}
	}
	address, path, scheme := dialed(cfg.Listen), "/healthz", "http"
	if cfg.Encrypted(onLoopback(ctx, cfg.Listen)) {
		scheme = "https"
	}
	if ready {
		path = "/readyz"
	}
	began := time.Now()
	status, body, err := ask(ctx, scheme+"://"+address+path)
	if err != nil {
		return bad("no node answers at %s: %v", address, err)
	}
	if !ready {
		if status != http.StatusOK {
			return bad("%s answers %d to %s", address, status, path)
		}
		took := time.Since(began).Round(time.Microsecond)
		return a.printText(map[string]any{"status": "alive", "address": address, "millis": float64(took.Microseconds()) / 1000},
			"alive: %s answered after %s\n", address, took)
	}
	var r node.Readiness
	if err := json.Unmarshal(body, &r); err != nil {
		return bad("%s answers %d to %s, and no node answers like that: %v", address, status, path, err)
	}
	err = a.print(r, func(w io.Writer) error {
		if r.Ready {
			fmt.Fprintf(w, "ready: %s\n", address)
		}
		for _, p := range r.Problems {
			fmt.Fprintln(w, p)
		}
		return nil
	})
	if err == nil && !r.Ready {
		return bad("the node at %s is not ready", address)
	}
	return err
}

// dialed is the address at which a listener of this machine is reached: one that listens at
// all addresses is reached at the loopback.
func dialed(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen // the configuration has refused it already
	}
	switch ip := net.ParseIP(host); {
	case host == "":
		host = "127.0.0.1"
	case ip.Equal(net.IPv6unspecified):
		host = "::1"
	case ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// onLoopback tells whether a node that listens at an address can be reached from this machine
// alone, as the node finds it out by listening.
func onLoopback(ctx context.Context, listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "" {
		return false
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	at, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	return err == nil && !slices.ContainsFunc(at, func(ip netip.Addr) bool { return !ip.Unmap().IsLoopback() })
}

// ask sends a GET and reads at most a megabyte of the answer.
func ask(ctx context.Context, url string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	// A proxy of the environment is not the way to this machine. The certificate is not checked, as
	// kubelets do not: nothing secret is sent, the way is within this machine, and a certificate of the
	// operator's need not name the loopback.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return answer.StatusCode, body, err
}
