package sdk_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// nodeMajorMin is the oldest Node on which the SDK runs.
const nodeMajorMin = 20

// packages are the Node packages of js.
var packages = sync.OnceValue(func() error { return install("js") })

// install installs the Node packages of a directory as its lock file says, unless they are there. The error says why
// it cannot be done.
func install(dir string) error {
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		return fmt.Errorf("no Node: %w", err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < nodeMajorMin {
		return fmt.Errorf("Node %s is older than %d", out, nodeMajorMin)
	}
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	// What was installed last is said by the lock file beside it.
	mark := filepath.Join(dir, "node_modules", ".millrace-lock")
	if done, err := os.ReadFile(mark); err == nil && bytes.Equal(done, lock) {
		return nil
	}
	cmd := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, bytes.TrimSpace(out))
	}
	return os.WriteFile(mark, lock, 0o644)
}

// node runs a script of js against a server and returns what it printed.
func node(t *testing.T, s *server, env []string, args ...string) []byte {
	t.Helper()
	if err := packages(); err != nil {
		t.Skipf("@azure/cosmos cannot be had: %v", err)
	}
	return nodeIn(t, "js", s, env, args...)
}

// nodeIn runs a script of a directory, whose packages are installed.
func nodeIn(t *testing.T, dir string, s *server, env []string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = dir
	cmd.Env = slices.Concat(os.Environ(), env, []string{
		"MILLRACE_ENDPOINT=" + s.endpoint, "MILLRACE_KEY=" + masterKey, "MILLRACE_READ_ONLY_KEY=" + readOnlyKey,
		"MILLRACE_PARTITIONS=" + strconv.Itoa(partitions),
	})
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("node %v: %v\n%s%s", args, err, out, stderr.String())
	}
	return out
}

// TestJS runs the cases of js, each as a test of its own, with the newest version of the SDK.
func TestJS(t *testing.T) {
	s, err := shared()
	must(t, err)
	report(t, node(t, s, nil, "run.js"), 100)
}

// TestJS_Earlier runs them with earlier versions: the newest 4 that names Node 20 as enough, and the newest 3, which takes nothing
// but TLS, and has no feed ranges.
func TestJS_Earlier(t *testing.T) {
	s := start(t, true)
	trust := "NODE_EXTRA_CA_CERTS=" + s.certificate()
	for _, version := range []string{"cosmos-4.9", "cosmos-3"} {
		t.Run(version, func(t *testing.T) {
			report(t, node(t, s, []string{trust, "MILLRACE_COSMOS=" + version}, "run.js"), 100)
		})
	}
}

// report makes a test of each case of which a runner printed a line, and fails where there
// are fewer than least.
func report(t *testing.T, printed []byte, least int) {
	t.Helper()
	var ran int
	for lines := bufio.NewScanner(bytes.NewReader(printed)); lines.Scan(); ran++ {
		var c struct {
			Name, Error  string
			Milliseconds int
		}
		must(t, json.Unmarshal(lines.Bytes(), &c))
		t.Run(c.Name, func(t *testing.T) {
			t.Logf("%s there", time.Duration(c.Milliseconds)*time.Millisecond)
			if c.Error != "" {
				t.Error(c.Error)
			}
		})
	}
	if ran < least && !t.Failed() {
		t.Errorf("%d cases ran, of %d or more", ran, least)
	}
}

// TestJS_Scripts runs stored procedures, triggers and functions, on a server that is told to run them.
func TestJS_Scripts(t *testing.T) {
	s := start(t, false, "MILLRACE_GATEWAY_SCRIPTS_ENABLED=true")
	report(t, node(t, s, []string{"MILLRACE_SCRIPTS=1"}, "run.js", "^scripts"), 5)
}

// TestJS_TLS runs some of them over TLS, with the certificate that the process made.
func TestJS_TLS(t *testing.T) {
	s := start(t, true)
	out := node(t, s, []string{"NODE_EXTRA_CA_CERTS=" + s.certificate()}, "run.js", "^(account|conditions of etags)$")
	if n := bytes.Count(out, []byte(`"error":""`)); n != 2 {
		t.Errorf("%d cases of 2 pass over TLS: %s", n, out)
	}
}
