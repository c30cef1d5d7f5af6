package integration_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// Two sources are deleted, and the fan-out of the first is overtaken by that of
// the second: neither is taken for an older version of the other, and the copies
// of both go.
func TestI6_TwoSourcesDeletedAtOnce(t *testing.T) {
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.tag(meta, "1", "A")
	w.tag(meta, "2", "B")
	for i := range 6 {
		w.put(product, productItem{ID: "P", CategoryID: fmt.Sprint(i), Tags: []tagItem{{"1", "A"}, {"2", "B"}, {"3", "C"}}})
	}
	worker := w.start([]cascade.Config{tagNames(meta, product)})
	w.quiet(worker)
	var mu sync.Mutex
	var first feed.Position
	there, let := worker.tap.hold(func(r *store.Request) bool {
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
	eventually(t, func() (bool, string) {
		got := remaining()
		return got == "true false true", "of the tags 1, 2 and 3 there are: " + got
	})
	let()
	w.quiet(worker)
	if got := remaining(); got != "false false true" {
		t.Errorf("of the tags 1, 2 and 3 there are: %s", got)
	}
}
