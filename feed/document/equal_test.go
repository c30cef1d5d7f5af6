package document_test

import (
	"bytes"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed/document"
)

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"1", "1.0", true},
		{"100", "1e2", true},
		{"0.001", "1E-3", true},
		{"-0", "0.0e5", true},
		{"12.50", "1.25e+1", true},
		{"-1", "1", false},
		{"9007199254740992", "9007199254740993", false},
		{"0.1", "0.10000000000000000001", false},
		{"1e1000000", "1e999999", false},
		{"1e99999999999999999999", "1e-99999999999999999999", false},
		{`1`, `"1"`, false},
		{`"é"`, `"\u00e9"`, true},
		{`"😀"`, `"\ud83d\ude00"`, true},
		{`"\/"`, `"/"`, true},
		{`"a"`, `"ab"`, false},
		{`"\n"`, `"\\n"`, false},
		{"null", "false", false},
		{"true", "true", true},
		{" [1, 2] ", "[1.0,2]", true},
		{"[1,2]", "[2,1]", false},
		{"[1]", "[1,2]", false},
		{"[]", "{}", false},
		{`{"a":1,"b":[2]}`, `{ "b":[2.0], "a":1 }`, true},
		{`{"a":1}`, `{"a":1,"b":2}`, false},
		{`{"a":1,"b":2}`, `{"a":1,"c":2}`, false},
		{`{"a":1,"\u0062":2}`, `{"b":2,"a":1}`, true},
		{"", "", true},
		{"", "1", false},
	} {
		if got := document.Equal([]byte(c.a), []byte(c.b)); got != c.want {
			t.Errorf("%s = %s: %v, want %v", c.a, c.b, got, c.want)
		}
		if got := document.Equal([]byte(c.b), []byte(c.a)); got != c.want {
			t.Errorf("%s = %s: %v, want %v", c.b, c.a, got, c.want)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{`"a\"\\\/\b\f\n\r\té"`, "a\"\\/\b\f\n\r\té"},
		{`"\u00e9\uD83D\uDE00\u0000"`, "é😀\x00"},
		{` "x" `, "x"},
		{`""`, ""},
	} {
		got, ok := document.Text([]byte(c.raw))
		if !ok || got != c.want {
			t.Errorf("%s says %q, want %q", c.raw, got, c.want)
		}
		if raw := document.AppendQuote(nil, c.want); !document.Equal(raw, []byte(c.raw)) {
			t.Errorf("%q quoted is %s", c.want, raw)
		}
	}
	if got := string(document.AppendQuote(nil, "a\xffb")); got != `"a`+"\uFFFD"+`b"` {
		t.Errorf("what is not UTF-8 is quoted as %s", got)
	}
	if _, ok := document.Text([]byte("1")); ok {
		t.Error("a number has a text")
	}
}

// ordered are scalars in their order.
var ordered = []string{
	"null", "false", "true",
	"-1e1000000", "-1e300", "-9007199254740993", "-9007199254740992", "-10.01", "-10", "-9.99", "-1", "-0.5",
	"-0.05", "-1e-300", "0", "1e-300", "0.001", "0.01", "0.0101", "0.1", "0.5", "0.99", "1", "1.0000000000000000001",
	"1.5", "2", "9", "9.5", "10", "10.01", "11", "99", "100", "1234567890123456789", "1e300", "1e1000000",
	`""`, `"\u0000"`, `"\u0000\u0000"`, `"\u0000a"`, `"\u0001"`, `" "`, `"a"`, `"a\u0000"`, `"a\u0000b"`, `"a\u0001"`, `"aa"`, `"b"`, `"é"`, `"😀"`,
}

func TestCanonicalOrder(t *testing.T) {
	keys := make([][]byte, len(ordered))
	for i, s := range ordered {
		keys[i] = document.AppendCanonical([]byte("prefix"), []byte(s))
	}
	for i := range keys {
		for j := range keys {
			if got, want := bytes.Compare(keys[i], keys[j]), compareInts(i, j); got != want {
				t.Errorf("%s, %s: keys % x and % x compare as %d, want %d", ordered[i], ordered[j], keys[i], keys[j], got, want)
			}
			if i != j && bytes.HasPrefix(keys[i], keys[j]) {
				t.Errorf("the key of %s begins with that of %s", ordered[i], ordered[j])
			}
		}
	}
	for _, s := range []string{"[]", "{}", "[1]", ""} {
		if key := document.AppendCanonical(nil, []byte(s)); len(key) != 0 {
			t.Errorf("%s has the key % x", s, key)
		}
	}
}

func compareInts(i, j int) int {
	switch {
	case i < j:
		return -1
	case i > j:
		return 1
	}
	return 0
}

func FuzzEqualAndCanonical(f *testing.F) {
	for i, s := range ordered {
		f.Add(s, ordered[(i+1)%len(ordered)])
	}
	f.Add("1e2", "100.0")
	f.Add(`{"a":[1,"\u0061"]}`, `{"a":[1.0,"a"]}`)
	f.Fuzz(func(t *testing.T, x, y string) {
		a, b := []byte(x), []byte(y)
		got := document.Equal(a, b)
		keyA, keyB := document.AppendCanonical(nil, a), document.AppendCanonical(nil, b)
		if document.CheckValue(a) != nil || document.CheckValue(b) != nil {
			return // it did not panic
		}
		if got != document.Equal(b, a) || !document.Equal(a, a) {
			t.Fatalf("Equal is not symmetric for %s, %s", x, y)
		}
		if len(x) > 1000 || len(y) > 1000 || hugeExponent(x) || hugeExponent(y) {
			return
		}
		if want := cmpValues(decode(t, a), decode(t, b)); got != want {
			t.Fatalf("%s = %s: %v, want %v", x, y, got, want)
		}
		if len(keyA) == 0 || len(keyB) == 0 {
			return
		}
		if got != bytes.Equal(keyA, keyB) {
			t.Fatalf("%s = %s is %v, keys % x, % x", x, y, got, keyA, keyB)
		}
		p, okP := new(big.Rat).SetString(strings.TrimSpace(x))
		q, okQ := new(big.Rat).SetString(strings.TrimSpace(y))
		if okP && okQ && bytes.Compare(keyA, keyB) != p.Cmp(q) {
			t.Fatalf("%s and %s compare as %d, their keys otherwise", x, y, p.Cmp(q))
		}
		s, okS := document.Text(a)
		u, okU := document.Text(b)
		if okS && okU && bytes.Compare(keyA, keyB) != strings.Compare(s, u) {
			t.Fatalf("%q and %q are not in the order of their keys", s, u)
		}
	})
}

// hugeExponent reports whether exact rationals would need more than a moment.
func hugeExponent(s string) bool {
	_, exp, found := strings.Cut(strings.ToLower(s), "e")
	return found && len(exp) > 4
}

func ExampleEqual() {
	fmt.Println(document.Equal([]byte(`{"price":12.50,"sku":"A"}`), []byte(`{"sku":"\u0041","price":1.25e1}`)))
	fmt.Println(document.Equal([]byte(`9007199254740993`), []byte(`9007199254740992`)))
	// Output:
	// true
	// false
}
