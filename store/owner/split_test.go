package owner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// splitContainer makes a container of one partition, with an index and a unique key.
func splitContainer(t *testing.T, c *cluster, client *store.Client) *store.Container {
	t.Helper()
	_, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{
		PartitionKey: []string{"/pk"}, Partitions: 1, Indexes: []string{"/n"}, UniqueKeys: [][]string{{"/u"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return reopen(t, client)
}

func reopen(t *testing.T, client *store.Client) *store.Container {
	t.Helper()
	ct, err := client.Container(t.Context(), "default", "things")
	if err != nil {
		t.Fatal(err)
	}
	return ct
}

func splitItem(n int) []byte {
	return fmt.Appendf(nil, `{"id":"i%d","pk":"p%d","n":%d,"u":"u%d","text":"%0200d"}`, n, n%97, n%10, n, n)
}

// awaitSplit waits until the catalog names the children of a partition.
func awaitSplit(t *testing.T, client *store.Client, number uint32) *store.Container {
	t.Helper()
	var ct *store.Container
	poll.Until(t, func() error {
		ct = reopen(t, client)
		for _, p := range ct.Info().Partitions {
			if p.Number == number {
				return fmt.Errorf("partition %d is still there", number)
			}
		}
		return nil
	})
	return ct
}

// countItems counts the items of all partitions of a container.
func countItems(t *testing.T, ct *store.Container) (total int) {
	t.Helper()
	for _, p := range ct.Partitions() {
		n, err := ct.Count(t.Context(), p, store.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}

// A partition is split while it is written: every acknowledged write is in its child, once, a retry under its idempotency
// key finds what the parent did, and LSNs go up.
func TestI2_ASplitKeepsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cfg.Snapshots = owner.SnapshotConfig{Store: owner.SnapshotsStream}
	p := c.process("a", t.TempDir())
	p.client = store.NewClient(c.conn(), c.catalog, store.ClientConfig{Timeout: 2 * time.Second})
	ct := splitContainer(t, c, p.client)
	const before = 500
	etags := make([]store.ETag, before)
	for n := range before {
		item, err := ct.Create(t.Context(), splitItem(n), store.WriteOptions{IdempotencyKey: fmt.Sprint("k", n)})
		if err != nil {
			t.Fatal(err)
		}
		etags[n] = item.ETag
	}
	// Writers go on through it, each with the container as the catalog has it then.
	var wrote [4]atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range wrote {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := 10_000*(w+1) + n
				for {
					ct, err := p.client.Container(t.Context(), "default", "things")
					if err == nil {
						short, cancel := context.WithCancel(t.Context())
						_, err = ct.Create(short, splitItem(id), store.WriteOptions{IdempotencyKey: fmt.Sprint("w", id)})
						cancel()
					}
					if err == nil {
						break
					}
					if !errors.Is(err, store.ErrNotOwner) && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrUnknown) {
						t.Errorf("write %d: %v", id, err)
						return
					}
				}
				wrote[w].Add(1)
			}
		})
	}
	parent := ct.Partitions()[0]
	plan, err := ct.Split(t.Context(), parent, store.SplitPartition{})
	if err != nil {
		t.Fatal(err)
	}
	split := awaitSplit(t, p.client, 0)
	stop()
	writers.Wait()
	ct = reopen(t, store.NewClient(c.conn(), c.catalog, store.ClientConfig{Timeout: time.Minute}))
	info := split.Info()
	if len(info.Partitions) != 2 || info.Partitions[0].Log != plan.Children[0].Log || len(info.Former) != 1 || len(info.Splits) != 0 {
		t.Fatalf("the catalog has %+v, planned was %+v", info, plan)
	}
	for n := range before {
		key, _ := feed.NewPartitionKey(fmt.Sprint("p", n%97))
		item, err := ct.Read(t.Context(), key, fmt.Sprint("i", n))
		if err != nil || item.ETag != etags[n] {
			t.Fatalf("item %d: %+v, %v; it had ETag %v", n, item, err, etags[n])
		}
		again, err := ct.Create(t.Context(), splitItem(n), store.WriteOptions{IdempotencyKey: fmt.Sprint("k", n)})
		if err != nil || again.ETag != etags[n] {
			t.Fatalf("item %d again under its key: %+v, %v", n, again, err)
		}
		if _, err := ct.Create(t.Context(), splitItem(n)); !errors.Is(err, store.ErrConflict) {
			t.Fatalf("item %d again: %v", n, err)
		}
	}
	total := before
	for w := range wrote {
		for n := range int(wrote[w].Load()) {
			id := 10_000*(w+1) + n
			key, _ := feed.NewPartitionKey(fmt.Sprint("p", id%97))
			if _, err := ct.Read(t.Context(), key, fmt.Sprint("i", id)); err != nil {
				t.Fatalf("write %d was acknowledged: %v", id, err)
			}
			total++
		}
	}
	count := 0
	for _, part := range ct.Partitions() {
		n, err := ct.Count(t.Context(), part, store.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			t.Errorf("partition %s holds nothing", part)
		}
		count += n
	}
	if count != total {
		t.Errorf("the children hold %d items, %d were acknowledged", count, total)
	}
	item, err := ct.Upsert(t.Context(), splitItem(0))
	if err != nil || item.ETag.LSN < info.Former[0].First {
		t.Errorf("a write behind the split: %+v, %v; LSNs of children begin at %d", item, err, info.Former[0].First)
	}
}

