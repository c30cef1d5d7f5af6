package browser_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/process"
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

	*process.Process
	log process.Log
}

// start builds the binary, starts it and declares the pipeline whose copies are looked at.
func start(t *testing.T) *server {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	binary, err := process.Build(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ports, err := process.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: t.TempDir(), binary: binary, nats: "nats://127.0.0.1:" + ports[0], home: "http://127.0.0.1:" + ports[1]}
	s.args = []string{"up", "--dir", s.dir, "--port", ports[0], "--listen", "127.0.0.1:" + ports[1], "--gateway", "off"}
	s.run()
	t.Cleanup(func() { s.Kill() }) // the one that runs then
	webstore := filepath.Join(root, "configs", "webstore")
	s.command("", "apply", "-f", filepath.Join(webstore, "product.yaml"), "-f", filepath.Join(webstore, "productMeta.yaml"), "-f", filepath.Join(webstore, "category-names.yaml"))
	return s
}

// run runs the process and waits until it says that it is ready.
func (s *server) run() {
	s.t.Helper()
	cmd := exec.Command(s.binary, s.args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "MILLRACE_GATEWAY_KEYS_PRIMARY="+masterKey)
	p, err := process.Start(cmd, &s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Process = p
	if err := p.AwaitReady(2 * time.Minute); err != nil {
		p.Kill()
		s.t.Fatalf("millrace: %v", err)
	}
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
