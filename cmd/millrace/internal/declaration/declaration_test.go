package declaration_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/cmd/millrace/internal/declaration"
)

// What is printed as YAML reads as its JSON does.
func TestWriteYAML(t *testing.T) {
	for _, text := range []string{
		`{"b":1,"a":[true,false,null],"c":{"x":[],"y":{}}}`,
		`{"smile":"\ud83d\ude00","half":"\ud83d","plain":"😀"}`,
		`["true","null","1","1e3","~","2026-01-02","yes","","- a","a: b","#","two\nlines\n","\u0000\u0085\u2028","<>&"]`,
		`[1,-1.5,1e3,12345678901234567890,0.1]`,
		`{"true":1,"1":2,"":3,"a b":{"\"":"\\"}}`,
		`"alone"`,
	} {
		var printed strings.Builder
		if err := declaration.WriteYAML(&printed, json.RawMessage(text)); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var want, got any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(printed.String()), &got); err != nil {
			t.Errorf("%s is printed as\n%s\n%v", text, printed.String(), err)
			continue
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got = nil
		if err := json.Unmarshal(again, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is printed as\n%s%s", text, printed.String(), diff)
		}
	}
	var printed strings.Builder
	if err := declaration.WriteYAML(&printed, json.RawMessage(`{"b":1,"a":[{"x":"1"},[]]}`)); err != nil {
		t.Fatal(err)
	}
	if want := "b: 1\na:\n  - x: \"1\"\n  - []\n"; printed.String() != want {
		t.Errorf("printed\n%swant\n%s", printed.String(), want)
	}
}
