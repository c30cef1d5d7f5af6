package integration_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const securityPage = "../docs/security.md"

// fileRow is a row of the page's table of files: path below the directory, mode.
var fileRow = regexp.MustCompile("(?m)^\\| `DIR/([^`]+)` \\| `([0-7]{4})` \\|")

// TestSecurity_PageIsTrue runs a node whose listeners are all open, and then the commands of
// docs/security.md in its directory. Each file that the page names has the mode that it says, and
// whatever others of the machine may read is on the page.
func TestSecurity_PageIsTrue(t *testing.T) {
	page, err := os.ReadFile(securityPage)
	if err != nil {
		t.Fatal(err)
	}
	port, http := strconv.Itoa(freePort(t)), strconv.Itoa(freePort(t))
	t.Setenv("MILLRACE_SERVER", "nats://127.0.0.1:"+port)
	t.Setenv("PATH", filepath.Dir(millrace(t))+":"+os.Getenv("PATH"))
	forgetUser(t)
	dir := t.TempDir()
	t.Setenv("MILLRACE_DIR", filepath.Join(dir, "data"))
	spawn(t, "up", "--port", port, "--listen", "0.0.0.0:"+http, "--gateway", "127.0.0.1:"+strconv.Itoa(freePort(t)))
	t.Setenv("MILLRACE_HTTP_LISTEN", "0.0.0.0:"+http)

	var commands []string
	for _, m := range regexp.MustCompile("(?s)```sh run\n(.*?)```").FindAllSubmatch(page, -1) {
		commands = append(commands, string(m[1]))
	}
	if len(commands) < 2 {
		t.Fatalf("the page has %d fences of commands", len(commands))
	}
	before := secretsOf(t, filepath.Join(dir, "data"))
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.Join(commands, "\n"))
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the page's commands: %v\n%s", err, out)
	}
	for name, was := range secretsOf(t, filepath.Join(dir, "data")) {
		if bytes.Equal(was, before[name]) {
			t.Errorf("the commands of the page leave %s as it was", name)
		}
	}
	modes := map[string]fs.FileMode{}
	for _, m := range fileRow.FindAllSubmatch(page, -1) {
		mode, err := strconv.ParseUint(string(m[2]), 8, 32)
		if err != nil {
			t.Fatal(err)
		}
		modes[string(m[1])] = fs.FileMode(mode)
	}
	if err := checkModes(filepath.Join(dir, "data"), modes); err != nil {
		t.Error(err)
	}
}

// secretsOf reads the files that the page's commands replace.
func secretsOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, name := range []string{"credentials/admin.json", "credentials/read-only.json", "gateway/keys.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = text
	}
	return all
}

// checkModes compares the files below dir with the modes that are told, by paths below dir. A folder
// that its owner alone may enter hides what is in it.
func checkModes(dir string, told map[string]fs.FileMode) error {
	var wrong []string
	seen := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // it went meanwhile: the node runs
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		mode, known := told[name]
		seen[name] = true
		switch {
		case known && info.Mode().Perm() != mode:
			wrong = append(wrong, fmt.Sprintf("%s has mode %04o, and the page says %04o", name, info.Mode().Perm(), mode))
		case !known && info.Mode().Perm()&0o077 != 0:
			wrong = append(wrong, fmt.Sprintf("%s has mode %04o and is not on the page", name, info.Mode().Perm()))
		}
		if e.IsDir() && info.Mode().Perm()&0o077 == 0 && !hasBelow(told, name) {
			return fs.SkipDir
		}
		return nil
	})
	for name := range told {
		if !seen[name] {
			wrong = append(wrong, name+" is on the page and not there")
		}
	}
	if err == nil && len(wrong) > 0 {
		err = fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}
	return err
}

// hasBelow tells whether the page names a file below a folder.
func hasBelow(told map[string]fs.FileMode, folder string) bool {
	for name := range told {
		if strings.HasPrefix(name, folder+"/") {
			return true
		}
	}
	return false
}
