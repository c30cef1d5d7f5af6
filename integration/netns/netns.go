package netns

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// Network is a switch and the hosts at it.
type Network struct {
	t     testing.TB
	name  string // prefix of the namespaces
	hosts int
}

// networks tells those of one process apart.
var networks atomic.Int64

// hostsMax is what the addresses have room for.
const hostsMax = 250

// New makes a network without hosts. It skips the test where it may not.
func New(t testing.TB) *Network {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("network namespaces are of Linux")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("the command ip (iproute2) is not there: ", err)
	}
	n := &Network{t: t, name: fmt.Sprintf("mr%d-%d", os.Getpid(), networks.Add(1))}
	if out, err := ip("netns", "add", n.room("switch")); err != nil {
		t.Skipf("network namespaces cannot be made here; run it as root: %v: %s", err, out)
	}
	n.remove("switch")
	if out, err := ip("-n", n.room("switch"), "link", "add", "switch", "type", "bridge"); err != nil {
		t.Skipf("the kernel has no bridges: %v: %s", err, out)
	}
	n.must("-n", n.room("switch"), "link", "set", "switch", "up")
	return n
}

// Host is one host of a Network.
type Host struct {
	n *Network
	// Name is as the test gave it.
	Name string
	// Address is the host's, an IPv4 address.
	Address string
}

// Host adds a host. name has up to ten letters and digits.
func (n *Network) Host(name string) *Host {
	n.t.Helper()
	n.hosts++
	if n.hosts > hostsMax {
		n.t.Fatalf("%d hosts are too many", n.hosts)
	}
	h := &Host{n: n, Name: name, Address: fmt.Sprintf("10.99.0.%d", n.hosts)}
	n.must("netns", "add", n.room(name))
	n.remove(name)
	n.must("link", "add", "net", "netns", n.room(name), "type", "veth", "peer", "name", h.port(), "netns", n.room("switch"))
	n.must("-n", n.room("switch"), "link", "set", h.port(), "master", "switch", "up")
	n.must("-n", n.room(name), "addr", "add", h.Address+"/24", "dev", "net")
	n.must("-n", n.room(name), "link", "set", "net", "up")
	n.must("-n", n.room(name), "link", "set", "lo", "up")
	return h
}

// Command is a command that runs on the host. Its process is the one that is
// started, so that signals reach it.
func (h *Host) Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", h.n.room(h.Name), path}, args...)...)
}

// port is the host's interface at the switch.
func (h *Host) port() string { return "to-" + h.Name }

func (n *Network) room(name string) string { return n.name + "-" + name }

// remove removes a namespace at the end; what runs in it keeps it until it ends.
func (n *Network) remove(name string) {
	n.t.Cleanup(func() {
		if out, err := ip("netns", "del", n.room(name)); err != nil {
			n.t.Errorf("remove namespace %s: %v: %s", name, err, out)
		}
	})
}

func (n *Network) must(args ...string) {
	n.t.Helper()
	if out, err := ip(args...); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func ip(args ...string) (string, error) { return run("ip", args...) }

func run(name string, args ...string) (string, error) {
	// Not with the test's context: namespaces are removed after it has ended.
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
