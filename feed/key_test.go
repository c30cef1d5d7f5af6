package feed_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
)

// The vectors come from two independent implementations of Azure Cosmos DB's
// hash that agree.
func TestPartitionKey_HashVectors(t *testing.T) {
	for _, c := range []struct {
		key  []any
		want string
	}{
		{[]any{"store-1"}, "12C993AFA90157F1A036457C376EF3DF"},
		{[]any{"a"}, "3A5381E1114EB8D3FCC90795045B49B7"},
		{[]any{""}, "32E9366E637A71B4E710384B2F4970A0"},
		{[]any{"Zoë"}, "2BA8862C56FD105F505B76FCC663B317"},
		{[]any{1}, "20CD98B339BA78A5D0CF6953B87070B0"},
		{[]any{-1.5}, "151793206780805FF6E1DCAE6C787B6A"},
		{[]any{0}, "155B95BEDAC4B1E9EC1CDC9BB0DDDE58"},
		{[]any{math.Copysign(0, -1)}, "155B95BEDAC4B1E9EC1CDC9BB0DDDE58"},
		{[]any{true}, "0E711127C5B5A8E4726AC6DD306A3E59"},
		{[]any{false}, "2FE1BE91E90A3439635E0E9E37361EF2"},
		{[]any{nil}, "378867E4430E67857ACE5C908374FE16"},
		{[]any{feed.Missing}, "11622DAA78F835834610ABE56EFF5CB5"},
		{[]any{"a", "b"}, "3A5381E1114EB8D3FCC90795045B49B7195644569A78B1E22D200348AF9416CE"},
	} {
		key := mustKey(t, c.key...)
		if got := key.Hash().Hex(); got != c.want {
			t.Errorf("%s: %s, want %s", key, got, c.want)
		}
		if epk, err := feed.ParseEPK(c.want); err != nil || epk != key.Hash() {
			t.Errorf("parse %s: %x, %v", c.want, epk, err)
		}
	}
}

// TestStringKey_IsTheKeyOfOneString compares it with the key that is made of any components.
func TestStringKey_IsTheKeyOfOneString(t *testing.T) {
	for _, text := range []string{
		"", "store-1", "Zoë", "\x00", "\xff", "a\xc3", strings.Repeat("k", 200), strings.Repeat("k", feed.KeyBytesMax), strings.Repeat("k", feed.KeyBytesMax+1),
	} {
		want, wantErr := feed.NewPartitionKey(text)
		got, err := feed.StringKey([]byte(text))
		if got != want || (err == nil) != (wantErr == nil) || err != nil && (err.Error() != wantErr.Error() || !errors.Is(err, feed.ErrKey)) {
			t.Errorf("%.20q: %v, %v, want %v, %v", text, got, err, want, wantErr)
		}
	}
}

// TestParsePartitionKey_OfOneString compares the way that most texts take with that of all others, which a space in front leads to.
func TestParsePartitionKey_OfOneString(t *testing.T) {
	for _, text := range []string{
		`[""]`, `["store-1"]`, `["Zoë"]`, `["a\u0041"]`, `["a\"b"]`, `["a","b"]`, `["a"b"]`, `["\"]`, `["\\"]`, "[\"a\nb\"]", "[\"a\x00\"]", "[\"\x7f\"]",
		"[\"\xff\"]", "[\"a\xc3\"]", `["`, `"]`, `["]`, `["a"]]`, `["` + strings.Repeat("k", feed.KeyBytesMax) + `"]`, `["` + strings.Repeat("k", feed.KeyBytesMax+1) + `"]`,
	} {
		want, wantErr := feed.ParsePartitionKey(" " + text)
		got, err := feed.ParsePartitionKey(text)
		if got != want || (err == nil) != (wantErr == nil) || err != nil && !errors.Is(err, feed.ErrKey) {
			t.Errorf("%.20q: %v, %v, want %v, %v", text, got, err, want, wantErr)
		}
	}
}

func TestPartitionKey_PrintsAndParses(t *testing.T) {
	for _, c := range []struct {
		components []any
		want       string
	}{
		{[]any{"a", 1.0}, `["a",1]`},
		{[]any{nil, true, feed.Missing}, `[null,true,{}]`},
		{[]any{"q\"\\\n\x00é\u2028"}, `["q\"\\\u000a\u0000é` + "\u2028" + `"]`},
		{[]any{0.1, -2.5e-9, 1e22}, `[0.1,-2.5e-09,10000000000000000000000]`},
		{[]any{math.MaxFloat64}, ""},
		{[]any{math.SmallestNonzeroFloat64}, `[5e-324]`},
	} {
		key := mustKey(t, c.components...)
		if got := key.String(); c.want != "" && got != c.want {
			t.Errorf("%v prints %s, want %s", c.components, got, c.want)
		}
		back, err := feed.ParsePartitionKey(key.String())
		if err != nil || back != key {
			t.Errorf("%s parses as %s, %v", key, back, err)
		}
		if got := key.Components(); !slices.Equal(got, c.components) {
			t.Errorf("components of %s: %v, want %v", key, got, c.components)
		}
		if key.Levels() != len(c.components) {
			t.Errorf("%s has %d levels", key, key.Levels())
		}
	}
	if k := (feed.PartitionKey{}); !k.IsZero() || k.Levels() != 0 || k.String() != "[]" || k.Hash() != "" {
		t.Error("the zero key is not nothing")
	}
}

