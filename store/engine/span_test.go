package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// spanWorld is a partition with an ordered index on /v and what must be in it.
type spanWorld struct {
	p       *engine.Partition
	entries []string // keys of the index's entries in order
	items   []string // item keys in order
}

func newSpanWorld(t *testing.T, r *rand.Rand, n int) *spanWorld {
	t.Helper()
	schema := schemaOf(t, "/v")
	schema.Indexes[0].Ordered = true
	w := &spanWorld{p: newPartition(t)}
	keys := []feed.PartitionKey{key(t, "a"), key(t, "b"), key(t, 1)}
	b := w.p.NewBatch(schema)
	for i := range n {
		it := item(keys[r.IntN(len(keys))], fmt.Sprintf("i%03d", i), "{}")
		form := ""
		if v := spanValue(r); v != "" {
			it.Body = []byte(`{"v":` + v + `}`)
			switch v[0] {
			case '[':
				form = "\x10"
			case '{':
				form = "\x11"
			default:
				form = string(engine.AppendIndexValue(nil, []byte(v)))
			}
		}
		must(t, b.Put(it, nil))
		itemKey := string(engine.ItemKey(it.Key, it.ID))
		w.items = append(w.items, itemKey)
		if form != "" {
			w.entries = append(w.entries, form+itemKey)
		}
	}
	must(t, b.Commit())
	slices.Sort(w.entries)
	slices.Sort(w.items)
	return w
}

// spanValue returns a random raw value, "" for none.
func spanValue(r *rand.Rand) string {
	switch r.IntN(9) {
	case 0:
		return ""
	case 1:
		return []string{"null", "true", "false"}[r.IntN(3)]
	case 2:
		return []string{"[]", "[1,2]", "{}", `{"a":1}`}[r.IntN(4)]
	case 3:
		return fmt.Sprintf("-%d.%d", r.IntN(20), r.IntN(3))
	case 4:
		return `"` + strings.Repeat("long", 200) + fmt.Sprint(r.IntN(3)) + `"`
	case 5:
		return `"` + []string{"", "a", "ab", `\u0000`, `a\u0000`, "ä"}[r.IntN(6)] + `"`
	}
	return fmt.Sprintf("%d", r.IntN(12))
}

func within(keys []string, span engine.Span, desc bool) []string {
	found := []string{}
	for _, k := range keys {
		if span.Contains([]byte(k)) {
			found = append(found, k)
		}
	}
	if desc {
		slices.Reverse(found)
	}
	return found
}

// bounds returns a random span whose ends are keys, beginnings of keys, or open.
func bounds(r *rand.Rand, keys []string) engine.Span {
	end := func() []byte {
		k := []byte(keys[r.IntN(len(keys))])
		switch r.IntN(4) {
		case 0:
			return nil
		case 1:
			return k[:1+r.IntN(len(k))]
		}
		return k
	}
	return engine.Span{Min: end(), Max: end()}
}

func TestSpansShowTheirKeysInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	w := newSpanWorld(t, r, 300)
	s := w.p.Snapshot()
	defer s.Close()
	for i := range 400 {
		desc := r.IntN(2) == 0
		span := bounds(r, w.entries)
		if i == 0 {
			span = engine.Span{}
		}
		got := []string{}
		for e, err := range s.IndexSpan(1, span, desc) {
			must(t, err)
			got = append(got, string(e.Key))
			v, err := s.Find(e.ItemKey())
			must(t, err)
			form := engine.AppendIndexValue(nil, bytes.TrimSuffix(bytes.TrimPrefix(v.Body, []byte(`{"v":`)), []byte("}")))
			if len(form) > 0 && !bytes.Equal(form, e.Value()) {
				t.Fatalf("entry %x of the item %s has the value %x, want %x", e.Key, v.Body, e.Value(), form)
			}
		}
		if diff := cmp.Diff(within(w.entries, span, desc), got); diff != "" {
			t.Fatalf("entries from %x to %x, desc %v (-want +got):\n%s", span.Min, span.Max, desc, diff)
		}
		span, got = bounds(r, w.items), []string{}
		for v, err := range s.ItemSpan(span, desc) {
			must(t, err)
			got = append(got, string(v.ItemKey()))
		}
		want := within(w.items, span, desc)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("items from %x to %x, desc %v (-want +got):\n%s", span.Min, span.Max, desc, diff)
		}
		n := 0
		for itemKey, err := range s.ItemKeys(span) {
			must(t, err)
			if want := within(w.items, span, false); string(itemKey) != want[n] {
				t.Fatalf("item key %d is %x, want %x", n, itemKey, want[n])
			}
			n++
		}
		if n != len(want) {
			t.Fatalf("%d item keys, want %d", n, len(want))
		}
	}
}

func TestPrefixSpanHoldsWhatBeginsSo(t *testing.T) {
	for prefix, last := range map[string]string{"a": "b", "a\xff": "b", "\xff": "", "": "", "\x08a\x00\x01": "\x08a\x00\x02"} {
		if got := string(engine.PrefixEnd([]byte(prefix))); got != last {
			t.Errorf("behind %x comes %x, want %x", prefix, got, last)
		}
	}
	span := engine.PrefixSpan([]byte("ab"))
	for key, want := range map[string]bool{"ab": true, "ab\xff\xff": true, "aa\xff": false, "ac": false} {
		if got := span.Contains([]byte(key)); got != want {
			t.Errorf("%q: %v", key, got)
		}
	}
	if s := span.From([]byte("abc")).Until([]byte("abb")); !s.Empty() {
		t.Errorf("%q to %q is not empty", s.Min, s.Max)
	}
}

// FuzzIndexValueLen reads keys of entries, foreign ones too.
func FuzzIndexValueLen(f *testing.F) {
	for _, v := range []string{"null", "0", "-1.5", "12e100", `"a\u0000b"`, `""`, `"` + strings.Repeat("x", 600) + `"`, strings.Repeat("9", 2000)} {
		f.Add([]byte(v))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := engine.IndexValueLen(data); n == 0 || n > len(data) {
			t.Errorf("%d of %d bytes", n, len(data))
		}
	})
	for _, v := range []string{"null", "true", "0", "-0.0", "-1.5", "7", "12e100", `"a\u0000b"`, `""`, `"` + strings.Repeat("x", 600) + `"`, strings.Repeat("9", 2000)} {
		form := engine.AppendIndexValue(nil, []byte(v))
		if n := engine.IndexValueLen(append(slices.Clone(form), "rest\x00\x01\xff"...)); n != len(form) {
			f.Errorf("the form of %.20s has %d bytes, %d were found", v, len(form), n)
		}
	}
}
