package owner

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/query"
)

// An index and a rule in a log go on to mean what they meant when they were put there,
// so that replay decides alike and what was added is what is taken away; those that are
// put there now have the present meaning.
func TestI3_WhatIsInTheLogKeepsItsMeaning(t *testing.T) {
	const index = `"indexes":[{"number":2,"path":"/n","ready":true,"where":"kind != \"gift\"","rule":"r"MEANING}]`
	const rule = `"rules":[{"pipeline":"r","generation":1,"active":true,"spec":{"match":[{"target":"n","source":"n"}],` +
		`"targetWhere":"kind != \"gift\"","set":[{"path":"count","func":"count"}]MEANING}}]`
	item := []byte(`{"id":"1","kind":7,"n":1}`)
	for meaning, is := range map[string]bool{"": false, `,"expressions":1`: false, `,"expressions":2`: true} {
		s, err := compileSettings([]byte(strings.ReplaceAll(`{"partitionKey":["/a"],"nextNumber":3,`+index+`,`+rule+`}`, "MEANING", meaning)))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.engine.Indexes[0].Where(item); got != is {
			t.Errorf("settings with %q: the index holds the item: %v", meaning, got)
		}
		if _, got := s.rules[0].TargetGroup(item); got != is {
			t.Errorf("settings with %q: the item is a target: %v", meaning, got)
		}
		if !strings.Contains(string(s.settings.Marshal()), `"expressions":2`) == is {
			t.Errorf("settings with %q are written as %s", meaning, s.settings.Marshal())
		}
	}
	for _, text := range []string{index, rule} {
		later := strings.ReplaceAll(text, "MEANING", `,"expressions":3`)
		if _, err := compileSettings([]byte(`{"partitionKey":["/a"],"nextNumber":3,` + later + `}`)); err == nil || !strings.Contains(err.Error(), "this release knows up to 2") {
			t.Errorf("a later meaning: %v", err)
		}
	}
	wish := store.RuleWish{Pipeline: "r", Generation: 1}
	wish.Spec.TargetWhere, wish.Spec.Expressions = `kind != "gift"`, query.MeaningNow
	wish.Spec.Match = []accumulator.Pair{{Target: "n", Source: "n"}}
	wish.Spec.Set = []accumulator.Field{{Path: "count", Func: accumulator.Count}}
	next, _ := store.Settings{}.Wish(&store.ContainerInfo{Rules: []store.RuleWish{wish}})
	if len(next.Indexes) != 1 || next.Indexes[0].Expressions != query.MeaningNow {
		t.Errorf("the index of a new rule: %+v", next.Indexes)
	}
}
