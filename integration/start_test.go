package integration_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
)

// applying is a command that declares the shop meanwhile.
type applying struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan error
}

func (c *netCluster) applying() *applying {
	c.t.Helper()
	a := &applying{cmd: c.command("apply", "-f", "../pipelines/testdata/shop", "--wait", "5m"), done: make(chan error, 1)}
	a.cmd.Stdout, a.cmd.Stderr = &a.out, &a.out
	if err := a.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() { a.done <- a.cmd.Wait() }()
	return a
}

// says waits until the process has said a text.
func (c *child) says(text string) {
	c.t.Helper()
	poll.Until(c.t, func() error { return poll.Unless(strings.Contains(c.output(), text), c.name+" has not said: "+text) })
}

// TestStart_AFreshClusterStartsInAnyOrder starts NATS servers, a store, a worker and
// apply in several orders. Nobody ends, everybody says what it waits for, and in the
// end all of it works.
func TestStart_AFreshClusterStartsInAnyOrder(t *testing.T) {
	t.Parallel()
	const waiting = "waiting, and trying again"
	for _, order := range []struct {
		name string
		run  func(c *netCluster) *applying
	}{
		{"Millrace before NATS", func(c *netCluster) *applying {
			a := c.applying()
			c.worker.begin()
			c.store.begin()
			c.store.says(waiting)
			c.worker.says(waiting)
			for _, n := range c.nats {
				n.start()
			}
			return a
		}},
		{"one NATS server, Millrace, the others", func(c *netCluster) *applying {
			c.nats[0].start()
			c.store.begin()
			c.worker.begin()
			a := c.applying()
			c.store.says(`for=JetStream`) // one of three has no quorum
			c.worker.says(`for=JetStream`)
			c.nats[1].start()
			c.nats[2].start()
			return a
		}},
		{"all at once", func(c *netCluster) *applying {
			for _, n := range c.nats {
				n.start()
			}
			c.store.begin()
			c.worker.begin()
			return c.applying()
		}},
		{"apply and the worker long before the store", func(c *netCluster) *applying {
			for _, n := range c.nats {
				n.start()
			}
			c.worker.begin()
			a := c.applying()
			if err := <-a.done; err != nil {
				c.t.Fatalf("apply: %v\n%s", err, &a.out)
			}
			a.done <- nil
			c.store.begin()
			return a
		}},
	} {
		t.Run(order.name, func(t *testing.T) {
			t.Parallel()
			c := newNetCluster(t)
			a := order.run(c)
			if err := <-a.done; err != nil {
				t.Fatalf("apply: %v\n%s", err, &a.out)
			}
			if n := strings.Count(a.out.String(), " created"); n != 5 {
				t.Errorf("apply created %d of 5:\n%s", n, &a.out)
			}
			c.store.awaitReady()
			c.worker.awaitReady()
			w := c.witness()
			w.flows(t, eventWrite, time.Time{})
			w.flows(t, eventCopy, time.Time{})
		})
	}
}

// TestStart_AfterEverythingWasKilled kills all processes of a cluster at once and
// starts them again at once: it goes on by itself, with what it had.
func TestStart_AfterEverythingWasKilled(t *testing.T) {
	t.Parallel()
	c := newNetCluster(t)
	c.start()
	w := c.witness()
	for round := range *silenceRounds {
		w.flows(t, eventWrite, time.Now())
		for _, n := range c.nats {
			n.kill()
		}
		c.store.kill()
		c.worker.kill()
		began := time.Now()
		for _, n := range c.nats {
			n.start()
		}
		c.store.begin()
		c.worker.begin()
		w.flows(t, eventWrite, began)
		w.flows(t, eventCopy, began)
		t.Logf("round %d: the first write is acknowledged %s after the start, the first copy is right after %s", round,
			w.since(eventWrite, began)[0].Sub(began).Round(time.Millisecond), w.since(eventCopy, began)[0].Sub(began).Round(time.Millisecond))
	}
}
