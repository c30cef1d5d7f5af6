package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed/document"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, is string
		most    int // 0: all
		want    []string
	}{
		"equal, in another order and another form": {`{"a":1,"b":"x"}`, `{"b":"\u0078", "a":1.0}`, 0, nil},
		"members and elements":                     {`{"a":1,"b":[1,2]}`, `{"b":[1,3],"c":true}`, 0, []string{"a: 1 -> ", "b[1]: 2 -> 3", "c:  -> true"}},
		"below":                                    {`{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":2}}}`, 0, []string{"a.b.c: 1 -> 2"}},
		"another kind is one difference":           {`{"a":{"b":1}}`, `{"a":[1]}`, 0, []string{`a: {"b":1} -> [1]`}},
		"a longer array":                           {`{"a":[1]}`, `{"a":[1,{"b":2}]}`, 0, []string{`a[1]:  -> {"b":2}`}},
		"null is a value":                          {`{"a":null}`, `{}`, 0, []string{"a: null -> "}},
		"a name with escapes":                      {`{"\u0061":1}`, `{"a":2}`, 0, []string{"a: 1 -> 2"}},
		"all of it is new":                         {`{}`, `{"id":"x"}`, 0, []string{`id:  -> "x"`}},
		"it ends in the old object":                {`{"a":{"b":1,"c":1},"d":1}`, `{"e":1}`, 1, []string{`a: {"b":1,"c":1} -> `}},
		"it ends below":                            {`{"a":{"b":1,"c":1},"d":1}`, `{"a":{"b":2,"c":2},"e":1}`, 1, []string{"a.b: 1 -> 2"}},
		"it ends in an array":                      {`{"a":[1,2],"b":1}`, `{"a":[3,4]}`, 1, []string{"a[0]: 1 -> 3"}},
		"it ends in the new object":                {`{}`, `{"a":1,"b":1}`, 1, []string{"a:  -> 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			document.Diff(nil, []byte(c.old), []byte(c.is), func(path document.Path, old, is []byte) bool {
				got = append(got, fmt.Sprintf("%s: %s -> %s", path, old, is))
				return len(got) != c.most
			})
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestDiff_ManyMembers compares objects of very many members, which may not take the square of
// their number: that would be minutes.
func TestDiff_ManyMembers(t *testing.T) {
	t.Parallel()
	object := func(n int) []byte {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, `,"m%d":%d`, i, i)
		}
		return []byte("{" + text.String()[1:] + "}")
	}
	const members = 100_000
	differences := 0
	document.Diff(nil, object(members), object(members+1), func(document.Path, []byte, []byte) bool {
		differences++
		return true
	})
	if differences != 1 {
		t.Errorf("%d differences, want the last member", differences)
	}
}
