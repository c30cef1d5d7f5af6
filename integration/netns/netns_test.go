package netns_test

import (
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/netns"
)

// childEnv has the test binary dial an address and say what came of it.
const childEnv = "MILLRACE_NETNS_DIAL"

func TestMain(m *testing.M) {
	address := os.Getenv(childEnv)
	if address == "" {
		os.Exit(m.Run())
	}
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		_ = conn.Close()
		os.Exit(0)
	}
	if e, ok := err.(net.Error); ok && e.Timeout() { //nolint:errorlint // it is what Dial returns
		os.Exit(exitSilence)
	}
	os.Exit(exitRefused)
}

const (
	exitSilence = 3
	exitRefused = 4
)

// TestNetwork_ACutHostIsSilent dials a port that nobody listens on: a host that is
// there refuses, one that is cut says nothing, and one that was healed refuses again.
func TestNetwork_ACutHostIsSilent(t *testing.T) {
	n := netns.New(t)
	a, b := n.Host("a"), n.Host("b")
	dial := func() int {
		t.Helper()
		cmd := a.Command(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+b.Address+":1")
		out, err := cmd.CombinedOutput()
		if _, ok := err.(*exec.ExitError); !ok { //nolint:errorlint // it is what Run returns
			t.Fatalf("%v: %s", err, out)
		}
		return cmd.ProcessState.ExitCode()
	}
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"whole", func() {}, exitRefused},
		{"cut", b.Cut, exitSilence},
		{"healed", b.Heal, exitRefused},
	} {
		step.do()
		if got := dial(); got != step.want {
			t.Errorf("%s: exit %d, want %d", step.name, got, step.want)
		}
	}
}
