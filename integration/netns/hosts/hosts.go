// Package hosts makes hosts in network namespaces of Linux, joined by a switch, for programs that are no tests. Tests have
// package netns.
//
// A host that is cut loses what it sends and gets nothing, and neither side is told. A link may also be cut one way, or be
// slow. Processes run on a host by [Host.Command]; this process reaches those by [Host.DialContext], as if it ran there.
//
// Nothing outside the namespaces is changed. They need the right to make namespaces.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
)

// Max is how many hosts a network has addresses for.
const Max = 250

// Network is a switch and the hosts at it. Its methods are for one goroutine.
type Network struct {
	name  string // begins the names of the namespaces
	made  []string
	hosts int
}

// networks tells those of one process apart.
var networks atomic.Int64

// Open makes a network without hosts. The error is what is missing, if it cannot be made here.
func Open(ctx context.Context) (*Network, error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("the command ip (iproute2) is not there: %w", err)
	}
	n := &Network{name: fmt.Sprintf("mh%d-%d", os.Getpid(), networks.Add(1))}
	if err := n.room(ctx, "switch"); err != nil {
		return nil, fmt.Errorf("network namespaces cannot be made here; run it as root: %w", err)
	}
	err := n.in(ctx, "switch", []string{"link", "add", "switch", "type", "bridge"}, []string{"link", "set", "switch", "up"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the kernel has no bridges: %w", err), n.Close(ctx))
	}
	return n, nil
}

// Close removes the namespaces, also where ctx has ended. What runs in them keeps them until it ends.
func (n *Network) Close(ctx context.Context) error {
	var errs []error
	for _, name := range n.made {
		errs = append(errs, ip(context.WithoutCancel(ctx), "netns", "del", n.full(name)))
	}
	n.made = nil
	return errors.Join(errs...)
}

// Host is one host of a Network.
type Host struct {
	n *Network
	// Name is as it was given.
	Name string
	// Address is the host's, an IPv4 address.
	Address string
}

// Host adds a host. name has up to ten letters and digits.
func (n *Network) Host(ctx context.Context, name string) (*Host, error) {
	if n.hosts == Max {
		return nil, fmt.Errorf("a network has %d hosts at most", Max)
	}
	n.hosts++
	h := &Host{n: n, Name: name, Address: fmt.Sprintf("10.99.0.%d", n.hosts)}
	if err := n.room(ctx, name); err != nil {
		return nil, err
	}
	err := ip(ctx, "link", "add", "net", "netns", n.full(name), "type", "veth", "peer", "name", h.port(), "netns", n.full("switch"))
	if err != nil {
		return nil, err
	}
	if err := n.in(ctx, "switch", []string{"link", "set", h.port(), "master", "switch", "up"}); err != nil {
		return nil, err
	}
	return h, n.in(ctx, name, []string{"addr", "add", h.Address + "/24", "dev", "net"}, []string{"link", "set", "net", "up"}, []string{"link", "set", "lo", "up"})
}

// Command is a command that runs on the host. Its process is the one that is started, so that signals reach it.
func (h *Host) Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", h.n.full(h.Name), path}, args...)...)
}

// port is the host's interface at the switch.
func (h *Host) port() string { return "to-" + h.Name }

func (n *Network) full(name string) string { return n.name + "-" + name }

// room makes a namespace.
func (n *Network) room(ctx context.Context, name string) error {
	err := ip(ctx, "netns", "add", n.full(name))
	if err == nil {
		n.made = append(n.made, name)
	}
	return err
}

// in runs commands of ip in a namespace.
func (n *Network) in(ctx context.Context, name string, commands ...[]string) error {
	for _, args := range commands {
		if err := ip(ctx, append([]string{"-n", n.full(name)}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

func ip(ctx context.Context, args ...string) error { return run(ctx, "ip", args...) }

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
