package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// rustMinorMin is the oldest Rust, 1.88, with which the SDK is built.
	rustMinorMin = 88
	// cargoMax is how long cargo may fetch and build, some 200 crates at the first time.
	cargoMax = 12 * time.Minute
	// rustCasesMin is how many cases there are at least.
	rustCasesMin = 142
)

// rustProgram returns the program of rust, built once. The error says why there is none: an *absentError, or that it does not compile.
var rustProgram = sync.OnceValues(func() (string, error) {
	target, err := rustTarget()
	if err != nil {
		return "", err
	}
	if err := cargo("build", "--manifest-path", filepath.Join("rust", "Cargo.toml"), "--target-dir", target); err != nil {
		return "", err
	}
	// Another clone may build there meanwhile.
	built, err := os.ReadFile(filepath.Join(target, "debug", "millrace-rust"))
	if err != nil {
		return "", err
	}
	program := filepath.Join(scratch, "millrace-rust")
	return program, os.WriteFile(program, built, 0o755)
})

// rustTarget returns the directory in which cargo builds. It is the user's, so that the crates are built once for all runs.
func rustTarget() (string, error) {
	out, err := exec.Command("rustc", "--version").Output()
	if err != nil {
		return "", &absentError{"Rust is not installed"}
	}
	version := strings.Split(strings.TrimPrefix(string(out), "rustc "), ".")
	if minor, err := strconv.Atoi(version[min(1, len(version)-1)]); err != nil || version[0] == "1" && minor < rustMinorMin {
		return "", &absentError{fmt.Sprintf("%s is older than 1.%d", bytes.TrimSpace(out), rustMinorMin)}
	}
	// The one dependency that is not Rust alone, the cryptography of rustls, is C.
	if _, err := exec.LookPath("cc"); err != nil {
		return "", &absentError{"no C compiler is installed"}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", &absentError{"there is no directory for what cargo builds: " + err.Error()}
	}
	return filepath.Join(cache, "millrace-rust"), nil
}

// cargo runs cargo with the versions of the lock file, and one compiler at a time: other tests run beside it.
func cargo(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), cargoMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, "cargo", append([]string{args[0], "--quiet", "--locked"}, args[1:]...)...)
	cmd.Env = append(os.Environ(), "CARGO_BUILD_JOBS=1")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return &absentError{"cargo is not installed"}
	case ctx.Err() != nil:
		return &absentError{fmt.Sprintf("cargo has not built it after %s", cargoMax)}
	case bytes.Contains(out, []byte("failed to download")) || bytes.Contains(out, []byte("failed to query replaced source")):
		return &absentError{"the registry of crates is not reached"}
	}
	return fmt.Errorf("cargo %v: %w: %s", args, err, bytes.TrimSpace(out))
}

// rustPath is rustProgram for a test, which is skipped where it cannot be had.
func rustPath(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("at the first time cargo compiles for minutes: make sdk runs it")
	}
	path, err := rustProgram()
	if absent, ok := errors.AsType[*absentError](err); ok {
		t.Skipf("azure_data_cosmos cannot be had: %v", absent)
	}
	must(t, err)
	return path
}

// rustOf builds another program of what rust depends on, and returns its path.
func rustOf(t *testing.T, name, code string) string {
	t.Helper()
	rustPath(t)
	target, err := rustTarget()
	must(t, err)
	dir := t.TempDir()
	for _, file := range []string{"Cargo.toml", "Cargo.lock"} {
		text, err := os.ReadFile(filepath.Join("rust", file))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, file), bytes.ReplaceAll(text, []byte("millrace-rust"), []byte("millrace-"+name)), 0o644))
	}
	must(t, os.Mkdir(filepath.Join(dir, "src"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "src", "main.rs"), []byte(code), 0o644))
	must(t, cargo("build", "--manifest-path", filepath.Join(dir, "Cargo.toml"), "--target-dir", target))
	return filepath.Join(target, "debug", "millrace-"+name)
}

// rust is the command that runs the program against a server over TLS.
func rust(t *testing.T, s *server, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), rustPath(t), args...)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+s.certificate(), "MILLRACE_ENDPOINT="+s.endpoint, "MILLRACE_KEY="+masterKey,
		"MILLRACE_READ_ONLY_KEY="+readOnlyKey, "MILLRACE_PARTITIONS="+strconv.Itoa(partitions), "MILLRACE_QUERIES="+filepath.Join("testdata", "queries.json"))
	return cmd
}

// runRust runs cases of rust, each as a test of its own.
func runRust(t *testing.T, cmd *exec.Cmd, least int) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("rust: %v\n%s%s", err, out, stderr.String())
	}
	report(t, out, least)
}

// TestRust runs the cases of rust. The crate sends items in the binary form of JSON.
func TestRust(t *testing.T) {
	rustPath(t)
	runRust(t, rust(t, start(t, true)), rustCasesMin)
}

// The crate sends text where it is told to. All but queries do the same where the gateway is as strict as Cosmos DB, and aggregates over
// several ranges are refused by both, since the crate has no plan for them.
func TestRust_TextStrict(t *testing.T) {
	rustPath(t)
	cmd := rust(t, start(t, true, "MILLRACE_GATEWAY_STRICT=true"), "-query")
	cmd.Env = append(cmd.Env, "AZURE_COSMOS_BINARY_ENCODING_ENABLED=false")
	runRust(t, cmd, 13)
}

// A Rust program writes, queries and reads changes while a range is split and the process that owns all of them is killed and started
// again: it goes on by itself, and everything that it wrote comes by the change feed.
func TestRust_SplitAndKilled(t *testing.T) {
	rustPath(t)
	s := start(t, true)
	splitAndKill(t, s, rust(t, s, "going"))
}
