//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	readyMax  = 10 * time.Second
	readyPoll = 10 * time.Millisecond
)

// server is a store in a process of its own, which ends with this one.
type server struct {
	cmd  *exec.Cmd
	said strings.Builder
}

// freeAddress returns a port on loopback that nobody listened at a moment ago.
func freeAddress(ctx context.Context) (host, port string, err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer l.Close()
	return net.SplitHostPort(l.Addr().String())
}

// start starts a program, and returns when ready does without an error.
func (s *server) start(ctx context.Context, ready func() error, program string, args ...string) error {
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, args...) // stop ends it, in good order
	s.cmd.Stdout, s.cmd.Stderr = &s.said, &s.said
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	for deadline := time.Now().Add(readyMax); ; {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready after %s: %w", program, readyMax, err)
		}
		select {
		case <-time.After(readyPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop ends it. Its status says nothing: servers end with many when they are told to.
func (s *server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
	}
}