func TestPartitionKey_NumbersOfOneKeyAreEqual(t *testing.T) {
	for _, c := range []struct {
		text string
		same any // a component with the same key; nil if refused
	}{
		{"1", 1},
		{"1.0", 1},
		{"10e-1", 1},
		{"-0", 0},
		{"-0.0e5", 0},
		{"0.1", 0.1},
		{"0.10", 0.1},
		{"9007199254740992", int64(1 << 53)},
		{"9007199254740993", nil},
		{"9007199254740994", int64(1<<53 + 2)},
		{"1152921504606846976", int64(1 << 60)},
		{"1e22", 1e22},
		{"1e23", nil},
		{"1e400", nil},
		{"1e-400", nil},
		{"0.1000000000000000055511151231257827", nil},
		{"0.30000000000000004", 0.30000000000000004},
		{"0.300000000000000041", nil},
		{"1e-999999999999", nil},
		{"0e-999999999999", 0},
		{"0e999999999999", 0},
		{"NaN", nil},
		{"+1", nil},
		{"01", nil},
		{"true", nil},
		{"", nil},
		{`"1"`, nil},
	} {
		got, err := feed.NewPartitionKey(json.Number(c.text))
		switch {
		case c.same == nil && !errors.Is(err, feed.ErrKey):
			t.Errorf("%s: key %s, %v; want refusal", c.text, got, err)
		case c.same != nil && (err != nil || got != mustKey(t, c.same)):
			t.Errorf("%s: key %s, %v; want %v", c.text, got, err, c.same)
		}
	}
}

func TestPartitionKey_Refusals(t *testing.T) {
	for name, components := range map[string][]any{
		"no component":        {},
		"four components":     {1, 2, 3, 4},
		"object":              {map[string]any{}},
		"float32":             {float32(1)},
		"NaN":                 {math.NaN()},
		"infinity":            {math.Inf(-1)},
		"int beyond a double": {math.MaxInt64},
		"not UTF-8":           {"\xff"},
		"too long together":   {strings.Repeat("x", 2000), strings.Repeat("y", 49)},
	} {
		if k, err := feed.NewPartitionKey(components...); !errors.Is(err, feed.ErrKey) {
			t.Errorf("%s: key %s, error %v", name, k, err)
		}
	}
	if _, err := feed.NewPartitionKey(strings.Repeat("x", feed.KeyBytesMax)); err != nil {
		t.Errorf("longest key: %v", err)
	}
	for _, enc := range []string{"", "\x04", "\x05abc", "\x08abc", "\x08\xc3\xff", "\x00\x00\x00\x00", "\x05\x00\x00\x00\x00\x00\x00\x00\x80", "\x05\x00\x00\x00\x00\x00\x00\xf0\x7f"} {
		if k, err := feed.PartitionKeyFromEncoded(enc); !errors.Is(err, feed.ErrKey) {
			t.Errorf("encoding %x: key %s, error %v", enc, k, err)
		}
	}
	for _, text := range []string{``, `a`, `{}`, `[]`, `[[]]`, `[{"a":1}]`, `["a"] `, `["a"]x`, `[1e999]`} {
		if k, err := feed.ParsePartitionKey(text); err == nil && text != `["a"] ` {
			t.Errorf("%s: key %s", text, k)
		}
	}
}

func FuzzPartitionKey(f *testing.F) {
	f.Add("a", 1.5, "\x08abc\xff\x01")
	f.Add("", math.Copysign(0, -1), "\x05\x00\x00\x00\x00\x00\x00\x00\x40")
	f.Fuzz(func(t *testing.T, s string, n float64, enc string) {
		if k, err := feed.NewPartitionKey(s, n); err == nil {
			if back, err := feed.ParsePartitionKey(k.String()); err != nil || back != k {
				t.Errorf("%s parses as %s, %v", k, back, err)
			}
			if back, err := feed.PartitionKeyFromEncoded(k.Encoded()); err != nil || back != k {
				t.Errorf("%x decodes as %s, %v", k.Encoded(), back, err)
			}
			if back, err := feed.NewPartitionKey(k.Components()...); err != nil || back != k {
				t.Errorf("components of %s make %s, %v", k, back, err)
			}
			if len(k.Hash()) != 32 || !strings.HasPrefix(string(k.Hash()), string(mustKey(t, s).Hash())) {
				t.Errorf("hash of %s does not begin with that of its prefix", k)
			}
		} else if utf8.ValidString(s) && len(s) <= feed.KeyBytesMax && !math.IsNaN(n) && !math.IsInf(n, 0) {
			t.Errorf("refused %q, %v: %v", s, n, err)
		}
		if k, err := feed.PartitionKeyFromEncoded(enc); err == nil {
			if back, err := feed.NewPartitionKey(k.Components()...); err != nil || back != k {
				t.Errorf("components of %x make %s, %v", enc, back, err)
			}
		}
		if k, err := feed.ParsePartitionKey(s); err == nil {
			if back, err := feed.ParsePartitionKey(k.String()); err != nil || back != k {
				t.Errorf("%s parses as %s, %v", k, back, err)
			}
		}
	})
}

