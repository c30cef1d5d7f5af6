package accumulator_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
)

// someDelta is a delta with each form that there is.
func someDelta(tb testing.TB, rule *accumulator.Rule) *accumulator.Delta {
	tb.Helper()
	d := rule.NewDelta()
	fold := func(id, before, after string) {
		d.Merge(folded(rule, mustKey(tb, "p", 1), id, before, after))
	}
	fold("1", "", `{"id":"1","type":"order","customer":"a","at":"2024-01-01","paid":2.50,"to":{"city":"x"},"lines":[{"price":1.10,"quantity":3},{"price":2,"quantity":1}]}`)
	fold("2", "", `{"id":"2","type":"order","customer":"a","at":-0.0,"paid":1e30,"lines":[{"price":1e200,"quantity":-3}]}`)
	fold("3", `{"id":"3","type":"order","customer":"a","at":true,"paid":12345678901234567890}`, "")
	fold("4", `{"id":"4","type":"order","customer":7,"at":null,"paid":1}`, `{"id":"4","type":"order","customer":null,"at":null,"paid":-1}`)
	return d
}

func TestDelta_Golden(t *testing.T) {
	rule := mustCompile(t, totals)
	d := someDelta(t, rule)
	data := mustHex(t, golden(t, "delta-v1.hex", hex.EncodeToString(d.Append(nil))))
	read, err := rule.DecodeDelta(data)
	must(t, err)
	if again := read.Append(nil); string(again) != string(data) {
		t.Errorf("read and written again:\n%x\nwant\n%x", again, data)
	}
	if n := d.Size(); n < len(data)/2 || n > 2*len(data) {
		t.Errorf("size %d of %d bytes", n, len(data))
	}
}

func TestRecords_Golden(t *testing.T) {
	rule := mustCompile(t, totals)
	written, read := accumulator.NewMemory(), accumulator.NewMemory()
	must(t, rule.Apply(written, someDelta(t, rule)))
	var lines []string
	for r, err := range written.Range(nil) {
		must(t, err)
		lines = append(lines, fmt.Sprintf("%x %x", r.Key, r.Value))
	}
	for line := range strings.SplitSeq(golden(t, "records-v1.hex", strings.Join(lines, "\n")), "\n") {
		key, value, _ := strings.Cut(line, " ")
		read.Put(mustHex(t, key), mustHex(t, value))
	}
	var values []string
	for _, text := range []string{"null", "7", `"a"`} {
		state, err := rule.State(read, mustGroup(t, text))
		must(t, err)
		for path, value := range texts(state) {
			values = append(values, text+" "+path+" = "+value)
		}
		content := rule.NewDelta()
		must(t, rule.Content(content, read, mustGroup(t, text)))
	}
	slices.Sort(values)
	golden(t, "values-v1.txt", strings.Join(values, "\n")+"\n")
	d := someDelta(t, rule)
	d.Negate()
	must(t, rule.Apply(read, d))
	if read.Len() != 0 {
		t.Errorf("its inverse leaves %v", dump(t, read))
	}
}

func TestDelta_EmptyOnesAreShort(t *testing.T) {
	rule := mustCompile(t, totals)
	item := `{"type":"order","customer":"a","at":1}`
	d := rule.NewDelta()
	d.Merge(folded(rule, mustKey(t, "p"), "i", "", item))
	d.Merge(folded(rule, mustKey(t, "p"), "i", item, ""))
	if !d.Empty() || len(d.Groups()) != 0 {
		t.Errorf("what cancels out leaves %v", d.Groups())
	}
	if got, want := d.Append(nil), rule.NewDelta().Append(nil); string(got) != string(want) {
		t.Errorf("encoded as %x, want %x", got, want)
	}
}

func TestDecodeDelta_Refuses(t *testing.T) {
	rule := mustCompile(t, totals)
	whole := someDelta(t, rule).Append(nil)
	for n := range whole {
		if _, err := rule.DecodeDelta(whole[:n:n]); !errors.Is(err, accumulator.ErrFormat) {
			t.Fatalf("first %d bytes: %v", n, err)
		}
	}
	if _, err := rule.DecodeDelta(append(slices.Clip(whole), 0)); !errors.Is(err, accumulator.ErrFormat) {
		t.Errorf("a byte too much: %v", err)
	}
	if _, err := mustCompile(t, sales).DecodeDelta(whole); !errors.Is(err, accumulator.ErrFormat) || !strings.Contains(err.Error(), "another rule") {
		t.Errorf("of another rule: %v", err)
	}
	later := append([]byte{2}, whole[1:]...)
	if _, err := rule.DecodeDelta(later); !errors.Is(err, accumulator.ErrFormat) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("of a later version: %v", err)
	}
}

