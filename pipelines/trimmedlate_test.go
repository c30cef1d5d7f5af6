package pipelines_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// trimmedNode is a node whose logs are trimmed at once when that is allowed.
type trimmedNode struct {
	*node
	allowed atomic.Bool
}

func newTrimmedNode(t *testing.T) *trimmedNode {
	t.Helper()
	n := &trimmedNode{}
	var known atomic.Pointer[registry.Registry]
	n.node = nodeOf(t, storetest.StartWith(t, owner.Config{
		DataDir: t.TempDir(), DiskReserve: -1, Alone: true, TrimBytes: 1, CheckInterval: 20 * time.Millisecond, SyncInterval: 20 * time.Millisecond,
		Snapshots: owner.SnapshotConfig{LogBytes: 1, Rest: 20 * time.Millisecond, SharePercent: 100},
		Holds: func(ctx context.Context) (map[feed.Partition][]owner.Hold, string, error) {
			r := known.Load()
			if r == nil || !n.allowed.Load() {
				return nil, "the test is not there yet", nil
			}
			all, err := r.Holds(ctx, leases.DefaultBucket)
			holds := map[feed.Partition][]owner.Hold{}
			for p, some := range all {
				for _, h := range some {
					holds[p] = append(holds[p], owner.Hold{Reader: h.Pipeline, After: h.After})
				}
			}
			return holds, "", err
		},
	}))
	known.Store(n.registry)
	n.apply(t, decode(t, `
{apiVersion: millrace/v1, kind: Container, metadata: {name: customer}, spec: {partitionKey: [/customerId], changeFeed: {retention: 0s}}}
---
{apiVersion: millrace/v1, kind: Container, metadata: {name: category}, spec: {partitionKey: [/id], changeFeed: {retention: 0s}}}
---
{apiVersion: millrace/v1, kind: Container, metadata: {name: product}, spec: {partitionKey: [/tenant], changeFeed: {retention: 0s}}}
`))
	return n
}

// trim lets the logs of containers be trimmed, and waits until most of each is.
func (n *trimmedNode) trim(t testing.TB, containers ...string) {
	t.Helper()
	n.allowed.Store(true)
	for _, name := range containers {
		c := n.container(t, name)
		partition := c.Partitions()[0]
		log, err := feed.OpenLog(t.Context(), n.js, partition, feed.LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		poll.Until(t, func() error {
			first, last, err := log.Bounds(t.Context())
			// The last commits stay where they are too few to take another snapshot for.
			if err == nil && first <= last/2 {
				s, why := c.Status(t.Context(), partition)
				if why == nil {
					err = fmt.Errorf("the log of %s is from %s to %s; trim %+v, snapshot %+v", name, first, last, s.Trim, s.Snapshot)
				}
				err = errors.Join(err, why)
			}
			return err
		})
		log.Close()
	}
}

// lateKV does something before a record is written first.
type lateKV struct {
	jetstream.KeyValue
	before func()
}

func (kv *lateKV) late() {
	if f := kv.before; f != nil {
		kv.before = nil
		f()
	}
}

func (kv *lateKV) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	kv.late()
	return kv.KeyValue.Create(ctx, key, value, opts...)
}

func (kv *lateKV) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	kv.late()
	return kv.KeyValue.Update(ctx, key, value, revision)
}

// everyKind are a pipeline of each kind over the containers of a trimmedNode.
func everyKind(t *testing.T) map[string]*spec.Resources {
	t.Helper()
	return map[string]*spec.Resources{
		"names":           decode(t, cascadesOverALongLog),
		"customer-totals": totals(t, countAndSum, "eventual"),
		"order-rows":      rows(t, "{parquet: {path: "+t.TempDir()+", commitInterval: 100ms}}", doubleTotals),
	}
}

// fill writes what pipelines of every kind copy.
func (n *trimmedNode) fill(t testing.TB, version int) {
	t.Helper()
	for i := range 5 {
		n.put(t, "customer", fmt.Sprintf(`{"id":"o%d","customerId":"c1","type":"order","orderId":"o%d","total":%d}`, i, i, version+i))
		n.put(t, "category", fmt.Sprintf(`{"id":"%d","name":"name %d"}`, i, version))
		n.put(t, "product", fmt.Sprintf(`{"id":"p%d","tenant":"t","categoryId":"%d","categoryName":"old"}`, i, i))
	}
	n.put(t, "customer", `{"id":"c1","customerId":"c1","type":"customer"}`)
}

