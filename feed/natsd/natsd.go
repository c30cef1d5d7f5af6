// Package natsd embeds a NATS server with JetStream, so that a Millrace process can run
// without any other server.
//
// Open starts the server and returns when it accepts connections. A process connects to its
// own server through Conn, over a pipe in memory. Other processes connect at ClientURL,
// unless the server does not listen. By default every append is synced to disk before it
// is acknowledged.
//
// Every other process needs a secret to connect. A server that listens makes two at its first
// start, in files that only their owner can read. UserAdmin may do everything. UserReadOnly
// may look at streams, get their messages, have consumers to read them, and ask stores for
// items; it may neither publish nor change anything. Both may use the monitoring port, if
// there is one. A replaced file counts from the next connection on.
//
// After an error of its disk, such as no space left, JetStream never writes to the stream
// again and does not answer. Health reports that. Reopen starts the server again once the
// cause is gone; connections made by Conn reconnect by themselves.
//
// A NATS server that cannot read a stream's files when it starts would remove them. Open keeps
// links to them until the server has started, and puts them back: see keepStreams.
//
// All methods may be called concurrently.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ErrPort is the cause of Open's error if the port is taken or may not be used.
var ErrPort = errors.New("natsd: cannot listen")

// ErrClosed is the error of methods that need a running server.
var ErrClosed = errors.New("natsd: closed")

// ErrStore is among the causes of Health's error if a write to a stream has failed. The server
// writes nothing more to that stream until Reopen.
var ErrStore = errors.New("natsd: the store keeps a write error")

// ErrUnread is among the causes of Health's error if the files of a stream could not be
// read when the server started. The files are kept, and Reopen tries again.
var ErrUnread = errors.New("natsd: files could not be read")

// Server is an embedded NATS server.
type Server struct {
	cfg    Config // Port is set by the first start if it was PortRandom
	access *access
	lock   *flock.Flock // of the directory, until Close

	// life lets one start or stop happen at a time, which may take minutes. It guards the next
	// three.
	life          sync.RWMutex
	ended         chan struct{} // closed when running's Start has returned; nil once closed
	monitor       *monitor      // nil: off
	beforeRestore func()        // set by tests; nil otherwise

	// mu guards what follows. Nobody waits for anything while it is held: a connection that
	// reconnects asks for running, and meanwhile all its users wait for it.
	mu      sync.Mutex
	running *server.Server // nil while none takes connections
	unread  []string       // streams that running could not open
}

// Open starts a server and waits until it takes connections, at most until ctx
// ends. The error wraps ErrPort if the port is taken; it names all fields of
// cfg that are wrong.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("natsd: %w", err)
	}
	cfg.warnOfClearText()
	s := &Server{cfg: cfg}
	if s.lock, err = lockDir(cfg.Dir); err != nil {
		return nil, err
	}
	if s.access, err = openAccess(&cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("natsd: %w", err), s.lock.Close())
	}
	s.life.Lock()
	defer s.life.Unlock()
	if err := s.startLocked(ctx); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	if s.monitor, err = openMonitor(ctx, s); err != nil {
		s.stopLocked()
		return nil, errors.Join(err, s.lock.Close())
	}
	return s, nil
}

// lockFile is a file in Config.Dir that a server locks.
const lockFile = "server.lock"

// DirLockedError says that another server uses a directory.
type DirLockedError struct{ Dir string }

func (e *DirLockedError) Error() string {
	return fmt.Sprintf("natsd: directory %s is in use by another server; stop that, or choose another directory (nats.dir)", e.Dir)
}

// lockDir makes a directory, for its owner alone, if it is missing, and locks it. The server itself does not: two
// of them would cut off what the other one is appending. The lock of a node's directory is no help
// where several nodes name one directory for their servers.
func lockDir(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("natsd: %w", err)
	}
	lock := flock.New(filepath.Join(dir, lockFile))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("natsd: lock directory %s: %w", dir, err)
	}
	if !locked {
		return nil, &DirLockedError{dir}
	}
	return lock, nil
}

