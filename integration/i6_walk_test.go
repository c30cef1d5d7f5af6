package integration_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// A source is renamed at each moment of the beginning of a generation that walks: before
// the ends of its log were noted, before those of the target's were, before the walk reads
// it, and before what the walk read is brought to the item.
func TestI6_ARenameWhileAWalkBegins(t *testing.T) {
	t.Parallel()
	for moment, held := range map[string]func(*store.Request) bool{
		"before all":                       nil,
		"between the two ends":             nil,
		"before the items are read":        func(r *store.Request) bool { return r.Scan != nil },
		"before the sources are read":      func(r *store.Request) bool { return r.Sources != nil },
		"before the items are made right":  func(r *store.Request) bool { return r.Repair != nil },
		"after the fan-out, a repair late": func(r *store.Request) bool { return r.Repair != nil },
	} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			w := newCascadeWorld(t)
			meta, product := w.webstore()
			w.category(meta, "1", "Old")
			for i, name := range []string{"", "Old", "New"} {
				w.put(product, productItem{ID: fmt.Sprint("P", i), CategoryID: "1", CategoryName: name})
			}
			rename := func() { w.category(meta, "1", "New") }
			if moment == "before all" {
				rename()
			}
			configs := w.walk([]cascade.Config{categoryNames(meta, product)}, func() {
				if moment == "between the two ends" {
					rename()
				}
			})
			fanOuts := w.start(configs, processors.RoleSource)
			var checks *storetest.Worker
			if held == nil {
				checks = w.start(configs, processors.RoleTarget)
			} else {
				checks = w.Worker()
				there, let := checks.Tap.Hold(held)
				w.startOn(checks, configs, processors.RoleTarget)
				<-there
				rename()
				if moment == "after the fan-out, a repair late" {
					w.Quiet(fanOuts)
				}
				let()
			}
			w.Quiet(fanOuts, checks)
			for i := range 3 {
				if got := w.product(product, "1", fmt.Sprint("P", i)).CategoryName; got != "New" {
					t.Errorf("the copy in P%d is %q, want New", i, got)
				}
			}
		})
	}
}

// Items come and are written over on both sides of a walk that stands between two pages,
// which a crash repeats for its successor, while their source is renamed.
func TestI6_WritesDuringAWalkThatFailsOver(t *testing.T) {
	t.Parallel()
	const items = 1200 // more than a page has
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.category(meta, "1", "Name")
	for i := range items {
		w.put(product, productItem{ID: fmt.Sprintf("%04d", i), CategoryID: "1", CategoryName: "old"})
	}
	configs := w.walk([]cascade.Config{categoryNames(meta, product)}, nil)
	fanOuts := w.start(configs, processors.RoleSource)
	first := w.Worker()
	there, _ := first.Tap.Hold(func(r *store.Request) bool { return r.Scan != nil && r.Scan.After != nil })
	w.startOn(first, configs, processors.RoleTarget)
	<-there
	for _, id := range []string{"0000", "0000-behind", "1199", "1199-ahead"} {
		w.put(product, productItem{ID: id, CategoryID: "1", CategoryName: "older"})
	}
	w.category(meta, "1", "Last")
	if err := product.Delete(t.Context(), keyOf(t, "1"), "1100"); err != nil {
		t.Fatal(err)
	}
	first.Crash()
	w.put(product, productItem{ID: "0001", CategoryID: "1", CategoryName: "oldest"})
	second := w.start(configs, processors.RoleTarget)
	w.Quiet(fanOuts, second)
	all := scanAll[productItem](t, product)
	if len(all) != items+1 {
		t.Errorf("%d items, want %d", len(all), items+1)
	}
	for _, item := range all {
		if item.CategoryName != "Last" {
			t.Errorf("the copy in %s is %q, want Last", item.ID, item.CategoryName)
		}
	}
}

// A walk has read the tombstone of a source, and what it means is held while the source
// is made again.
func TestI6_ASourceMadeAgainDuringAWalk(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	cfg := categoryNames(meta, product)
	cfg.OnSourceDelete = cascade.Clear
	w.category(meta, "1", "Old")
	before := w.start([]cascade.Config{cfg}) // its tombstones are those of the next
	w.Quiet(before)
	before.Stop()
	w.removeCategory(meta, "1")
	for i, name := range []string{"Old", "Again"} {
		w.put(product, productItem{ID: fmt.Sprint("P", i), CategoryID: "1", CategoryName: name})
	}
	configs := w.walk([]cascade.Config{cfg}, nil)
	fanOuts := w.start(configs, processors.RoleSource)
	checks := w.Worker()
	there, let := checks.Tap.Hold(func(r *store.Request) bool { return r.Repair != nil })
	w.startOn(checks, configs, processors.RoleTarget)
	<-there
	w.category(meta, "1", "Again")
	w.Quiet(fanOuts)
	let()
	w.Quiet(fanOuts, checks)
	for i := range 2 {
		if got := w.product(product, "1", fmt.Sprint("P", i)).CategoryName; got != "Again" {
			t.Errorf("the copy in P%d is %q, want Again", i, got)
		}
	}
}
