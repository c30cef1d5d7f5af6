package accumulator_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
)

func TestCompile_SaysWhereAndWhatIsWrong(t *testing.T) {
	count := []accumulator.Field{{Path: "n", Func: accumulator.Count}}
	match := []accumulator.Pair{{Target: "id", Source: "customer"}}
	set := func(f accumulator.Field) accumulator.Spec {
		return accumulator.Spec{Match: match, Set: []accumulator.Field{f}}
	}
	for name, c := range map[string]struct {
		spec  accumulator.Spec
		field string
	}{
		"an expression of the source": {accumulator.Spec{SourceWhere: "a = ", Match: match, Set: count}, "source.where"},
		"a parameter":                 {accumulator.Spec{SourceWhere: "a = @x", Match: match, Set: count}, "source.where"},
		"an expression of the target": {accumulator.Spec{TargetWhere: "AND", Match: match, Set: count}, "aggregate.where"},
		"a path of each":              {accumulator.Spec{Each: "a..b", Match: match, Set: count}, "aggregate.each"},
		"each that begins with [*]":   {accumulator.Spec{Each: "[*].b", Match: match, Set: count}, "aggregate.each"},
		"each too deep":               {accumulator.Spec{Each: "a[*][*][*][*][*][*][*][*]", Match: match, Set: count}, "aggregate.each"},
		"no match and no id":          {accumulator.Spec{Set: count}, "aggregate.match"},
		"a match that computes":       {accumulator.Spec{Match: []accumulator.Pair{{Target: "id", Source: "a + 1"}}, Set: count}, "aggregate.match.id"},
		"a match of many":             {accumulator.Spec{Match: []accumulator.Pair{{Target: "id", Source: "a[*].b"}}, Set: count}, "aggregate.match.id"},
		"a match of the item":         {accumulator.Spec{Match: []accumulator.Pair{{Target: "id", Source: "item"}}, Set: count}, "aggregate.match.id"},
		"a match of the parent":       {accumulator.Spec{Each: "a", Match: []accumulator.Pair{{Target: "id", Source: "parent"}}, Set: count}, "aggregate.match.id"},
		"a match of an element":       {accumulator.Spec{Match: []accumulator.Pair{{Target: "a[0]", Source: "x"}}, Set: count}, "aggregate.match.a[0]"},
		"a match twice":               {accumulator.Spec{Match: []accumulator.Pair{{Target: "a", Source: "x"}, {Target: "a.b", Source: "y"}}, Set: count}, "aggregate.match.a.b"},
		"no fields":                   {accumulator.Spec{Match: match}, "aggregate.set"},
		"too many fields":             {accumulator.Spec{Match: match, Set: slices.Repeat(count, 65)}, "aggregate.set"},
		"a field twice":               {accumulator.Spec{Match: match, Set: append(count, accumulator.Field{Path: "n.m", Func: accumulator.Count})}, "aggregate.set.n.m"},
		"a field in an array":         {set(accumulator.Field{Path: "n[0]", Func: accumulator.Count}), "aggregate.set.n[0]"},
		"no function":                 {set(accumulator.Field{Path: "n"}), "aggregate.set.n"},
		"a count of something":        {set(accumulator.Field{Path: "n", Func: accumulator.Count, Expr: "x"}), "aggregate.set.n.count"},
		"a sum of nothing":            {set(accumulator.Field{Path: "n", Func: accumulator.Sum, Expr: " "}), "aggregate.set.n.sum"},
		"a sum that cannot be read":   {set(accumulator.Field{Path: "n", Func: accumulator.Sum, Expr: "a b"}), "aggregate.set.n.sum"},
		"a sum with by":               {set(accumulator.Field{Path: "n", Func: accumulator.Sum, Expr: "a", By: "b"}), "aggregate.set.n.sum"},
		"a field's where":             {set(accumulator.Field{Path: "n", Func: accumulator.Count, Where: "("}), "aggregate.set.n.where"},
		"a field's each":              {set(accumulator.Field{Path: "n", Func: accumulator.Count, Each: "]"}), "aggregate.set.n.each"},
		"latest of none":              {set(accumulator.Field{Path: "n", Func: accumulator.Latest, By: "a", Fields: []string{"id"}}), "aggregate.set.n.latest"},
		"latest of too many":          {set(accumulator.Field{Path: "n", Func: accumulator.Latest, N: 1001, By: "a", Fields: []string{"id"}}), "aggregate.set.n.latest"},
		"latest by nothing":           {set(accumulator.Field{Path: "n", Func: accumulator.Latest, N: 1, Fields: []string{"id"}}), "aggregate.set.n.by"},
		"latest of no fields":         {set(accumulator.Field{Path: "n", Func: accumulator.Latest, N: 1, By: "a"}), "aggregate.set.n.fields"},
		"latest of whole items":       {set(accumulator.Field{Path: "n", Func: accumulator.Latest, N: 1, By: "a", Fields: []string{"c"}}), "aggregate.set.n.fields"},
		"latest of an element":        {set(accumulator.Field{Path: "n", Func: accumulator.Latest, N: 1, By: "a", Fields: []string{"x[0]"}}), "aggregate.set.n.fields"},
		"latest of a field twice":     {set(accumulator.Field{Path: "n", Func: accumulator.Latest, N: 1, By: "a", Fields: []string{"x.y", "x"}}), "aggregate.set.n.fields"},
		"latest with an expression":   {set(accumulator.Field{Path: "n", Func: accumulator.Latest, N: 1, By: "a", Expr: "a", Fields: []string{"x"}}), "aggregate.set.n.latest"},
		"a field that match reads":    {set(accumulator.Field{Path: "id", Func: accumulator.Count}), "aggregate.set.id"},
		"a field that where reads":    {accumulator.Spec{Match: match, TargetWhere: "n.m > 1", Set: count}, "aggregate.set.n"},
		"create without an id":        {accumulator.Spec{Match: []accumulator.Pair{{Target: "x", Source: "x"}}, Create: true, Set: count}, "aggregate.create"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := accumulator.Compile(c.spec)
			problem, ok := errors.AsType[*accumulator.FieldError](err)
			if !ok {
				t.Fatalf("error %v", err)
			}
			if problem.Field != c.field || problem.Message == "" {
				t.Errorf("%v, want it at %s", problem, c.field)
			}
		})
	}
}

