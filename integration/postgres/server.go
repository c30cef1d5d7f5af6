package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrMissing says that PostgreSQL is not installed on this machine.
var ErrMissing = errors.New("postgres: no PostgreSQL found; install Debian's package postgresql")

// User is who connects, a superuser, and Password what the server asks for. The
// password contains what a URL must escape.
const (
	User     = "millrace"
	Password = "open/Sesame:7"
)

const (
	// startMax and stopMax bound the start and the orderly stop of a server; both
	// include what recovery after a kill takes.
	startMax = time.Minute
	stopMax  = time.Minute
	// pollInterval is how often a starting or dying server is looked at.
	pollInterval = 10 * time.Millisecond
	// portAttempts is how many ports are tried, as another process may take one
	// between the choice and the start.
	portAttempts = 5
)

// Config says what server to start. The zero Config is one for tests: quick, and
// safe against the death of processes but not of the machine.
type Config struct {
	// Dir holds the cluster, which is made if it is not there. Default a new
	// directory, removed by Close.
	Dir string
	// Settings are lines of postgresql.conf, such as "work_mem = 64MB". Default
	// "fsync = off".
	Settings []string
}

// Server is a PostgreSQL server of this process.
type Server struct {
	bin, dir  string
	temporary bool
	owner     *owner
	port      int
	databases atomic.Int64

	pid   int
	ended chan struct{} // closed when the process at pid has ended; nil before the first Run
}

// Open makes a cluster, unless there is one in cfg.Dir, and starts it. The error
// is ErrMissing if there is nothing to start.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: cfg.Dir}
	if s.owner, err = findOwner(); err != nil {
		return nil, err
	}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "millrace-postgres-"); err != nil {
			return nil, fmt.Errorf("postgres: %w", err)
		}
		s.temporary = true
	}
	if err := s.open(ctx, cfg.Settings); err != nil {
		return nil, errors.Join(err, s.Close()) //nolint:contextcheck // what was started must end, whatever ctx says
	}
	return s, nil
}

func (s *Server) open(ctx context.Context, settings []string) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if err := s.owner.own(s.dir); err != nil {
		return err
	}
	if _, err := os.Stat(s.path("data", "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		if err := s.initialize(ctx, settings); err != nil {
			return err
		}
	}
	var err error
	for range portAttempts {
		if s.port, err = freePort(ctx); err != nil {
			return err
		}
		if err = s.Run(ctx); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
	return err
}

// initialize makes the cluster.
func (s *Server) initialize(ctx context.Context, settings []string) error {
	secret := s.path("password")
	if err := os.WriteFile(secret, []byte(Password+"\n"), 0o600); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer func() { _ = os.Remove(secret) }()
	if err := s.owner.own(secret); err != nil {
		return err
	}
	if out, err := s.command(ctx, "initdb", "-D", s.path("data"), "-U", User, "--auth=scram-sha-256", "--pwfile="+secret,
		"-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput(); err != nil {
		return fmt.Errorf("postgres: initdb in %s: %w: %s", s.dir, err, out)
	}
	if settings == nil {
		settings = []string{"fsync = off"}
	}
	settings = append([]string{"", "listen_addresses = '127.0.0.1'", "unix_socket_directories = ''", "max_connections = 200"}, settings...)
	conf, err := os.OpenFile(s.path("data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	_, err = conf.WriteString(strings.Join(settings, "\n") + "\n")
	if err := errors.Join(err, conf.Close()); err != nil {
		return fmt.Errorf("postgres: write settings: %w", err)
	}
	return nil
}

// Run starts the server again after Stop or Kill, on the same port, and returns
// when it answers.
func (s *Server) Run(ctx context.Context) error {
	log, err := os.OpenFile(s.path("server.log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer func() { _ = log.Close() }() // the server has its own
	begin, err := log.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	// The server outlives the caller's ctx; Close ends it.
	cmd := s.command(context.WithoutCancel(ctx), "postgres", "-D", s.path("data"), "-p", strconv.Itoa(s.port))
	cmd.Stdout, cmd.Stderr = log, log
	if s.pid, s.ended, err = run(cmd); err != nil {
		return fmt.Errorf("postgres: start: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	if err := s.poll(ctx, s.ready); err != nil {
		said := make([]byte, 4096)
		n, _ := log.ReadAt(said, begin)
		return fmt.Errorf("postgres: start: %w: %s", err, said[:n])
	}
	return nil
}

// ready reports whether the server answers; the error says that it has ended.
func (s *Server) ready() (bool, error) {
	select {
	case <-s.ended:
		return false, errors.New("it ended")
	default:
	}
	data, err := os.ReadFile(s.path("data", "postmaster.pid"))
	if err != nil {
		return false, nil //nolint:nilerr // it is not there yet
	}
	// The first line is the process, the eighth how far it is: see pg_ctl.
	lines := strings.Split(string(data), "\n")
	return len(lines) > 7 && lines[0] == strconv.Itoa(s.pid) && strings.TrimSpace(lines[7]) == "ready", nil
}

// PID is the process of the running server, zero before the first Run.
func (s *Server) PID() int { return s.pid }

// DSN is how to connect to the database postgres.
func (s *Server) DSN() string { return s.dsn("postgres") }

func (s *Server) dsn(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(User, Password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// CreateDatabase makes a new, empty database and returns how to connect to it.
func (s *Server) CreateDatabase(ctx context.Context) (string, error) {
	name := "d" + strconv.FormatInt(s.databases.Add(1), 10)
	cmd := s.command(ctx, "createdb", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", User, name)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+Password)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("postgres: createdb: %w: %s", err, out)
	}
	return s.dsn(name), nil
}

// Stop stops the server in order: what is under way is rolled back, what was
// committed is on disk. It may be called again.
func (s *Server) Stop(ctx context.Context) error {
	if s.gone() {
		return nil
	}
	if err := syscall.Kill(s.pid, syscall.SIGINT); err != nil { // a fast shutdown
		return fmt.Errorf("postgres: stop: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopMax)
	defer cancel()
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("postgres: stop: %w", context.Cause(ctx))
	}
}

// Kill ends all processes of the server at once, as kill -9 does, and returns when
// they are gone. The next Run recovers.
func (s *Server) Kill() error {
	if s.gone() {
		return nil
	}
	workers := children(s.pid)
	for _, pid := range append([]int{s.pid}, workers...) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("postgres: kill %d: %w", pid, err)
		}
	}
	<-s.ended
	ctx, cancel := context.WithTimeout(context.Background(), stopMax)
	defer cancel()
	// A new server does not start while a process of the old one has its memory.
	err := s.poll(ctx, func() (bool, error) {
		return !slices.ContainsFunc(workers, alive), nil
	})
	if err != nil {
		return fmt.Errorf("postgres: kill: %w", err)
	}
	return nil
}

func (s *Server) gone() bool {
	if s.ended == nil {
		return true
	}
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Close kills the server and removes its directory if that was a new one. It may
// be called again.
func (s *Server) Close() error {
	err := s.Kill()
	if s.temporary {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// poll asks done until it says yes or fails.
func (s *Server) poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func (s *Server) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// command is one of PostgreSQL's programs, to be run as the cluster's owner.
func (s *Server) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, program), args...)
	cmd.Dir = "/" // which the owner may enter, whoever started this process where
	cmd.SysProcAttr = s.owner.attributes()
	return cmd
}

// freePort returns a port of loopback that nobody listens at just now.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("postgres: find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}
