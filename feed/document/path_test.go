package document_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed/document"
)

func TestParsePointer(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       document.Path
	}{
		{"the item itself", "", nil},
		{"members", "/a/b", document.Path{{Name: "a"}, {Name: "b"}}},
		{"an index may be a member's name", "/a/0", document.Path{{Name: "a"}, {Name: "0", IsIndex: true}}},
		{"a leading zero makes a name", "/01", document.Path{{Name: "01"}}},
		{"escapes", "/a~1b/~0~01", document.Path{{Name: "a/b"}, {Name: "~~1"}}},
		{"empty names", "//", document.Path{{Name: ""}, {Name: ""}}},
		{"every element", "/tags/*/id", document.Path{{Name: "tags"}, {Name: "*", All: true}, {Name: "id"}}},
		{"the end of an array", "/tags/-", document.Path{{Name: "tags"}, {Name: "-"}}},
		{
			"an element by key", `/tags/[id="x"]/name`,
			document.Path{{Name: "tags"}, {Name: `[id="x"]`, KeyName: "id", KeyValue: `"x"`}, {Name: "name"}},
		},
		{
			"an element by a key with a slash", `/t/[id = "x~1y"]`,
			document.Path{{Name: "t"}, {Name: `[id = "x/y"]`, KeyName: "id", KeyValue: `"x/y"`}},
		},
		{"brackets that are no key are a name", "/[x]", document.Path{{Name: "[x]"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := document.ParsePointer(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if again := got.Pointer(); again != c.text {
				t.Errorf("printed as %q, want %q", again, c.text)
			}
		})
	}
}

func TestParseField(t *testing.T) {
	for _, c := range []struct {
		text, printed string
		want          document.Path
	}{
		{"a", "a", document.Path{{Name: "a"}}},
		{" a.b ", "a.b", document.Path{{Name: "a"}, {Name: "b"}}},
		{"a[0].c", "a[0].c", document.Path{{Name: "a"}, {Index: 0, IsIndex: true}, {Name: "c"}}},
		{"tags[*].id", "tags[*].id", document.Path{{Name: "tags"}, {All: true}, {Name: "id"}}},
		{`a["b c"]['d"']`, `a["b c"]["d\""]`, document.Path{{Name: "a"}, {Name: "b c"}, {Name: `d"`}}},
		{`tags[id = "x"].name`, `tags[id = "x"].name`, document.Path{{Name: "tags"}, {KeyName: "id", KeyValue: `"x"`}, {Name: "name"}}},
		{`tags[ id='x]' ]`, `tags[id = "x]"]`, document.Path{{Name: "tags"}, {KeyName: "id", KeyValue: `"x]"`}}},
		{`lines["the no" = 3]`, `lines["the no" = 3]`, document.Path{{Name: "lines"}, {KeyName: "the no", KeyValue: "3"}}},
		{`straße.größe-1`, `straße.größe-1`, document.Path{{Name: "straße"}, {Name: "größe-1"}}},
		{`[""]`, `[""]`, document.Path{{Name: ""}}},
	} {
		t.Run(c.text, func(t *testing.T) {
			got, err := document.ParseField(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if got.String() != c.printed {
				t.Errorf("printed as %s, want %s", got, c.printed)
			}
		})
	}
}

func TestPathErrors(t *testing.T) {
	for _, c := range []struct {
		parse func(string) (document.Path, error)
		text  string
		want  string
	}{
		{document.ParsePointer, "a", `path "a", column 1: a JSON pointer begins with /`},
		{document.ParsePointer, "/a/~2", `path "/a/~2", column 4: ~ must be written ~0, and / in a name ~1`},
		{document.ParseField, "", `path "", column 1: want a name`},
		{document.ParseField, "a..b", `path "a..b", column 3: want a name; one that is not plain is written ["…"]`},
		{document.ParseField, "a.", `path "a.", column 3: want a name; one that is not plain is written ["…"]`},
		{document.ParseField, "a b", `path "a b", column 2: want . or [ or the end`},
		{document.ParseField, "ä[x]", `path "ä[x]", column 4: want an index, *, a quoted name or key = value`},
		{document.ParseField, "a[0", `path "a[0", column 4: want ]`},
		{document.ParseField, "a[", `path "a[", column 3: want an index, *, a name or a key`},
		{document.ParseField, `a["b]`, `path "a[\"b]", column 3: the quoted text does not end`},
		{document.ParseField, `a[b = ]`, `path "a[b = ]", column 7: want a string, a number, true, false or null`},
		{document.ParseField, `a[b = [1]]`, `path "a[b = [1]]", column 7: want a string, a number, true, false or null`},
	} {
		_, err := c.parse(c.text)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
		if pe, ok := errors.AsType[*document.PathError](err); !ok || pe.Text != c.text {
			t.Errorf("%q: %T is no PathError of the text", c.text, err)
		}
	}
}

func TestTouched(t *testing.T) {
	for _, c := range []struct {
		path, change string
		want         bool
	}{
		{"name", "/name", true},
		{"name", "/names", false},
		{"name", "", true},
		{"address.city", "/address", true},
		{"address", "/address/city", true},
		{"address.city", "/address/zip", false},
		{"tags[*].name", "/tags/3/name", true},
		{"tags[*].name", "/tags/*/name", true},
		{"tags[*].name", "/tags/*/id", false},
		{"tags[*].name", "/tags", true},
		{"tags[*].name", "/tags/name", false},
		{"tags[1].name", "/tags/1/name", true},
		{"tags[1].name", "/tags/2/name", false},
		{"tags[1].name", "/tags/*/name", true},
		{`tags[id = "x"].name`, "/tags/0/name", true},
		{`tags[id = "x"].name`, `/tags/[id="y"]/name`, true},
		{`a["b/c"]`, "/a/b~1c", true},
	} {
		p, err := document.ParseField(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Touched(c.change); got != c.want {
			t.Errorf("%s touched by %q: %v, want %v", c.path, c.change, got, c.want)
		}
	}
}
