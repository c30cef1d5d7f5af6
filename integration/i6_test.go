package integration_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/steps"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// The feed shows a rename before its owner has applied it. A check that reads
// the source then waits, and does not take the old name for the present one.
func TestI6_TheFeedAheadOfItsOwner(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.category(meta, "1", "Old")
	checks := w.start([]cascade.Config{categoryNames(meta, product)}, processors.RoleTarget)
	w.Quiet(checks)

	var answered atomic.Bool
	asked := make(chan struct{})
	var once sync.Once
	checks.Tap.OnRequest(func(r *store.Request) {
		if r.Sources != nil {
			once.Do(func() { close(asked) })
		}
	})
	checks.Tap.OnResponse(func(r *store.Request, _ *store.Response) {
		if r.Sources != nil {
			answered.Store(true)
		}
	})
	metaPartition, productPartition := partitionOf(t, meta, "category"), partitionOf(t, product, "1")
	renamed, inserted := w.End(metaPartition), w.End(productPartition)
	w.Gate.Shut()
	rename := w.meanwhile(func() error { return put(t.Context(), meta, metaItem{"1", "category", "New"}) })
	w.grown(metaPartition, renamed)
	insert := w.meanwhile(func() error {
		return put(t.Context(), product, productItem{ID: "P", CategoryID: "1", CategoryName: "Old"})
	})
	w.grown(productPartition, inserted)
	<-asked
	if answered.Load() {
		t.Error("a settled read was answered before the owner knew what the feed shows")
	}
	w.Gate.Open()
	rename()
	insert()
	w.Quiet(checks)
	if got := w.product(product, "1", "P").CategoryName; got != "New" {
		t.Errorf("the copy is %q, want New", got)
	}
}

// A page is asked for while the append of an insert is in flight. It finds the
// item, without help from a check.
func TestI6_APageDuringAnInsert(t *testing.T) {
	t.Parallel()
	for kind, id := range map[string]string{"category": "1", "tag": "T"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newCascadeWorld(t)
			meta, product := w.webstore()
			w.put(meta, metaItem{id, kind, "Old"})
			fanOuts := w.start([]cascade.Config{categoryNames(meta, product), tagNames(meta, product)}, processors.RoleSource)
			w.Quiet(fanOuts)

			metaPartition, productPartition := partitionOf(t, meta, kind), partitionOf(t, product, "1")
			renamed, inserted := w.End(metaPartition), w.End(productPartition)
			asked := make(chan struct{})
			var once sync.Once
			fanOuts.Tap.OnRequest(func(r *store.Request) {
				if r.PatchMany != nil && r.Partition == productPartition {
					once.Do(func() { close(asked) })
				}
			})
			item := productItem{ID: "P", CategoryID: "1", CategoryName: "Old", Tags: []tagItem{{"T", "Old"}}}
			w.Gate.Shut()
			insert := w.meanwhile(func() error { return put(t.Context(), product, item) })
			w.grown(productPartition, inserted)
			rename := w.meanwhile(func() error { return put(t.Context(), meta, metaItem{id, kind, "New"}) })
			w.grown(metaPartition, renamed)
			<-asked
			w.Gate.Open()
			insert()
			rename()
			w.Quiet(fanOuts)
			if kind == "category" {
				item.CategoryName = "New"
			} else {
				item.Tags[0].Name = "New"
			}
			if got := w.product(product, "1", "P"); !equalProducts(got, item) {
				t.Errorf("the copies are %+v, want %+v", got, item)
			}
		})
	}
}

