package pipelines_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// newWalkingNode has customers whose orders were written often, and a registry that lets
// pipelines begin with items however small the log is. It has no worker yet.
func newWalkingNode(t *testing.T, orders, rounds int) *node {
	t.Helper()
	n := nodeOf(t, storetest.StartWith(t, owner.Config{
		Snapshots:        owner.SnapshotConfig{Directory: t.TempDir(), LogBytes: 1, Rest: time.Hour},
		CompressBytesMin: -1, // a log of equal items, compressed, is shorter than they are
	}))
	var err error
	if n.registry, err = registry.Open(t.Context(), n.js, n.client, registry.Config{WalkLogBytes: 1}); err != nil {
		t.Fatal(err)
	}
	n.apply(t, decode(t, shopContainers))
	fill := strings.Repeat("x", 500)
	for round := range rounds {
		var items []string
		for i := range orders {
			items = append(items, fmt.Sprintf(`{"id":"o%d","customerId":"c%d","type":"order","total":%d,"fill":%q}`, i, i%5, 10*round+i, fill))
		}
		n.put(t, "customer", items...)
	}
	n.customers(t, 5, 0)
	return n
}

func (n *node) pins(t testing.TB) (holders []string) {
	t.Helper()
	return n.pinsOf(t, "customer")
}

