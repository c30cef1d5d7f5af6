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

// TestRepair_CopiesOfOneItemAreOneChange repairs an item that copies from several
// sources: the log gets the item once, with what leads back.
func TestRepair_CopiesOfOneItemAreOneChange(t *testing.T) {
	w := newWorld(t, byA)
	n := w.start(t.TempDir())
	k := pk(t, "x")
	line := func(sku, set, value string) store.Copy {
		return store.Copy{
			Action: store.CopySet, Each: "lines",
			Match: []store.Field{{Path: "sku", Value: fmt.Appendf(nil, "%q", sku)}},
			Set:   []store.Field{{Path: set, Value: []byte(value)}},
		}
	}
	const order = `{"id":"1","a":"x","lines":[{"sku":"s1"},{"sku":"s2","name":"old"},{"sku":"s3"},{"sku":"s1","n":1}],"source":"s1"}`
	for _, c := range []struct {
		name    string
		copies  []store.Copy
		want    string // "" if the item goes
		changes int
		status  store.Status
	}{
		{
			"each from another source",
			[]store.Copy{line("s1", "name", `"Apple"`), line("s2", "name", `"Pear"`), line("s4", "name", `"None"`), line("s3", "name", `"Plum"`)},
			`{"id":"1","a":"x","lines":[{"sku":"s1","name":"Apple"},{"sku":"s2","name":"Pear"},{"sku":"s3","name":"Plum"},{"sku":"s1","n":1,"name":"Apple"}],"source":"s1"}`,
			1, store.StatusOK,
		},
		{"as they are", []store.Copy{line("s2", "name", `"old"`), line("s4", "name", `"None"`)}, order, 0, store.StatusNotModified},
		{"there and back", []store.Copy{line("s2", "name", `"new"`), line("s2", "name", `"old"`)}, order, 0, store.StatusNotModified},
		{
			"one that leads through what is no object",
			[]store.Copy{line("s1", "name", `"Apple"`), line("s1", "name.x", "1"), line("s3", "name", `"Plum"`)},
			`{"id":"1","a":"x","lines":[{"sku":"s1","name":"Apple"},{"sku":"s2","name":"old"},{"sku":"s3"},{"sku":"s1","n":1,"name":"Apple"}],"source":"s1"}`,
			1, store.StatusBadRequest,
		},
		{
			"one that is no copy",
			[]store.Copy{line("s1", "name", `"Apple"`), line("s2", "name", `"Pear"`), line("s3", "name", `no JSON`)},
			`{"id":"1","a":"x","lines":[{"sku":"s1","name":"Apple"},{"sku":"s2","name":"Pear"},{"sku":"s3"},{"sku":"s1","n":1,"name":"Apple"}],"source":"s1"}`,
			1, store.StatusBadRequest,
		},
		{"one that removes it", []store.Copy{
			line("s1", "name", `"Apple"`), line("s3", "name", `"Plum"`),
			{Action: store.CopyDelete, Match: []store.Field{{Path: "source", Value: []byte(`"s1"`)}}},
			line("s2", "name", `"Pear"`),
		}, "", 1, store.StatusOK},
		{"one that removes it, before one that is no copy", []store.Copy{
			{Action: store.CopyDelete, Match: []store.Field{{Path: "source", Value: []byte(`"s1"`)}}}, line("s3", "name", `no JSON`),
		}, "", 1, store.StatusOK},
	} {
		item := n.mustOne(k, upsert(order))
		r := n.ask(&store.Request{Repair: &store.Repair{
			Producer: feed.Producer{Pipeline: "p", Generation: 1, Source: "s/0"}, Epoch: 1,
			Items: []store.RepairItem{{Ref: store.ItemRef{Key: k, ID: "1"}, IfMatch: item.ETag, Copies: c.copies}},
		}})
		if r.Err != nil {
			t.Fatalf("%s: %v", c.name, r.Err)
		}
		if got := r.Repair.Statuses[0]; got != c.status {
			t.Errorf("%s: status %d %s, want %d", c.name, got, r.Repair.Reasons[0], c.status)
		}
		var changes []feed.Change
		for _, commit := range w.commits()[item.ETag.LSN:] {
			for i := range commit.Transactions {
				changes = append(changes, commit.Transactions[i].Changes...)
			}
		}
		if len(changes) != c.changes {
			t.Fatalf("%s: %d changes, want %d", c.name, len(changes), c.changes)
		}
		if c.want != "" {
			if got := n.read(k, "1"); got != c.want {
				t.Errorf("%s: the item is\n%s, want\n%s", c.name, got, c.want)
			}
		}
		for i := range changes {
			if string(changes[i].After) != c.want {
				t.Errorf("%s: the log has %s, want %s", c.name, changes[i].After, c.want)
			}
			before, err := changes[i].BeforeBody()
			if err != nil || string(before) != order {
				t.Errorf("%s: before it was %s, %v; want %s", c.name, before, err, order)
			}
			if c.want != "" && len(changes[i].Undo) == 0 {
				t.Errorf("%s: the change carries the whole item before, not what leads back", c.name)
			}
		}
	}
}
