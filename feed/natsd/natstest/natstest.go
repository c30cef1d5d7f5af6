// Package natstest runs an embedded NATS server for a test.
//
// It is no API: tests of Millrace are made with it.
package natstest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd"
)

// Server is a server in the test's process, and one connection to it. Both end with
// the test.
type Server struct {
	*natsd.Server
	NC *nats.Conn
	JS jetstream.JetStream
}

// Start starts a server in a directory of its own. Nobody takes the power away from a
// test, so its appends do not wait for the disk.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartOn(t, t.TempDir())
}

// StartOn starts a server on a directory.
func StartOn(t testing.TB, dir string) *Server {
	t.Helper()
	server, err := natsd.Open(t.Context(), natsd.Config{Dir: dir, DontListen: true, SyncInterval: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	s := &Server{Server: server}
	s.NC = s.Connect(t)
	// On a machine that is slow and busy an answer may take longer than the usual five seconds.
	if s.JS, err = jetstream.New(s.NC, jetstream.WithDefaultTimeout(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return s
}

// Connect makes another connection.
func (s *Server) Connect(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := s.Conn(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