// A check has read the old name; its repair arrives after the fan-out of the new
// one. Where the fan-out changed the item, the repair is refused and the item
// read again. Where it found the item right, the repair makes it wrong and is
// itself checked.
func TestI6_ARepairThatComesLate(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]string{"the fan-out changed the item": "", "the fan-out left the item alone": "New"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCascadeWorld(t)
			meta, product := w.webstore()
			w.category(meta, "1", "Old")
			cfg := categoryNames(meta, product)
			fanOuts := w.start([]cascade.Config{cfg}, processors.RoleSource)
			checks := w.start([]cascade.Config{cfg}, processors.RoleTarget)
			w.Quiet(fanOuts, checks)
			there, let := checks.Tap.Hold(func(r *store.Request) bool { return r.Repair != nil })
			w.put(product, productItem{ID: "P", CategoryID: "1", CategoryName: written})
			<-there // with the old name
			w.category(meta, "1", "New")
			w.Quiet(fanOuts)
			if got := w.product(product, "1", "P").CategoryName; got != "New" {
				t.Fatalf("after the fan-out the copy is %q, want New", got)
			}
			var statuses []store.Status
			checks.Tap.OnResponse(func(r *store.Request, resp *store.Response) {
				if r.Repair != nil && resp.Repair != nil {
					statuses = append(statuses, resp.Repair.Statuses...)
				}
			})
			let()
			w.Quiet(fanOuts, checks)
			if got := w.product(product, "1", "P").CategoryName; got != "New" {
				t.Errorf("the copy went back to %q", got)
			}
			want := []store.Status{store.StatusPreconditionFailed}
			if written == "New" {
				want = []store.Status{store.StatusOK, store.StatusOK}
			}
			if !slices.Equal(statuses, want) {
				t.Errorf("repairs were answered %v, want %v", statuses, want)
			}
		})
	}
}

// A tag is deleted; while its fan-out runs it is made again under the same id.
func TestI6_ADeleteAndARecreationDuringItsFanOut(t *testing.T) {
	t.Parallel()
	selects := map[string]func(*store.Request) bool{
		"before the source is read": func(r *store.Request) bool { return r.Sources != nil },
		"before the first page":     func(r *store.Request) bool { return r.PatchMany != nil && !r.PatchMany.Plant },
	}
	for name, selected := range selects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCascadeWorld(t)
			meta, product := w.webstore()
			w.tag(meta, "T", "First")
			for i := range 10 {
				w.put(product, productItem{ID: fmt.Sprint(i), CategoryID: fmt.Sprint(i), Tags: []tagItem{{"T", "First"}, {"U", "other"}}})
			}
			cfg := tagNames(meta, product)
			fanOuts := w.start([]cascade.Config{cfg}, processors.RoleSource)
			checks := w.start([]cascade.Config{cfg}, processors.RoleTarget)
			w.Quiet(fanOuts, checks)
			there, let := fanOuts.Tap.Hold(selected)
			if err := meta.Delete(t.Context(), keyOf(t, "tag"), "T"); err != nil {
				t.Fatal(err)
			}
			<-there
			w.tag(meta, "T", "Second")
			w.put(product, productItem{ID: "late", CategoryID: "3", Tags: []tagItem{{ID: "T"}}})
			let()
			w.Quiet(fanOuts, checks)
			if got := w.product(product, "3", "late").Tags; len(got) != 1 || got[0].Name != "Second" {
				t.Errorf("an item written for the second tag has %+v", got)
			}
			for i := range 10 {
				tags := w.product(product, fmt.Sprint(i), fmt.Sprint(i)).Tags
				if !slices.Contains(tags, tagItem{"U", "other"}) {
					t.Errorf("item %d lost another tag: %+v", i, tags)
				}
				kept := slices.ContainsFunc(tags, func(x tagItem) bool { return x.ID == "T" })
				if slices.Contains(tags, tagItem{"T", "First"}) || name == "before the source is read" && !kept {
					t.Errorf("item %d has %+v", i, tags)
				}
			}
		})
	}
}

