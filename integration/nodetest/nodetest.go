// Package nodetest runs all roles in the test's process, as millrace up does, so that a test
// sees what such a process tells and reaches what it is made of.
package nodetest

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
)

// Run opens a node of all roles on a directory of its own and runs it until the test ends,
// which fails if the node does. The node listens nowhere but where sets, settings of the
// configuration as --set takes them, say so. telemetry may be nil.
func Run(t testing.TB, telemetry *node.Telemetry, sets ...string) *node.Node {
	t.Helper()
	silent := []string{"dir=" + t.TempDir(), "nats.dontListen=true", "http.listen=off", "gateway.listen=off"}
	cfg, err := configs.Load("", nil, append(silent, sets...))
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Open(t.Context(), cfg, node.Roles{NATS: true, Store: true, Worker: true}, telemetry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Errorf("the node ended with %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}
