package sdk_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// long runs the tests that take minutes.
var long = flag.Bool("long", false, "run more rounds of kills")

// The master keys of all servers of these tests, in base64.
var (
	masterKey   = base64.StdEncoding.EncodeToString([]byte("the key that reads and writes, of tests alone"))
	readOnlyKey = base64.StdEncoding.EncodeToString([]byte("the key that reads, of tests alone...."))
)

// partitions are those of containers that clients make.
const partitions = 3

// givenBinary names the binary in the environment, where it was built already.
const givenBinary = "MILLRACE_TEST_BINARY"

// scratch is a directory that lives as long as the test binary.
var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if scratch, err = os.MkdirTemp("", "millrace-sdk-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if s := running.Load(); s != nil {
		s.kill()
	}
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// binary builds the one binary, once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(givenBinary); path != "" {
		return path, nil
	}
	path := filepath.Join(scratch, "millrace")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/millrace")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// server is a process of the binary with its own directory and ports.
type server struct {
	dir      string
	endpoint string
	nats     string // of the embedded server, for commands
	env      []string

	cmd   *exec.Cmd
	ended chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// newServer starts millrace up. With secure it speaks TLS with a certificate that
// it made for itself. What env sets counts more than what the tests need.
func newServer(dir string, secure bool, env ...string) (*server, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + ports[0]
	s := &server{dir: dir, endpoint: "https://" + address, nats: "nats://127.0.0.1:" + ports[1]}
	s.env = append(os.Environ(),
		"MILLRACE_DIR="+dir, "MILLRACE_NATS_PORT="+ports[1], "MILLRACE_HTTP_LISTEN=off",
		"MILLRACE_GATEWAY_LISTEN="+address, "MILLRACE_GATEWAY_PARTITIONS="+strconv.Itoa(partitions),
		"MILLRACE_GATEWAY_KEYS_PRIMARY="+masterKey, "MILLRACE_GATEWAY_KEYS_PRIMARY_READ_ONLY="+readOnlyKey,
	)
	if !secure {
		s.endpoint = "http://" + address
		s.env = append(s.env, "MILLRACE_GATEWAY_TLS=off")
	}
	s.env = append(s.env, env...)
	return s, s.start()
}

// freePorts finds ports that nobody listens on.
func freePorts(n int) ([]string, error) {
	ports := make([]string, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // together, so that they differ
		ports[i] = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// start runs the process and waits until it says that it is ready.
func (s *server) start() error {
	path, err := binary()
	if err != nil {
		return err
	}
	s.cmd = exec.Command(path, "up")
	s.cmd.Env, s.cmd.Dir = s.env, s.dir
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.cmd.Stderr = s.cmd.Stdout
	if err := s.cmd.Start(); err != nil {
		return err
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	s.ended = ended
	go func(cmd *exec.Cmd) {
		defer close(ended)
		said := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.mu.Lock()
			s.log.WriteString(lines.Text() + "\n")
			s.mu.Unlock()
			if !said && strings.Contains(lines.Text(), "is ready after") {
				said = true
				close(ready)
			}
		}
		_ = cmd.Wait() // a killed process ends with an error
	}(s.cmd)
	select {
	case <-ready:
		return nil
	case <-ended:
		return fmt.Errorf("millrace ended at once:\n%s", s.output())
	case <-time.After(2 * time.Minute):
		s.kill()
		return fmt.Errorf("millrace is not ready after two minutes:\n%s", s.output())
	}
}

// kill ends the process as kill -9 does.
func (s *server) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL) // it may have ended already
	<-s.ended
}

func (s *server) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// shared is the server of all tests that do not need one of their own.
var shared = sync.OnceValues(func() (*server, error) {
	s, err := newServer(filepath.Join(scratch, "shared"), false)
	if err == nil {
		running.Store(s)
	}
	return s, err
})

// running is the shared server, if a test asked for it.
var running atomic.Pointer[server]

// start is newServer for one test.
func start(t *testing.T, secure bool, env ...string) *server {
	t.Helper()
	s, err := newServer(filepath.Join(t.TempDir(), "shop"), secure, env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("the server said:\n%s", s.output())
		}
	})
	return s
}

// client is an azcosmos client of the server.
func (s *server) client(t *testing.T, key string, o *azcosmos.ClientOptions) *azcosmos.Client {
	t.Helper()
	credential, err := azcosmos.NewKeyCredential(key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := azcosmos.NewClientWithKey(s.endpoint, credential, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// database makes a database for the test alone.
func (s *server) database(t *testing.T) *azcosmos.DatabaseClient {
	t.Helper()
	return newDatabase(t, s.client(t, masterKey, nil))
}

func newDatabase(t *testing.T, c *azcosmos.Client) *azcosmos.DatabaseClient {
	t.Helper()
	id := "db" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if _, err := c.CreateDatabase(t.Context(), azcosmos.DatabaseProperties{ID: id}, nil); err != nil {
		t.Fatal(err)
	}
	db, err := c.NewDatabase(id)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// database makes a database on the shared server.
func database(t *testing.T) *azcosmos.DatabaseClient {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s.database(t)
}

// container makes a container whose partition key is at paths.
func container(t *testing.T, db *azcosmos.DatabaseClient, p azcosmos.ContainerProperties, paths ...string) *azcosmos.ContainerClient {
	t.Helper()
	if p.ID == "" {
		p.ID = "items"
	}
	kind := azcosmos.PartitionKeyKindHash
	if len(paths) > 1 {
		kind = azcosmos.PartitionKeyKindMultiHash
	}
	p.PartitionKeyDefinition = azcosmos.PartitionKeyDefinition{Paths: paths, Kind: kind, Version: 2}
	if _, err := db.CreateContainer(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	c, err := db.NewContainer(p.ID)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// trusting are options of a client that trusts the certificates in a file.
func trusting(t *testing.T, certificates string) *azcosmos.ClientOptions {
	t.Helper()
	pem, err := os.ReadFile(certificates)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("%s has no certificate", certificates)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	return &azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}}}
}

// eventually waits until a condition holds, for a minute at most.
func eventually(t *testing.T, condition func() (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		ok, reason := condition()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not after a minute: %s", reason)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
