package sdk_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// interpreter is the Python of an environment with the packages of python/requirements.txt,
// made once. The error says why there is none.
var interpreter = sync.OnceValues(func() (string, error) {
	wanted, err := os.ReadFile(filepath.Join("python", "requirements.txt"))
	if err != nil {
		return "", err
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	environment := filepath.Join(here, "python", ".venv")
	python := filepath.Join(environment, "bin", "python")
	// What was installed last is said by the file beside it.
	mark := filepath.Join(environment, ".millrace-requirements")
	if done, err := os.ReadFile(mark); err == nil && bytes.Equal(done, wanted) {
		return python, nil
	}
	for _, command := range [][]string{
		{"python3", "-c", "import sys; sys.exit(sys.version_info < (3, 10) and 'Python is older than 3.10')"},
		{"python3", "-m", "venv", "--clear", environment},
		{python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", filepath.Join("python", "requirements.txt")},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, bytes.TrimSpace(out))
		}
	}
	return python, os.WriteFile(mark, wanted, 0o644)
})

// python runs a script of python against a server and returns what it printed.
func python(t *testing.T, s *server, env []string, args ...string) []byte {
	t.Helper()
	path, err := interpreter()
	if err != nil {
		t.Skipf("azure-cosmos cannot be had: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = "python"
	cmd.Env = slices.Concat(os.Environ(), env, []string{
		"MILLRACE_ENDPOINT=" + s.endpoint, "MILLRACE_KEY=" + masterKey, "MILLRACE_READ_ONLY_KEY=" + readOnlyKey,
		"MILLRACE_PARTITIONS=" + strconv.Itoa(partitions), "PYTHONDONTWRITEBYTECODE=1",
	})
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		t.Errorf("python %v: %v\n%s%s", args, err, out, exit.Stderr)
	} else {
		must(t, err)
	}
	return out
}

// TestPython runs the cases of python, each as a test of its own, with both clients of the SDK.
func TestPython(t *testing.T) {
	s, err := shared()
	must(t, err)
	for _, client := range []string{"sync", "aio"} {
		t.Run(client, func(t *testing.T) {
			report(t, python(t, s, []string{"MILLRACE_CLIENT=" + client}, "run.py"), 28)
		})
	}
}