// startLocked starts a server. life is held. The order of the steps:
//
//	port           before anything in the directory changes
//	probes         or the server takes one for an account
//	updates        or the server ignores a stream whose update was cut off
//	links          before the server can remove a stream
//	server
//	restore        before anybody is admitted who could delete or make a stream
//	admit          clients that have connected since the server listens
//	running        connections of this process
func (s *Server) startLocked(ctx context.Context) error {
	options, err := s.cfg.options()
	if err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	options.CustomClientAuthentication = s.access
	if err := s.cfg.checkPort(ctx); err != nil {
		return err
	}
	if err := s.prepareStore(); err != nil {
		return err
	}
	n, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("natsd: configure: %w", err)
	}
	log := &logger{log: s.cfg.Log, fatal: make(chan string, 1)}
	n.SetLoggerV2(log, s.cfg.Debug, false, false)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.Start()
	}()
	var unread []string
	err = awaitReady(ctx, n, log.fatal)
	if err == nil && s.beforeRestore != nil {
		s.beforeRestore()
	}
	if err == nil {
		unread, err = s.restoreStreams()
	}
	if err == nil {
		err = s.access.admit(n)
	}
	if err != nil {
		// Before the shutdown, which waits for the clients that wait to be admitted.
		s.access.close()
		n.Shutdown()
		n.WaitForShutdown()
		<-ended
		return fmt.Errorf("natsd: start in %s: %w", s.cfg.Dir, err)
	}
	if s.cfg.Port == PortRandom && !s.cfg.DontListen {
		// Reopen takes the same port, so that ClientURL stays true.
		s.cfg.Port = n.Addr().(*net.TCPAddr).Port
	}
	for _, stream := range unread {
		s.cfg.Log.Error("a stream could not be opened, because its files could not be read; they are as they were, and it comes back when they can be read",
			slog.String("stream", stream))
	}
	s.ended = ended
	s.setRunning(n, unread)
	if err := s.tellAddress(n); err != nil {
		s.cfg.Log.Warn("commands do not find this server by its directory; name it with --server", slog.Any("error", err))
	}
	return nil
}

// prepareStore makes the directory ready for a server that starts.
func (s *Server) prepareStore() error {
	if err := removeProbes(s.cfg.Dir); err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	completed, err := completeUpdates(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	for _, stream := range completed {
		s.cfg.Log.Warn("an update of a stream had been cut off and was completed", slog.String("stream", stream))
	}
	aside, err := finishDeletions(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("natsd: %w", err)
	}
	for _, folder := range aside {
		s.cfg.Log.Warn("the deletion of a stream had been cut off; what is left of it was moved aside, and can be removed", slog.String("folder", folder))
	}
	if err := s.keepStreams(); err != nil {
		return fmt.Errorf("natsd: keep the files of streams: %w", err)
	}
	return nil
}

// awaitReady returns when the server accepts connections. The server only offers to wait for
// that a limited time, so it is asked again, and fatal messages are looked at in between.
func awaitReady(ctx context.Context, n *server.Server, fatal <-chan string) error {
	const step = 50 * time.Millisecond
	for {
		if n.ReadyForConnections(step) {
			return nil
		}
		select {
		case what := <-fatal:
			return errors.New(what)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", context.Cause(ctx))
		default:
		}
	}
}

// greetMax bounds how long the server may take to greet a connection of this process, and any
// client to show who it is. Both wait two seconds by default, which the processor alone may take
// on a busy machine: then the process would end at its start.
const greetMax = 10 * time.Second

// Conn connects to the server from within the process. The connection
// reconnects for ever, also after Reopen; close it before the server. opts are
// applied after the defaults. While Reopen runs, Conn waits for its end.
func (s *Server) Conn(opts ...nats.Option) (*nats.Conn, error) {
	all := []nats.Option{
		nats.Name(s.cfg.Name),
		nats.InProcessServer(s),
		nats.UserInfo(s.access.process.User, s.access.process.Password),
		nats.Timeout(greetMax),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(50 * time.Millisecond),
		nats.ReconnectJitter(20*time.Millisecond, 20*time.Millisecond),
		nats.ReconnectBufSize(2 * s.cfg.MaxPayload), // two of the largest messages, while the server is gone
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			s.cfg.Log.Warn("connection to the embedded server", "subject", subject, "error", err)
		}),
	}
	// A first connection is not tried again, unlike one that breaks, so it waits for a server.
	s.life.RLock()
	defer s.life.RUnlock()
	nc, err := nats.Connect("", append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("natsd: connect in process: %w", err)
	}
	return nc, nil
}

