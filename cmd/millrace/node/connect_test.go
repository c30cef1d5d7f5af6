package node_test

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/cmd/millrace/internal/await"
	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/integration/poll"
)

// hole passes connections on to an address, until it swallows what those that are
// open send, both ways, without a word.
type hole struct {
	net.Listener
	to string

	mu    sync.Mutex
	conns []*holeConn
}

func newHole(t *testing.T, to string) *hole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{Listener: l, to: to}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				_ = conn.Close()
				continue
			}
			a, b := &holeConn{Conn: conn}, &holeConn{Conn: up}
			h.mu.Lock()
			h.conns = append(h.conns, a, b)
			h.mu.Unlock()
			running.Go(func() { _, _ = io.Copy(a, b) })
			running.Go(func() { _, _ = io.Copy(b, a) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		h.mu.Lock()
		for _, c := range h.conns {
			_ = c.Close()
		}
		h.mu.Unlock()
		running.Wait()
	})
	return h
}

// swallow makes the connections that are open silent.
func (h *hole) swallow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		c.mu.Lock()
		c.silent = true
		c.mu.Unlock()
	}
}

type holeConn struct {
	net.Conn
	mu     sync.Mutex
	silent bool
}

func (c *holeConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestConnect_ASilentServerIsLeft has a server fall silent without closing anything.
func TestConnect_ASilentServerIsLeft(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	server, err := natsd.Open(t.Context(), natsd.Config{Dir: t.TempDir(), Port: natsd.PortRandom, User: "u", Password: "p", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	hole := newHole(t, strings.TrimPrefix(server.ClientURL(), "nats://"))
	cfg := &configs.Config{
		Server:  "nats://" + hole.Addr().String(),
		Connect: configs.Connect{User: "u", Password: "p", SilenceMax: 300 * time.Millisecond},
	}
	login, err := node.FindLogin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var nc *nats.Conn
	poll.Until(t, func() (err error) { // a busy machine may be as silent
		nc, err = node.Connect(t.Context(), cfg, &login, "test", log)
		return err
	})
	t.Cleanup(nc.Close)
	hole.swallow()
	poll.Until(t, func() error { return nc.FlushTimeout(5 * time.Second) }) // answered on another connection
}

// TestConnect_ASilentServerIsWaitedFor has a server greet and say nothing else: a machine may be that busy.
func TestConnect_ASilentServerIsWaitedFor(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			_, _ = conn.Write([]byte(`INFO {"server_id":"x","version":"2.12.0","proto":1,"headers":true,"max_payload":8388608}` + "\r\n"))
		}
	}()
	cfg := &configs.Config{
		Server:  "nats://" + listener.Addr().String(),
		Connect: configs.Connect{User: "u", Password: "p", SilenceMax: 300 * time.Millisecond},
	}
	login, err := node.FindLogin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := node.Connect(t.Context(), cfg, &login, "test", slog.New(slog.DiscardHandler))
	if err == nil {
		nc.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "nothing came") || !await.Passes(err) {
		t.Errorf("%v; want an error that passes", err)
	}
}
