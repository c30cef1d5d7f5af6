package pipelines_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

// node is a store and a worker in this process.
type node struct {
	*system
	monitor *status.Monitor
	db      *engine.DB // nil where nobody owns the partitions yet
}

func newNode(t testing.TB) *node {
	t.Helper()
	return newNodeThrough(t, func(s *system) *store.Client { return s.client })
}

// newNodeThrough has a worker that reaches the store through a client of its own.
func newNodeThrough(t testing.TB, workers func(*system) *store.Client) *node {
	t.Helper()
	return newNodeOf(t, workers, compile.SinkLimits{})
}

// newNodeOf has a worker whose sinks are tuned.
func newNodeOf(t testing.TB, workers func(*system) *store.Client, sinks compile.SinkLimits) *node {
	t.Helper()
	n := newIdleNode(t)
	n.work(t, workers(n.system), sinks)
	return n
}

// newIdleNode has no worker yet.
func newIdleNode(t testing.TB) *node {
	t.Helper()
	return nodeOf(t, storetest.Start(t))
}

func nodeOf(t testing.TB, below *storetest.Store) *node {
	t.Helper()
	n := &node{system: systemOf(t, below), db: below.DB}
	n.monitor = status.NewMonitor(n.js, n.registry, status.MonitorConfig{})
	t.Cleanup(n.monitor.Close)
	return n
}

// work runs a worker until the test ends, or until it is stopped.
func (n *node) work(t testing.TB, client *store.Client, sinks compile.SinkLimits) (stop func()) {
	t.Helper()
	return n.workEvery(t, client, sinks, 10*time.Millisecond)
}

// workEvery runs a worker that saves checkpoints at an interval.
func (n *node) workEvery(t testing.TB, client *store.Client, sinks compile.SinkLimits, checkpoints time.Duration) (stop func()) {
	t.Helper()
	return n.workWith(t, client, checkpoints, pipelines.SupervisorConfig{Verify: verify.ContinuousConfig{Continuous: "off"}, Sinks: sinks})
}

// workWith runs a worker that is tuned.
func (n *node) workWith(t testing.TB, client *store.Client, checkpoints time.Duration, cfg pipelines.SupervisorConfig) (stop func()) {
	t.Helper()
	// Where nobody owns the partitions there are none: nobody would answer what is asked of them.
	deadLetters := processors.FindDeadLetters(n.client)
	if n.db != nil {
		var err error
		if deadLetters, err = processors.OpenDeadLetters(t.Context(), n.client); err != nil {
			t.Fatal(err)
		}
	}
	hub := feed.NewHub(func(ctx context.Context, p feed.Partition) (*feed.Log, error) {
		return feed.OpenLog(ctx, n.js, p, feed.LogConfig{})
	}, feed.HubConfig{})
	t.Cleanup(hub.Close)
	host, err := processors.NewHost(hub, deadLetters, processors.Config{Logger: storetest.Quiet(), CheckpointInterval: checkpoints})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Logger == nil {
		cfg.Logger = storetest.Quiet()
	}
	cfg.Reconciler = pipelines.ReconcilerConfig{Interval: 20 * time.Millisecond, Grace: time.Second}
	return storetest.Run(t, pipelines.NewSupervisor(n.registry, client, storetest.Manager(t, n.js, "worker"), host, cfg).Run)
}

// container opens a container of the default database.
func (n *node) container(t testing.TB, name string) *store.Container {
	t.Helper()
	c, err := n.client.Container(t.Context(), "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// put creates or replaces items.
func (n *node) put(t testing.TB, container string, items ...string) {
	t.Helper()
	c := n.container(t, container)
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(32)
	for _, item := range items {
		g.Go(func() error {
			// With a key it is sent again where a lease is late on a busy machine.
			_, err := c.Upsert(ctx, []byte(item), store.WriteOptions{IdempotencyKey: feed.NewCommitID().String()})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// read returns a field of an item.
func (n *node) read(t testing.TB, container, key, id, field string) string {
	t.Helper()
	k, err := feed.NewPartitionKey(key)
	if err != nil {
		t.Fatal(err)
	}
	item, err := n.container(t, container).Read(t.Context(), k, id)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(item.Body, &fields); err != nil {
		t.Fatal(err)
	}
	return string(fields[field])
}

// idle waits until every pipeline has nothing left to do.
func (n *node) idle(t testing.TB) {
	t.Helper()
	poll.Until(t, func() error {
		s, err := n.monitor.Read(t.Context())
		if err != nil {
			return err
		}
		for _, p := range s.Pipelines {
			if p.State != status.Idle {
				var b strings.Builder
				if err := s.Print(&b, true); err != nil {
					return err
				}
				return errors.New("not all is idle:\n" + b.String())
			}
		}
		return nil
	})
}

// verify returns the report on all pipelines, by name.
func (n *node) verify(t testing.TB, cfg verify.Config) (*verify.Report, map[string]verify.PipelineReport) {
	t.Helper()
	r, err := verify.New(n.js, n.registry, n.client, cfg).Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]verify.PipelineReport{}
	for _, p := range r.Pipelines {
		by[p.Name] = p
	}
	return r, by
}

// text prints a report for a failed test.
func text(r *verify.Report) string {
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		return err.Error()
	}
	return b.String()
}

// webstore returns the items of a file of the WebStore data set, or skips.
func webstore(t testing.TB, name string) []string {
	t.Helper()
	dir := os.Getenv("MILLRACE_WEBSTORE")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data", "webstore")
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("the WebStore data set is not at %s; set MILLRACE_WEBSTORE", dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatal(err)
	}
	items := make([]string, len(raw))
	for i := range raw {
		items[i] = string(raw[i])
	}
	return items
}
