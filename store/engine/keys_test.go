package engine_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

func TestItemKey_comesBack(t *testing.T) {
	for _, k := range []feed.PartitionKey{
		key(t, "a"), key(t, ""), key(t, "Zoë"), key(t, nil), key(t, true), key(t, false), key(t, feed.Missing),
		key(t, 1.5), key(t, -1.5), key(t, 0), key(t, "a", "b"), key(t, "a", 7, nil), key(t, strings.Repeat("x", 2048)),
	} {
		for _, id := range []string{"1", "a b", "ü", strings.Repeat("i", 1023)} {
			gotKey, gotID, err := engine.ParseItemKey(engine.ItemKey(k, id))
			if err != nil || gotKey != k || gotID != id {
				t.Errorf("%s/%s came back as %s/%s, %v", k, id, gotKey, gotID, err)
			}
		}
	}
}

func TestItemKey_keepsLogicalPartitionsTogether(t *testing.T) {
	var keys [][]byte
	for _, k := range []feed.PartitionKey{key(t, "a"), key(t, "ab"), key(t, "b"), key(t, 1), key(t, "a", "b")} {
		for _, id := range []string{"2", "1", "11"} {
			keys = append(keys, engine.ItemKey(k, id))
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	var seen []string
	for i, b := range keys {
		k, id, err := engine.ParseItemKey(b)
		must(t, err)
		if !bytes.HasPrefix(b, engine.LogicalPrefix(k)) || !bytes.HasPrefix(b, engine.HashPrefix(k.Levels(), k.Hash())) {
			t.Errorf("key of %s/%s does not begin with its prefixes", k, id)
		}
		if want := []string{"1", "11", "2"}[i%3]; id != want {
			t.Errorf("id %s at place %d of %s, want %s", id, i%3, k, want)
		}
		if i%3 == 0 {
			if slices.Contains(seen, k.String()) {
				t.Errorf("items of %s do not stand together", k)
			}
			seen = append(seen, k.String())
		}
	}
}

func FuzzParseItemKey(f *testing.F) {
	f.Add(engine.ItemKey(key(f, "a"), "1"))
	f.Add(engine.ItemKey(key(f, "a", 1, nil), "1"))
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, id, err := engine.ParseItemKey(b)
		if err != nil {
			if !errors.Is(err, engine.ErrItemKey) {
				t.Fatalf("error %v is no ErrItemKey", err)
			}
			return
		}
		// The hash is not compared when a key is read: whoever wrote it computed it.
		want := engine.ItemKey(k, id)
		if len(want) != len(b) || !bytes.Equal(want[1+16*k.Levels():], b[1+16*k.Levels():]) {
			t.Fatalf("%x was read as %s/%s, whose key is %x", b, k, id, want)
		}
	})
}

