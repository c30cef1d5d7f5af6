package natstest

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Line is a way to a server that breaks when a test wants it to, as a network does: without a word to whoever has a
// connection over it. (*nats.Conn).ForceReconnect is another thing: it ends what waits for answers.
type Line struct {
	Server *Server

	mu      sync.Mutex
	present net.Conn
	shut    bool
}

// NewLine returns a line to a server, for one connection at a time.
func NewLine(s *Server) *Line { return &Line{Server: s} }

// Connect makes a connection over the line, which makes itself anew as soon as it can. again tells of each time.
func (l *Line) Connect(t testing.TB) (nc *nats.Conn, again <-chan struct{}) {
	t.Helper()
	back := make(chan struct{}, 64)
	return l.Server.Connect(t, nats.InProcessServer(l), nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} })), back
}

// Cut breaks the connection. Another one can be made.
func (l *Line) Cut(t testing.TB) {
	t.Helper()
	l.cut(t, false)
}

// Shut breaks the connection, and lets no other one through before Open.
func (l *Line) Shut(t testing.TB) {
	t.Helper()
	l.cut(t, true)
}

func (l *Line) cut(t testing.TB, shut bool) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = shut
	if err := l.present.Close(); err != nil {
		t.Error(err)
	}
}

// Open ends what Shut began.
func (l *Line) Open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = false
}

var errShut = errors.New("natstest: the line is shut")

// InProcessConn is for nats.InProcessServer.
func (l *Line) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return nil, errShut
	}
	var err error
	l.present, err = l.Server.InProcessConn()
	return l.present, err
}
