package integration_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// Two sources are deleted, and the fan-out of the first is overtaken by that of
// the second: neither is taken for an older version of the other, and the copies
// of both go.
func TestI6_TwoSourcesDeletedAtOnce(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.tag(meta, "1", "A")
	w.tag(meta, "2", "B")
	for i := range 6 {
		w.put(product, productItem{ID: "P", CategoryID: fmt.Sprint(i), Tags: []tagItem{{"1", "A"}, {"2", "B"}, {"3", "C"}}})
	}
	worker := w.start([]cascade.Config{tagNames(meta, product)})
	w.Quiet(worker)
	var mu sync.Mutex
	var first feed.Position
	there, let := worker.Tap.Hold(func(r *store.Request) bool {
		if r.PatchMany == nil || !r.PatchMany.Plant {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if first.IsZero() {
			first = r.PatchMany.Position
		}
		return r.PatchMany.Position == first
	})
	remaining := func() string {
		tags := map[string]bool{}
		for i := range 6 {
			for _, tag := range w.product(product, fmt.Sprint(i), "P").Tags {
				tags[tag.ID] = true
			}
		}
		return fmt.Sprint(tags["1"], tags["2"], tags["3"])
	}
	for _, id := range []string{"1", "2"} {
		if err := meta.Delete(t.Context(), keyOf(t, "tag"), id); err != nil {
			t.Fatal(err)
		}
		if id == "1" {
			<-there
		}
	}
	poll.Until(t, func() error {
		got := remaining()
		return poll.Unless(got == "true false true", "of the tags 1, 2 and 3 there are: "+got)
	})
	let()
	w.Quiet(worker)
	if got := remaining(); got != "false false true" {
		t.Errorf("of the tags 1, 2 and 3 there are: %s", got)
	}
}

// deletions are the three cascades of a category's name, each into its own container.
func (w *cascadeWorld) deletions(meta *store.Container) (configs []cascade.Config) {
	w.t.Helper()
	for _, action := range []cascade.OnSourceDelete{cascade.Keep, cascade.Clear, cascade.Delete} {
		target := w.container("product-"+string(action), store.ContainerSpec{PartitionKey: []string{"/categoryId"}, Partitions: 2})
		cfg := categoryNames(meta, target)
		cfg.Pipeline, cfg.OnSourceDelete = "names-"+string(action), action
		configs = append(configs, cfg)
	}
	return configs
}

func (w *cascadeWorld) removeCategory(meta *store.Container, id string) {
	w.t.Helper()
	if err := meta.Delete(w.t.Context(), keyOf(w.t, "category"), id); err != nil {
		w.t.Fatal(err)
	}
}

// names are the copies of an item in the containers of deletions; - where it is gone.
func (w *cascadeWorld) names(configs []cascade.Config, category, id string) string {
	w.t.Helper()
	var all []string
	for i := range configs {
		item := w.read(configs[i].Target, id, category)
		switch name, ok := item["categoryName"].(string); {
		case item == nil:
			all = append(all, "-")
		case !ok:
			all = append(all, "none")
		default:
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}

// later waits until the clock of commits is behind what it was: what is written then was
// written later.
func later(t testing.TB) {
	t.Helper()
	began := time.Now().UnixMilli()
	poll.Until(t, func() error { return poll.Unless(time.Now().UnixMilli() > began, "time stands still") })
}

// A source is deleted, its fan-outs are over, and a client writes an old copy back. The
// tombstone decides: keep gives the last value, clear clears, delete leaves what was
// written later. What names a source that never was stays as it is, and a source made
// again wins over its tombstone.
func TestI6_AnOldCopyWrittenBackAfterTheDelete(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta := w.container("productMeta", store.ContainerSpec{PartitionKey: []string{"/type"}, Partitions: 2})
	configs := w.deletions(meta)
	k := w.start(configs)
	putAll := func(item productItem) {
		for i := range configs {
			w.put(configs[i].Target, item)
		}
	}
	check := func(when, id, category, want string) {
		t.Helper()
		if got := w.names(configs, category, id); got != want {
			t.Errorf("%s: keep, clear and delete have %s, want %s", when, got, want)
		}
	}
	w.category(meta, "1", "Old")
	putAll(productItem{ID: "P", CategoryID: "1"})
	w.Quiet(k)
	w.category(meta, "1", "Last")
	w.Quiet(k)
	check("renamed", "P", "1", "Last Last Last")
	w.removeCategory(meta, "1")
	w.Quiet(k)
	check("deleted", "P", "1", "Last none -")

	later(t)
	putAll(productItem{ID: "P", CategoryID: "1", CategoryName: "Old"})
	putAll(productItem{ID: "Q", CategoryID: "2", CategoryName: "Never"})
	w.Quiet(k)
	check("written back", "P", "1", "Last none Old")
	check("of what never was", "Q", "2", "Never Never Never")

	w.category(meta, "1", "Again")
	w.Quiet(k)
	check("made again", "P", "1", "Again Again Again")
	w.removeCategory(meta, "1")
	w.Quiet(k)
	check("deleted again", "P", "1", "Again none -")
}

// An element of a tag that was deleted goes, however late a client writes it back.
func TestI6_AnOldElementWrittenBackAfterTheDelete(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	k := w.start([]cascade.Config{tagNames(meta, product)})
	w.tag(meta, "T", "First")
	w.Quiet(k)
	if err := meta.Delete(t.Context(), keyOf(t, "tag"), "T"); err != nil {
		t.Fatal(err)
	}
	w.Quiet(k)
	w.put(product, productItem{ID: "P", CategoryID: "1", Tags: []tagItem{{"T", "First"}, {"U", "other"}, {"T", "mine"}}})
	w.Quiet(k)
	if got := w.product(product, "1", "P").Tags; len(got) != 1 || got[0] != (tagItem{"U", "other"}) {
		t.Errorf("the item has %+v", got)
	}
}

// A delete's fan-out is held before its pages, and meanwhile a client patches an item in
// a field that no cascade looks at: that puts the item out of the pages' reach, and its
// check clears it. With delete it was written later, and is left.
func TestI6_AnUnrelatedPatchDuringADelete(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta := w.container("productMeta", store.ContainerSpec{PartitionKey: []string{"/type"}})
	configs := w.deletions(meta)[1:]
	w.category(meta, "1", "A")
	for i := range configs {
		w.put(configs[i].Target, productItem{ID: "P", CategoryID: "1", CategoryName: "A"})
		w.put(configs[i].Target, productItem{ID: "Q", CategoryID: "1", CategoryName: "A"})
	}
	k := w.start(configs)
	w.Quiet(k)
	var planted sync.WaitGroup
	planted.Add(len(configs))
	goOn := make(chan struct{})
	k.Tap.OnRequest(func(r *store.Request) {
		if r.PatchMany != nil && !r.PatchMany.Plant && r.PatchMany.Copy.Action != store.CopySet {
			planted.Done()
			<-goOn
		}
	})
	w.removeCategory(meta, "1")
	planted.Wait()
	later(t)
	for i := range configs {
		_, err := configs[i].Target.Patch(t.Context(), keyOf(t, "1"), "P", []document.Op{{Kind: "set", Path: "/note", Value: []byte(`1`)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	k.Tap.OnRequest(func(*store.Request) {})
	close(goOn)
	w.Quiet(k)
	for id, want := range map[string]string{"P": "none A", "Q": "none -"} {
		if got := w.names(configs, "1", id); got != want {
			t.Errorf("%s: clear and delete have %s, want %s", id, got, want)
		}
	}
}

// A check has read the tombstone, and its repair is held while the source is made again.
// The fan-out of the new source finds the item right and leaves it alone; the repair
// clears it, is a change, and is checked.
func TestI6_ASourceMadeAgainWinsOverALateClear(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]string{"the fan-out changed the item": "Old", "the fan-out left the item alone": "Again"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCascadeWorld(t)
			meta, product := w.webstore()
			cfg := categoryNames(meta, product)
			cfg.OnSourceDelete = cascade.Clear
			w.category(meta, "1", "Old")
			fanOuts := w.start([]cascade.Config{cfg}, processors.RoleSource)
			checks := w.start([]cascade.Config{cfg}, processors.RoleTarget)
			w.Quiet(fanOuts, checks)
			w.removeCategory(meta, "1")
			w.Quiet(fanOuts, checks)
			there, let := checks.Tap.Hold(func(r *store.Request) bool { return r.Repair != nil })
			w.put(product, productItem{ID: "P", CategoryID: "1", CategoryName: written})
			<-there
			w.category(meta, "1", "Again")
			w.Quiet(fanOuts)
			let()
			w.Quiet(fanOuts, checks)
			if got := w.product(product, "1", "P").CategoryName; got != "Again" {
				t.Errorf("the copy is %q, want Again", got)
			}
		})
	}
}

// A worker dies while the fan-out of a rename is open, and the source is deleted before
// another goes on. What keep keeps is the last value, not what the first worker had done.
func TestI6_KeepIsTheLastValueWhateverRaced(t *testing.T) {
	t.Parallel()
	const items = 60
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.category(meta, "1", "A")
	for i := range items {
		w.put(product, productItem{ID: fmt.Sprint(i), CategoryID: "1", CategoryName: "A"})
	}
	cfg := categoryNames(meta, product)
	cfg.FanOutPageItems = 5
	first := w.start([]cascade.Config{cfg}, processors.RoleSource)
	w.Quiet(first)
	there, _ := first.Tap.Hold(func(r *store.Request) bool { return r.PatchMany != nil })
	w.category(meta, "1", "Last")
	<-there
	poll.Until(t, func() error { // the checkpoint holds the fan-out
		for _, a := range first.Host.Activities() {
			if a.Checkpoint.Open() > 0 {
				return nil
			}
		}
		return errors.New("no checkpoint holds the fan-out")
	})
	w.removeCategory(meta, "1")
	first.Crash()
	second := w.start([]cascade.Config{cfg}, processors.RoleSource)
	w.Quiet(second)
	for i := range items {
		if got := w.product(product, "1", fmt.Sprint(i)).CategoryName; got != "Last" {
			t.Fatalf("item %d has %q, want Last", i, got)
		}
	}
}

// A source whose time has passed and that has not expired in the log yet is kept with
// its values; nobody asks again when it does.
func TestI6_KeepOfASourceThatExpires(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta := w.container("session", store.ContainerSpec{PartitionKey: []string{"/type"}, TTL: -1})
	product := w.container("product", store.ContainerSpec{PartitionKey: []string{"/categoryId"}})
	k := w.start([]cascade.Config{categoryNames(meta, product)})
	w.put(meta, object{"id": "1", "type": "category", "name": "Last", "ttl": 1})
	w.Quiet(k)
	poll.Until(t, func() error {
		return poll.Unless(w.read(meta, "1", "category") == nil, "the source does not expire")
	})
	w.put(product, productItem{ID: "P", CategoryID: "1", CategoryName: "Old"})
	w.Quiet(k)
	if got := w.product(product, "1", "P").CategoryName; got != "Last" {
		t.Errorf("the copy is %q, want Last", got)
	}
}

// Sources come, are renamed and go while clients write, with cascades at work and
// without. A pipeline that comes afterwards, and learns of the deletes from the log or from
// the tombstones, ends with the same copies as those that were there all the time.
func TestI6_LiveAndBackfilledAreTheSame(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta := w.container("productMeta", store.ContainerSpec{PartitionKey: []string{"/type"}, Partitions: 2})
	live := w.deletions(meta)
	var filled, walked []cascade.Config
	for _, cfg := range live {
		cfg.Target = w.container("walked-"+string(cfg.OnSourceDelete), store.ContainerSpec{PartitionKey: []string{"/categoryId"}, Partitions: 2})
		cfg.Pipeline = "walked-" + string(cfg.OnSourceDelete)
		walked = append(walked, cfg)
	}
	for _, cfg := range live {
		cfg.Target = w.container("filled-"+string(cfg.OnSourceDelete), store.ContainerSpec{PartitionKey: []string{"/categoryId"}, Partitions: 2})
		// Another condition of the same meaning: tombstones of its own, brought from the log.
		cfg.Pipeline, cfg.SourceWhere = "filled-"+string(cfg.OnSourceDelete), `type = 'category'`
		filled = append(filled, cfg)
	}
	k := w.start(live)
	rng := rand.New(rand.NewPCG(7, 23))
	for step := range 300 {
		id := fmt.Sprint(rng.IntN(12))
		switch p := rng.IntN(10); {
		case p < 3 && id != "11": // which never is
			w.category(meta, id, fmt.Sprintf("name %d", step))
		case p < 5:
			if err := gone(meta.Delete(t.Context(), keyOf(t, "category"), id)); err != nil {
				t.Fatal(err)
			}
		default:
			item := productItem{ID: fmt.Sprint(rng.IntN(20)), CategoryID: id, CategoryName: fmt.Sprintf("old %d", step), N: step + 1}
			for i := range live {
				w.put(live[i].Target, item)
				w.put(filled[i].Target, item)
				w.put(walked[i].Target, item)
			}
		}
		if step%50 == 49 {
			w.Quiet(k)
		}
	}
	w.Quiet(k)
	walked = w.walk(walked, nil)
	late, walking := w.start(filled), w.start(walked)
	w.Quiet(k, late, walking)
	for i := range live {
		if live[i].OnSourceDelete == cascade.Delete {
			continue // compared below: what went before its source was made again cannot come back
		}
		was := map[string]productItem{}
		for _, item := range scanAll[productItem](t, live[i].Target) {
			was[item.CategoryID+"/"+item.ID] = item
		}
		for how, cfg := range map[string]cascade.Config{"backfilled": filled[i], "walked": walked[i]} {
			is := map[string]productItem{}
			for _, item := range scanAll[productItem](t, cfg.Target) {
				is[item.CategoryID+"/"+item.ID] = item
			}
			if diff := cmp.Diff(was, is); diff != "" || len(was) == 0 {
				t.Errorf("%s: live and %s (-live +%s):\n%s", cfg.OnSourceDelete, how, how, diff)
			}
		}
	}
	for _, cfg := range slices.Concat(live, filled, walked) {
		cas, err := cascade.Compile(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range w.disagreements(cas) {
			t.Errorf("%s: %s", cfg.Pipeline, line)
		}
	}
}
