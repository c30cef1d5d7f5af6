package document_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed/document"
)

// fields reads "path=value" pairs; a pair without a value stands for absence.
func fields(tb testing.TB, pairs ...string) []document.FieldValue {
	tb.Helper()
	var list []document.FieldValue
	for _, pair := range pairs {
		path, value, found := strings.Cut(pair, ":=")
		p, err := document.ParseField(path)
		if err != nil {
			tb.Fatal(err)
		}
		f := document.FieldValue{Path: p}
		if found {
			f.Value = []byte(value)
		}
		list = append(list, f)
	}
	return list
}

func TestSetter(t *testing.T) {
	for _, c := range []struct {
		name, body string
		fields     []string
		want       string // "" = unchanged
		paths      string
	}{
		{"a field", `{"a":1, "b" : 2}`, []string{`b:="x"`}, `{"a":1, "b" : "x"}`, "/b"},
		{"two fields in any order", `{"a":1,"b":2,"c":3}`, []string{`c:=4`, `a:=5`}, `{"a":5,"b":2,"c":4}`, "/c /a"},
		{"what is equal stays", `{"a":1.0,"b":"\u0061"}`, []string{`a:=1`, `b:="a"`}, "", ""},
		{"a missing field", "{\n  \"a\": 1\n}", []string{`b:=2`}, "{\n  \"a\": 1,\"b\":2\n}", "/b"},
		{"fields of an empty object", `{ }`, []string{`a:=1`, `b:=2`}, `{"a":1,"b":2 }`, "/b /a"},
		{"a nested field", `{"a":{"b":{"c":1}}}`, []string{`a.b.c:=2`}, `{"a":{"b":{"c":2}}}`, "/a/b/c"},
		{"missing parents", `{"x":0}`, []string{`a.b.c:=2`, `a.b.d:=3`, `a.e`}, `{"x":0,"a":{"b":{"c":2,"d":3}}}`, "/a"},
		{"a missing parent below one", `{"a":{"x":0}}`, []string{`a.b.c:=2`}, `{"a":{"x":0,"b":{"c":2}}}`, "/a/b"},
		{"null in place of a parent", `{"a":null}`, []string{`a.b:=2`}, `{"a":{"b":2}}`, "/a"},
		{"a removed field", `{"a":1,"b":2,"c":3}`, []string{`b`}, `{"a":1,"c":3}`, "/b"},
		{"the first removed", `{"a":1, "b":2}`, []string{`a`}, `{"b":2}`, "/a"},
		{"the last removed", `{"a":1, "b":2 }`, []string{`b`}, `{"a":1 }`, "/b"},
		{"all removed", `{"a":1,"b":2}`, []string{`a`, `b`}, `{}`, "/b /a"},
		{"all removed and one made", `{"a":1,"b":2}`, []string{`a`, `b`, `c:=3`}, `{"c":3}`, "/c /b /a"},
		{"the first two removed", `{"a":1,"b":2,"c":3}`, []string{`a`, `b`}, `{"c":3}`, "/b /a"},
		{"the first and third removed", `{"a":1,"b":2,"c":3,"d":4}`, []string{`a`, `c`}, `{"b":2,"d":4}`, "/c /a"},
		{"the last two removed, one made", `{"a":1,"b":2,"c":3}`, []string{`b`, `c`, `d:=4`}, `{"a":1,"d":4}`, "/d /c /b"},
		{"nothing to remove", `{"a":1}`, []string{`b`, `c.d`, `a.x`}, "", ""},
		{"nothing to remove in null", `{"a":null}`, []string{`a.x`}, "", ""},
		{"an element by index", `{"a":[{"b":1},{"b":2}]}`, []string{`a[1].b:=3`}, `{"a":[{"b":1},{"b":3}]}`, "/a/1/b"},
		{"an element by key", `{"a":[{"id":"x"},{"id":"y"}]}`, []string{`a[id = "y"].n:=3`}, `{"a":[{"id":"x"},{"id":"y","n":3}]}`, `/a/[id="y"]/n`},
		{"names with escapes", `{"a\u0062":1}`, []string{`ab:=2`}, `{"a\u0062":2}`, "/ab"},
		{"a name to be quoted", `{}`, []string{`["\"\n"]:=2`}, `{"\"\n":2}`, "/\"\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := document.NewSetter(fields(t, c.fields...))
			if err != nil {
				t.Fatal(err)
			}
			body := []byte(c.body)
			after, undo, changed, err := s.Apply(body)
			if err != nil {
				t.Fatal(err)
			}
			want := c.want
			if want == "" {
				want = c.body
			}
			if diff := cmp.Diff(want, string(after)); diff != "" || changed != (c.want != "") {
				t.Errorf("changed: %v\n%s", changed, diff)
			}
			if diff := cmp.Diff(c.paths, paths(undo)); diff != "" {
				t.Error(diff)
			}
			checkUndo(t, c.body, body, after, undo)
			if holds, err := s.Holds(body); err != nil || holds == changed {
				t.Errorf("holds before: %v (%v)", holds, err)
			}
			if holds, err := s.Holds(after); err != nil || !holds {
				t.Errorf("holds after: %v (%v)", holds, err)
			}
		})
	}
}

func TestSetterRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		fields []string
		body   string
		want   string
	}{
		{"no JSON", []string{"a:=x"}, "", `/a: the value is no JSON: line 1, column 1: 'x' where a value must stand`},
		{"every element", []string{"b:=1", "a[*].b:=1"}, "", `/a/*/b: [*] has no single value to set`},
		{"a field twice", []string{"a:=1", "a:=2"}, "", `/a: is set twice or together with a field that it holds`},
		{"a field in a field", []string{"a:=1", "a.b:=2"}, "", `/a/b: is set together with a field that holds it`},
		{"a field that holds one", []string{"a.b:=1", "a:=2"}, "", `/a: is set twice or together with a field that it holds`},
		{"a parent that is no object", []string{"a.b:=1"}, `{"a":"x"}`, `/a: is a string, not an object`},
		{"an element that is not there", []string{"a[1].b:=1"}, `{"a":[{}]}`, `/a/1: there is no such element, and a setter makes none`},
		{"an array that is not there", []string{"a[1].b:=1"}, `{}`, `/a: there is no such element, and a setter makes none`},
		{"a member of an array", []string{"a.b:=1"}, `{"a":[{}]}`, `/a/b: there is no such element, and a setter makes none`},
		{"one element twice", []string{"a[0].b:=1", `a[id = "x"].b:=2`}, `{"a":[{"id":"x"}]}`, `/a/[id="x"]: is the same element as /a/0`},
		{"an element to remove", []string{"a[0]"}, `{"a":[1]}`, `/a/0: is an element of an array; a setter removes members only`},
		{"no object", []string{"a:=1"}, `[]`, `the item is no object`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := document.NewSetter(fields(t, c.fields...))
			if err == nil {
				_, _, _, err = s.Apply([]byte(c.body))
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("\n got %v\nwant %s", err, c.want)
			}
			if _, ok := errors.AsType[*document.PatchError](err); !ok {
				t.Errorf("%T is no PatchError", err)
			}
		})
	}
}

