//go:build linux

package integration_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// nonroot is the user of the image that the Dockerfile begins with, as distroless made it.
const nonroot = 65532

// TestDeploy_ImageRunsInAnEmptyRoot builds the binary as deploy/Dockerfile does, puts into a
// directory what the image has, and runs it there as the image does: as a user without
// rights, who sees nothing else. Its health check answers, it writes where the image says,
// and it ends in order.
func TestDeploy_ImageRunsInAnEmptyRoot(t *testing.T) {
	onlyLong(t)
	if os.Geteuid() != 0 {
		t.Skip("only root may change the root directory and the user")
	}
	file := dockerfile(t)
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("sh", "-c", strings.ReplaceAll(file.build, "/millrace ./cmd", filepath.Join(root, "millrace")+" ./cmd"))
	build.Dir = ".."
	build.Env = append(os.Environ(), "VERSION=v0.0.0-test")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", file.build, err, out)
	}
	for _, dir := range []string{"tmp", file.env["MILLRACE_DIR"]} {
		dir = filepath.Join(root, dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, nonroot, nonroot); err != nil {
			t.Fatal(err)
		}
	}
	// The image has the network for itself; this test has not.
	health, server := strconv.Itoa(freePort(t)), strconv.Itoa(freePort(t))
	environ := []string{
		"MILLRACE_HTTP_LISTEN=127.0.0.1:" + health, "MILLRACE_GATEWAY_LISTEN=off",
		"MILLRACE_NATS_PORT=" + server, "MILLRACE_SERVER=nats://127.0.0.1:" + server,
	}
	for name, value := range file.env {
		environ = append(environ, name+"="+value)
	}
	inside := func(args ...string) *exec.Cmd {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env = "/", environ
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nonroot, Gid: nonroot}}
		return cmd
	}
	if out, err := inside(file.entrypoint, "version").CombinedOutput(); err != nil || !bytes.Contains(out, []byte("millrace v0.0.0-test")) {
		t.Errorf("version: %v\n%s", err, out)
	}
	if out, err := inside(file.health...).CombinedOutput(); err == nil {
		t.Errorf("the health check is content before anything runs:\n%s", out)
	}
	c := &child{t: t, name: "image", given: inside(file.entrypoint, "up")}
	c.start()
	t.Cleanup(c.kill)
	if out, err := inside(file.health...).CombinedOutput(); err != nil {
		t.Errorf("health check: %v\n%s", err, out)
	}
	if out, err := inside(file.entrypoint, "health", "--ready").CombinedOutput(); err != nil {
		t.Errorf("health --ready: %v\n%s", err, out)
	}
	if out, err := inside(file.entrypoint, "doctor").CombinedOutput(); err != nil {
		t.Errorf("doctor finds the directory, with the credentials that were made in it: %v\n%s", err, out)
	}
	c.stop()
}

// docker is what deploy/Dockerfile says.
type docker struct {
	build      string // the command that builds the binary
	entrypoint string
	health     []string
	env        map[string]string
}

// dockerfile reads deploy/Dockerfile.
func dockerfile(t *testing.T) *docker {
	t.Helper()
	text, err := os.ReadFile("../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	find := func(pattern string) []string {
		t.Helper()
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("the Dockerfile has no %s", pattern)
		}
		var parts []string
		for _, part := range found[1:] {
			parts = append(parts, string(part))
		}
		return parts
	}
	d := &docker{env: map[string]string{}}
	d.build = find(`(?m)^RUN (.*go build .*)$`)[0]
	d.entrypoint = find(`(?m)^ENTRYPOINT \["([^"]+)"\]$`)[0]
	env := find(`(?m)^ENV ([A-Z_]+)=(.*)$`)
	d.env[env[0]] = env[1]
	for word := range strings.SplitSeq(find(`(?m)^HEALTHCHECK .* CMD \[(.*)\]$`)[0], ",") {
		d.health = append(d.health, strings.Trim(word, ` "`))
	}
	find(`(?m)^USER (nonroot)$`)
	return d
}

// TestDeploy_UnitIsSound lets systemd judge the unit, with the binary of this test in the
// place of the one that it names.
func TestDeploy_UnitIsSound(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here: it is in Debian's package systemd")
	}
	text, err := os.ReadFile("../deploy/systemd/millrace.service")
	if err != nil {
		t.Fatal(err)
	}
	const names = "/usr/local/bin/millrace"
	if !bytes.Contains(text, []byte("ExecStart="+names+" up ")) {
		t.Fatalf("the unit does not start %s", names)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "millrace.service")
	if err := os.WriteFile(unit, bytes.ReplaceAll(text, []byte(names), []byte(self)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
