package accumulator_test

import (
	"testing"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
)

func mustPaths(tb testing.TB, pointers ...string) []document.Path {
	tb.Helper()
	paths := make([]document.Path, len(pointers))
	for i, p := range pointers {
		var err error
		paths[i], err = document.ParsePointer(p)
		must(tb, err)
	}
	return paths
}

func TestTargetGroup(t *testing.T) {
	rule := mustCompile(t, totals)
	for body, want := range map[string]string{
		`{"type":"customer","customer":"a"}`:      `["a"]`,
		`{"customer":"\u0061","type":"customer"}`: `["a"]`,
		`{"type":"customer","customer":1.0}`:      `[1]`,
		`{"type":"customer","customer":null}`:     `[null]`,
		`{"type":"order","customer":"a"}`:         "",
		`{"type":"customer"}`:                     "",
		`{"type":"customer","customer":["a"]}`:    "",
	} {
		g, ok := rule.TargetGroup([]byte(body))
		if ok != (want != "") || ok && g.String() != want {
			t.Errorf("%s: %s, %v; want %s", body, g, ok, want)
		}
	}
}

func TestTarget_WhatMatchAndWhereFix(t *testing.T) {
	set := []accumulator.Field{{Path: "n", Func: accumulator.Count}}
	for name, c := range map[string]struct {
		spec    accumulator.Spec
		group   []string
		paths   []string
		id, key string // "" if not fixed
	}{
		"id and key by match": {
			accumulator.Spec{Match: []accumulator.Pair{{Target: "id", Source: "a"}, {Target: "pk", Source: "b"}}, Set: set},
			[]string{`"i"`, `"k"`},
			[]string{"/pk"},
			"i", `["k"]`,
		},
		"the id is the key": {
			accumulator.Spec{Match: []accumulator.Pair{{Target: "id", Source: "a"}}, Set: set},
			[]string{`"Zo\u00eb\u0000"`},
			[]string{"/id"},
			"Zoë\x00", `["Zoë\u0000"]`,
		},
		"a constant key": {
			accumulator.Spec{Match: []accumulator.Pair{{Target: "id", Source: "a"}}, TargetWhere: `type = "x" AND 1 = o.k AND m > 0`, Set: set},
			[]string{`"i"`},
			[]string{"/type", "/o/k"},
			"i", `["x",1]`,
		},
		"a key of other types": {
			accumulator.Spec{Match: []accumulator.Pair{{Target: "a", Source: "a"}, {Target: "b", Source: "b"}, {Target: "c", Source: "c.c"}}, Set: set},
			[]string{"-1.50", "true", "null"},
			[]string{"/c", "/a", "/b"},
			"", `[null,-1.5,true]`,
		},
		"all of one target": {
			accumulator.Spec{TargetWhere: `id = "all" AND pk = "p"`, Set: set},
			nil,
			[]string{"/pk"},
			"all", `["p"]`,
		},
		"a key that is not fixed": {
			accumulator.Spec{Match: []accumulator.Pair{{Target: "id", Source: "a"}}, TargetWhere: `pk > 1 OR pk = 2`, Set: set},
			[]string{`"i"`},
			[]string{"/pk"},
			"i", "",
		},
		"no values of an id and a key": {
			accumulator.Spec{Match: []accumulator.Pair{{Target: "id", Source: "a"}, {Target: "pk", Source: "b"}}, Set: set},
			[]string{`1`, `0.1000000000000000055511151231257827`},
			[]string{"/pk"},
			"", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule := mustCompile(t, c.spec)
			g, paths := mustGroup(t, c.group...), mustPaths(t, c.paths...)
			if id, ok := rule.TargetID(g); id != c.id && ok || ok != (c.id != "") {
				t.Errorf("id %q, %v; want %q", id, ok, c.id)
			}
			key, ok := rule.TargetKey(g, paths)
			if ok != (c.key != "") || ok && key.String() != c.key {
				t.Errorf("key %s, %v; want %s", key, ok, c.key)
			}
			if fixes := rule.FixesTargetKey(paths); ok && !fixes {
				t.Error("has a key that is not fixed")
			}
		})
	}
}

func TestNewTarget(t *testing.T) {
	spec := accumulator.Spec{
		Match:       []accumulator.Pair{{Target: "id", Source: "customer"}, {Target: "to.city", Source: "to.city"}},
		TargetWhere: `type = "total" AND to.kind = 1`,
		Create:      true,
		Set:         []accumulator.Field{{Path: "first", Func: accumulator.Min, Expr: "at"}, {Path: "to.orders", Func: accumulator.Count}},
	}
	rule := mustCompile(t, spec)
	g := mustGroup(t, `"a"`, `"x"`)
	state, err := rule.State(accumulator.NewMemory(), g)
	must(t, err)
	body, ok := rule.NewTarget(g, state, mustPaths(t, "/to/city", "/type"))
	const want = `{"id":"a","to":{"city":"x","kind":1,"orders":0},"type":"total"}`
	if !ok || string(body) != want {
		t.Errorf("%s, %v; want %s", body, ok, want)
	}
	must(t, document.Check(body))
	if is, ok := rule.TargetGroup(body); is != g || !ok {
		t.Errorf("the new target is of group %s", is)
	}
	if body, ok := rule.NewTarget(g, state, mustPaths(t, "/other")); ok {
		t.Errorf("made %s without a partition key", body)
	}
	for _, id := range []string{"1", "null", `""`} {
		if body, ok := rule.NewTarget(mustGroup(t, id, `"x"`), state, mustPaths(t, "/type")); ok {
			t.Errorf("made %s of the id %s", body, id)
		}
	}
	spec.TargetWhere += " AND IS_DEFINED(name)"
	if body, ok := mustCompile(t, spec).NewTarget(g, state, mustPaths(t, "/type")); ok {
		t.Errorf("made %s, which where does not select", body)
	}
}