func TestCompile_ReportsAll(t *testing.T) {
	bad := accumulator.Spec{SourceWhere: "a = ?", Match: []accumulator.Pair{{Target: "..", Source: "x"}}, Set: []accumulator.Field{{Path: "n", Func: "median"}}}
	var fields []string
	for _, p := range accumulator.Check(bad) {
		fields = append(fields, p.Field)
	}
	if diff := cmp.Diff([]string{"source.where", "aggregate.match...", "aggregate.set.n"}, fields); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p := accumulator.Check(bad)[0]; p.Offset != 4 || p.Line != 1 || p.Column != 5 {
		t.Errorf("%+v in %q", p, bad.SourceWhere)
	}
	if p := accumulator.Check(totals); p != nil {
		t.Errorf("what is right: %v", p)
	}
}

func pointers(paths []document.Path) []string {
	list := make([]string, len(paths))
	for i, p := range paths {
		list[i] = p.Pointer()
	}
	slices.Sort(list)
	return list
}

func TestRule_Reads(t *testing.T) {
	rule := mustCompile(t, totals)
	want := []string{"/at", "/customer", "/id", "/lines/*/", "/lines/*/price", "/lines/*/quantity", "/paid", "/to/city", "/type"}
	if diff := cmp.Diff(want, pointers(rule.SourceReads())); diff != "" {
		t.Errorf("totals read (-want +got):\n%s", diff)
	}
	if got := pointers(rule.TargetWrites()); len(got) != len(totals.Set) || got[0] != "/avgPaid" {
		t.Errorf("totals write %v", got)
	}
	want = []string{
		"/at", "/customer", "/lines/*/", "/lines/*/options/*", "/lines/*/options/*/", "/lines/*/price", "/lines/*/quantity", "/lines/*/sku",
		"/to/city", "/type",
	}
	if diff := cmp.Diff(want, pointers(mustCompile(t, sales).SourceReads())); diff != "" {
		t.Errorf("sales read (-want +got):\n%s", diff)
	}
}

// TestRule_AChangeElsewhereHasNoShare patches places and compares what SourceReads
// says with what Fold does.
func TestRule_AChangeElsewhereHasNoShare(t *testing.T) {
	const item = `{"id":"i","type":"order","customer":"a","at":"2024","note":"x","paid":3,"to":{"city":"x","zip":1},"lines":[{"sku":"s","price":2,"quantity":1,"name":"n"}]}`
	rule := mustCompile(t, totals)
	for _, c := range []struct {
		op      string
		matters bool
	}{
		{`{"op":"set","path":"/note","value":"y"}`, false},
		{`{"op":"set","path":"/to/zip","value":2}`, false},
		{`{"op":"set","path":"/lines/0/name","value":"m"}`, false},
		{`{"op":"set","path":"/lines/0/sku","value":"m"}`, false},
		{`{"op":"set","path":"/lines/0/price","value":7}`, true},
		{`{"op":"add","path":"/lines/-","value":{}}`, true},
		{`{"op":"remove","path":"/lines/0"}`, true},
		{`{"op":"set","path":"/lines","value":[]}`, true},
		{`{"op":"set","path":"/to","value":{}}`, true},
		{`{"op":"remove","path":"/customer"}`, true},
	} {
		var op document.Op
		must(t, json.Unmarshal([]byte(c.op), &op))
		patch, err := document.CompilePatch([]document.Op{op})
		must(t, err)
		after, undo, err := patch.Apply([]byte(item))
		must(t, err)
		touched := slices.ContainsFunc(rule.SourceReads(), func(p document.Path) bool { return p.Touched(undo[0].Path) })
		d := rule.NewDelta()
		rule.Fold(d, mustKey(t, "p"), "i", []byte(item), after)
		if touched != c.matters || d.Empty() == c.matters {
			t.Errorf("%s: touched %v, empty %v", c.op, touched, d.Empty())
		}
	}
}
