package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd/clustertest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/snapshot"
)

const trimmedShop = `apiVersion: millrace/v1
kind: Container
metadata: {name: things}
spec: {partitionKey: [/k], partitions: 2, changeFeed: {retention: 0s}}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: kinds}
spec: {partitionKey: [/id], changeFeed: {retention: 0s}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: kind-names}
spec:
  source: {container: kinds}
  cascade: {into: things, match: {kind: id}, set: {kindName: name}}
`

// trimming lets a store take snapshots and trim as soon as it may.
var trimming = []string{
	"--durability", "replicas",
	"--set", "store.snapshots.logBytes=65536", "--set", "store.snapshots.sharePercent=100", "--set", "store.snapshots.rest=1s",
	"--set", "store.trimBytes=1", "--set", "store.checkInterval=100ms", "--set", "store.syncInterval=100ms",
}

// trimmedCluster is three NATS servers, a store and a worker.
type trimmedCluster struct {
	*clustertest.Cluster
	t      *testing.T
	js     jetstream.JetStream
	server string
	dir    string // the store's
	store  *child
	things *store.Container
}

func newTrimmedCluster(t *testing.T) *trimmedCluster {
	t.Helper()
	c := &trimmedCluster{Cluster: clustertest.Start(t), t: t, dir: filepath.Join(t.TempDir(), "store")}
	c.js, c.server = c.JetStream(), c.URL()
	c.store = spawn(t, slices.Concat([]string{"store", "--server", c.server, "--dir", c.dir, "--listen", "off"}, trimming)...)
	tellOnFailure(t, c.store)
	tellOnFailure(t, spawn(t, "worker", "--server", c.server, "--dir", t.TempDir(), "--listen", "off", "--durability", "replicas"))
	file := filepath.Join(t.TempDir(), "shop.yaml")
	writeText(t, file, trimmedShop)
	mustRun(t, c.server, "apply", "--set", "durability=replicas", "-f", file)
	client := dial(t, c.server)
	c.things = open(t, client, "things")
	c.rename(client, 0)
	return c
}

// rename names all kinds.
func (c *trimmedCluster) rename(client *store.Client, n int) {
	c.t.Helper()
	kinds := open(c.t, client, "kinds")
	for kind := range 3 {
		body := fmt.Appendf(nil, `{"id":"%d","name":"name %d"}`, kind, n)
		if err := insist(c.t, func(ctx context.Context) error { _, err := kinds.Upsert(ctx, body); return err }); err != nil {
			c.t.Fatal(err)
		}
	}
}

// write writes a few items again and again until ctx ends, and tells which version of each
// was acknowledged last.
func (c *trimmedCluster) write(ctx context.Context, written *atomic.Int64) map[string]int {
	versions := map[string]int{}
	pad := strings.Repeat("x", 2000)
	for n := 1; ctx.Err() == nil; n++ {
		id := fmt.Sprint(n % 40)
		body := fmt.Appendf(nil, `{"id":%q,"k":"k%d","kind":"%d","version":%d,"pad":%q}`, id, n%8, n%3, n, pad)
		err := insist(c.t, func(ctx context.Context) error { _, err := c.things.Upsert(ctx, body); return err })
		if err != nil {
			c.t.Error(err)
			break
		}
		versions[fmt.Sprint("k", n%8, "/", id)] = n
		written.Add(1)
	}
	return versions
}

// trimmed waits until every log of the container begins behind what was written first.
func (c *trimmedCluster) trimmed() {
	c.t.Helper()
	for _, p := range c.things.Partitions() {
		poll.Until(c.t, func() error {
			s, err := c.js.Stream(c.t.Context(), p.Stream())
			if err != nil {
				return err
			}
			info := s.CachedInfo()
			return poll.Unless(info.State.FirstSeq > 1 && info.Config.Replicas == 3, fmt.Sprintf("%d replicas, %+v", info.Config.Replicas, info.State))
		})
	}
}

// leaderEndsInAnUpload ends the server that leads the stream of snapshots as soon as a part
// has come into it while writes go on.
func (c *trimmedCluster) leaderEndsInAnUpload() {
	c.t.Helper()
	var leader string
	last := uint64(0)
	poll.Until(c.t, func() error {
		s, err := c.js.Stream(c.t.Context(), snapshot.StreamName)
		if err != nil {
			return err
		}
		info := s.CachedInfo()
		before := last
		if last = info.State.LastSeq; before == 0 || last == before || info.Cluster == nil || info.Cluster.Leader == "" {
			return errors.New("no object has come")
		}
		leader = info.Cluster.Leader
		return nil
	})
	c.Stop(c.Named(leader))
	c.t.Logf("%s has ended behind object %d", leader, last)
}

