package pipelines_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/engine"
)

// mart is a node whose engine a test can reach, to plant faults that nothing in
// the log explains.
type mart struct {
	*node
	dir string // of the Parquet files
}

const martContainers = `
apiVersion: millrace/v1
kind: Container
metadata: {name: sale}
spec: {partitionKey: [/customerId], partitions: 2}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: day}
spec: {partitionKey: [/day], partitions: 2}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: line}
spec: {partitionKey: [/orderId], partitions: 2}
`

const martPipelines = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: totals}
spec:
  source: {container: sale, where: type = "order"}
  aggregate:
    into: sale
    match: {customerId: customerId}
    where: type = "customer"
    set:
      orders: {count: true}
      spent: {sum: total}
      last: {max: at}
      recent: {latest: 2, by: at, fields: [id, total]}
    consistency: transactional
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: days}
spec:
  source: {container: sale, where: type = "order"}
  aggregate:
    into: day
    match: {day: day, id: day}
    create: true
    set: {orders: {count: true}, amount: {sum: total}, mean: {avg: total}, top: {max: total}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: lines}
spec:
  source: {container: sale, where: type = "order"}
  project:
    sink: {container: {}}
    onExpire: delete
    tables:
      line:
        each: lines
        key: [orderId, number]
        columns: {orderId: item.id, number: {expr: index, type: int64}, sku: sku, price: {expr: price, type: "decimal(12,2)"}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: files}
spec:
  source: {container: sale}
  project:
    sink: {parquet: {path: DIR, commitInterval: 100ms}}
    tables:
      customers:
        where: type = "customer"
        key: [id]
        columns: {id: id, name: name, orders: {expr: orders, type: int64}}
      orders:
        where: type = "order"
        key: [id]
        columns: {id: id, customerId: customerId, total: {expr: total, type: double}, extra: {expr: lines, type: json}}
