package sdk_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// azcosmosSuite builds the tests of azcosmos, of the version that go.mod names, from a copy of the module, and
// returns the program and the names of those that want an emulator.
func azcosmosSuite(t *testing.T) (program string, tests []string) {
	t.Helper()
	const module = "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	must(t, err)
	from, source := strings.TrimSpace(string(dir)), filepath.Join(t.TempDir(), "azcosmos")
	must(t, os.CopyFS(source, os.DirFS(from)))
	inSource := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
		return cmd.CombinedOutput()
	}
	if out, err := inSource("mod", "download"); err != nil {
		t.Skipf("the modules of azcosmos' tests cannot be had: %v\n%s", err, out)
	}
	program = filepath.Join(t.TempDir(), "azcosmos.test")
	// Without its path in it, what was built once is there the next time.
	if out, err := inSource("test", "-c", "-trimpath", "-o", program, "."); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(source, "emulator_*_test.go"))
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			tests = append(tests, string(found[1]))
		}
	}
	return program, tests
}

// TestSuite_Go runs the tests of azcosmos that want an emulator, each in a process of its own, since one that fails
// may panic.
func TestSuite_Go(t *testing.T) {
	list := expected(t, "azcosmos.tsv")
	program, tests := azcosmosSuite(t)
	if len(tests) != 43 {
		t.Errorf("azcosmos has %d tests that want an emulator, not 43", len(tests))
	}
	// Some want a query, and paths of items, refused as the emulator's gateway does; one wants the same paths taken as its other gateway does.
	s := startEmulator(t, "MILLRACE_GATEWAY_STRICT=true", "MILLRACE_GATEWAY_REGION=South Central US", "MILLRACE_GATEWAY_CONSISTENCY=Strong",
		"MILLRACE_GATEWAY_PUBLIC_URL=https://"+emulatorAddress)
	startEmulatorAt(t, computeAddress)
	for _, name := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, "-test.run", "^"+name+"$", "-test.v")
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "EMULATOR=true", "SSL_CERT_FILE="+s.certificate())
			out, err := cmd.CombinedOutput()
			failure := ""
			if err != nil || !strings.Contains(string(out), "--- PASS: "+name+" ") {
				failure = fmt.Sprintf("%v\n%s", err, out)
			}
			list.judge(t, name, failure)
		})
	}
	list.complete(t, tests)
}
