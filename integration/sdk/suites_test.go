package sdk_test

import (
	"bufio"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The tests that the SDKs' authors wrote run as they are. They have the emulator's address and its key,
// which is public, written in.
const (
	emulatorAddress = "127.0.0.1:8081"
	computeAddress  = "127.0.0.1:8903" // of the emulator's other gateway
	emulatorKey     = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
)

// startEmulator starts a server that stands for the emulator: at its address, with its key, and one
// partition in a container. It skips the test where somebody else listens there.
func startEmulator(t *testing.T, env ...string) *server {
	t.Helper()
	return startEmulatorAt(t, emulatorAddress, env...)
}

// startEmulatorAt is startEmulator at one of the emulator's addresses.
func startEmulatorAt(t *testing.T, address string, env ...string) *server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		t.Skipf("another process listens at %s, which these tests have written in", address)
	}
	must(t, err)
	must(t, l.Close())
	s := start(t, true, append([]string{
		"MILLRACE_GATEWAY_LISTEN=" + address, "MILLRACE_GATEWAY_KEYS_PRIMARY=" + emulatorKey,
		"MILLRACE_GATEWAY_PARTITIONS=1",
	}, env...)...)
	s.endpoint = "https://" + strings.Replace(address, "127.0.0.1", "localhost", 1)
	return s
}

// failures are the tests of a suite that are expected to fail, each with its reason.
type failures struct {
	file    string
	reasons map[string]string
}

// expected reads the failures that testdata lists, one a line: the test's name, a tab, the reason. A line that begins
// with # is a remark.
func expected(t *testing.T, name string) *failures {
	t.Helper()
	f := &failures{file: filepath.Join("testdata", name), reasons: map[string]string{}}
	file, err := os.Open(f.file)
	must(t, err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		if line := lines.Text(); line != "" && line[0] != '#' {
			test, reason, _ := strings.Cut(line, "\t")
			if reason == "" || f.reasons[test] != "" {
				t.Fatalf("%s:%d: %q has no reason, or stands there twice", f.file, n, test)
			}
			f.reasons[test] = reason
		}
	}
	must(t, lines.Err())
	return f
}

// judge compares how a test of the suite ended with the list. failure is empty where it passed.
func (f *failures) judge(t *testing.T, name, failure string) {
	t.Helper()
	reason, listed := f.reasons[name]
	switch {
	case listed && failure == "":
		t.Errorf("it passes: remove it from %s, which says %q", f.file, reason)
	case listed:
		t.Skipf("it fails as %s says: %s", f.file, reason)
	case failure != "":
		t.Errorf("%s\n%s", name, failure) // the name as the list has to have it
	}
}

// complete fails the test if the list has tests that the suite, whose tests all were judged, has not.
func (f *failures) complete(t *testing.T, ran []string) {
	t.Helper()
	for name := range f.reasons {
		if !slices.Contains(ran, name) {
			t.Errorf("%s lists %s, which did not run", f.file, name)
		}
	}
	t.Logf("%d of %d tests pass, the others are listed in %s", len(ran)-len(f.reasons), len(ran), f.file)
}