// right fails the test unless every copy is.
func (n *trimmedNode) right(t testing.TB, when string) {
	t.Helper()
	n.idle(t)
	r, _ := n.verify(t, verify.Config{})
	for i := range r.Pipelines {
		if p := &r.Pipelines[i]; p.Drift+p.Behind+p.Dangling != 0 {
			t.Errorf("%s:\n%s", when, text(r))
		}
	}
}

// TestI6_ALogIsTrimmedWhileAPipelineIsRegistered: what a pipeline is about to begin with goes
// after it was looked at, and before the record is there that the trim would wait for.
func TestI6_ALogIsTrimmedWhileAPipelineIsRegistered(t *testing.T) {
	t.Parallel()
	for name := range everyKind(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTrimmedNode(t)
			n.fill(t, 0)
			n.fill(t, 1)
			kv := &lateKV{KeyValue: n.registry.KV, before: func() { n.trim(t, "customer", "category", "product") }}
			n.registry.KV = kv
			outcomes := n.apply(t, everyKind(t)[name])
			rec := n.record(t, name)
			if rec.Generation != 2 || len(rec.Walks) == 0 && len(rec.From) == 0 {
				t.Errorf("%q: %+v", outcomes, rec)
			}
			n.work(t, n.client, compile.SinkLimits{})
			n.awaitInForce(t, name, 2)
			n.right(t, "registered")
		})
	}
}

// TestI6_APipelineBeginsWhileItsLogIsTrimmed registers pipelines over logs whose beginning is
// gone, and lets nobody carry them out while items come, change and go, and the logs are
// trimmed on: as far as to what the pipelines begin with, and beyond it when they are done.
func TestI6_APipelineBeginsWhileItsLogIsTrimmed(t *testing.T) {
	t.Parallel()
	n := newTrimmedNode(t)
	n.fill(t, 0)
	n.fill(t, 1)
	n.trim(t, "customer", "category", "product")
	kinds := everyKind(t)
	begins := map[string]feed.LSN{}
	for name, declared := range kinds {
		n.apply(t, declared)
		rec := n.record(t, name)
		if begins[name] = registry.PositionOf(rec.From, 0).LSN; len(rec.Walks) > 0 {
			begins[name] = rec.Walks[0].LSN
		}
		if begins[name] < 2 || rec.Generation != 1 {
			t.Errorf("%s begins as %+v", name, rec)
		}
	}
	n.fill(t, 2)
	for i := range 2 {
		n.delete(t, "customer", "c1", fmt.Sprintf("o%d", i))
		n.delete(t, "category", fmt.Sprint(i), fmt.Sprint(i))
	}
	n.fill(t, 3)
	n.delete(t, "customer", "c1", "o2")
	firstOf := func(container string) (first feed.LSN) {
		log, err := feed.OpenLog(t.Context(), n.js, n.container(t, container).Partitions()[0], feed.LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if first, _, err = log.Bounds(t.Context()); err != nil {
			t.Fatal(err)
		}
		return first
	}
	reads := map[string]string{"customer-totals": "customer", "order-rows": "customer", "names": "category"}
	held := map[string]feed.LSN{}
	for name, container := range reads {
		if h := held[container]; h == 0 || begins[name] < h {
			held[container] = begins[name]
		}
	}
	for container, lsn := range held {
		poll.Until(t, func() error {
			return poll.Unless(firstOf(container) >= lsn-1, fmt.Sprintf("the log of %s begins at %s, and %s is needed", container, firstOf(container), lsn))
		})
		if first := firstOf(container); first > lsn+1 {
			t.Errorf("the log of %s begins at %s, and is needed behind %s", container, first, lsn)
		}
	}
	n.work(t, n.client, compile.SinkLimits{})
	n.fill(t, 4)
	for name := range kinds {
		n.awaitInForce(t, name, 1)
	}
	n.right(t, "walked")
	for container, lsn := range held {
		n.put(t, container, `{"id":"last","customerId":"c9","name":"last"}`)
		poll.Until(t, func() error {
			return poll.Unless(firstOf(container) > lsn+1, fmt.Sprintf("the log of %s begins at %s still", container, firstOf(container)))
		})
	}
	n.right(t, "trimmed on")
}

// TestI6_ACutOffPipelineBeginsAnew by itself: what it has not read is older than
// changeFeed.retentionMax and goes while it is paused.
func TestI6_ACutOffPipelineBeginsAnew(t *testing.T) {
	t.Parallel()
	for name := range everyKind(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTrimmedNode(t)
			n.fill(t, 0)
			n.apply(t, everyKind(t)[name])
			n.work(t, n.client, compile.SinkLimits{})
			n.awaitInForce(t, name, 1)
			n.idle(t)
			if _, err := n.registry.Pause(t.Context(), "default", name); err != nil {
				t.Fatal(err)
			}
			n.fill(t, 1)
			n.delete(t, "customer", "c1", "o2")
			n.delete(t, "category", "3", "3")
			for _, container := range []string{"customer", "category", "product"} {
				info := n.container(t, container).Info()
				info.Spec.ChangeFeed.RetentionMax = time.Millisecond
				if _, err := n.client.Catalog().Update(t.Context(), "default", container, info.Spec); err != nil {
					t.Fatal(err)
				}
			}
			n.trim(t, "customer", "category", "product")
			read := func() status.Pipeline {
				s, err := n.monitor.Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return s.Pipelines[0]
			}
			poll.Until(t, func() error {
				p := read()
				return poll.Unless(p.State == status.Paused && strings.Contains(p.Reason, "by itself") && strings.Contains(p.Reason, "resumed"), fmt.Sprintf("%s: %s", p.State, p.Reason))
			})
			for _, container := range []string{"customer", "category", "product"} { // it will not be outrun again
				info := n.container(t, container).Info()
				info.Spec.ChangeFeed.RetentionMax = 0
				if _, err := n.client.Catalog().Update(t.Context(), "default", container, info.Spec); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := n.registry.Resume(t.Context(), "default", name); err != nil {
				t.Fatal(err)
			}
			poll.Until(t, func() error {
				return poll.Unless(n.record(t, name).Generation > 1, "it has not begun anew")
			})
			n.awaitInForce(t, name, n.record(t, name).Generation)
			n.right(t, "begun anew")
		})
	}
}