`

func newMart(t testing.TB) *mart {
	t.Helper()
	return newMartVerified(t, verify.ContinuousConfig{Continuous: "off"})
}

// newMartVerified is a mart whose worker verifies as told.
func newMartVerified(t testing.TB, audit verify.ContinuousConfig) *mart {
	t.Helper()
	below := storetest.Start(t)
	m := &mart{node: nodeOf(t, below), dir: t.TempDir()}
	m.workWith(t, m.client, 10*time.Millisecond, pipelines.SupervisorConfig{Verify: audit})
	m.apply(t, decode(t, martContainers))
	m.apply(t, decode(t, strings.ReplaceAll(martPipelines, "DIR", m.dir)))
	return m
}

func martCustomer(c int) string {
	return fmt.Sprintf(`{"id":"c%d","customerId":"c%d","type":"customer","name":"Customer %d"}`, c, c, c)
}

func martOrder(c, o, total int) string {
	return fmt.Sprintf(`{"id":"o%d-%d","customerId":"c%d","type":"order","total":%d.5,"at":%d,"day":"d%d","lines":[{"sku":"s%d","price":%d},{"sku":"t","price":0.25}]}`,
		c, o, c, total, 1000*o+total, o%5, total, total)
}

// fill puts customers with orders each, and waits until all is done.
func (m *mart) fill(t testing.TB, customers, orders int) {
	t.Helper()
	var items []string
	for c := range customers {
		items = append(items, martCustomer(c))
		for o := range orders {
			items = append(items, martOrder(c, o, 10*o+c))
		}
	}
	m.put(t, "sale", items...)
	m.idle(t)
}

// TestVerifyEveryKind compares aggregates and projections at rest.
func TestVerifyEveryKind(t *testing.T) {
	t.Parallel()
	m := newMart(t)
	m.fill(t, 7, 6)
	for _, cfg := range []verify.Config{{}, {PageItems: 3, BytesMax: 600}, {BytesMax: 200}} {
		r, by := m.verify(t, cfg)
		if r.Verdict != verify.VerdictEqual {
			t.Fatalf("%+v:\n%s", cfg, text(r))
		}
		for name, want := range map[string][2]int64{"totals": {7, 7}, "days": {5, 5}, "lines": {84, 0}, "files": {49, 0}} {
			if p := by[name]; p.Copies != want[0] || p.Groups != want[1] {
				t.Errorf("%+v: %s has %d copies and %d groups, want %v", cfg, name, p.Copies, p.Groups, want)
			}
		}
	}
}

// plantGroup adds an item that does not exist to the accumulator of a group.
func (n *node) plantGroup(t testing.TB, pipeline, item string) {
	t.Helper()
	rec := n.record(t, pipeline)
	rule, err := accumulator.Compile(*rec.Rule)
	if err != nil {
		t.Fatal(err)
	}
	d := rule.NewDelta()
	target := n.container(t, rec.Spec.Aggregate.Into)
	key, err := n.container(t, rec.Spec.Source.Container).KeyOf([]byte(item))
	if err != nil {
		t.Fatal(err)
	}
	rule.Fold(d, key, "nobody", nil, []byte(item))
	groups := d.Groups()
	if len(groups) != 1 {
		t.Fatalf("%d groups", len(groups))
	}
	raw := groups[0].Values()[0]
	home, err := feed.NewPartitionKey(strings.Trim(string(raw), `"`))
	if err != nil {
		t.Fatal(err)
	}
	partition := target.PartitionFor(home)
	for {
		now, err := target.ReadGroups(t.Context(), partition, &store.ReadGroups{Pipeline: rec.ID, Generation: rec.Generation, Groups: []string{string(groups[0])}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = target.Fold(t.Context(), partition, &store.FoldMany{
			Producer: feed.Producer{Pipeline: rec.ID, Generation: rec.Generation, Source: "plant"}, Epoch: 1,
			Mend: true, Delta: d.Append(nil), Content: now.Digest,
		})
		if err == nil {
			return
		}
		if refusal := (*store.Error)(nil); !strings.Contains(err.Error(), "412") || refusal != nil {
			t.Fatal(err)
		}
	}
}

// plantItem changes an item in the engine, behind its log's back; "" removes it.
func (n *node) plantItem(t testing.TB, container, key, id, old, planted string) {
	t.Helper()
	c := n.container(t, container)
	k, err := feed.NewPartitionKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p, err := n.db.Partition(c.PartitionFor(k))
	if err != nil {
		t.Fatal(err)
	}
	snap := p.Snapshot()
	defer snap.Close()
	item, ok, err := snap.Get(k, id)
	if err != nil || !ok {
		t.Fatalf("item %s: %v, %v", id, ok, err)
	}
	b := p.NewBatch(&engine.Schema{})
	if planted == "" {
		err = b.Delete(&item)
	} else {
		body := strings.Replace(string(item.Body), old, planted, 1)
		if body == string(item.Body) {
			t.Fatalf("%s has no %s", body, old)
		}
		item.Body = []byte(body)
		err = b.PutBody(&item)
	}
	if err == nil {
		err = b.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// plantRows writes rows into the Parquet files, and removes others.
func (m *mart) plantRows(t testing.TB, b project.Batch) {
	t.Helper()
	rec := m.record(t, "files")
	sink, err := parquetsink.New(parquetsink.NewDir(m.dir), parquetsink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	types := func(names ...string) (all []project.Column) {
		for _, name := range names {
			name, kind, _ := strings.Cut(name, " ")
			var typ project.Type
			if kind != "" {
				if typ, err = project.ParseType(kind); err != nil {
					t.Fatal(err)
				}
			}
			all = append(all, project.Column{Name: name, Expr: name, Type: typ})
		}
		return all
	}
	p, err := project.Compile(project.Config{
		Pipeline: rec.ID, Generation: rec.Generation, Source: m.container(t, "sale"), Sink: sink,
		Tables: []project.Table{
			{Name: "customers", Key: []string{"id"}, Columns: types("id", "name", "orders int64")},
			{Name: "orders", Key: []string{"id"}, Columns: types("id", "customerId", "total double", "extra json")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w, at, err := sink.Open(t.Context(), p.Schema(), project.Term{Producer: feed.Producer{Pipeline: rec.ID, Generation: rec.Generation, Source: "plant"}, Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	b.After, b.UpTo = at, feed.Position{LSN: at.LSN + 1}
	if _, err := w.Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// lines returns the differences of a pipeline, as they are told, but for what others write faster
// than it can be judged.
func lines(p verify.PipelineReport) (all []string) {
	for i := range p.Differences {
		if d := &p.Differences[i]; !keptChanging(d) {
			all = append(all, d.String())
		}
	}
	slices.Sort(all)
	return all
}

// keepsChanging says whether a pipeline is behind only by what changes faster than it can be judged.
func keepsChanging(p *verify.PipelineReport) bool {
	return p.Verdict == verify.VerdictBehind && p.Reason == "" && !slices.ContainsFunc(p.Differences, func(d verify.Difference) bool {
		return d.Kind == verify.DifferenceBehind && !keptChanging(&d)
	})
}

func keptChanging(d *verify.Difference) bool { return strings.Contains(d.Reason, "keeps changing") }

// traffic writes to customers from a number on until the test or the returned
// function ends it.
func (m *mart) traffic(t testing.TB, from, customers int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	sale := m.container(t, "sale")
	done := make(chan error, 2)
	for w := range 2 {
		go func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			var err error
			for err == nil && ctx.Err() == nil {
				began := time.Now()
				c, o := from+rng.IntN(customers), rng.IntN(8)
				switch rng.IntN(6) {
				case 0:
					var key feed.PartitionKey
					if key, err = feed.NewPartitionKey(fmt.Sprint("c", c)); err == nil {
						if err = sale.Delete(ctx, key, fmt.Sprintf("o%d-%d", c, o)); err != nil && strings.Contains(err.Error(), "404") {
							err = nil
						}
					}
				case 1:
					_, err = sale.Upsert(ctx, []byte(martCustomer(c)))
				default:
					_, err = sale.Upsert(ctx, []byte(martOrder(c, o, rng.IntN(100))))
				}
				if errors.Is(err, store.ErrUnknown) || errors.Is(err, store.ErrUnavailable) {
					err = nil // a lease that is late on a busy machine; the copies are equal all the same
				}
				poll.Rest(ctx, began)
			}
			if ctx.Err() != nil {
				err = nil
			}
			done <- err
		}()
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

// TestVerifyEveryKindWhileWriting verifies again and again while all changes: what
// is in flight is neither drift nor behind.
func TestVerifyEveryKindWhileWriting(t *testing.T) {
	m := newMart(t)
	m.fill(t, 6, 4)
	stop := m.traffic(t, 0, 6)
	for i := range 4 {
		r, _ := m.verify(t, verify.Config{PageItems: 5 + i, PollInterval: 10 * time.Millisecond})
		for _, p := range r.Pipelines {
			if p.Verdict != verify.VerdictEqual && !keepsChanging(&p) {
				t.Errorf("in flight:\n%s", text(r))
			}
		}
	}
	stop()
	m.idle(t)
	if r, _ := m.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("at rest:\n%s", text(r))
	}
}

const fadingPipelines = `
apiVersion: millrace/v1
kind: Container
metadata: {name: event}
spec: {partitionKey: [/k], partitions: 2, ttl: on}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: tally}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: live}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: tallies}
spec:
  source: {container: event}
  aggregate: {into: tally, match: {id: group}, create: true, set: {events: {count: true}, highest: {max: n}}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: live-events}
spec:
  source: {container: event}
  project:
    sink: {container: {}}
    onExpire: delete
    tables: {live: {key: [id], columns: {id: id, n: {expr: n, type: int64}}}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: all-events}
spec:
  source: {container: event}
  project:
    sink: {parquet: {path: DIR, commitInterval: 100ms}}
    tables: {events: {key: [id], columns: {id: id, n: {expr: n, type: int64}}}}
`

// TestVerifyWhileItemsExpire verifies while items expire, of which reads show
// nothing from that moment on, and the feed a while later.
func TestVerifyWhileItemsExpire(t *testing.T) {
	m := newMart(t)
	dir := t.TempDir()
	m.apply(t, decode(t, strings.ReplaceAll(fadingPipelines, "DIR", dir)))
	var items []string
	for i := range 60 {
		items = append(items, fmt.Sprintf(`{"id":"e%d","k":"k%d","group":"g%d","n":%d,"ttl":%d}`, i, i%7, i%3, i, 1+i%6))
	}
	m.put(t, "event", items...)
	m.idle(t)
	for begun := time.Now(); time.Since(begun) < 4*time.Second; {
		r, _ := m.verify(t, verify.Config{PageItems: 9, PollInterval: 10 * time.Millisecond})
		if r.Verdict != verify.VerdictEqual {
			t.Fatalf("while items expire:\n%s", text(r))
		}
	}
	poll.Until(t, func() error {
		n := 0
		for _, p := range m.container(t, "event").Partitions() {
			count, err := m.container(t, "event").Count(t.Context(), p, store.Scope{})
			if err != nil {
				return err
			}
			n += count
		}
		if n > 0 {
			return fmt.Errorf("%d items are left", n)
		}
		return nil
	})
	m.idle(t)
	r, by := m.verify(t, verify.Config{})
	if r.Verdict != verify.VerdictEqual || by["live-events"].Copies != 0 || by["all-events"].Copies != 60 || by["tallies"].Copies != 3 {
		t.Errorf("when all have expired:\n%s", text(r))
	}
}

// TestVerifySaysWhatIsBehind verifies while pipelines are paused, and while a change
// of one was given up.
func TestVerifySaysWhatIsBehind(t *testing.T) {
	t.Parallel()
	m := newMart(t)
	m.fill(t, 3, 4)
	for _, name := range []string{"days", "files"} {
		rec, err := m.registry.Pause(t.Context(), "default", name)
		if err != nil {
			t.Fatal(err)
		}
		m.released(t, rec.ID)
	}
	m.put(t, "sale", martOrder(1, 7, 3))
	r, by := m.verify(t, verify.Config{})
	for name, want := range map[string]verify.Verdict{
		"totals": verify.VerdictEqual, "days": verify.VerdictBehind, "lines": verify.VerdictEqual, "files": verify.VerdictBehind,
	} {
		if p := by[name]; p.Verdict != want || (want == verify.VerdictBehind) != strings.Contains(p.Reason, "paused") {
			t.Errorf("%s:\n%s", name, text(r))
		}
	}

	rec := m.record(t, "days")
	m.plantGroup(t, "days", strings.Replace(martOrder(90, 1, 0), `"d1"`, `"d9"`, 1))
	m.set(t, processors.Resource{
		Pipeline: rec.ID, Generation: rec.Generation, Role: processors.RoleSource, Partition: m.container(t, "sale").Partitions()[0],
	}, func(cp *processors.Checkpoint) {
		cp.Parked = []processors.Job{{Source: `["c9"]/o9`, Position: feed.Position{LSN: 1}, LastError: "it is too large", Parked: true}}
	})
	if _, err := m.registry.Resume(t.Context(), "default", "days"); err != nil {
		t.Fatal(err)
	}
	if _, by = m.verify(t, verify.Config{}); by["days"].Behind != 1 ||
		!strings.Contains(by["days"].Differences[0].String(), `a change of ["c9"]/o9 was given up: it is too large`) {
		t.Errorf("given up: %+v", by["days"])
	}
	// The change is kept nowhere, and not in the log: a repair lets it go, and then the group
	// is made right by what is there.
	if _, by = m.repair(t, verify.Config{}); by["days"].Behind != 0 || by["days"].Repaired != 1 {
		t.Errorf("given up, and repaired: %+v", by["days"])
	}
}

// TestVerifyAsksForNoRowsOfBefore verifies a projection that began with what changed
// from then on.
func TestVerifyAsksForNoRowsOfBefore(t *testing.T) {
	t.Parallel()
	m := newMart(t)
	m.fill(t, 4, 3)
	late := strings.NewReplacer("name: files", "name: late", "DIR", t.TempDir()).Replace(martPipelines[strings.LastIndex(martPipelines, "---"):])
	m.apply(t, decode(t, late), registry.ApplyOptions{FromNow: true})
	m.idle(t)
	check := func(when string, copies, drift int64) {
		t.Helper()
		r, by := m.verify(t, verify.Config{})
		if p := by["late"]; p.Copies != copies || p.Drift != drift {
			t.Errorf("%s:\n%s", when, text(r))
		}
	}
	check("at first", 0, 0)
	m.put(t, "sale", martOrder(1, 1, 77), martOrder(1, 8, 5)) // and with them the customer's count
	m.idle(t)
	check("changed", 3, 0)
	// Whatever the rows of before are, they are not asked for; a backfill of all items makes them.
	m.plantItem(t, "sale", "c2", "o2-1", `"total":12.5`, `"total":13.5`)
	check("planted before it began", 3, 0)
	if _, err := m.registry.Backfill(t.Context(), "default", "late", registry.BackfillScope{}, leases.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	m.idle(t)
	check("backfilled", 17, 0)
	m.plantItem(t, "sale", "c2", "o2-1", `"total":13.5`, `"total":14.5`)
	check("planted since", 17, 1)
	m.plantItem(t, "sale", "c1", "o1-8", `"total":5.5`, `"total":6.5`)
	check("planted", 17, 2)
}

// TestVerifyKnowsTheWrongSink verifies, and repairs, where the files of a projection
// are not: nothing is written there.
func TestVerifyKnowsTheWrongSink(t *testing.T) {
	t.Parallel()
	m := newMart(t)
	m.fill(t, 3, 2)
	here := m.dir + ".moved"
	if err := os.Rename(m.dir, here); err != nil {
		t.Fatal(err)
	}
	_, by := m.repair(t, verify.Config{})
	if p := by["files"]; p.Verdict != verify.VerdictBehind || !strings.Contains(p.Reason, "not where the workers write to") || p.Repaired != 0 {
		t.Errorf("elsewhere: %+v", p)
	}
	if err := os.RemoveAll(m.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(here, m.dir); err != nil {
		t.Fatal(err)
	}
	if _, by = m.verify(t, verify.Config{}); by["files"].Verdict != verify.VerdictEqual {
		t.Errorf("back again: %+v", by["files"])
	}
}
