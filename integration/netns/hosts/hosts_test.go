//go:build linux

package hosts_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/netns/hosts"
)

// TestHost_DialsFromWhereItIs dials a port of another host that nobody listens on: it refuses while it is there, says
// nothing while it is cut, and refuses again. The goroutine is in no host afterwards.
func TestHost_DialsFromWhereItIs(t *testing.T) {
	n, err := hosts.Open(t.Context())
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	a, b := host(t, n, "a"), host(t, n, "b")
	before := namespace(t)
	refused := func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
	silent := func(err error) bool {
		return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
	}
	for _, step := range []struct {
		name    string
		do      func(context.Context) error
		patient time.Duration
		want    func(error) bool
	}{
		{"whole", func(context.Context) error { return nil }, time.Minute, refused},
		{"cut", b.Cut, time.Second, silent},
		{"healed", b.Heal, time.Minute, refused},
	} {
		if err := step.do(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), step.patient)
		_, err := a.DialContext(ctx, "tcp", b.Address+":1")
		cancel()
		if !step.want(err) {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	if after := namespace(t); after != before {
		t.Errorf("the goroutine was in %s, and is in %s", before, after)
	}
}

func host(t *testing.T, n *hosts.Network, name string) *hosts.Host {
	t.Helper()
	h, err := n.Host(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func namespace(t *testing.T) string {
	t.Helper()
	name, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return name
}
