package accumulator_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/query"
)

// TestRank_KeysAreOrderedAsORDERBYOrdersValues compares keys of random scalars, and
// reads the values back.
func TestRank_KeysAreOrderedAsORDERBYOrdersValues(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 1))
	for _, fn := range []accumulator.Func{accumulator.Min, accumulator.Max} {
		sign := 1
		if fn == accumulator.Max {
			sign = -1
		}
		for range 30_000 {
			a, b := checkJSON(t, randomScalar(r)), checkJSON(t, randomScalar(r))
			x, okX := accumulator.Rank(fn, valueOf(a))
			y, okY := accumulator.Rank(fn, valueOf(b))
			if !okX || !okY {
				t.Fatalf("%s or %s has no key", a, b)
			}
			want := sign * query.Compare(valueOf(a), valueOf(b))
			got := bytes.Compare(x, y)
			// Equal numbers written in two ways stand together, in some order.
			if want != 0 && got*want <= 0 || want == 0 && got != 0 && (a[0] == '"' || bytes.Equal(a, b)) {
				t.Fatalf("%s of %s and %s: keys compare as %d, values as %d", fn, a, b, got, want)
			}
			back := accumulator.Ranked(fn, x)
			if document.KindOf(a) == document.Number && !bytes.Equal(a, back) || !document.Equal(a, back) {
				t.Fatalf("%s of %s comes out as %s", fn, a, back)
			}
		}
	}
}

func TestRank_WhatIsLeftOut(t *testing.T) {
	for _, raw := range []string{"", "[]", "{}", `"` + strings.Repeat("x", accumulator.ScalarBytesMax) + `"`, "-10e1000000", "1" + strings.Repeat("0", 1_000_001)} {
		if _, ok := accumulator.Rank(accumulator.Max, valueOf([]byte(raw))); ok {
			t.Errorf("%.10s has a key", raw)
		}
	}
	long := "1." + strings.Repeat("0", accumulator.RankTextMax)
	key, ok := accumulator.Rank(accumulator.Max, valueOf([]byte(long)))
	if got := accumulator.Ranked(accumulator.Max, key); !ok || string(got) != "1" {
		t.Errorf("a number with a long text comes out as %s", got)
	}
}

func TestGroup_ValuesComeBackInOneForm(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 2))
	for range 5000 {
		values := []string{randomScalar(r), randomScalar(r), randomScalar(r)}
		g := mustGroup(t, values...)
		for i, raw := range g.Values() {
			if !document.Equal(raw, []byte(values[i])) {
				t.Fatalf("%s comes out as %s", values[i], raw)
			}
			if document.CheckValue(raw) != nil {
				t.Fatalf("%s comes out as %s, which is no JSON", values[i], raw)
			}
		}
		text := make([]string, 0, len(values))
		for _, raw := range g.Values() {
			text = append(text, string(raw))
		}
		if again := mustGroup(t, text...); again != g {
			t.Fatalf("%s is another group than %s", again, g)
		}
		if want := "[" + strings.Join(text, ",") + "]"; g.String() != want {
			t.Fatalf("prints %s, want %s", g, want)
		}
	}
	for _, raw := range []string{"", "[1]", "{}", `"` + strings.Repeat("x", accumulator.GroupBytesMax) + `"`} {
		if g, ok := accumulator.GroupOf([]byte("1"), []byte(raw)); ok {
			t.Errorf("%.10s is in group %.10s", raw, g)
		}
	}
}

func TestGroup_KeysOfRecords(t *testing.T) {
	rule := mustCompile(t, totals)
	a, b := mustGroup(t, `"a"`), mustGroup(t, `"a\u0000"`)
	for _, key := range []string{"", string(a), string(a) + "\x00x", string(a) + "\x01", string(a) + "\x0ax", "\x07", string(a)[1:]} {
		if g, _, ok := rule.GroupOfKey([]byte(key)); ok {
			t.Errorf("key %q is of group %s", key, g)
		}
	}
	for _, g := range []accumulator.Group{a, b} {
		for key, whole := range map[string]bool{string(g) + "\x00": true, string(g) + "\x09k": false} {
			got, w, ok := rule.GroupOfKey([]byte(key))
			if got != g || w != whole || !ok {
				t.Errorf("key %q is of group %s, %v, %v", key, got, w, ok)
			}
			if end := g.AppendEnd(nil); key >= string(end) {
				t.Errorf("key %q is behind the end %q", key, end)
			}
		}
	}
	if string(a.AppendEnd(nil)) > string(b) {
		t.Error("the end of a group is behind the next one")
	}
}
