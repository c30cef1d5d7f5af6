package document_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed/document"
)

// compile reads operations as the protocol writes them.
func compile(tb testing.TB, ops string) (*document.Patch, error) {
	tb.Helper()
	var list []document.Op
	if err := json.Unmarshal([]byte(ops), &list); err != nil {
		tb.Fatalf("%s: %v", ops, err)
	}
	return document.CompilePatch(list)
}

func TestPatch(t *testing.T) {
	for _, c := range []struct{ name, body, ops, want, paths string }{
		{"add makes a member", `{"a":1}`, `[{"op":"add","path":"/b","value":[2]}]`, `{"a":1,"b":[2]}`, "/b"},
		{"add makes the first member", `{ }`, `[{"op":"add","path":"/b","value":2}]`, `{"b":2 }`, "/b"},
		{"add replaces a member", `{"a":1}`, `[{"op":"add","path":"/a","value":2}]`, `{"a":2}`, "/a"},
		{"add inserts before the index", `{"a":[1, 2]}`, `[{"op":"add","path":"/a/1","value":9}]`, `{"a":[1, 9,2]}`, "/a"},
		{"add at the length appends", `{"a":[1,2]}`, `[{"op":"add","path":"/a/2","value":9}]`, `{"a":[1,2,9]}`, "/a"},
		{"add at - appends", `{"a":[1,2 ]}`, `[{"op":"add","path":"/a/-","value":9}]`, `{"a":[1,2,9 ]}`, "/a"},
		{"add at - of an empty array", `{"a":[]}`, `[{"op":"add","path":"/a/-","value":9}]`, `{"a":[9]}`, "/a"},
		{"set makes a member", `{"a":1}`, `[{"op":"set","path":"/b","value":2}]`, `{"a":1,"b":2}`, "/b"},
		{"set replaces a member", `{"a":{"x":1}}`, `[{"op":"set","path":"/a","value":2}]`, `{"a":2}`, "/a"},
		{"set replaces at the index", `{"a":[1,2]}`, `[{"op":"set","path":"/a/0","value":9}]`, `{"a":[9,2]}`, "/a/0"},
		{"set at the length appends", `{"a":[1]}`, `[{"op":"set","path":"/a/1","value":9}]`, `{"a":[1,9]}`, "/a"},
		{"set at - appends", `{"a":[1]}`, `[{"op":"set","path":"/a/-","value":9}]`, `{"a":[1,9]}`, "/a"},
		{"a missing value is null", `{"a":1}`, `[{"op":"set","path":"/a"}]`, `{"a":null}`, "/a"},
		{"replace", `{"a":1,"b":2}`, `[{"op":"replace","path":"/a","value":"x"}]`, `{"a":"x","b":2}`, "/a"},
		{"replace an element", `{"a":[[1]]}`, `[{"op":"replace","path":"/a/0/0","value":2}]`, `{"a":[[2]]}`, "/a/0/0"},
		{"remove the first", `{ "a":1, "b":2}`, `[{"op":"remove","path":"/a"}]`, `{ "b":2}`, "/a"},
		{"remove the last", `{"a":1 , "b":2 }`, `[{"op":"remove","path":"/b"}]`, `{"a":1 }`, "/b"},
		{"remove the only", `{ "a":1 }`, `[{"op":"remove","path":"/a"}]`, `{  }`, "/a"},
		{"remove an element", `{"a":[1,2,3]}`, `[{"op":"remove","path":"/a/1"}]`, `{"a":[1,3]}`, "/a"},
		{"incr", `{"a":1}`, `[{"op":"incr","path":"/a","value":2}]`, `{"a":3}`, "/a"},
		{"incr by a negative number", `{"a":1}`, `[{"op":"incr","path":"/a","value":-2.5}]`, `{"a":-1.5}`, "/a"},
		{"incr makes a member", `{}`, `[{"op":"incr","path":"/a","value":2}]`, `{"a":2}`, "/a"},
		{"incr appends", `{"a":[1]}`, `[{"op":"incr","path":"/a/1","value":2}]`, `{"a":[1,2]}`, "/a"},
		{"incr beyond 2^53 is exact", `{"a":9007199254740993}`, `[{"op":"incr","path":"/a","value":2}]`, `{"a":9007199254740995}`, "/a"},
		{"incr beyond 2^63 is exact", `{"a":9223372036854775807}`, `[{"op":"incr","path":"/a","value":1}]`, `{"a":9223372036854775808}`, "/a"},
		{"incr of decimals is exact", `{"a":0.1}`, `[{"op":"incr","path":"/a","value":0.2}]`, `{"a":0.3}`, "/a"},
		{"incr to zero", `{"a":1.50}`, `[{"op":"incr","path":"/a","value":-1.5}]`, `{"a":0}`, "/a"},
		{"incr with an exponent", `{"a":1e300}`, `[{"op":"incr","path":"/a","value":1e300}]`, `{"a":2e300}`, "/a"},
		{"incr of small numbers", `{"a":2.5e-30}`, `[{"op":"incr","path":"/a","value":0}]`, `{"a":2.5e-30}`, "/a"},
		{"incr of a fraction", `{"a":0.001}`, `[{"op":"incr","path":"/a","value":0.0005}]`, `{"a":0.0015}`, "/a"},
		{"incr drops zeros", `{"a":9.95}`, `[{"op":"incr","path":"/a","value":190.05}]`, `{"a":200}`, "/a"},
		{"move a member", `{"a":{"b":1},"c":2}`, `[{"op":"move","from":"/a/b","path":"/d"}]`, `{"a":{},"c":2,"d":1}`, "/d /a/b"},
		{"move over a member", `{"a":1,"b":2}`, `[{"op":"move","from":"/a","path":"/b"}]`, `{"b":1}`, "/b /a"},
		{"move within an array", `{"a":[1,2,3]}`, `[{"op":"move","from":"/a/0","path":"/a/2"}]`, `{"a":[2,3,1]}`, "/a /a"},
		{"move out of an array", `{"a":["x",{"y":1}]}`, `[{"op":"move","from":"/a/1/y","path":"/a/0"}]`, `{"a":[1,"x",{}]}`, "/a /a/1/y"},
		{"move to itself", `{"a":1,"b":2}`, `[{"op":"move","from":"/a","path":"/a"}]`, `{"a":1,"b":2}`, ""},
		{"an element by key", `{"tags":[{"id":"x"},{"id":"y","name":"o"}]}`, `[{"op":"set","path":"/tags/[id=\"y\"]/name","value":"n"}]`, `{"tags":[{"id":"x"},{"id":"y","name":"n"}]}`, "/tags/1/name"},
		{"remove an element by key", `{"tags":[{"id":"x"},3,{"id":"y"}]}`, `[{"op":"remove","path":"/tags/[id=\"y\"]"}]`, `{"tags":[{"id":"x"},3]}`, "/tags"},
		{"a key may be a number", `{"l":[{"no":1},{"no":2.0,"q":1}]}`, `[{"op":"incr","path":"/l/[no=2]/q","value":1}]`, `{"l":[{"no":1},{"no":2.0,"q":2}]}`, "/l/1/q"},
		{"brackets name a member of an object", `{"[id=1]":2}`, `[{"op":"incr","path":"/[id=1]","value":1}]`, `{"[id=1]":3}`, "/[id=1]"},
		{"digits name a member of an object", `{"0":2}`, `[{"op":"incr","path":"/0","value":1}]`, `{"0":3}`, "/0"},
		{"* names a member of an object", `{"*":2}`, `[{"op":"incr","path":"/*","value":1}]`, `{"*":3}`, "/*"},
		{"escapes in names", `{"a/b":{"~":1,"\u00e9\"":2}}`, `[{"op":"set","path":"/a~1b/é\"","value":3}]`, `{"a/b":{"~":1,"\u00e9\"":3}}`, `/a~1b/é"`},
		{"a new name is quoted", `{"a":1}`, `[{"op":"set","path":"/b\"\\","value":3}]`, `{"a":1,"b\"\\":3}`, `/b"\`},
		{"operations see the ones before", `{"a":1}`, `[{"op":"add","path":"/b","value":{}},{"op":"add","path":"/b/c","value":[]},{"op":"add","path":"/b/c/-","value":1},{"op":"incr","path":"/b/c/0","value":1},{"op":"remove","path":"/a"}]`, `{"b":{"c":[2]}}`, "/a /b/c/0 /b/c /b/c /b"},
		{"values keep their form", `{"a":1}`, `[{"op":"set","path":"/a","value":{ "x" : 1.50e+0 }}]`, `{"a":{ "x" : 1.50e+0 }}`, "/a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := compile(t, c.ops)
			if err != nil {
				t.Fatal(err)
			}
			body := []byte(c.body)
			after, undo, err := p.Apply(body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(after)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.paths, paths(undo)); diff != "" {
				t.Error(diff)
			}
			checkUndo(t, c.body, body, after, undo)
		})
	}
}

// checkUndo reports whether undo turns after back into before, and that body, which
// was before, was not written to.
func checkUndo(tb testing.TB, before string, body, after []byte, undo []document.Splice) {
	tb.Helper()
	if string(body) != before {
		tb.Fatalf("the item was written to: %s", body)
	}
	if err := document.Check(after); err != nil {
		tb.Fatalf("%v: %s", err, after)
	}
	back, err := document.Undo(after, undo)
	if err != nil || string(back) != before {
		tb.Fatalf("undone to %s (%v), want %s; undo %v", back, err, before, undo)
	}
	if back, err = undoOneByOne(after, undo); err != nil || string(back) != before {
		tb.Fatalf("splice by splice undone to %s (%v), want %s", back, err, before)
	}
}

func paths(undo []document.Splice) string {
	list := make([]string, len(undo))
	for i := range undo {
		list[i] = undo[i].Path
	}
	return strings.Join(list, " ")
}

func TestPatchRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 127) + "[]" + strings.Repeat("}", 127)
	for _, c := range []struct{ name, body, ops, want string }{
		{"no operation", `{}`, `[]`, "a patch has at least one operation"},
		{"too many", `{}`, `[` + strings.Repeat(`{"op":"remove","path":"/a"},`, 10) + `{"op":"remove","path":"/a"}]`, "the patch has 11 operations, more than 10"},
		{"an unknown operation", `{}`, `[{"op":"test","path":"/a"}]`, `operation 0: "/a": there is no operation "test", only add, set, replace, remove, incr and move`},
		{"no pointer", `{}`, `[{"op":"set","path":"a"}]`, `operation 0: "a": path "a", column 1: a JSON pointer begins with /`},
		{"the item itself", `{}`, `[{"op":"remove","path":""}]`, `operation 0: "": a patch changes values in an item, not the item itself; replace it`},
		{"the id", `{"id":"x"}`, `[{"op":"set","path":"/a"},{"op":"set","path":"/id","value":"y"}]`, `operation 1: "/id": the id of an item cannot be changed`},
		{"moving the id", `{"id":"x"}`, `[{"op":"move","path":"/a","from":"/id"}]`, `operation 0: "/id": the id of an item cannot be changed`},
		{"system properties", `{}`, `[{"op":"set","path":"/_etag","value":"y"}]`, `operation 0: "/_etag": is the store's own`},
		{"no number to add", `{}`, `[{"op":"incr","path":"/a","value":"1"}]`, `operation 0: "/a": incr adds a number, not a string`},
		{"nothing to add", `{}`, `[{"op":"incr","path":"/a"}]`, `operation 0: "/a": incr has no value`},
		{"a name twice in a value", `{}`, `[{"op":"set","path":"/a","value":{"x":1,"x":2}}]`, `operation 0: "/a": the value is no JSON: line 1, column 8: the object has a member "x" already`},
		{"a move into itself", `{"a":{}}`, `[{"op":"move","from":"/a","path":"/a/b"}]`, `operation 0: "/a/b": lies within "/a", which is moved`},

		{"a missing parent", `{"a":{}}`, `[{"op":"set","path":"/a/b/c","value":1}]`, `operation 0: "/a/b/c": /a/b: does not exist`},
		{"a parent that holds nothing", `{"a":"x"}`, `[{"op":"set","path":"/a/b","value":1}]`, `operation 0: "/a/b": /a is a string, which holds nothing`},
		{"add beyond the array", `{"a":[1]}`, `[{"op":"add","path":"/a/2","value":1}]`, `operation 0: "/a/2": the index is out of bounds of an array of 1`},
		{"set beyond the array", `{"a":[1]}`, `[{"op":"set","path":"/a/2","value":1}]`, `operation 0: "/a/2": the index is out of bounds of an array of 1`},
		{"a name in an array", `{"a":[1]}`, `[{"op":"set","path":"/a/b","value":1}]`, `operation 0: "/a/b": "b" is no index of an array`},
		{"a leading zero", `{"a":[1]}`, `[{"op":"set","path":"/a/00","value":1}]`, `operation 0: "/a/00": "00" is no index of an array`},
		{"* in an array", `{"a":[1]}`, `[{"op":"set","path":"/a/*","value":1}]`, `operation 0: "/a/*": "*" is no index of an array`},
		{"replace what is missing", `{}`, `[{"op":"replace","path":"/a","value":1}]`, `operation 0: "/a": does not exist`},
		{"replace at the length", `{"a":[]}`, `[{"op":"replace","path":"/a/0","value":1}]`, `operation 0: "/a/0": the index is out of bounds of an array of 0`},
		{"replace at -", `{"a":[]}`, `[{"op":"replace","path":"/a/-","value":1}]`, `operation 0: "/a/-": - is the place after the last element, where nothing is`},
		{"remove what is missing", `{}`, `[{"op":"remove","path":"/a"}]`, `operation 0: "/a": does not exist`},
		{"no element of that key", `{"a":[{"id":"x"}]}`, `[{"op":"set","path":"/a/[id=\"y\"]/b","value":1}]`, `operation 0: "/a/[id=\"y\"]/b": /a/[id="y"]: no element of the array has id = "y"`},
		{"insert at a key", `{"a":[{"id":"x"}]}`, `[{"op":"add","path":"/a/[id=\"x\"]","value":1}]`, `operation 0: "/a/[id=\"x\"]": an element is inserted at an index or at -, not at a key`},
		{"incr what is no number", `{"a":"1"}`, `[{"op":"incr","path":"/a","value":1}]`, `operation 0: "/a": is a string, not a number`},
		{"incr without end", `{"a":1e1000}`, `[{"op":"incr","path":"/a","value":1}]`, `operation 0: "/a": the exact sum would need more than 512 digits`},
		{"move what is missing", `{}`, `[{"op":"move","from":"/a","path":"/b"}]`, `operation 0: "/a": does not exist`},
		{"the second fails", `{"a":1}`, `[{"op":"remove","path":"/a"},{"op":"remove","path":"/a"}]`, `operation 1: "/a": does not exist`},
		{"too deep by a value", `{"a":{}}`, `[{"op":"set","path":"/a/b","value":` + deep[5:len(deep)-1] + `}]`, `operation 0: "/a/b": the item would be nested more than 128 deep`},
		{"too deep by a move", `{"b":` + deep[5:len(deep)-1] + `,"a":{}}`, `[{"op":"move","from":"/b","path":"/a/b"}]`, `operation 0: "/a/b": the item would be nested more than 128 deep`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := compile(t, c.ops)
			if err == nil {
				var after []byte
				after, _, err = p.Apply([]byte(c.body))
				if err == nil {
					t.Fatalf("patched to %s, want %s", after, c.want)
				}
			}
			if err.Error() != c.want {
				t.Errorf("\n got %v\nwant %s", err, c.want)
			}
			if _, ok := errors.AsType[*document.PatchError](err); !ok {
				t.Errorf("%T is no PatchError", err)
			}
		})
	}
}