func TestEvenRanges(t *testing.T) {
	var got []string
	for _, r := range feed.EvenRanges(4) {
		got = append(got, r.String())
	}
	if diff := cmp.Diff([]string{"[00..,10..)", "[10..,20..)", "[20..,30..)", "[30..,FF)"}, got); diff != "" {
		t.Error(diff)
	}
	for _, n := range []int{1, 2, 3, 7, 100, 16384} {
		ranges := feed.EvenRanges(n)
		if len(ranges) != n || ranges[0].Min != "" || ranges[n-1].Max != feed.EPKMax {
			t.Fatalf("%d ranges: %v", n, ranges)
		}
		const keys = 20000
		counts := make([]int, n)
		for i := range keys {
			epk := mustKey(t, i).Hash()
			// The ranges are in order, so the only candidate is the last that
			// begins at or below the key.
			at, found := slices.BinarySearchFunc(ranges, epk, func(r feed.Range, e feed.EPK) int { return strings.Compare(string(r.Min), string(e)) })
			if !found {
				at--
			}
			if !ranges[at].Contains(epk) || at > 0 && ranges[at-1].Max != ranges[at].Min {
				t.Fatalf("%s is not in range %d of %d, %s", epk, at, n, ranges[at])
			}
			counts[at]++
		}
		for j, count := range counts {
			if mean := keys / n; n <= 7 && (count < mean*9/10 || count > mean*11/10) {
				t.Errorf("range %d of %d has %d of %d keys", j, n, count, keys)
			}
		}
	}
}

func TestNames_PrintAndParse(t *testing.T) {
	p, err := feed.ParsePartition("c7k2x4ab/12")
	if err != nil || p.String() != "c7k2x4ab/12" || p.Stream() != "MILLRACE_c7k2x4ab_12" || p.Subject() != "millrace.log.c7k2x4ab.12" {
		t.Errorf("partition %s, %s, %s, %v", p, p.Stream(), p.Subject(), err)
	}
	for _, s := range []string{"", "c7k2x4ab", "c7k2x4ab/", "c7k2x4ab/01", "c7k2x4ab/-1", "C7K2X4AB/0", "c7k2x4a/0", "c7k2x4ab/4294967296", "c7k2x4a1/0"} {
		if p, err := feed.ParsePartition(s); !errors.Is(err, feed.ErrSyntax) {
			t.Errorf("%q: partition %s, %v", s, p, err)
		}
	}
	if id := feed.NewResourceID(); id == feed.NewResourceID() {
		t.Error("resource ids repeat")
	} else if _, err := feed.ParseResourceID(string(id)); err != nil {
		t.Error(err)
	}
	pos := feed.Position{LSN: 12, Index: 3}
	if back, err := feed.ParsePosition(pos.String()); back != pos || err != nil || pos.String() != "12.3" {
		t.Errorf("position %s, %v", back, err)
	}
	for _, s := range []string{"", "1", "1.", ".1", "1.2.3", "-1.2", "1.4294967296", "01.2", "18446744073709551616.0"} {
		if p, err := feed.ParsePosition(s); !errors.Is(err, feed.ErrSyntax) {
			t.Errorf("%q: position %s, %v", s, p, err)
		}
	}
	if !(feed.Position{}).Before(pos) || pos.Before(pos) || !pos.Before(feed.Position{LSN: 12, Index: 4}) || (feed.Position{LSN: 13}).Before(pos) {
		t.Error("positions are out of order")
	}
	id := feed.NewLogID()
	if back, err := feed.ParseLogID(id.String()); back != id || err != nil {
		t.Errorf("log id %s, %v", back, err)
	}
	sum := feed.Checksum(0xab)
	if back, err := feed.ParseChecksum(sum.String()); back != sum || err != nil || sum.String() != "00000000000000ab" {
		t.Errorf("checksum %s, %v", back, err)
	}
	type stored struct {
		Log   feed.LogID
		Range feed.Range
	}
	want := stored{id, feed.EvenRanges(3)[1]}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got stored
	if err := json.Unmarshal(text, &got); err != nil || got != want {
		t.Errorf("%s comes back as %v, %v", text, got, err)
	}
}