// A source is renamed again half-way through its fan-out: the scan goes on where
// it is with the newer name, and comes round to the items behind.
func TestI6_ANewerRenameHalfWay(t *testing.T) {
	t.Parallel()
	const items, pageItems = 60, 10
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.category(meta, "1", "A")
	for i := range items {
		w.put(product, productItem{ID: fmt.Sprintf("%03d", i), CategoryID: "1", CategoryName: "A"})
	}
	cfg := categoryNames(meta, product)
	cfg.FanOutPageItems = pageItems
	k := w.start([]cascade.Config{cfg}, processors.RoleSource)
	w.Quiet(k)

	var mu sync.Mutex
	var old, first []byte // cursors: the last under the old name, the first under the new
	pages := 0
	there, let := k.Tap.Hold(func(r *store.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		pages++
		return pages >= 3 // and those beside it: several are under way at a time
	})
	k.Tap.OnResponse(func(r *store.Request, resp *store.Response) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.PatchMany == nil:
		case string(r.PatchMany.Copy.Set[0].Value) == `"B"`:
			if bytes.Compare(resp.PatchMany.Cursor, old) > 0 {
				old = resp.PatchMany.Cursor
			}
		case first == nil:
			first = resp.PatchMany.Cursor
		}
	})
	w.category(meta, "1", "B")
	<-there
	metaPartition := partitionOf(t, meta, "category")
	w.category(meta, "1", "C")
	poll.Until(t, func() error {
		for _, a := range k.Host.Activities() {
			if a.Partition == metaPartition && a.Checkpoint.Position.LSN >= w.End(metaPartition) {
				return nil
			}
		}
		return errors.New("the second rename is not read while the first is carried out")
	})
	let()
	w.Quiet(k)
	for i := range items {
		if got := w.product(product, "1", fmt.Sprintf("%03d", i)).CategoryName; got != "C" {
			t.Fatalf("item %d has %q, want C", i, got)
		}
	}
	if bytes.Compare(first, old) <= 0 {
		t.Errorf("the newer name began again at the start: its first page ended at %q, the older's last at %q", first, old)
	}
}

// A worker is paused with a page under way; its lease passes on and another
// worker brings a newer name. When it wakes up, its write is refused and counted,
// and no copy goes back.
func TestI6_TwoWorkersAndOneWakesUpLate(t *testing.T) {
	t.Parallel()
	for name, role := range map[string]processors.Role{"a fan-out": processors.RoleSource, "a repair": processors.RoleTarget} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCascadeWorld(t)
			meta, product := w.webstore()
			w.category(meta, "1", "A")
			w.put(product, productItem{ID: "P", CategoryID: "1", CategoryName: "A"})
			cfg := categoryNames(meta, product)
			cfg.Pipeline = "paused-" + string(role)
			counted := fencedWrites(t, cfg.Pipeline)
			paused := w.start([]cascade.Config{cfg}, role)
			w.Quiet(paused)
			there, let := paused.Tap.Hold(func(r *store.Request) bool { return r.PatchMany != nil || r.Repair != nil })
			if role == processors.RoleSource {
				w.category(meta, "1", "B")
			} else {
				w.put(product, productItem{ID: "P", CategoryID: "1", CategoryName: "wrong"})
			}
			<-there
			successor := w.start([]cascade.Config{cfg}) // of all roles
			w.category(meta, "1", "C")
			w.Quiet(successor)
			let()
			poll.Until(t, func() error {
				return poll.Unless(len(paused.Failures()) > 0, "the paused worker's write was not refused")
			})
			for _, err := range paused.Failures() {
				if behind, ok := errors.AsType[*leases.EpochBehindError](err); !errors.Is(err, processors.ErrFenced) || !ok || behind.Seen != 2 {
					t.Errorf("the paused worker ended with %v", err)
				}
			}
			w.Quiet(successor)
			if got := w.product(product, "1", "P").CategoryName; got != "C" {
				t.Errorf("the copy is %q, want C", got)
			}
			if n := fencedWrites(t, cfg.Pipeline) - counted; n != 1 {
				t.Errorf("%d refused writes were counted, want 1", n)
			}
		})
	}
}

// TestMain sets the provider of metrics before any test does: the instruments of
// a process take the first one that is set, whatever the order of the tests. It
// gives all processes and commands one user; tests of credentials take it away.
func TestMain(m *testing.M) {
	steps.Main()
	if server := os.Getenv(witnessEnv); server != "" {
		os.Exit(witnessMain(server))
	}
	if server := os.Getenv(wholeEnv); server != "" {
		os.Exit(wholeMain(server))
	}
	metrics()
	for name, value := range natsUser {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// metrics reads the instruments of this process.
var metrics = sync.OnceValue(func() *metric.ManualReader {
	reader := metric.NewManualReader()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	return reader
})

// fencedWrites reads a counter.
func fencedWrites(t *testing.T, pipeline string) (n int64) {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := metrics().Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "millrace.processor.fenced_writes" {
				for _, p := range sum.DataPoints {
					if v, _ := p.Attributes.Value("pipeline"); v.AsString() == pipeline {
						n += p.Value
					}
				}
			}
		}
	}
	return n
}