// A key may not say a number whose text no item could hold.
func TestDecodeDelta_RefusesExponentsBeyondItems(t *testing.T) {
	rule := mustCompile(t, totals)
	data := folded(rule, mustKey(t, "p"), "i", "", `{"type":"order","customer":"a","lines":[{"price":2}]}`).Append(nil)
	for exponent, ok := range map[string]bool{"\x7f\xff\xff\xfe": true, "\x7f\xff\xff\x00": true, "\x7f\x00\x00\x00": false, "\xff\xff\xff\xff": false} {
		changed := strings.Replace(string(data), "\xfa\xfc\x7f\xff\xff\xfe", "\xfa\xfc"+exponent, 1)
		if _, err := rule.DecodeDelta([]byte(changed)); (err == nil) != ok {
			t.Errorf("exponent %x: %v", exponent, err)
		}
	}
}

// FuzzDecodeDelta: what decodes is written as it was read, applies without harm,
// gives values that are JSON, and is taken back by its inverse.
func FuzzDecodeDelta(f *testing.F) {
	rule := mustCompile(f, totals)
	f.Add(rule.NewDelta().Append(nil))
	f.Add(someDelta(f, rule).Append(nil))
	r := rand.New(rand.NewPCG(1, 1))
	changes, _ := randomChanges(f, r, 60)
	for _, d := range randomDeltas(f, r, rule, changes) {
		f.Add(d.Append(nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := rule.DecodeDelta(data)
		if err != nil {
			if !errors.Is(err, accumulator.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		if again := d.Append(nil); string(again) != string(data) {
			t.Fatalf("written again\n%x\nwas\n%x", again, data)
		}
		m := accumulator.NewMemory()
		must(t, rule.Apply(m, d))
		for _, g := range d.Groups() {
			if string(mustGroup(t, stringsOf(g.Values())...)) != string(g) {
				t.Fatalf("group %x comes back otherwise", string(g))
			}
			state, err := rule.State(m, g)
			must(t, err)
			for _, v := range state.Values() {
				// Copies are opaque, and so is the list of them.
				if v.Path[0].Name != "recent" && v.Value != nil && document.CheckValue(v.Value) != nil {
					t.Fatalf("%s is %q", v.Path, v.Value)
				}
			}
		}
		d.Negate()
		must(t, rule.Apply(m, d))
		if m.Len() != 0 {
			t.Fatalf("its inverse leaves %v", dump(t, m))
		}
	})
}

func stringsOf(values [][]byte) []string {
	list := make([]string, len(values))
	for i := range values {
		list[i] = string(values[i])
	}
	return list
}

// FuzzState: stored bytes of any kind make no reader panic.
func FuzzState(f *testing.F) {
	rule := mustCompile(f, totals)
	g := mustGroup(f, `"a"`)
	m := accumulator.NewMemory()
	must(f, rule.Apply(m, someDelta(f, rule)))
	for r, err := range m.Range([]byte(g)) {
		must(f, err)
		f.Add(r.Key[len(g):], r.Value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m := accumulator.NewMemory()
		d := someDelta(t, rule)
		must(t, rule.Apply(m, d))
		if _, whole, ok := rule.GroupOfKey(append([]byte(g), key...)); ok && !whole && len(key) < 2 {
			t.Fatalf("key %x is one of a member", key)
		}
		m.Put(append([]byte(g), key...), append([]byte{}, value...))
		state, err := rule.State(m, g)
		if err == nil {
			state.Values()
		}
		_ = rule.Content(rule.NewDelta(), m, g)
		d.Negate()
		_ = rule.Apply(m, d)
	})
}

func TestMemory_IsAMapInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 4))
	m, want := accumulator.NewMemory(), map[string]string{}
	for range 20_000 {
		key := fmt.Sprintf("%c%d", 'a'+rune(r.IntN(3)), r.IntN(2000))
		if r.IntN(3) == 0 {
			m.Put([]byte(key), nil)
			delete(want, key)
			continue
		}
		value := fmt.Sprint(r.IntN(100))
		m.Put([]byte(key), []byte(value))
		want[key] = value
		if got, err := m.Get([]byte(key)); err != nil || string(got) != value {
			t.Fatalf("%s is %s, %v; want %s", key, got, err, value)
		}
	}
	for _, prefix := range []string{"", "a", "b1", "c19", "d", "a0000"} {
		got, last := map[string]string{}, ""
		for record, err := range m.Range([]byte(prefix)) {
			must(t, err)
			if key := string(record.Key); key <= last {
				t.Fatalf("%s behind %s", key, last)
			} else {
				last = key
			}
			got[last] = string(record.Value)
		}
		some := map[string]string{}
		for k, v := range want {
			if strings.HasPrefix(k, prefix) {
				some[k] = v
			}
		}
		if diff := cmp.Diff(some, got); diff != "" {
			t.Errorf("records of %q (-want +got):\n%s", prefix, diff)
		}
	}
	if m.Len() != len(want) {
		t.Errorf("%d records, want %d", m.Len(), len(want))
	}
	for key := range want {
		m.Put([]byte(key), nil)
	}
	if got, err := m.Get([]byte("a1")); m.Len() != 0 || got != nil || err != nil {
		t.Errorf("all removed, left %d", m.Len())
	}
}