// InProcessConn opens a connection in memory to the present server. nats.InProcessServer calls
// it for each reconnect, so that a connection finds the new server after Reopen. While Reopen
// runs the error is ErrClosed at once: the NATS client holds the lock of its connection
// meanwhile, for which every user of the connection waits, whatever their contexts say. It tries
// again soon.
func (s *Server) InProcessConn() (net.Conn, error) {
	n, err := s.server()
	if err != nil {
		return nil, err
	}
	return n.InProcessConn()
}

// ClientURL returns the URL at which other processes connect; it is empty if the server does
// not listen, is closed, or is being opened anew.
func (s *Server) ClientURL() string {
	n, err := s.server()
	if err != nil || s.cfg.DontListen {
		return ""
	}
	return n.ClientURL()
}

// Health returns what keeps the server from serving or storing, nil if nothing does. The error
// wraps ErrStore or ErrUnread until Reopen, and ErrClosed while Reopen runs and after one that
// failed.
func (s *Server) Health() error {
	s.mu.Lock()
	n, unread := s.running, s.unread
	s.mu.Unlock()
	if n == nil {
		return ErrClosed
	}
	status := healthz(n)
	var errs []error
	for _, stream := range unread {
		errs = append(errs, fmt.Errorf("%w: the files of stream %s in %s; see what the disk has, or the way to it", ErrUnread, stream, s.cfg.Dir))
	}
	for _, e := range status.Errors {
		err := errors.New(strings.TrimPrefix(e.Error, "JetStream "))
		if strings.Contains(e.Error, "write error") {
			err = fmt.Errorf("%w: %w", ErrStore, err)
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("natsd: %w", errors.Join(errs...))
	}
	return nil
}

// healthz asks the server how it is. It gives itself a millisecond to find that it accepts connections, which it
// has done since Open returned; on a busy machine the processor alone takes that. So that answer counts only when it
// comes again and again.
func healthz(n *server.Server) *server.HealthStatus {
	const tries = 10
	for i := 1; ; i++ {
		status := n.Healthz(&server.HealthzOptions{Details: true})
		busy := func(e server.HealthzError) bool { return e.Type == server.HealthzErrorConn }
		if i == tries || !slices.ContainsFunc(status.Errors, busy) {
			return status
		}
	}
}

// Reopen stops the server and starts it again on the same store and port. The new server reads
// its files from the disk, not from the system's cache, which may hold what a failed sync
// never wrote. It returns as Open does. After an error the server is stopped, and Reopen
// may be called again.
func (s *Server) Reopen(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.ended == nil {
		return ErrClosed
	}
	s.stopLocked()
	dropCached(s.cfg.Dir)
	return s.startLocked(ctx)
}

// Close stops the server and waits until everything is on disk and nothing is
// left running. Open connections break. It may be called twice.
func (s *Server) Close() {
	s.life.Lock()
	defer s.life.Unlock()
	s.stopLocked()
	s.ended = nil
	if s.monitor != nil {
		s.monitor.close()
		s.monitor = nil
	}
	if err := s.lock.Close(); err != nil {
		s.cfg.Log.Warn("the lock of the embedded server's directory could not be released", slog.Any("error", err))
	}
}

// stopLocked stops the server, if one is running. life is held.
func (s *Server) stopLocked() {
	// First: connections of this process that break try again, and must not find the server that ends.
	n := s.setRunning(nil, nil)
	if n == nil {
		return
	}
	if !s.cfg.DontListen {
		_ = os.Remove(filepath.Join(s.cfg.Credentials, FileAddress)) // it may not be there
	}
	s.access.close()
	n.Shutdown()
	n.WaitForShutdown()
	<-s.ended
}

// setRunning sets the server that connections find, and returns the one before.
func (s *Server) setRunning(n *server.Server, unread []string) (before *server.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.running, s.unread = s.running, n, unread
	return before
}

func (s *Server) server() (*server.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil, ErrClosed
	}
	return s.running, nil
}