// Children open on a store that has nothing of them and of their parent, and before they have snapshots of their own: from
// their seeds and their parent's log.
func TestI3_AChildOpensFromSeedAndLogs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cfg.Snapshots = owner.SnapshotConfig{Store: owner.SnapshotsStream}
	a := c.process("a", t.TempDir())
	ct := splitContainer(t, c, a.client)
	for n := range 300 {
		if _, err := ct.Create(t.Context(), splitItem(n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ct.Split(t.Context(), ct.Partitions()[0], store.SplitPartition{}); err != nil {
		t.Fatal(err)
	}
	awaitSplit(t, a.client, 0)
	a.stop() // within a second, in which no snapshot of a child is taken; behind one the test shows less
	b := c.process("b", t.TempDir())
	ct = reopen(t, b.client)
	for n := range 300 {
		key, err := feed.NewPartitionKey(fmt.Sprint("p", n%97))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ct.Read(t.Context(), key, fmt.Sprint("i", n)); err != nil {
			t.Fatalf("item %d: %v", n, err)
		}
	}
	// A second generation, of the one that has more.
	grown := ct.Partitions()[1]
	if _, err := ct.Split(t.Context(), grown, store.SplitPartition{}); err != nil {
		t.Fatal(err)
	}
	awaitSplit(t, b.client, grown.Number)
	b.stop()
	d := c.process("d", t.TempDir())
	ct = reopen(t, d.client)
	total := countItems(t, ct)
	if total != 300 || len(ct.Partitions()) != 3 || len(ct.Info().Former) != 2 {
		t.Errorf("%d items in %+v, formerly %+v", total, ct.Info().Partitions, ct.Info().Former)
	}
}

// What cannot be split is refused, with the reason, and nothing is planned.
func TestSplit_Refusals(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cfg.Snapshots = owner.SnapshotConfig{Store: owner.SnapshotsStream}
	p := c.process("a", t.TempDir())
	ct := splitContainer(t, c, p.client)
	part := ct.Partitions()[0]
	ask := func(r store.SplitPartition, status store.Status, says string) {
		t.Helper()
		got, err := ct.Split(t.Context(), part, r)
		refused, ok := errors.AsType[*store.Error](err)
		if !ok || refused.Status != status || !strings.Contains(refused.Message, says) {
			t.Errorf("%+v was answered %+v, %v; want %d with %q", r, got, err, status, says)
		}
	}
	hash := func(first byte) feed.EPK {
		return feed.EPK(append([]byte{first}, make([]byte, store.BoundaryBytes-1)...))
	}
	ask(store.SplitPartition{}, store.StatusConflict, "no items")
	ask(store.SplitPartition{At: "\x10"}, store.StatusBadRequest, "16 bytes")
	ask(store.SplitPartition{At: hash(0xff)}, store.StatusBadRequest, "does not lie inside")
	ask(store.SplitPartition{At: hash(0)[:0] + feed.EPKMax}, store.StatusBadRequest, "16 bytes")
	for n := range 20 {
		if _, err := ct.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"i%d","pk":"one","u":%d}`, n, n)); err != nil {
			t.Fatal(err)
		}
	}
	ask(store.SplitPartition{}, store.StatusConflict, "one partition key")
	if got, err := ct.Split(t.Context(), part, store.SplitPartition{At: hash(0x20), Dry: true}); err != nil || len(got.Children) != 2 || got.ID != "" {
		t.Errorf("a dry one: %+v, %v", got, err)
	}
	if info := reopen(t, p.client).Info(); len(info.Splits)+len(info.Former) > 0 || len(info.Partitions) != 1 {
		t.Errorf("the catalog has %+v", info)
	}
	planned, err := c.catalog.PlanSplit(t.Context(), "default", "things", 0, hash(0x20), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.catalog.PlanSplit(t.Context(), "default", "things", 0, hash(0x30), false); err == nil || !strings.Contains(err.Error(), planned.ID) {
		t.Errorf("a second one: %v", err)
	}
	awaitSplit(t, p.client, 0)
}

// A split that was given up is not gone on with, leaves nothing, and another one can be asked for. Numbers are not used again.
func TestSplit_Cancelled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cfg.Snapshots = owner.SnapshotConfig{Store: owner.SnapshotsStream}
	p := c.process("a", t.TempDir())
	ct := splitContainer(t, c, p.client)
	for n := range 50 {
		if _, err := ct.Create(t.Context(), splitItem(n)); err != nil {
			t.Fatal(err)
		}
	}
	part := ct.Partitions()[0]
	if _, err := ct.Split(t.Context(), part, store.SplitPartition{Cancel: true}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("none was planned: %v", err)
	}
	var last *store.SplitResult
	for range 5 { // at whatever moment of it
		planned, err := ct.Split(t.Context(), part, store.SplitPartition{})
		if err != nil {
			t.Fatal(err)
		}
		last = planned
		cancelled, err := ct.Split(t.Context(), part, store.SplitPartition{Cancel: true})
		if err != nil {
			break // it was too late
		}
		if cancelled.ID != planned.ID {
			t.Fatalf("split %s was cancelled, planned was %s", cancelled.ID, planned.ID)
		}
		info := reopen(t, p.client).Info()
		if len(info.Splits)+len(info.Former) > 0 || len(info.Partitions) != 1 {
			t.Fatalf("the catalog has %+v", info)
		}
		for _, child := range planned.Children {
			if _, err := feed.OpenLog(t.Context(), c.js, feed.Partition{Container: info.ID, Number: child.Number}, feed.LogConfig{}); !errors.Is(err, feed.ErrNoLog) {
				t.Errorf("the log of child %d: %v", child.Number, err)
			}
		}
	}
	if info := reopen(t, p.client).Info(); len(info.Partitions) == 1 && len(info.Splits) == 0 {
		planned, err := ct.Split(t.Context(), part, store.SplitPartition{})
		if err != nil {
			t.Fatal(err)
		}
		if planned.Children[0].Number <= last.Children[1].Number {
			t.Errorf("numbers of %+v were used for %+v", last.Children, planned.Children)
		}
	}
	ct = awaitSplit(t, p.client, 0)
	total := countItems(t, ct)
	if total != 50 {
		t.Errorf("the children hold %d items", total)
	}
}