func TestExpires(t *testing.T) {
	seconds := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		name string
		ttl  *int64
		body string
		want int64
	}{
		{"off: nothing ends", nil, `{"ttl":10}`, 0},
		{"on: without ttl never", seconds(-1), `{"a":1}`, 0},
		{"on: own ttl counts", seconds(-1), `{"ttl":10}`, 11_000},
		{"on: own -1 is never", seconds(-1), `{"ttl":-1}`, 0},
		{"default counts", seconds(60), `{"a":{"ttl":5}}`, 61_000},
		{"own ttl before default", seconds(60), `{"ttl":5}`, 6_000},
		{"own -1 before default", seconds(60), `{"ttl":-1}`, 0},
		{"other forms of whole numbers", seconds(60), `{"ttl":1e1}`, 11_000},
		{"null counts as absent", seconds(60), `{"ttl":null}`, 61_000},
		{"zero counts as absent", seconds(60), `{"ttl":0}`, 61_000},
		{"a fraction counts as absent", seconds(60), `{"ttl":1.5}`, 61_000},
		{"a text counts as absent", seconds(60), `{"ttl":"5"}`, 61_000},
		{"longest", seconds(-1), `{"ttl":2147483647}`, 2147483647*1000 + 1000},
		{"too long counts as absent", seconds(-1), `{"ttl":2147483648}`, 0},
		{"far too long counts as absent", seconds(-1), `{"ttl":99999999999999999999}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := engine.Schema{DefaultTTL: c.ttl}
			if got := s.Expires([]byte(c.body), 1000); got != c.want {
				t.Errorf("Expires(%s) = %d, want %d", c.body, got, c.want)
			}
		})
	}
}

func TestIndexValue(t *testing.T) {
	form := func(raw string) string { return string(engine.AppendIndexValue(nil, []byte(raw))) }
	long := strings.Repeat("a", 2000)
	equal := [][2]string{{"1", "1.0"}, {"100", "1e2"}, {`"a"`, `"\u0061"`}, {`"` + long + `"`, `"\u0061` + long[1:] + `"`}}
	for _, e := range equal {
		if form(e[0]) != form(e[1]) {
			t.Errorf("%.40s and %.40s are equal and have different forms", e[0], e[1])
		}
	}
	different := [][2]string{{"1", `"1"`}, {"null", "false"}, {`"` + long + `b"`, `"` + long + `c"`}, {`""`, "null"}}
	for _, d := range different {
		if form(d[0]) == form(d[1]) {
			t.Errorf("%.40s and %.40s differ and have the same form", d[0], d[1])
		}
	}
	if n := len(form(`"` + long + `"`)); n != engine.IndexValueMax {
		t.Errorf("a long value takes %d bytes, want %d", n, engine.IndexValueMax)
	}
	for _, raw := range []string{"[]", "{}", `["a"]`} {
		if form(raw) != "" {
			t.Errorf("%s is no scalar and has the form %x", raw, form(raw))
		}
	}
}

func TestUnique(t *testing.T) {
	p := newPartition(t)
	s := &engine.Schema{UniqueKeys: []engine.UniqueKey{{Number: 1, Paths: pathsOf(t, "/sku", "/site")}}}
	a, b := key(t, "a"), key(t, "b")
	long := strings.Repeat("l", 3000)
	put(t, p, s,
		item(a, "1", `{"sku":"x","site":1}`), item(b, "2", `{"sku":"x","site":1}`), item(a, "3", `{"sku":"x"}`),
		item(a, "4", `{"sku":"`+long+`1"}`), item(a, "5", `{"sku":"`+long+`2"}`),
		item(a, "6", `{"sku":{"b":[1,"x"],"a":2}}`),
	)
	snap := p.Snapshot()
	defer snap.Close()
	for _, c := range []struct {
		name string
		key  feed.PartitionKey
		body string
		want string
	}{
		{"equal values are taken", a, `{"sku":"\u0078","site":1.0}`, "1"},
		{"another logical partition is another scope", b, `{"sku":"x","site":1}`, "2"},
		{"missing is null", a, `{"sku":"x","site":null}`, "3"},
		{"another value is free", a, `{"sku":"x","site":2}`, ""},
		{"types differ", a, `{"sku":"x","site":"1"}`, ""},
		{"long values differ in their end", a, `{"sku":"` + long + `2"}`, "5"},
		{"long value that is free", a, `{"sku":"` + long + `3"}`, ""},
		{"objects are equal in any order", a, `{"sku":{ "a": 2, "b": [1.0, "x"] }}`, "6"},
		{"values do not run together", a, `{"sku":{"b":[1],"a":2}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, ok, err := snap.Unique(c.key, 1, s.UniqueKeys[0].Values([]byte(c.body)))
			must(t, err)
			if diff := cmp.Diff(c.want, id); diff != "" || ok != (c.want != "") {
				t.Errorf("%s: taken %v by %q, want %q", c.body, ok, id, c.want)
			}
		})
	}
}
