package integration_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
)

// TestDrain empties one of two stores, each of whose partitions has a copy at the other, while a client writes. It is
// stopped then, and the other one cannot be drained.
func TestDrain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 0)
	a, b := c.stores[0], c.stores[1]
	if _, err := c.client.Catalog().Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/k"}, Partitions: 4, Standbys: 1}); err != nil {
		t.Fatal(err)
	}
	things := open(t, c.client, "things")
	c.balanced(c.stores, "store/", 4)
	refused := func(says string, args ...string) {
		t.Helper()
		if out, exit := run(t, c.server, args...); exit != 1 || !strings.Contains(out, says) {
			t.Errorf("%v: exit %d: %s", args, exit, out)
		}
	}
	refused("there is no node nobody; there are ", "drain", "nobody")
	refused("there is no node nobody; there are ", "drain", "nobody", "--undo")
	refused(`"error": "there is no node nobody; there are `, "drain", "nobody", "-o", "json")
	mustRun(t, c.server, "drain", a.node, "--no-wait")
	if out := mustRun(t, c.server, "nodes"); !strings.Contains(out, "drains") {
		t.Errorf("nodes:\n%s", out)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
				began := time.Now()
				if _, err := things.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"x%d","k":"k%d"}`, n%100, n%20)); err != nil {
					done <- err
					return
				}
				poll.Rest(t.Context(), began)
			}
		}
	}()
	out, errs, exit := command(t, "", nil, "drain", a.node, "-o", "json", "--server", c.server)
	var told struct {
		Action string
		Left   []struct{}
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil || exit != 0 || told.Action != "drained" || len(told.Left) > 0 {
		t.Fatalf("drain: exit %d, %v: %s%s", exit, err, out, errs)
	}
	t.Logf("drain said:\n%s", errs)
	poll.Until(t, func() error { // given up is not taken yet
		for _, l := range c.leases("store/") {
			if !b.holds(&l) {
				return fmt.Errorf("%s is of %s", l.Resource, l.Owner)
			}
		}
		return nil
	})
	a.stop()
	close(stop)
	if err := <-done; err != nil {
		t.Errorf("a write failed meanwhile: %v", err)
	}
	refused("is the only store that takes anything", "drain", b.node)
	refused("does not run", "drain", a.node)
	if out := mustRun(t, c.server, "drain", a.node, "--undo"); !strings.Contains(out, "takes its share again") {
		t.Error(out)
	}
	if out := mustRun(t, c.server, "drain", a.node, "--undo"); !strings.Contains(out, "was not to drain") {
		t.Error(out)
	}
}

// TestDrain_OfANodeThatStartsAgain waits for one of two nodes that both drain. It ends, comes back, and is drained.
func TestDrain_OfANodeThatStartsAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 0)
	a, b := c.stores[0], c.stores[1]
	if _, err := c.client.Catalog().Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/k"}, Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	c.balanced(c.stores, "store/", 4)
	mustRun(t, c.server, "drain", b.node)
	// The command would refuse it now, and does not where both are asked at once.
	if _, err := leases.Drain(t.Context(), c.js, "", a.node, "a test"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := invocation(t, "drain", a.node, "-o", "json", "--server", c.server)
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(errs)
	says := func(what string) {
		t.Helper()
		for said.Scan() {
			if strings.Contains(said.Text(), what) {
				return
			}
		}
		t.Fatalf("it has ended without %q: %s", what, &out)
	}
	says(b.node + " drains too")
	a.stop()
	says("does not run, and is waited for")
	a.start()
	for said.Scan() { // to its end
		t.Log(said.Text())
	}
	err = cmd.Wait()
	var told struct{ Action string }
	if json.Unmarshal(out.Bytes(), &told) != nil || err != nil || told.Action != "drained" {
		t.Errorf("drain: %v: %s", err, &out)
	}
}