// pinsOf are the holders of pins of a container's snapshots.
func (n *node) pinsOf(t testing.TB, container string) (holders []string) {
	t.Helper()
	c := n.container(t, container)
	for _, p := range c.Partitions() {
		s, err := c.Status(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, pin := range s.Pins {
			holders = append(holders, pin.Holder)
		}
	}
	return holders
}

// walked waits until nothing is pinned any more.
func (n *node) walked(t testing.TB) {
	t.Helper()
	poll.Until(t, func() error {
		if pins := n.pins(t); len(pins) > 0 {
			return fmt.Errorf("pinned still: %q", pins)
		}
		return nil
	})
}

// TestI6_APipelineOverALongLogBeginsWithItems registers an aggregate, in both modes, and a
// projection over items that were written often, while more is written: the records name
// the snapshots, whose LSN is not behind the ends of the logs; the fields and rows are
// right, and the snapshots are released. Rewound to the beginning they begin with items again.
func TestI6_APipelineOverALongLogBeginsWithItems(t *testing.T) {
	t.Parallel()
	for _, consistency := range []string{"eventual", "transactional"} {
		t.Run(consistency, func(t *testing.T) {
			t.Parallel()
			n := newWalkingNode(t, 40, 6)
			dir := t.TempDir()
			n.apply(t, totals(t, countAndSum, consistency))
			n.apply(t, rows(t, "{parquet: {path: "+dir+", commitInterval: 100ms}}", doubleTotals))
			for _, name := range []string{"order-rows", "customer-totals"} {
				rec := n.record(t, name)
				if len(rec.Walks) != len(rec.Heads) {
					t.Fatalf("%s begins as %+v", name, rec)
				}
				for _, w := range rec.Walks {
					if head := registry.PositionOf(rec.Heads, w.Partition); head.LSN < w.LSN {
						t.Errorf("%s walks items as of %s, and the log ended at %s", name, w.LSN, head)
					}
				}
			}
			if len(n.pins(t)) == 0 {
				t.Error("nothing is pinned")
			}
			for i := range 10 { // before a worker comes
				n.put(t, "customer", order(i%5, i))
			}
			n.work(t, n.client, compile.SinkLimits{})
			for i := range 10 {
				n.put(t, "customer", fmt.Sprintf(`{"id":"o%d","customerId":"c%d","type":"order","total":1}`, i, i%5))
			}
			check := func(generation uint32) {
				t.Helper()
				n.awaitInForce(t, "order-rows", generation)
				n.idle(t)
				if r, by := n.verify(t, verify.Config{}); by["customer-totals"].Drift+by["order-rows"].Drift != 0 || by["order-rows"].Behind != 0 {
					t.Errorf("generation %d:\n%s", generation, text(r))
				}
				if got := n.parquet(t, dir, "double"); len(got) != 50 {
					t.Errorf("generation %d: %d rows", generation, len(got))
				}
				n.walked(t)
			}
			check(1)
			for _, name := range []string{"order-rows", "customer-totals"} {
				if rec, err := n.registry.Rewind(t.Context(), "default", name, registry.RewindTo{}, leases.DefaultBucket); err != nil || len(rec.Walks) == 0 || rec.Generation != 2 {
					t.Errorf("rewound: %+v, %v", rec, err)
				}
			}
			check(2)
		})
	}
}

// TestAPipelineThatIsDeletedReleasesItsItems, and one that takes the place of another.
func TestAPipelineThatIsDeletedReleasesItsItems(t *testing.T) {
	t.Parallel()
	n := newWalkingNode(t, 20, 6)
	n.apply(t, totals(t, countAndSum, "eventual"))
	before := n.pins(t)
	n.apply(t, totals(t, "{orderCount: {count: true}}", "eventual"), registry.ApplyOptions{Backfill: true})
	after := n.pins(t)
	if len(before) == 0 || len(after) != len(before) || strings.Contains(strings.Join(after, " "), before[0]) {
		t.Errorf("pins %q, then %q", before, after)
	}
	if err := n.registry.Delete(t.Context(), "default", "customer-totals"); err != nil {
		t.Fatal(err)
	}
	if left := n.pins(t); len(left) != 0 {
		t.Errorf("pins of a pipeline that is deleted: %q", left)
	}
}

// TestI6_AProjectionThatComesBackToAPlaceKeepsNoOldRows: it is built anew with items, which tell of none that went while
// it was elsewhere.
func TestI6_AProjectionThatComesBackToAPlaceKeepsNoOldRows(t *testing.T) {
	t.Parallel()
	n := newWalkingNode(t, 20, 6)
	n.work(t, n.client, compile.SinkLimits{})
	here, there := t.TempDir(), t.TempDir()
	for i, dir := range []string{here, there, here} {
		n.apply(t, rows(t, "{parquet: {path: "+dir+", commitInterval: 100ms}}", doubleTotals), registry.ApplyOptions{Backfill: i > 0})
		if rec := n.record(t, "order-rows"); len(rec.Walks) == 0 {
			t.Fatalf("it does not begin with items: %+v", rec)
		}
		n.awaitInForce(t, "order-rows", uint32(i+1))
		n.delete(t, "customer", fmt.Sprintf("c%d", i), fmt.Sprintf("o%d", i))
		n.idle(t)
		if r, by := n.verify(t, verify.Config{}); by["order-rows"].Verdict != verify.VerdictEqual || by["order-rows"].Copies != int64(19-i) {
			t.Errorf("generation %d:\n%s", i+1, text(r))
		}
	}
}

// errKilled is what a registrar gets that is killed before, or behind, the record.
var errKilled = errors.New("killed")

type killedKV struct {
	jetstream.KeyValue
	behind bool
}

func (kv killedKV) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if kv.behind {
		if _, err := kv.KeyValue.Update(ctx, key, value, revision); err != nil {
			return 0, err
		}
	}
	return 0, errKilled
}

