package natsd_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/feed/natsd/ports"
)

// patience bounds what a test waits for that comes for certain.
const patience = time.Minute

// stuck is a log that stops a server at its first words, once it is armed.
type stuck struct {
	slog.Handler
	armed   chan struct{} // closed: the next start stops
	reached chan struct{} // closed when a start has stopped
	release chan struct{} // closed: it goes on
}

func newStuck() *stuck {
	return &stuck{slog.DiscardHandler, make(chan struct{}), make(chan struct{}), make(chan struct{})}
}

func (s *stuck) Enabled(context.Context, slog.Level) bool { return true }

func (s *stuck) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.String() != "Starting nats-server" {
			return true
		}
		select {
		case <-s.armed:
			close(s.reached)
			<-s.release
		default:
		}
		return false
	})
	return nil
}

// await waits until a start has stopped, unless the restart ends without one.
func (s *stuck) await(t *testing.T, reopened <-chan error) {
	t.Helper()
	select {
	case <-s.reached:
	case err := <-reopened:
		t.Fatalf("the restart was over before it began: %v", err)
	}
}

// seen is a server that tells when somebody asks for a connection.
type seen struct {
	*natsd.Server
	asked chan struct{}
}

func (s seen) InProcessConn() (net.Conn, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	return s.Server.InProcessConn()
}

// While a server restarts, which may take minutes, a connection of the process only waits as long
// as its user wants to.
func TestReopen_HoldsNoUserOfAConnection(t *testing.T) {
	t.Parallel()
	log := newStuck()
	s := open(t, natsd.Config{DontListen: true, Log: slog.New(log)})
	asked := make(chan struct{}, 1)
	nc, err := s.Conn(nats.InProcessServer(seen{s, asked}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	<-asked // by Conn
	connected := nc.StatusChanged(nats.CONNECTED)
	close(log.armed)
	reopened := make(chan error, 1)
	go func() { reopened <- s.Reopen(t.Context()) }()
	release := sync.OnceFunc(func() { close(log.release) })
	t.Cleanup(release)
	log.await(t, reopened)
	select {
	case <-asked: // by the connection, which was cut off
	case <-time.After(patience):
		t.Fatal("the connection does not try to return")
	}
	answered := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := nc.RequestWithContext(ctx, "x", nil)
		answered <- err
	}()
	select {
	case err := <-answered:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request while the server restarts: %v, want %v", err, context.DeadlineExceeded)
		}
	case <-time.After(patience / 4):
		t.Error("a request waits for the restart, whatever its context says")
	}
	if t.Failed() {
		return
	}
	if err := s.Health(); !errors.Is(err, natsd.ErrClosed) {
		t.Errorf("health while the server restarts: %v, want %v", err, natsd.ErrClosed)
	}
	release()
	if err := <-reopened; err != nil {
		t.Fatal(err)
	}
	select {
	case <-connected:
	case <-time.After(patience):
		t.Error("the connection did not return")
	}
}

// A new connection waits for a restart that has begun.
func TestConn_WaitsForARestart(t *testing.T) {
	t.Parallel()
	log := newStuck()
	s := open(t, natsd.Config{DontListen: true, Log: slog.New(log)})
	close(log.armed)
	reopened := make(chan error, 1)
	go func() { reopened <- s.Reopen(t.Context()) }()
	log.await(t, reopened)
	time.AfterFunc(50*time.Millisecond, func() { close(log.release) })
	nc, err := s.Conn()
	if err != nil {
		t.Error(err)
	} else {
		nc.Close()
	}
	if err := <-reopened; err != nil {
		t.Error(err)
	}
}

// A client that is admitted before the streams are restored could delete one, which would
// then come back.
func TestReopen_AdmitsNobodyBeforeStreamsAreRestored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, natsd.Config{Dir: dir, Port: ports.Free(t), SyncInterval: time.Minute, Log: slog.New(slog.DiscardHandler)})
	url, admin := s.ClientURL(), credentials(t, dir, natsd.FileAdmin)
	connect := func(wait time.Duration) (*nats.Conn, jetstream.JetStream, error) {
		nc, err := nats.Connect(url, nats.UserInfo(admin.User, admin.Password), nats.Timeout(wait), nats.NoReconnect())
		if err != nil {
			return nil, nil, err
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		return nc, js, err
	}
	nc, js, err := connect(patience)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	// A server that admits somebody does so at once; one that does not never does before the
	// streams are restored. So no machine is too slow for this wait.
	natsd.BeforeRestore(s, func() {
		_, js, err := connect(2 * time.Second)
		if err != nil {
			return
		}
		t.Error("a client is admitted before the streams are restored")
		if err := js.DeleteStream(t.Context(), "S"); err != nil {
			t.Error(err)
		}
	})
	if err := s.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Health(); err != nil {
		t.Errorf("health: %v", err)
	}
	if _, js, err = connect(patience); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "S"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "jetstream", "$G", "streams", "S")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the files of the stream that was deleted: %v, want %v", err, fs.ErrNotExist)
	}
}
