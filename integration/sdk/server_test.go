package sdk_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/millrace/millrace/integration/process"
)

// long runs the tests that take minutes.
var long = flag.Bool("long", false, "run more rounds of kills and moves")

// The master keys of all servers of these tests, in base64.
var (
	masterKey   = base64.StdEncoding.EncodeToString([]byte("the key that reads and writes, of tests alone"))
	readOnlyKey = base64.StdEncoding.EncodeToString([]byte("the key that reads, of tests alone...."))
)

// partitions are those of containers that clients make.
const partitions = 3

// scratch is a directory that lives as long as the test binary.
var scratch string

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if scratch, err = os.MkdirTemp("", "millrace-sdk-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// At the first time cargo compiles for minutes, which the tests that need it would wait for behind all others.
	var compiling sync.WaitGroup
	if !testing.Short() && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" {
		compiling.Go(func() { _, _ = rustProgram() }) // who needs it is told what is wrong
	}
	code := m.Run()
	if s := running.Load(); s != nil {
		s.Kill()
	}
	compiling.Wait()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// binary builds the one binary, once for all tests.
var binary = sync.OnceValues(func() (string, error) { return process.Build(filepath.Join("..", ".."), scratch) })

// server is a process of the binary with its own directory and ports.
type server struct {
	role     string // the command that runs it
	dir      string
	endpoint string
	nats     string // of the server that it has or uses, for commands
	env      []string

	*process.Process
	log process.Log
}

// newServer starts millrace up. With secure it speaks TLS with a certificate that
// it made for itself. What env sets counts more than what the tests need.
func newServer(dir string, secure bool, env ...string) (*server, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	ports, err := process.FreePorts(2)
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + ports[0]
	s := &server{role: "up", dir: dir, endpoint: "https://" + address, nats: "nats://127.0.0.1:" + ports[1]}
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

// start runs the process and waits until it says that it is ready.
func (s *server) start() error {
	if err := s.run(); err != nil {
		return err
	}
	if err := s.AwaitReady(2 * time.Minute); err != nil {
		s.Kill()
		return fmt.Errorf("millrace: %w", err)
	}
	return nil
}

// run runs the process, which may never be ready.
func (s *server) run() error {
	path, err := binary()
	if err != nil {
		return err
	}
	cmd := exec.Command(path, s.role)
	cmd.Env, cmd.Dir = s.env, s.dir
	s.Process, err = process.Start(cmd, &s.log)
	return err
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
		s.Kill()
		if t.Failed() {
			t.Logf("the server said:\n%s", &s.log)
		}
	})
	return s
}

// command runs a command of the binary beside the server and returns what it said.
func (s *server) command(t *testing.T, args ...string) string {
	t.Helper()
	path, err := binary()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "MILLRACE_SERVER="+s.nats, "MILLRACE_DIR="+s.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("millrace %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
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