// TestARewindThatIsKilledHoldsNoLogForLong: one that ends before its record is written leaves
// a pin that lapses soon, one that ends behind it leaves the pin of the generation before,
// which goes with that one's lease.
func TestARewindThatIsKilledHoldsNoLogForLong(t *testing.T) {
	t.Parallel()
	n := newWalkingNode(t, 20, 6)
	n.apply(t, totals(t, countAndSum, "eventual"))
	lasts := func() map[string]time.Duration {
		t.Helper()
		all := map[string]time.Duration{}
		c := n.container(t, "customer")
		for _, p := range c.Partitions() {
			s, err := c.Status(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			for _, pin := range s.Pins {
				all[pin.Holder] = time.Until(pin.Until)
			}
		}
		return all
	}
	was := lasts()
	for holder, left := range was {
		if left < store.PinFor/2 {
			t.Errorf("registered: %s is pinned for another %s", holder, left)
		}
	}
	whole := n.registry.KV
	killed := func(behind bool) {
		t.Helper()
		n.registry.KV = killedKV{whole, behind}
		defer func() { n.registry.KV = whole }()
		if _, err := n.registry.Rewind(t.Context(), "default", "customer-totals", registry.RewindTo{}, leases.DefaultBucket); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
	}
	killed(false)
	now := lasts()
	for holder, left := range now {
		if _, before := was[holder]; !before && left > store.PinAsked {
			t.Errorf("killed before the record: %s is pinned for another %s", holder, left)
		}
	}
	if len(was) == 0 || len(now) != 2*len(was) {
		t.Errorf("pins %v, then %v", was, now)
	}
	killed(true)
	n.work(t, n.client, compile.SinkLimits{})
	kv, err := n.js.KeyValue(t.Context(), leases.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	for holder := range was { // a worker has had the lease of generation 1, and is gone
		lease := fmt.Appendf(nil, `{"v":1,"resource":%q,"last":"before/1","epoch":1,"ttlMs":1000}`, holder)
		if _, err := kv.Create(t.Context(), "lease.worker."+holder, lease); err != nil {
			t.Fatal(err)
		}
	}
	n.walked(t)
}

// TestI5_AnAggregateGoesBackNoFurtherThanItsItems: an order that came and went before the
// snapshot is counted nowhere, so its deletion may not be read again. Neither may the
// items: their snapshot is released.
func TestI5_AnAggregateGoesBackNoFurtherThanItsItems(t *testing.T) {
	t.Parallel()
	for _, consistency := range []string{"eventual", "transactional"} {
		t.Run(consistency, func(t *testing.T) {
			t.Parallel()
			n := newWalkingNode(t, 0, 0)
			// Nothing of what is there means anything to the aggregate, so no partition of its
			// target knows how far its items were read.
			for range 6 {
				for c := range 5 {
					n.put(t, "customer", fmt.Sprintf(`{"id":"note","customerId":"c%d","type":"note","fill":%q}`, c, strings.Repeat("x", 500)))
				}
			}
			n.put(t, "customer", order(1, 1))
			between := time.Now().Add(time.Millisecond)
			poll.Until(t, func() error {
				if !time.Now().After(between) {
					return fmt.Errorf("it is not %s yet", between)
				}
				return nil
			})
			key, err := feed.NewPartitionKey("c1")
			if err != nil {
				t.Fatal(err)
			}
			if err := n.container(t, "customer").Delete(t.Context(), key, "o1-1"); err != nil {
				t.Fatal(err)
			}
			n.apply(t, totals(t, countAndSum, consistency))
			n.work(t, n.client, compile.SinkLimits{})
			n.idle(t)
			n.walked(t)
			for i, to := range []string{between.UTC().Format(time.RFC3339Nano), "1h"} {
				place, err := registry.ParseRewindTo(to, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				rec, err := n.registry.Rewind(t.Context(), "default", "customer-totals", place, leases.DefaultBucket)
				if err != nil || len(rec.Walks) == 0 {
					t.Fatalf("%+v, %v", rec, err)
				}
				n.rewound(t, &rec)
				n.put(t, "customer", order(1, i))
				n.idle(t)
				if r, by := n.verify(t, verify.Config{}); by["customer-totals"].Drift != 0 {
					t.Errorf("rewound to %s:\n%s", to, text(r))
				}
			}
		})
	}
}

// newExpiringNode has a container whose items expire, and whose log was trimmed. It has no
// worker yet.
func newExpiringNode(t *testing.T) *node {
	t.Helper()
	n := nodeOf(t, storetest.StartWith(t, owner.Config{
		DataDir: t.TempDir(), DiskReserve: -1, Alone: true, TrimBytes: 1, CheckInterval: 20 * time.Millisecond, SyncInterval: 20 * time.Millisecond,
		Snapshots: owner.SnapshotConfig{LogBytes: 1, Rest: 20 * time.Millisecond, SharePercent: 100},
	}))
	n.apply(t, decode(t, `{apiVersion: millrace/v1, kind: Container, metadata: {name: customer},
  spec: {partitionKey: [/customerId], ttl: 1h, changeFeed: {retention: 0s}}}`))
	for i := range 10 {
		n.put(t, "customer", order(1, i))
	}
	log, err := feed.OpenLog(t.Context(), n.js, n.container(t, "customer").Partitions()[0], feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	poll.Until(t, func() error {
		shape, err := log.Shape(t.Context())
		if err == nil && shape.Begin() == 1 {
			err = errors.New("the log is whole")
		}
		return err
	})
	return n
}

// TestAProjectionBeginsAnewWithoutWhatHasExpired where its log was trimmed, and that is
// said: its rows of items that have expired are lost then.
func TestAProjectionBeginsAnewWithoutWhatHasExpired(t *testing.T) {
	t.Parallel()
	n := newExpiringNode(t)
	n.apply(t, rows(t, "{parquet: {path: "+t.TempDir()+"}}", doubleTotals), registry.ApplyOptions{DiscardExpired: true})
	to := registry.RewindTo{}
	if rec, err := n.registry.Rewind(t.Context(), "default", "order-rows", to, ""); err == nil || !strings.Contains(err.Error(), "--discard-expired") {
		t.Errorf("without a word: %+v, %v", rec, err)
	}
	to.DiscardExpired = true
	if rec, err := n.registry.Rewind(t.Context(), "default", "order-rows", to, ""); err != nil || rec.Generation != 2 || len(rec.Walks) == 0 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// warnings are the messages that a worker logs to be seen to.
type warnings struct {
	slog.Handler
	seen chan<- string
}

func (w warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		w.seen <- text
	}
	return nil
}

func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

// TestARestoredProjectionThatKeepsExpiredRowsIsSaidOnce, and status tells what it waits for:
// nobody but an operator can say that it may begin without them.
func TestARestoredProjectionThatKeepsExpiredRowsIsSaidOnce(t *testing.T) {
	t.Parallel()
	n := newExpiringNode(t)
	n.apply(t, rows(t, "{parquet: {path: "+t.TempDir()+"}}", doubleTotals), registry.ApplyOptions{DiscardExpired: true})
	edit := func(bucket, key string, change func(record map[string]any)) {
		t.Helper()
		kv, err := n.js.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		var record map[string]any
		if err := json.Unmarshal(entry.Value(), &record); err != nil {
			t.Fatal(err)
		}
		change(record)
		data, err := json.Marshal(record)
		if err == nil {
			_, err = kv.Update(t.Context(), key, data, entry.Revision())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// As a restore has them: the record is of the container that was copied.
	edit(store.CatalogBucket, "container.default.customer", func(r map[string]any) {
		r["origin"] = map[string]any{"id": "aaaaaaaa", "backup": "b"}
	})
	edit(registry.Bucket, "pipeline.default.order-rows", func(r map[string]any) { r["source"] = "aaaaaaaa" })
	seen := make(chan string, 1000)
	n.workWith(t, n.client, 10*time.Millisecond, pipelines.SupervisorConfig{
		Verify: verify.ContinuousConfig{Continuous: "off"}, Logger: slog.New(warnings{storetest.Quiet().Handler(), seen}),
	})
	if text := <-seen; !strings.Contains(text, "--discard-expired") {
		t.Error(text)
	}
	n.apply(t, totals(t, countAndSum, "eventual")) // which takes the reconciler many rounds
	poll.Until(t, func() error { return poll.Unless(n.record(t, "customer-totals").InForce, "it is not in force") })
	for len(seen) > 0 {
		if text := <-seen; strings.Contains(text, "--discard-expired") {
			t.Errorf("said again: %s", text)
		}
	}
	poll.Until(t, func() error {
		s, err := n.monitor.Read(t.Context())
		if err != nil {
			return err
		}
		for i := range s.Pipelines {
			if p := &s.Pipelines[i]; p.Name == "order-rows" && (p.State != status.Stuck || !strings.Contains(p.Reason, "millrace apply --discard-expired")) {
				return fmt.Errorf("%s is %s: %s", p.Name, p.State, p.Reason)
			}
		}
		return nil
	})
}