func TestSetterSize(t *testing.T) {
	s, err := document.NewSetter(fields(t, `b:="`+strings.Repeat("y", 20)+`"`))
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"a":"` + strings.Repeat("x", document.SizeMax-20) + `"}`)
	if _, _, _, err := s.Apply(body); !isSizeError(err) {
		t.Errorf("an item became too large: %v", err)
	}
}

func TestEachSetter(t *testing.T) {
	for _, c := range []struct {
		name, array, body string
		match, set        []string
		remove            bool
		want, paths       string
	}{
		{"the element that matches", "tags", `{"tags":[{"id":"x","name":"o"},{"id":"y","name":"o"}]}`, []string{`id:="y"`}, []string{`name:="n"`}, false, `{"tags":[{"id":"x","name":"o"},{"id":"y","name":"n"}]}`, "/tags/*/name"},
		{"every one that matches", "tags", `{"tags":[{"id":1.0,"n":1},{"id":2},{"n":1,"id":1e0}]}`, []string{`id:=1`}, []string{`n:=2`}, false, `{"tags":[{"id":1.0,"n":2},{"id":2},{"n":2,"id":1e0}]}`, "/tags/*/n /tags/*/n"},
		{"what is equal stays", "tags", `{"tags":[{"id":"y","name":"n"}]}`, []string{`id:="y"`}, []string{`name:="n"`}, false, "", ""},
		{"several fields to match", "l", `{"l":[{"a":1,"b":1},{"a":1,"b":2}]}`, []string{`a:=1`, `b:=2`}, []string{`c:=3`}, false, `{"l":[{"a":1,"b":1},{"a":1,"b":2,"c":3}]}`, "/l/*/c"},
		{"absence matches", "l", `{"l":[{"a":1,"b":1},{"a":1}]}`, []string{`a:=1`, `b`}, []string{`c:=3`}, false, `{"l":[{"a":1,"b":1},{"a":1,"c":3}]}`, "/l/*/c"},
		{"nested fields", "a.l", `{"a":{"l":[{"r":{"id":1}}]}}`, []string{`r.id:=1`}, []string{`r.name:="n"`, `s.t:=1`}, false, `{"a":{"l":[{"r":{"id":1,"name":"n"},"s":{"t":1}}]}}`, "/a/l/*/s /a/l/*/r/name"},
		{"arrays in arrays", "g[*].l", `{"g":[{"l":[{"id":1}]},{},{"l":[{"id":1},{"id":2}]}]}`, []string{`id:=1`}, []string{`n:=1`}, false, `{"g":[{"l":[{"id":1,"n":1}]},{},{"l":[{"id":1,"n":1},{"id":2}]}]}`, "/g/*/l/*/n /g/*/l/*/n"},
		{"what is no object is left", "l", `{"l":[1,null,[],{}]}`, nil, []string{`n:=1`}, false, `{"l":[1,null,[],{"n":1}]}`, "/l/*/n"},
		{"fields removed", "l", `{"l":[{"id":1,"n":1}]}`, []string{`id:=1`}, []string{`n`}, false, `{"l":[{"id":1}]}`, "/l/*/n"},
		{"the element removed", "l", `{"l":[{"id":1}, {"id":2}, {"id":1}, {"id":3}]}`, []string{`id:=1`}, nil, true, `{"l":[{"id":2}, {"id":3}]}`, "/l /l"},
		{"all elements removed", "l", `{"l":[{"id":1}, {"id":1}]}`, []string{`id:=1`}, nil, true, `{"l":[]}`, "/l /l"},
		{"the last removed", "l", `{"l":[ 5, {"id":1} ]}`, []string{`id:=1`}, nil, true, `{"l":[ 5 ]}`, "/l"},
		{"no array", "l", `{"l":{"id":1}}`, []string{`id:=1`}, []string{`n:=1`}, false, "", ""},
		{"no such member", "l", `{"a":1}`, []string{`id:=1`}, []string{`n:=1`}, false, "", ""},
		{"an empty array", "l", `{"l":[]}`, []string{`id:=1`}, []string{`n:=1`}, false, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			array, err := document.ParseField(c.array)
			if err != nil {
				t.Fatal(err)
			}
			s, err := document.NewEachSetter(array, fields(t, c.match...), fields(t, c.set...), c.remove)
			if err != nil {
				t.Fatal(err)
			}
			body := []byte(c.body)
			after, undo, changed, err := s.Apply(body)
			if err != nil {
				t.Fatal(err)
			}
			want := c.want
			if want == "" {
				want = c.body
			}
			if diff := cmp.Diff(want, string(after)); diff != "" || changed != (c.want != "") {
				t.Errorf("changed: %v\n%s", changed, diff)
			}
			if diff := cmp.Diff(c.paths, paths(undo)); diff != "" {
				t.Error(diff)
			}
			checkUndo(t, c.body, body, after, undo)
			if holds, err := s.Holds(after); err != nil || !holds {
				t.Errorf("holds after: %v (%v)", holds, err)
			}
		})
	}
}

func TestEachSetterRefuses(t *testing.T) {
	array, err := document.ParseField("tags")
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"an item": func() error { _, err := document.NewEachSetter(nil, nil, nil, true); return err },
		"set and removal": func() error {
			_, err := document.NewEachSetter(array, nil, fields(t, "a:=1"), true)
			return err
		},
		"a match that is no JSON": func() error {
			_, err := document.NewEachSetter(array, fields(t, "a:=x"), nil, true)
			return err
		},
		"a match of the element": func() error {
			_, err := document.NewEachSetter(array, []document.FieldValue{{Value: []byte("1")}}, nil, true)
			return err
		},
	} {
		if _, ok := errors.AsType[*document.PatchError](f()); !ok {
			t.Errorf("%s was compiled", name)
		}
	}
}

func ExampleSetter_Append() {
	path, _ := document.ParseField("categoryName")
	setter, err := document.NewSetter([]document.FieldValue{{Path: path, Value: []byte(`"Bikes"`)}})
	if err != nil {
		panic(err)
	}
	var after []byte
	for _, item := range []string{`{"id":"1","categoryName":"Bicycles"}`, `{"id":"2","categoryName":"Bikes"}`, `{"id":"3"}`} {
		var changed bool
		after, _, changed, err = setter.Append(after[:0], nil, []byte(item))
		fmt.Println(changed, string(after), err)
	}
	// Output:
	// true {"id":"1","categoryName":"Bikes"} <nil>
	// false  <nil>
	// true {"id":"3","categoryName":"Bikes"} <nil>
}
