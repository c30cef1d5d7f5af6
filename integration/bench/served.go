//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/integration/bench/measure"
)

// served is a millrace up of its own process, and a session with it.
type served struct {
	session
	*child
	url string // of its NATS server
}

// serve starts millrace up in dir, with more arguments than up has, and opens a session.
func (b *bench) serve(ctx context.Context, dir string, args ...string) (*served, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	c, err := b.up(ctx, dir, port, args...)
	if err != nil {
		return nil, err
	}
	s, err := dial(ctx, natsURL(port))
	if err != nil {
		return nil, errors.Join(err, c.kill())
	}
	return &served{s, c, natsURL(port)}, nil
}

// end closes the session and stops the process.
func (s *served) end() error {
	s.close()
	return s.stop()
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// counter reads a counter of the process, whatever its attributes; one that has counted nothing is 0.
func (c *child) counter(ctx context.Context, name string) (sum float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.home+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	response, err := c.web.Do(request)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		rest, found := strings.CutPrefix(lines.Text(), name)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", name, err)
		}
		sum += v
	}
	return sum, nil
}

// outcome is what a verb that ends by itself has printed and used.
type outcome struct {
	printed   []byte
	took, cpu time.Duration
	peak      float64 // MiB, as it was seen last
}

// verb runs a verb of the binary that ends by itself.
func (b *bench) verb(ctx context.Context, args ...string) (o outcome, err error) {
	binary, err := b.build(ctx)
	if err != nil {
		return o, err
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.Env, cmd.SysProcAttr = childEnviron(), &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return o, fmt.Errorf("start millrace %s: %w", args[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// The kernel's figure for an ended process would count what this one occupied when it started it.
	tick := time.NewTicker(memoryPoll)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			o.printed, o.took, o.cpu = out.Bytes(), time.Since(start), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
			if err != nil {
				return o, fmt.Errorf("millrace %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
			}
			return o, nil
		case <-tick.C:
			if peak, err := measure.PeakOf(cmd.Process.Pid); err == nil { // else it has just ended
				o.peak = max(o.peak, peak)
			}
		}
	}
}