func TestPatchRules(t *testing.T) {
	key, err := document.ParsePointer("/address/city")
	if err != nil {
		t.Fatal(err)
	}
	rules := document.PatchRules{OpsMax: 1, Protected: []document.Path{key}}
	for _, c := range []struct{ kind, from, path, want string }{
		{"set", "", "/address/zip", ""},
		{"set", "", "/address/city", `operation 0: "/address/city": /address/city is part of the partition key, which cannot be changed`},
		{"set", "", "/address", `operation 0: "/address": /address/city is part of the partition key, which cannot be changed`},
		{"remove", "", "/address/city/x", `operation 0: "/address/city/x": /address/city is part of the partition key, which cannot be changed`},
		{"move", "/address", "/a", `operation 0: "/address": /address/city is part of the partition key, which cannot be changed`},
	} {
		got := ""
		if _, err := rules.Compile([]document.Op{{Kind: c.kind, From: c.from, Path: c.path}}); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s %s %s:\n got %s\nwant %s", c.kind, c.from, c.path, got, c.want)
		}
	}
	if _, err := rules.Compile(make([]document.Op, 2)); err == nil {
		t.Error("a patch of two operations was compiled where one is allowed")
	}
	many := make([]document.Op, 50)
	for i := range many {
		many[i] = document.Op{Kind: document.OpIncr, Path: "/n", Value: json.RawMessage("1")}
	}
	p, err := document.PatchRules{OpsMax: -1}.Compile(many)
	if err != nil {
		t.Fatal(err)
	}
	after, undo, err := p.Apply([]byte(`{}`))
	if err != nil || string(after) != `{"n":50}` {
		t.Errorf("patched to %s (%v)", after, err)
	}
	checkUndo(t, `{}`, []byte(`{}`), after, undo)
}

