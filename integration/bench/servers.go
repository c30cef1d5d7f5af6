//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/integration/netns/hosts"
)

// natsServer is a plain NATS server, in whatever process of its directory, which syncs every append.
type natsServer struct {
	name   string
	binary string
	conf   string      // file
	host   *hosts.Host // nil: here
	client string      // its address for clients
	route  string      // and for other servers
	cmd    *exec.Cmd   // nil while it does not run
	said   bytes.Buffer
}

const serverConf = `
server_name: %q
listen: %q
max_payload: 8MB
ping_interval: "2s"
ping_max: 2
jetstream { store_dir: %q, sync_interval: always }
authorization { user: %q, password: %q }
`

// routesConf is the rest of the configuration of one of several; see deploy/nats/nats.conf.
const routesConf = `
cluster {
  name: millrace
  listen: %q
  ping_interval: "1s"
  ping_max: 2
  routes: [%s]
}
`

// startServers builds the NATS server of this module and starts as many as there are to be.
func (f *fleet) startServers(ctx context.Context) error {
	binary := filepath.Join(f.dir, "nats-server")
	f.b.say("  building nats-server")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		return fmt.Errorf("build nats-server: %w: %s", err, bytes.TrimSpace(out))
	}
	var urls, routes []string
	for i := range f.cfg.servers {
		n := &natsServer{name: fmt.Sprint("nats-", i+1), binary: binary}
		if err := n.settle(ctx, f.cfg.network, fmt.Sprint("n", i+1)); err != nil {
			return err
		}
		f.servers, urls, routes = append(f.servers, n), append(urls, "nats://"+n.client), append(routes, "nats://"+n.route)
	}
	f.url = strings.Join(urls, ",")
	if f.cfg.network != nil {
		var err error
		if f.clients, err = f.cfg.network.Host(ctx, "clients"); err != nil {
			return err
		}
	}
	for _, n := range f.servers {
		n.conf = filepath.Join(f.dir, n.name+".conf")
		text := fmt.Sprintf(serverConf, n.name, n.client, filepath.Join(f.dir, n.name), user, password)
		if len(routes) > 1 {
			text += fmt.Sprintf(routesConf, n.route, strings.Join(routes, ", "))
		}
		if err := os.WriteFile(n.conf, []byte(text), 0o600); err != nil {
			return fmt.Errorf("configure %s: %w", n.name, err)
		}
		if err := n.start(ctx); err != nil {
			return err
		}
	}
	for _, n := range f.servers {
		if err := n.await(ctx, f.clients); err != nil {
			return err
		}
	}
	return nil
}

// settle gives the server its addresses, on a host of its own if there is a network.
func (n *natsServer) settle(ctx context.Context, network *hosts.Network, name string) (err error) {
	if network != nil {
		if n.host, err = network.Host(ctx, name); err == nil {
			n.client, n.route = n.host.Address+":4222", n.host.Address+":6222"
		}
		return err
	}
	for _, address := range []*string{&n.client, &n.route} {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		*address = fmt.Sprintf("127.0.0.1:%d", port)
	}
	return nil
}

// start starts a process of the server. It does not end with ctx.
func (n *natsServer) start(ctx context.Context) error {
	n.cmd = commandAt(context.WithoutCancel(ctx), n.host, n.binary, "-c", n.conf)
	n.cmd.Stdout, n.cmd.Stderr = &n.said, &n.said
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		n.cmd = nil
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	return nil
}

// await waits until the server takes clients.
func (n *natsServer) await(ctx context.Context, clients *hosts.Host) error {
	for deadline := time.Now().Add(readyMax); ; {
		nc, err := nats.Connect("nats://"+n.client, append(dialOptions(clients), nats.MaxReconnects(0))...)
		if err == nil {
			nc.Close()
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("connect to %s: %w", n.name, err)
		}
		if err := wait(ctx, readyPoll); err != nil {
			return err
		}
	}
}

func (n *natsServer) signal(s syscall.Signal) error {
	if err := n.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", n.name, err)
	}
	return nil
}

// stop ends the process as an operator would, and waits for it.
func (n *natsServer) stop() error {
	if n.cmd == nil {
		return nil
	}
	cmd := n.cmd
	n.cmd = nil
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", n.name, err)
	}
	var exit *exec.ExitError
	err := cmd.Wait()
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // which SIGTERM makes it return
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", n.name, err, bytes.TrimSpace(n.said.Bytes()))
	}
	return nil
}

// commandAt is a command on a host; nil is this one.
func commandAt(ctx context.Context, host *hosts.Host, path string, args ...string) *exec.Cmd {
	if host == nil {
		return exec.CommandContext(ctx, path, args...)
	}
	return host.Command(ctx, path, args...)
}
