package upkeep_test

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/clustertest"
	"github.com/millrace/millrace/feed/natsd/natstest"
)

var quiet = slog.New(slog.DiscardHandler)

// alone runs one embedded server.
func alone(tb testing.TB) jetstream.JetStream {
	tb.Helper()
	return natstest.Start(tb).JS
}

// three runs three servers that replicate, and returns when they have a leader.
func three(tb testing.TB) (*clustertest.Cluster, jetstream.JetStream) {
	tb.Helper()
	c := clustertest.Start(tb)
	return c, c.JetStream()
}