func TestPatchSize(t *testing.T) {
	body := []byte(`{"a":"` + strings.Repeat("x", document.SizeMax-20) + `"}`)
	p, err := compile(t, `[{"op":"set","path":"/b","value":"`+strings.Repeat("y", 20)+`"}]`)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Apply(body); !isSizeError(err) {
		t.Errorf("an item became too large: %v", err)
	}
}

func isSizeError(err error) bool {
	_, ok := errors.AsType[*document.SizeError](err)
	return ok
}

func ExamplePatch_Apply() {
	patch, err := document.CompilePatch([]document.Op{
		{Kind: document.OpSet, Path: `/tags/[id="t2"]/name`, Value: json.RawMessage(`"Sale"`)},
		{Kind: document.OpIncr, Path: "/stock", Value: json.RawMessage("-1")},
	})
	if err != nil {
		panic(err)
	}
	item := []byte(`{"id": "p1", "tags": [{"id":"t1","name":"New"}, {"id":"t2","name":"Old"}], "stock": 9007199254740993}`)
	after, undo, err := patch.Apply(item)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", after)
	for _, s := range undo {
		fmt.Printf("%s was %s\n", s.Path, s.Old)
	}
	// Output:
	// {"id": "p1", "tags": [{"id":"t1","name":"New"}, {"id":"t2","name":"Sale"}], "stock": 9007199254740992}
	// /stock was 9007199254740993
	// /tags/1/name was "Old"
}
