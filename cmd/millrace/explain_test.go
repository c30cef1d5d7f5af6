package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/reference"
	"github.com/millrace/millrace/integration/storetest"
)

func TestExplain_TellsOfAKey(t *testing.T) {
	var all strings.Builder
	for _, args := range [][]string{
		{"explain"},
		{"explain", "pipeline.spec.cascade"},
		{"explain", "pipeline.spec.project.tables.columns.type"},
		{"explain", "container", "--recursive"},
	} {
		out, errs, code := command(t, "", args...)
		if code != codeOK || errs != "" {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, errs)
		}
		for line := range strings.Lines(out) {
			if len(line) > 81 && !strings.Contains(line, "<") {
				t.Errorf("%v: a line of %d characters: %s", args, len(line), line)
			}
		}
		all.WriteString("$ millrace " + strings.Join(args, " ") + "\n" + out)
	}
	storetest.Golden(t, "testdata/explain.txt", all.String())
}

func TestExplain_AsJSON(t *testing.T) {
	var k reference.Key
	read := func(args ...string) {
		t.Helper()
		out, errs, code := command(t, "", append([]string{"explain", "-o", "json"}, args...)...)
		if k = (reference.Key{}); code != codeOK || json.Unmarshal([]byte(out), &k) != nil {
			t.Fatalf("%v: exit %d\n%s%s", args, code, out, errs)
		}
	}
	read("pipeline.spec.project.tables")
	if k.Path != "pipeline.spec.project.tables" || !k.Required || len(k.Keys) < 5 {
		t.Errorf("%+v", k)
	}
	for _, c := range k.Keys {
		if len(c.Keys) > 0 {
			t.Errorf("%s comes with its keys, which nobody asked for", c.Path)
		}
	}
	read("pipeline.spec.project.tables", "--recursive")
	n := 0
	for range k.All() {
		n++
	}
	if n < 9 {
		t.Errorf("there are %d keys below tables", n)
	}
}

// TestExplain_AsksWhatWasMeant exits with 1 and tells what is near.
func TestExplain_AsksWhatWasMeant(t *testing.T) {
	out, errs, code := command(t, "", "explain", "pipeline.spec.casacde.match")
	if want := "millrace: pipeline.spec has no key casacde; did you mean pipeline.spec.cascade.match?\n"; code != codeBad || out != "" || errs != want {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	if _, _, code = command(t, "", "explain", "pipeline", "spec"); code != codeNotAsked {
		t.Errorf("two paths: exit %d", code)
	}
}

func TestExplain_CompletesPaths(t *testing.T) {
	for typed, want := range map[string][]string{
		"pi":                         {"pipeline"},
		"pipeline.spec.":             {"pipeline.spec.source", "pipeline.spec.cascade", "pipeline.spec.aggregate", "pipeline.spec.project", "pipeline.spec.onError"},
		"pipeline.spec.cascade.on":   {"pipeline.spec.cascade.onSourceDelete"},
		"pipeline.spec.cascade.zz":   nil,
		"pipeline.nothing.is.there.": nil,
	} {
		out, _, code := command(t, "", "__complete", "explain", typed)
		var got []string
		for line := range strings.Lines(out) {
			if path, _, ok := strings.Cut(line, "\t"); ok {
				got = append(got, path)
			}
		}
		if code != codeOK || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: exit %d, %v\n%s", typed, code, got, out)
		}
		if !strings.Contains(out, ":6\n") { // neither a file nor a space: a path may go on
			t.Errorf("%s: %s", typed, out)
		}
	}
}
