//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/integration/netns/hosts"
)

const (
	readyPoll   = 5 * time.Millisecond
	readyMax    = 5 * time.Minute
	stopTimeout = time.Minute
)

// build returns the binary that child processes run: the one that was named, else
// one built from this module.
func (b *bench) build(ctx context.Context) (string, error) {
	if b.cfg.binary != "" {
		return b.cfg.binary, nil
	}
	path := filepath.Join(b.dir, "millrace")
	b.say("  building millrace")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/millrace/millrace/cmd/millrace")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build millrace: %w", err)
	}
	b.cfg.binary = path
	return path, nil
}

// child is a Millrace process.
type child struct {
	cmd    *exec.Cmd
	home   string           // URL of its HTTP listener, without a path
	web    *http.Client     // which reaches it
	ended  chan error       // has the outcome; whoever takes it puts it back, for those who wait after it
	errors *strings.Builder // what it said on standard error
}

// startChild starts a verb of the binary that runs a node, with HTTP at a free port. The process does
// not end with ctx: an interrupted run ends it by stop, in good order. If this process is killed, the
// kernel kills the child, which else would stay and keep its port and its directory.
func (b *bench) startChild(ctx context.Context, verb string, args ...string) (*child, error) {
	return b.startChildAt(ctx, nil, nil, verb, args...)
}

// startChildAt is startChild of a process on a host, or here if that is nil. Its standard error is a file, unless that is
// nil. The caller may close the file: the process has its own.
func (b *bench) startChildAt(ctx context.Context, host *hosts.Host, log *os.File, verb string, args ...string) (*child, error) {
	binary, err := b.build(ctx)
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	c := &child{home: "http://" + address, web: http.DefaultClient, ended: make(chan error, 1), errors: &strings.Builder{}}
	if host != nil {
		c.web = &http.Client{Transport: &http.Transport{DialContext: host.DialContext, DisableKeepAlives: true}}
	}
	c.cmd = commandAt(context.WithoutCancel(ctx), host, binary, append([]string{verb, "--listen", address, "--log-level", "warn"}, args...)...)
	c.cmd.Stderr = c.errors
	if log != nil {
		c.cmd.Stderr = log
	}
	c.cmd.Env, c.cmd.SysProcAttr = childEnviron(), &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start millrace %s: %w", verb, err)
	}
	go func() { c.ended <- c.cmd.Wait() }()
	return c, nil
}

// childEnviron has the logins of what runs here.
func childEnviron() []string {
	return append(os.Environ(), "MILLRACE_NATS_USER="+user, "MILLRACE_NATS_PASSWORD="+password,
		"MILLRACE_CONNECT_USER="+user, "MILLRACE_CONNECT_PASSWORD="+password,
		"MILLRACE_GATEWAY_KEYS_PRIMARY="+masterKey)
}

// up starts millrace up in dir with its NATS server at port, and waits until it is
// ready. args are more of its arguments, which go above those that it has here.
func (b *bench) up(ctx context.Context, dir string, port int, args ...string) (*child, error) {
	c, err := b.startChild(ctx, "up", append([]string{"--dir", dir, "--port", strconv.Itoa(port), "--gateway", "off"}, args...)...)
	if err != nil {
		return nil, err
	}
	if err := c.waitReady(ctx); err != nil {
		return nil, errors.Join(err, c.kill())
	}
	return c, nil
}

// waitReady asks /readyz until it says yes.
func (c *child) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	for {
		if c.isReady(ctx) {
			return nil
		}
		select {
		case err := <-c.ended:
			c.ended <- err
			return fmt.Errorf("millrace %s ended: %w: %s", c.cmd.Args[1], err, strings.TrimSpace(c.errors.String()))
		default:
		}
		if err := wait(ctx, readyPoll); err != nil {
			return fmt.Errorf("millrace %s is not ready: %w", c.cmd.Args[1], err)
		}
	}
}

func (c *child) isReady(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.home+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := c.web.Do(request)
	if err != nil {
		return false // not listening yet
	}
	_ = response.Body.Close() // the status says it all
	return response.StatusCode == http.StatusOK
}

// memory returns what the process occupies.
func (c *child) memory() (measure.Memory, error) { return measure.MemoryOf(c.cmd.Process.Pid) }

// stop ends the process as an operator would, and waits for it.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop millrace %s: %w", c.cmd.Args[1], err)
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case err := <-c.ended:
		c.ended <- err
		if err != nil {
			return fmt.Errorf("millrace %s: %w: %s", c.cmd.Args[1], err, strings.TrimSpace(c.errors.String()))
		}
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("millrace %s did not stop within %s", c.cmd.Args[1], stopTimeout), c.kill())
	}
}

// kill ends the process at once, as kill -9 does. What it gave to the kernel is not lost by that, unlike
// with a machine that loses its power.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill millrace %s: %w", c.cmd.Args[1], err)
	}
	killed := <-c.ended
	c.ended <- killed
	return nil
}
