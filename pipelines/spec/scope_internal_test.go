package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed/document"
)

// TestScopeReads shows what the names in expressions of each depth read of an item.
func TestScopeReads(t *testing.T) {
	for _, c := range []struct {
		name, each, expr string
		bareItem         bool
		want             []string
	}{
		{"an item", "", "a.b + item.c + c.d + root.e", false, []string{"/a/b", "/c", "/d", "/e"}},
		{"names of elements are properties of an item", "", "element + index", false, []string{"/element", "/index"}},
		{"an element", "details", "price * element.quantity", false, []string{"/details/*/price", "/details/*/quantity"}},
		{"what holds it", "details", "parent.id = item.id", false, []string{"/id", "/id"}},
		{"where it stands", "details", "index", false, []string{"/details/*/"}},
		{"an element in an element", "a.b[*].c", "x + parent.y + item.z", false, []string{"/a/b/*/c/*/x", "/a/b/*/y", "/z"}},
		{"where they stand", "a[*].b", "index + parentIndex", false, []string{"/a/*/b/*/", "/a/*/"}},
		{"the item first", "details", `type = "x" AND element.sku = item.sku AND index = 0`, true, []string{"/type", "/sku", "/details/*/sku", "/details/*/"}},
		{"an index", "", "addresses[0].city", false, []string{"/addresses/0/city"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scopeOf(arrays(t, c.each))
			s.bareItem = c.bareItem
			e, err := s.Parse(c.expr)
			if err != nil {
				t.Fatal(err)
			}
			reads := s.reads(Expression{c.expr, e})
			got := map[string]int{}
			for _, path := range reads {
				got[path.Pointer()]++
			}
			want := map[string]int{}
			for _, pointer := range c.want {
				want[pointer] = 1
			}
			for pointer := range got {
				got[pointer] = 1
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// arrays parses each, "" for none.
func arrays(t *testing.T, each string) document.Field {
	t.Helper()
	if each == "" {
		return document.Field{}
	}
	f, err := document.NewField(each)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestScopeCount shows that where an element stands changes with the array, and
// not with a field of an element.
func TestScopeCount(t *testing.T) {
	s := scopeOf(arrays(t, "details"))
	for pointer, want := range map[string]bool{"": true, "/details": true, "/details/3": true, "/details/3/price": false, "/other": false} {
		if got := s.counts()[0].Touched(pointer); got != want {
			t.Errorf("a change of %q touches it: %t, want %t", pointer, got, want)
		}
	}
}