// TestCluster_TrimmedLogsOutliveServersAndStores trims logs of three replicas under writes,
// ends the server that leads the stream of snapshots in the middle of an upload, and kills
// the store and takes its disk away. Another one is made of the snapshots in the stream and
// what the logs have behind them; nothing that was acknowledged is lost, and pipelines go on.
func TestCluster_TrimmedLogsOutliveServersAndStores(t *testing.T) {
	t.Parallel()
	c := newTrimmedCluster(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var written atomic.Int64
	done := make(chan map[string]int, 1)
	go func() { done <- c.write(ctx, &written) }()
	c.trimmed()
	c.leaderEndsInAnUpload()
	from := written.Load()
	poll.Until(t, func() error {
		return poll.Unless(written.Load() > from+100, fmt.Sprint(written.Load()-from, " writes since a server has ended"))
	})
	c.store.kill()
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	c.store.start()
	from = written.Load()
	poll.Until(t, func() error {
		return poll.Unless(written.Load() > from+10, fmt.Sprint(written.Load()-from, " writes since the store was made again"))
	})
	stop()
	versions := <-done
	said := c.store.output()
	if n := strings.Count(said, "snapshot loaded"); n < len(c.things.Partitions()) || strings.Contains(said, "a snapshot cannot be used") {
		t.Errorf("%d snapshots were loaded", n)
	}
	client := dial(t, c.server)
	c.rename(client, 1)
	mustRun(t, c.server, "verify", "--settle", "2m")
	items := everyItem(t, open(t, client, "things"))
	if len(items) != len(versions) {
		t.Errorf("%d items, want %d", len(items), len(versions))
	}
	for _, item := range items {
		name := fmt.Sprint(item["k"], "/", item["id"])
		if got := item["version"]; got != float64(versions[name]) || item["kindName"] != "name 1" {
			t.Errorf("item %s has version %v and the kind %v; version %d was acknowledged", name, got, item["kindName"], versions[name])
		}
	}
	t.Logf("%d writes, %d snapshots taken, %d loaded, %d trims", written.Load(), strings.Count(said, "snapshot taken"),
		strings.Count(said, "snapshot loaded"), strings.Count(said, "log trimmed"))
}

// TestCluster_RestoreMakesReplicas backs a cluster with trimmed logs up, and restores it
// into another: every log has the replicas that durability asks for, and the items are those
// of the first.
func TestCluster_RestoreMakesReplicas(t *testing.T) {
	t.Parallel()
	c := newTrimmedCluster(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var written atomic.Int64
	done := make(chan map[string]int, 1)
	go func() { done <- c.write(ctx, &written) }()
	c.trimmed()
	stop()
	<-done
	mustRun(t, c.server, "verify", "--settle", "2m")
	place := t.TempDir()
	mustRun(t, c.server, "backup", "create", place)
	want := sortedLines(mustRun(t, c.server, "export", "things"))

	other := clustertest.Start(t)
	js, server := other.JetStream(), other.URL()
	mustRun(t, server, "restore", place, "--set", "durability=replicas")
	logs := 0
	for info := range js.ListStreams(t.Context()).Info() {
		if logs++; info.Config.Replicas != 3 {
			t.Errorf("%s has %d replicas", info.Config.Name, info.Config.Replicas)
		}
	}
	if logs < 3 {
		t.Errorf("%d streams were made", logs)
	}
	spawn(t, slices.Concat([]string{"store", "--server", server, "--dir", t.TempDir(), "--listen", "off"}, trimming)...)
	spawn(t, "worker", "--server", server, "--dir", t.TempDir(), "--listen", "off", "--durability", "replicas")
	if got := sortedLines(mustRun(t, server, "export", "things")); !slices.Equal(got, want) {
		t.Errorf("%d lines were exported, of %d", len(got), len(want))
	}
	poll.Until(t, func() error {
		out, _ := run(t, server, "describe", "pipeline", "kind-names")
		return poll.Unless(strings.Contains(out, "generation 2"), out)
	})
	mustRun(t, server, "verify", "--settle", "2m")
}
