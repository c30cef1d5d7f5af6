package owner

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/engine"
)

// TestFew sets more keys than stand in it without a map.
func TestFew(t *testing.T) {
	var none *few[*engine.Item]
	for key := range none.all {
		t.Errorf("one that is nil has %s", key)
	}
	if item, ok := none.get([]byte("a")); ok || item != nil {
		t.Errorf("one that is nil has %v", item)
	}
	if item, ok := none.at("a"); ok || item != nil {
		t.Errorf("one that is nil has %v", item)
	}
	var c few[*engine.Item]
	want := map[string]*engine.Item{}
	if item, ok := c.get([]byte("a")); ok || item != nil {
		t.Errorf("an empty one has %v", item)
	}
	for _, step := range []struct {
		key  string
		item *engine.Item
	}{
		{"a", &engine.Item{ID: "a1"}}, {"a", &engine.Item{ID: "a2"}}, {"b", &engine.Item{ID: "b"}}, {"a", nil}, {"c", nil}, {"c", &engine.Item{ID: "c"}}, {"b", nil}, {"d", nil},
	} {
		c.set([]byte(step.key), step.item)
		want[step.key] = step.item
		got := maps.Collect(c.all)
		if diff := cmp.Diff([]int{len(want), len(want)}, []int{len(got), c.len()}); diff != "" {
			t.Errorf("after %s: %s", step.key, diff)
		}
		for key, item := range want {
			if found, ok := c.get([]byte(key)); !ok || found != item || got[key] != item {
				t.Errorf("after %s: %s is %v and among all %v, want %v", step.key, key, found, got[key], item)
			}
			if found, ok := c.at(key); !ok || found != item {
				t.Errorf("after %s: %s is at %v, want %v", step.key, key, found, item)
			}
		}
	}
}
