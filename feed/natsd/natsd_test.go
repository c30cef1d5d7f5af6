package natsd_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd"
)

func open(t *testing.T, cfg natsd.Config) *natsd.Server {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	s, err := natsd.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestOpen_ServesInProcessAndOverTheNetwork(t *testing.T) {
	s := open(t, natsd.Config{Port: natsd.PortRandom, User: "u", Password: "p"})
	in, err := s.Conn()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := nats.Connect(s.ClientURL(), nats.Timeout(time.Minute)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("connect without password: %v, want %v", err, nats.ErrAuthorization)
	}
	out, err := nats.Connect(s.ClientURL(), nats.UserInfo("u", "p"), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if got := out.MaxPayload(); got != natsd.MaxPayloadDefault {
		t.Errorf("max payload %d, want %d", got, natsd.MaxPayloadDefault)
	}
	sub, err := in.SubscribeSync("x")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.Flush(), out.Publish("x", []byte("y"))); err != nil {
		t.Fatal(err)
	}
	if m, err := sub.NextMsg(5 * time.Second); err != nil || string(m.Data) != "y" {
		t.Fatalf("received %v, %v", m, err)
	}
}

func TestOpen_DontListen(t *testing.T) {
	s := open(t, natsd.Config{DontListen: true})
	if url := s.ClientURL(); url != "" {
		t.Errorf("client URL %q, want none", url)
	}
	nc, err := s.Conn()
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

// late is a server whose process gets no processor for a while when somebody connects.
type late struct{ *natsd.Server }

type lateConn struct {
	net.Conn
	once sync.Once
}

func (l late) InProcessConn() (net.Conn, error) {
	c, err := l.Server.InProcessConn()
	return &lateConn{Conn: c}, err
}

func (c *lateConn) Read(b []byte) (int, error) {
	c.once.Do(func() { <-time.After(nats.DefaultTimeout + time.Second) }) // time is what it lacks
	return c.Conn.Read(b)
}

// TestOpen_OneServerADirectory: a second one would cut off what the first one is appending, also where neither listens.
func TestOpen_OneServerADirectory(t *testing.T) {
	t.Parallel()
	cfg := natsd.Config{Dir: t.TempDir(), DontListen: true}
	first := open(t, cfg)
	refused := func(when string) {
		t.Helper()
		second, err := natsd.Open(t.Context(), cfg)
		if locked, ok := errors.AsType[*natsd.DirLockedError](err); !ok || locked.Dir != cfg.Dir {
			t.Errorf("%s: %v", when, err)
		}
		if second != nil {
			second.Close()
		}
	}
	refused("open")
	if err := first.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused("opened anew")
	first.Close()
	open(t, cfg)
}

func TestConn_OutlivesAPauseOfTheMachine(t *testing.T) {
	t.Parallel()
	s := open(t, natsd.Config{DontListen: true})
	nc, err := s.Conn(nats.InProcessServer(late{s}))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

func TestOpen_PortInUseIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = natsd.Open(t.Context(), natsd.Config{Dir: t.TempDir(), Port: port})
	if !errors.Is(err, natsd.ErrPort) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("error %v, want %v that names %v", err, natsd.ErrPort, l.Addr())
	}
}

func TestOpen_NamesAllThatIsWrong(t *testing.T) {
	_, err := natsd.Open(t.Context(), natsd.Config{Port: 70000, MaxPayload: 1, TLS: natsd.TLS{Cert: "x"}})
	for _, want := range []string{"dir:", "port:", "maxPayload:", "tls:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

func TestReopen_KeepsWhatWasStoredAndConnectionsReturn(t *testing.T) {
	s := open(t, natsd.Config{Port: natsd.PortRandom})
	url := s.ClientURL()
	nc, err := s.Conn()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	if err := s.Health(); err != nil {
		t.Errorf("health: %v", err)
	}
	connected := nc.StatusChanged(nats.CONNECTED)
	if err := s.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-connected:
	case <-time.After(time.Minute):
		t.Fatal("connection did not return")
	}
	stream, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetMsg(t.Context(), 1)
	if err != nil || string(m.Data) != "kept" {
		t.Fatalf("message %v, %v", m, err)
	}
	if got := s.ClientURL(); got != url {
		t.Errorf("client URL %s, before %s", got, url)
	}
	nc.Close()
	s.Close()
	s.Close()
	if err := s.Reopen(t.Context()); !errors.Is(err, natsd.ErrClosed) {
		t.Errorf("reopen after close: %v, want %v", err, natsd.ErrClosed)
	}
	if err := s.Health(); !errors.Is(err, natsd.ErrClosed) {
		t.Errorf("health after close: %v, want %v", err, natsd.ErrClosed)
	}
}

// A server that cannot read a file of a stream when it starts removes the stream: its files
// are there nevertheless, Health tells, and it is back as soon as they can be read. The same
// where the process is killed before it has put them back.
func TestOpen_KeepsAStreamThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, natsd.Config{Dir: dir, DontListen: true})
	calls := 0
	messages := func() (texts []string) {
		calls++
		nc, err := s.Conn()
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"S", "T"} {
			stream, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}})
			if err != nil {
				t.Fatal(err)
			}
			if stream.CachedInfo().State.Msgs == 0 {
				if _, err := js.Publish(t.Context(), name, fmt.Appendf(nil, "in %s since call %d", name, calls)); err != nil {
					t.Fatal(err)
				}
			}
			m, err := stream.GetMsg(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(m.Data))
		}
		return texts
	}
	want := messages()
	streams := filepath.Join(dir, "jetstream", "$G", "streams")
	// Reading a directory is an error for whoever expects a file, root too.
	unreadable := filepath.Join(streams, "S", "msgs", "2.blk")
	if err := os.Mkdir(unreadable, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Reopen(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Health(); !errors.Is(err, natsd.ErrUnread) || !strings.Contains(err.Error(), "stream S ") {
			t.Errorf("health: %v", err)
		}
	}
	if err := os.Remove(unreadable); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Health(); err != nil {
		t.Errorf("health: %v", err)
	}
	if diff := cmp.Diff(want, messages()); diff != "" {
		t.Error(diff)
	}
	s.Close()
	kept := filepath.Join(dir, natsd.KeepFolder, "$G")
	if _, err := os.Stat(filepath.Dir(kept)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("links are left: %v", err)
	}
	// Killed when the server had removed S, and T was not linked yet.
	if err := errors.Join(os.MkdirAll(filepath.Join(kept, "T", "msgs"), 0o700), os.Rename(filepath.Join(streams, "S"), filepath.Join(kept, "S"))); err != nil {
		t.Fatal(err)
	}
	s = open(t, natsd.Config{Dir: dir, DontListen: true})
	if diff := cmp.Diff(want, messages()); diff != "" {
		t.Error(diff)
	}
}
