package upkeep_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/feed/natsd/clustertest"
)

var quiet = slog.New(slog.DiscardHandler)

// alone runs one embedded server.
func alone(tb testing.TB) jetstream.JetStream {
	tb.Helper()
	srv, err := natsd.Open(tb.Context(), natsd.Config{Dir: tb.TempDir(), DontListen: true, SyncInterval: time.Minute, Log: quiet})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(srv.Close)
	nc, err := srv.Conn()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// three runs three servers that replicate, and returns when they have a leader.
func three(tb testing.TB) (*clustertest.Cluster, jetstream.JetStream) {
	tb.Helper()
	c := clustertest.Start(tb)
	return c, c.JetStream()
}
