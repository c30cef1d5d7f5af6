package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/store/gateway"
)

// readyEvery is the time between two looks at whether a node is ready.
const readyEvery = 20 * time.Millisecond

func newUp(a *app) *cobra.Command {
	var port int
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything in one process: NATS, store and workers",
		Long: `Up runs an embedded NATS server, the store, the workers and HTTP for health and
metrics in one process, and keeps all data in one directory. Every write is synced
to disk before it is acknowledged. Applications connect with the SDKs of Azure
Cosmos DB for NoSQL; see millrace keys show.

It runs until interrupted, then finishes what is under way. A second interrupt
ends it at once; nothing that was acknowledged is lost.`,
		Example: "  millrace up --dir /var/lib/millrace",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("port") {
				a.sets = append(a.sets, fmt.Sprintf("nats.port=%d", port))
			}
			return a.serve(cmd.Context(), node.Roles{NATS: true, Store: true, Worker: true})
		},
	}
	a.nodeFlags(cmd)
	gatewayFlags(cmd, gateway.ListenDefault)
	cmd.Flags().IntVar(&port, "port", 4222, "port of the embedded NATS server; -1 takes a free one")
	return cmd
}

// nodeFlags adds the flags of verbs that run a node.
func (a *app) nodeFlags(cmd *cobra.Command) {
	cmd.Flags().String("dir", configs.DirDefault, "directory of all that the process keeps (MILLRACE_DIR)")
	cmd.Flags().String("listen", configs.HTTPDefault, "address of /healthz, /readyz, /metrics and the console, or off (MILLRACE_HTTP_LISTEN)")
	cmd.Flags().String("durability", configs.DurabilityDisk, "disk or replicas (MILLRACE_DURABILITY)")
}

// gatewayFlags adds the flags of verbs that run a store.
func gatewayFlags(cmd *cobra.Command, listen string) {
	cmd.Flags().String("gateway", listen, "address of the Cosmos DB protocol, or off (MILLRACE_GATEWAY_LISTEN)")
	cmd.Flags().String("gateway-tls", "on", "on or off: HTTPS or plain HTTP for the Cosmos DB protocol (MILLRACE_GATEWAY_TLS)")
}

// serve runs a node until ctx ends.
func (a *app) serve(ctx context.Context, roles node.Roles) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	log := a.logger(cfg)
	// Before the node and, by the defer, closed behind it: the spans of its stop are sent too.
	telemetry, err := node.OpenTelemetry(ctx, versionText())
	if err != nil {
		return err
	}
	defer func() {
		if err := telemetry.Close(); err != nil {
			log.Warn("the last telemetry could not be sent", slog.Any("error", err))
		}
	}()
	began := time.Now()
	n, err := open(ctx, cfg, func() (*node.Node, error) { return node.Open(ctx, cfg, roles, telemetry, log) })
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	if waitReady(ctx, n, done) {
		if err := a.printReady(n, cfg, roles, time.Since(began)); err != nil {
			log.Debug("standard output is gone", slog.Any("error", err))
		}
	}
	// In this order: Run has ended before the node is closed.
	return errors.Join(<-done, n.Close())
}

// open opens a node, and does not wait for it longer than a stop may take once ctx
// has ended: the engine's directory, for one, is read without asking whether anybody
// still wants it.
func open(ctx context.Context, cfg *configs.Config, opening func() (*node.Node, error)) (*node.Node, error) {
	type outcome struct {
		n   *node.Node
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		n, err := opening()
		done <- outcome{n, err}
	}()
	select {
	case o := <-done:
		return o.n, o.err
	case <-ctx.Done():
	}
	// The goroutine is left behind: nothing can stop a read of a disk that does not answer,
	// and the process ends now.
	timer := time.NewTimer(cfg.DrainTimeout)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.n, o.err
	case <-timer.C:
		return nil, &node.StopError{Timeout: cfg.DrainTimeout, Left: []string{"opening of " + cfg.Dir}}
	}
}

// withNode runs f beside a node in this process, once that is ready, and stops it when f
// returns. It goes on when ctx ends, until f has: what f has under way still needs it.
func withNode(ctx context.Context, cfg *configs.Config, roles node.Roles, log *slog.Logger, f func(n *node.Node) error) (err error) {
	n, err := node.Open(ctx, cfg, roles, nil, log)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- n.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-done, n.Close())
	}()
	if !waitReady(ctx, n, done) {
		return context.Cause(ctx)
	}
	return f(n)
}

// waitReady waits until the node is ready; false if it stops before.
func waitReady(ctx context.Context, n *node.Node, done chan error) bool {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		if n.Look(ctx).Ready {
			return true
		}
		select {
		case err := <-done:
			done <- err // for the caller, who waits for it too
			return false
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// exportDir is what a shell needs to know so that commands find the credentials in
// dir; nothing for the directory in which they look by themselves.
func exportDir(dir string) string {
	if dir == configs.DirDefault || os.Getenv("MILLRACE_DIR") != "" {
		return ""
	}
	if path, err := filepath.Abs(dir); err == nil {
		dir = path
	}
	return "export MILLRACE_DIR=" + dir + "; "
}

func (a *app) printReady(n *node.Node, cfg *configs.Config, roles node.Roles, took time.Duration) error {
	v := map[string]any{"ready": true, "seconds": took.Seconds()}
	dir := cfg.Dir
	if roles.Anonymous {
		dir = "none"
	}
	v["dir"] = dir
	server := n.ServerURL()
	if server == "" {
		server = node.Redacted(cfg.Server)
	}
	v["server"] = server
	if url := n.URL(); url != "" {
		v["http"], v["httpCertificate"] = url, n.Authority()
	}
	if url := n.ConsoleURL(); url != "" {
		v["console"] = url
	}
	if g := n.Gateway(); g != nil {
		v["gateway"] = g.URL()
		v["certificate"] = g.Authority()
	}
	return a.print(v, func(w io.Writer) error {
		fmt.Fprintf(w, "millrace is ready after %s\n", took.Round(time.Millisecond))
		fmt.Fprintf(w, "  data    %s\n  server  %s\n", dir, server)
		if url := n.URL(); url != "" {
			fmt.Fprintf(w, "  http    %s/readyz, /healthz, /metrics\n", url)
			if file := n.Authority(); file != "" {
				fmt.Fprintf(w, "          trust its certificate: curl --cacert %s; /metrics asks for a key\n", file)
			}
		}
		if url := n.ConsoleURL(); url != "" {
			fmt.Fprintf(w, "  console %s, for browsers; %smillrace console opens it\n", url, exportDir(dir))
		}
		if g := n.Gateway(); g != nil {
			fmt.Fprintf(w, "  gateway %s, for the SDKs of Azure Cosmos DB; millrace keys show tells keys\n", g.URL())
			if file := g.Authority(); file != "" {
				fmt.Fprintf(w, "          trust its certificate: NODE_EXTRA_CA_CERTS=%[1]s, SSL_CERT_FILE=%[1]s or curl --cacert %[1]s\n", file)
			}
		}
		if roles.NATS {
			if n.ServerURL() != "" {
				fmt.Fprintf(w, "  secrets %s for commands, %s for those who only look\n",
					filepath.Join(cfg.NATS.Credentials, natsd.FileAdmin), natsd.FileReadOnly)
			}
			fmt.Fprintf(w, "next, in another terminal: %smillrace apply -f FILE, then millrace status --watch\n", exportDir(dir))
		}
		return nil
	})
}
