package netns

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/netns/hosts"
)

// dialTime is how long a test waits for an answer of a host that may be cut.
const dialTime = 2 * time.Second

// Network is a switch and the hosts at it.
type Network struct {
	t  testing.TB
	is *hosts.Network
}

// New makes a network without hosts. It skips the test where it may not.
func New(t testing.TB) *Network {
	t.Helper()
	is, err := hosts.Open(t.Context())
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := is.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return &Network{t, is}
}

// Host is one host of a Network.
type Host struct {
	*hosts.Host
	t testing.TB
}

// Host adds a host. name has up to ten letters and digits.
func (n *Network) Host(name string) *Host {
	n.t.Helper()
	is, err := n.is.Host(n.t.Context(), name)
	if err != nil {
		n.t.Fatal(err)
	}
	return &Host{is, n.t}
}

// Dial connects the test to an address of the network, given in digits, as if it ran on the host. It may be called
// concurrently.
func (h *Host) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.t.Context()), dialTime)
	defer cancel()
	return h.DialContext(ctx, network, address)
}

// Cut pulls the host's plug at the switch.
func (h *Host) Cut() {
	h.t.Helper()
	h.must(h.Host.Cut)
}

// CutSending loses what the host sends: it hears everybody, and nobody hears it. It skips the test where that cannot be had.
func (h *Host) CutSending() {
	h.t.Helper()
	h.must(h.Host.CutSending)
}

// CutReceiving loses what is sent to the host: everybody hears it, and it hears nobody.
func (h *Host) CutReceiving() {
	h.t.Helper()
	h.must(h.Host.CutReceiving)
}

// Slow makes the host's link slow, each way, and tells in what sense. It skips the test where that cannot be had.
func (h *Host) Slow() (how string) {
	h.t.Helper()
	h.must(func(ctx context.Context) (err error) {
		how, err = h.Host.Slow(ctx)
		return err
	})
	return how
}

// Heal makes the host's link whole again, whatever was done to it.
func (h *Host) Heal() {
	h.t.Helper()
	h.must(h.Host.Heal)
}

// must does something to the host, also where the test's context has ended.
func (h *Host) must(do func(context.Context) error) {
	h.t.Helper()
	switch err := do(context.WithoutCancel(h.t.Context())); {
	case errors.Is(err, errors.ErrUnsupported):
		h.t.Skip(err)
	case err != nil:
		h.t.Fatal(err)
	}
}
