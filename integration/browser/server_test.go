package browser_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// masterKey signs in with the right to write.
var masterKey = base64.StdEncoding.EncodeToString([]byte("the key that reads and writes, of tests alone"))

// chromium finds the browser.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("MILLRACE_TEST_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Skip("no Chromium here: install it (Debian: chromium), or name it with MILLRACE_TEST_CHROMIUM")
	return ""
}

// server is millrace up with a console.
type server struct {
	t      *testing.T
	binary string
	dir    string
	home   string
	nats   string
	args   []string
	cmd    *exec.Cmd
	ended  chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// start builds the binary, starts it and declares the pipeline whose copies are looked at.
func start(t *testing.T) *server {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: t.TempDir(), binary: cmp.Or(os.Getenv("MILLRACE_TEST_BINARY"), filepath.Join(t.TempDir(), "millrace"))}
	if os.Getenv("MILLRACE_TEST_BINARY") == "" {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", s.binary, "./cmd/millrace")
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	nats, http := freePorts(t)
	s.nats, s.home = "nats://127.0.0.1:"+nats, "http://127.0.0.1:"+http
	s.args = []string{"up", "--dir", s.dir, "--port", nats, "--listen", "127.0.0.1:" + http, "--gateway", "off"}
	s.run()
	t.Cleanup(s.kill)
	webstore := filepath.Join(root, "configs", "webstore")
	s.command("", "apply", "-f", filepath.Join(webstore, "product.yaml"), "-f", filepath.Join(webstore, "productMeta.yaml"), "-f", filepath.Join(webstore, "category-names.yaml"))
	return s
}

// freePorts finds two ports that nobody listens on.
func freePorts(t *testing.T) (string, string) {
	t.Helper()
	var ports []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // together, so that they differ
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports[0], ports[1]
}

// run runs the process and waits until it says that it is ready.
func (s *server) run() {
	s.t.Helper()
	s.cmd = exec.Command(s.binary, s.args...)
	s.cmd.Dir = s.dir
	s.cmd.Env = append(os.Environ(), "MILLRACE_GATEWAY_KEYS_PRIMARY="+masterKey)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd.Stderr = s.cmd.Stdout
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
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
	case <-ended:
		s.t.Fatalf("millrace ended at once:\n%s", s.output())
	case <-time.After(2 * time.Minute):
		s.t.Fatalf("millrace is not ready after two minutes:\n%s", s.output())
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

// command runs a command against the server.
func (s *server) command(stdin string, args ...string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.binary, append(args, "--server", s.nats)...)
	cmd.Env = append(os.Environ(), "MILLRACE_DIR="+s.dir)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("millrace %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// put writes an item.
func (s *server) put(container, item string) {
	s.t.Helper()
	s.command(fmt.Sprintln(item), "import", container, "-")
}
