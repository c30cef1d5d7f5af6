package netns_test

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/netns"
)

// TestNetwork_ACutHostIsSilent dials a port that nobody listens on: a host that is
// there refuses, one that is cut either way says nothing, and one that was healed refuses again.
func TestNetwork_ACutHostIsSilent(t *testing.T) {
	t.Parallel()
	n := netns.New(t)
	a, b := n.Host("a"), n.Host("b")
	for _, step := range []struct {
		name   string
		do     func()
		silent bool
	}{
		{"whole", func() {}, false},
		{"cut", b.Cut, true},
		{"healed", b.Heal, false},
		{"what it sends is lost", b.CutSending, true},
		{"healed", b.Heal, false},
		{"what it gets is lost", b.CutReceiving, true},
		{"healed", b.Heal, false},
		{"who asks cannot send", a.CutSending, true},
		{"healed", a.Heal, false},
	} {
		step.do()
		_, err := a.Dial("tcp", b.Address+":1")
		var e net.Error
		if silent := errors.As(err, &e) && e.Timeout(); silent != step.silent || !silent && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}

// TestHost_CutOneWay lets one host hear another that does not hear it.
func TestHost_CutOneWay(t *testing.T) {
	t.Parallel()
	n := netns.New(t)
	a, b := n.Host("a"), n.Host("b")
	segments := func() string {
		t.Helper()
		cmd := b.Command(t.Context(), "sh", "-c", "grep ^Tcp: /proc/net/snmp | tail -1")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(out))
		return fields[10] // InSegs
	}
	for _, step := range []struct {
		name  string
		do    func()
		heard bool
	}{
		{"what it sends is lost", b.CutSending, true},
		{"what it gets is lost", b.CutReceiving, false},
	} {
		if _, err := a.Dial("tcp", b.Address+":1"); !errors.Is(err, syscall.ECONNREFUSED) { // so that each knows where the other is
			t.Fatal(err)
		}
		step.do()
		before := segments()
		_, _ = a.Dial("tcp", b.Address+":1")
		if heard := segments() != before; heard != step.heard {
			t.Errorf("%s: it heard: %t", step.name, heard)
		}
		b.Heal()
	}
}

// TestHost_Slow measures that an answer takes longer over a link that is slow, where it is one
// that delays.
func TestHost_Slow(t *testing.T) {
	t.Parallel()
	n := netns.New(t)
	a, b := n.Host("a"), n.Host("b")
	how := b.Slow()
	began := time.Now()
	if _, err := a.Dial("tcp", b.Address+":1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	took := time.Since(began)
	t.Logf("%s: an answer took %s", how, took)
	if strings.Contains(how, "late") && took < 200*time.Millisecond {
		t.Errorf("an answer took %s", took)
	}
}
