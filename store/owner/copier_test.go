package owner

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

func TestCopiers_CompileACopyOnceARequest(t *testing.T) {
	field := func(path, value string) store.Field { return store.Field{Path: path, Value: []byte(value)} }
	copyOf := func(sku, name string) *store.Copy {
		return &store.Copy{
			Where: `type = "order"`, Each: "lines", Action: store.CopySet,
			Match: []store.Field{field("sku", sku)}, Set: []store.Field{field("name", name)},
		}
	}
	copies := copiers{schema: &schema{}}
	compile := func(c *store.Copy) *copier {
		t.Helper()
		out, refusal := copies.compile(c)
		if refusal != nil {
			t.Fatal(refusal)
		}
		return out
	}
	first := compile(copyOf(`"s1"`, `"Apple"`))
	if compile(copyOf(`"s1"`, `"Apple"`)) != first {
		t.Error("a copy that says the same was compiled again")
	}
	if other := compile(copyOf(`"s2"`, `"Pear"`)); other == first || other.where != first.where {
		t.Error("a copy of another source shares all, or not the condition")
	}
	seen := map[*copier]string{}
	for name, c := range map[string]store.Copy{
		"set null":           {Action: store.CopySet, Set: []store.Field{field("a", "null"), field("b", "1")}},
		"remove":             {Action: store.CopySet, Set: []store.Field{{Path: "a"}, field("b", "1")}},
		"clear":              {Action: store.CopyClear, Set: []store.Field{field("a", "null"), field("b", "1")}},
		"match one":          {Action: store.CopySet, Match: []store.Field{field("a", "null")}, Set: []store.Field{field("b", "1")}},
		"match it absent":    {Action: store.CopySet, Match: []store.Field{{Path: "a"}}, Set: []store.Field{field("b", "1")}},
		"other fields":       {Action: store.CopySet, Set: []store.Field{field("ab", "null"), field("c", "1")}},
		"in an array":        {Action: store.CopySet, Each: "x", Set: []store.Field{field("a", "null"), field("b", "1")}},
		"under a condition":  {Action: store.CopySet, Where: "x", Set: []store.Field{field("a", "null"), field("b", "1")}},
		"values moved along": {Action: store.CopySet, Set: []store.Field{field("a", "1"), field("b", "null")}},
	} {
		out := compile(&c)
		if was := seen[out]; was != "" {
			t.Errorf("%s is taken for %s", name, was)
		}
		seen[out] = name
	}
}

// TestRepair_EachItemGetsItsOwnCopies repairs items of one request that copy the same
// source, another one, and one that is refused in between.
func TestRepair_EachItemGetsItsOwnCopies(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	repair := &store.Repair{Producer: feed.Producer{Pipeline: "p", Generation: 1, Source: "s/0"}, Epoch: 1}
	for i, c := range []struct{ source, set, name string }{
		{"s1", "name", "Apple"}, {"s2", "name", "Pear"}, {"s1", "id", "Apple"}, {"s1", "name", "Apple"}, {"s1", "id", "Apple"}, {"s2", "name", "Plum"},
	} {
		item := n.mustOne(k, create(fmt.Sprintf(`{"id":"%d","a":"x","source":%q}`, i, c.source)))
		repair.Items = append(repair.Items, store.RepairItem{
			Ref: store.ItemRef{Key: k, ID: fmt.Sprint(i)}, IfMatch: item.ETag,
			Copies: []store.Copy{{
				Action: store.CopySet,
				Match:  []store.Field{{Path: "source", Value: fmt.Appendf(nil, "%q", c.source)}},
				Set:    []store.Field{{Path: c.set, Value: fmt.Appendf(nil, "%q", c.name)}},
			}},
		})
	}
	r := n.ask(&store.Request{Repair: repair})
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	for i, want := range []string{
		`{"id":"0","a":"x","source":"s1","name":"Apple"}`, `{"id":"1","a":"x","source":"s2","name":"Pear"}`, `{"id":"2","a":"x","source":"s1"}`,
		`{"id":"3","a":"x","source":"s1","name":"Apple"}`, `{"id":"4","a":"x","source":"s1"}`, `{"id":"5","a":"x","source":"s2","name":"Plum"}`,
	} {
		status := store.StatusOK
		if i == 2 || i == 4 {
			status = store.StatusBadRequest
		}
		if got := n.read(k, fmt.Sprint(i)); got != want || r.Repair.Statuses[i] != status {
			t.Errorf("item %d is %s with status %d %s, want %s and %d", i, got, r.Repair.Statuses[i], r.Repair.Reasons[i], want, status)
		}
	}
}