// A worker dies in the middle of a fan-out and of a delete's; another goes on
// from the checkpoint. No item is changed twice.
func TestI6_ACrashDuringAFanOut(t *testing.T) {
	t.Parallel()
	const items = 100
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.tag(meta, "T", "A")
	for i := range items {
		w.put(product, productItem{ID: fmt.Sprint(i), CategoryID: fmt.Sprint(i % 9), Tags: []tagItem{{"T", "A"}}})
	}
	cfg := tagNames(meta, product)
	cfg.FanOutPageItems = 5
	first := w.start([]cascade.Config{cfg}, processors.RoleSource)
	w.Quiet(first)
	steps := []func(){
		func() { w.tag(meta, "T", "B") },
		func() {
			if err := meta.Delete(t.Context(), keyOf(t, "tag"), "T"); err != nil {
				t.Fatal(err)
			}
		},
	}
	for i, step := range steps {
		before := w.ends(product)
		var pages atomic.Int64
		half := make(chan struct{})
		first.Tap.OnResponse(func(r *store.Request, _ *store.Response) {
			if r.PatchMany != nil && pages.Add(1) == 8 {
				close(half)
			}
		})
		step()
		<-half
		first.Crash()
		first = w.start([]cascade.Config{cfg}, processors.RoleSource)
		w.Quiet(first)
		if n := w.changesOf(product, before); n != items {
			t.Errorf("step %d made %d changes in %d items", i, n, items)
		}
		for i := range items {
			tags := w.product(product, fmt.Sprint(i%9), fmt.Sprint(i)).Tags
			if want := []tagItem{{"T", "B"}}; len(steps) > 1 && len(tags) > 0 && !slices.Equal(tags, want) {
				t.Fatalf("item %d has %+v", i, tags)
			}
		}
	}
	for i := range items {
		if tags := w.product(product, fmt.Sprint(i%9), fmt.Sprint(i)).Tags; len(tags) != 0 {
			t.Fatalf("item %d still has %+v", i, tags)
		}
	}
}

// Doing everything again changes nothing: a generation that begins anew finds
// its copies right.
func TestI7_DoneAgainChangesNothing(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	for i := range 5 {
		w.category(meta, fmt.Sprint(i), fmt.Sprintf("Category %d", i))
		w.tag(meta, fmt.Sprint(i), fmt.Sprintf("Tag %d", i))
	}
	for i := range 50 {
		w.put(product, productItem{ID: fmt.Sprint(i), CategoryID: fmt.Sprint(i % 5), Tags: []tagItem{{ID: fmt.Sprint(i % 5)}, {ID: fmt.Sprint((i + 1) % 5)}}})
	}
	configs := []cascade.Config{categoryNames(meta, product), tagNames(meta, product)}
	k := w.start(configs)
	w.Quiet(k)
	if got := w.product(product, "3", "8"); got.CategoryName != "Category 3" || got.Tags[1].Name != "Tag 4" {
		t.Errorf("copies that the writer left out are not filled: %+v", got)
	}
	k.Stop()
	before := w.ends(product)
	for i := range configs {
		configs[i].Generation++
	}
	k = w.start(configs)
	w.Quiet(k)
	if n := w.changesOf(product, before); n != 0 {
		t.Errorf("%d changes where none were due", n)
	}
}

// A change of a field that is not copied starts nothing.
func TestI7_OnlyACopiedFieldStartsAFanOut(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.category(meta, "1", "A")
	k := w.start([]cascade.Config{categoryNames(meta, product)})
	w.Quiet(k)
	var pages atomic.Int64
	k.Tap.OnRequest(func(r *store.Request) {
		if r.PatchMany != nil {
			pages.Add(1)
		}
	})
	w.put(meta, map[string]any{"id": "1", "type": "category", "name": "A", "colour": "red"})
	w.put(meta, map[string]any{"id": "2", "type": "other", "name": "A"})
	w.Quiet(k)
	if n := pages.Load(); n != 0 {
		t.Errorf("%d pages were asked for", n)
	}
}