// TestAPipelineWhoseSnapshotIsGoneBeginsAnew by itself, as one does that was paused for longer
// than its snapshot is kept.
func TestAPipelineWhoseSnapshotIsGoneBeginsAnew(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"customer-totals", "order-rows"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTrimmedNode(t)
			n.fill(t, 0)
			n.fill(t, 1)
			n.trim(t, "customer")
			n.apply(t, everyKind(t)[name])
			if _, err := n.registry.Pause(t.Context(), "default", name); err != nil {
				t.Fatal(err)
			}
			pins := n.pins(t)
			if len(pins) != 1 {
				t.Fatalf("pinned: %q", pins)
			}
			c := n.container(t, "customer")
			if _, err := c.PinSnapshot(t.Context(), c.Partitions()[0], store.PinSnapshot{Holder: pins[0], Release: true}); err != nil {
				t.Fatal(err)
			}
			n.work(t, n.client, compile.SinkLimits{})
			n.fill(t, 2)
			if _, err := n.registry.Resume(t.Context(), "default", name); err != nil {
				t.Fatal(err)
			}
			n.awaitInForce(t, name, 2)
			n.right(t, "begun anew")
		})
	}
}

// TestBeginAnew_OfTwoWhoFindTheSameOneBegins: two reconcilers hold the lease for a moment, and both find that the snapshot is
// gone. The second one, which comes behind the record of the first, must not begin anew what has just begun.
func TestBeginAnew_OfTwoWhoFindTheSameOneBegins(t *testing.T) {
	t.Parallel()
	n := newTrimmedNode(t)
	n.fill(t, 0)
	n.fill(t, 1)
	n.trim(t, "customer")
	n.apply(t, everyKind(t)["customer-totals"])
	c := n.container(t, "customer")
	for _, holder := range n.pins(t) {
		if _, err := c.PinSnapshot(t.Context(), c.Partitions()[0], store.PinSnapshot{Holder: holder, Release: true}); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := n.registry.Get(t.Context(), "default", "customer-totals")
	if err != nil {
		t.Fatal(err)
	}
	w, err := n.registry.World(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, gone := rec.Bound(w.Containers)
	if gone != "" {
		t.Fatal(gone)
	}
	var first bool
	n.registry.KV = &lateKV{n.registry.KV, func() {
		var err error
		if _, first, err = n.registry.BeginAnew(t.Context(), &rec, &b, leases.DefaultBucket); err != nil {
			t.Error(err)
		}
	}}
	next, second, err := n.registry.BeginAnew(t.Context(), &rec, &b, leases.DefaultBucket)
	if err != nil || !first || second {
		t.Errorf("begun by the first: %t, by the second: %t, %v", first, second, err)
	}
	if now, err := n.registry.Get(t.Context(), "default", "customer-totals"); err != nil || now.Generation != rec.Generation+1 {
		t.Errorf("generation %d behind %d, %v; the second has %d", now.Generation, rec.Generation, err, next.Generation)
	}
}

// TestI6_ACutOffProjectionKeepsTheRowsOfWhatHasExpired: it began with items, without the rows of what had expired before, as
// somebody had agreed to. Those that it has kept since are no part of that, so it waits for an operator.
func TestI6_ACutOffProjectionKeepsTheRowsOfWhatHasExpired(t *testing.T) {
	t.Parallel()
	n := newTrimmedNode(t)
	n.apply(t, decode(t, expiringContainers))
	for i := range 20 {
		n.put(t, "event", event("stays", "stays", i, 0))
	}
	n.trim(t, "event")
	sink := "{parquet: {path: " + t.TempDir() + ", commitInterval: 100ms}}"
	n.apply(t, decode(t, strings.Replace(keepingPipeline, "SINK", sink, 1)), registry.ApplyOptions{DiscardExpired: true})
	if _, err := n.registry.Pause(t.Context(), "default", "archive"); err != nil {
		t.Fatal(err)
	}
	pins := n.pinsOf(t, "event")
	if len(pins) != 1 {
		t.Fatalf("pinned: %q", pins)
	}
	c := n.container(t, "event")
	if _, err := c.PinSnapshot(t.Context(), c.Partitions()[0], store.PinSnapshot{Holder: pins[0], Release: true}); err != nil {
		t.Fatal(err)
	}
	n.work(t, n.client, compile.SinkLimits{})
	if _, err := n.registry.Resume(t.Context(), "default", "archive"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		s, err := n.monitor.Read(t.Context())
		if err != nil {
			return err
		}
		p := &s.Pipelines[0]
		return poll.Unless(strings.Contains(p.Reason, "--discard-expired"), fmt.Sprintf("generation %d, %s: %s", p.Generation, p.State, p.Reason))
	})
	if rec := n.record(t, "archive"); rec.Generation != 1 {
		t.Errorf("it began anew: %+v", rec)
	}
	if rec, err := n.registry.Rewind(t.Context(), "default", "archive", registry.RewindTo{DiscardExpired: true}, leases.DefaultBucket); err != nil || rec.Generation != 2 {
		t.Fatalf("rewound: %+v, %v", rec, err)
	}
	n.awaitInForce(t, "archive", 2)
}

// delete removes an item.
func (n *node) delete(t testing.TB, container, key, id string) {
	t.Helper()
	k, err := feed.NewPartitionKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.container(t, container).Delete(t.Context(), k, id); err != nil {
		t.Fatal(err)
	}
}

// TestPlanTellsWithWhatAPipelineBegins before logs are trimmed, and after.
func TestPlanTellsWithWhatAPipelineBegins(t *testing.T) {
	t.Parallel()
	n := newTrimmedNode(t)
	n.fill(t, 0)
	n.delete(t, "category", "4", "4")
	n.fill(t, 1)
	kinds := everyKind(t)
	check := func(want map[string][]string) {
		t.Helper()
		for name, declared := range kinds {
			_, text := n.plan(t, declared)
			for _, w := range want[name] {
				if !strings.Contains(text, w) {
					t.Errorf("%s: %q is not in\n%s", name, w, text)
				}
			}
		}
	}
	check(map[string][]string{
		"names":           {"it begins with the log of container category: N commits"},
		"customer-totals": {"it begins with the log of container customer: N commits"},
		"order-rows":      {"it begins with the log of container customer: N commits"},
	})
	n.trim(t, "customer", "category", "product")
	check(map[string][]string{
		"names":           {"it begins with 5 items of container product", "what becomes of copies of sources that were deleted before is not counted"},
		"customer-totals": {"it begins with 6 items of container customer, of a snapshot"},
		"order-rows":      {"it begins with 6 items of container customer, of a snapshot"},
	})
}
