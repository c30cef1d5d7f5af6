package decimal_test

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"

	"github.com/millrace/millrace/feed/document/decimal"
)

func FuzzNumber_IsTheRationalThatItSays(f *testing.F) {
	f.Add("27.12", "3")
	f.Add("-0.05", "-5e-2")
	f.Add("100.00", "1e2")
	f.Add("999999999999999999", "9999999999999999990e-1")
	f.Add("0.0e7", "-0")
	f.Add("0E10000000000000000000", "0")
	f.Fuzz(func(t *testing.T, x, y string) {
		a, b := []byte(x), []byte(y)
		if !isNumber(x) || !isNumber(y) {
			return
		}
		for _, raw := range [][]byte{a, b} {
			if d := decimal.Parse(raw); d.Exp > 400 || d.Exp < -400 {
				return // a rational would take long
			}
		}
		p, okP := new(big.Rat).SetString(x)
		q, okQ := new(big.Rat).SetString(y)
		if !okP || !okQ {
			return // a rational has no exponent of twenty digits, though 0e10000000000000000000 is 0
		}
		if got, want := decimal.Compare(a, b), p.Cmp(q); min(max(got, -1), 1) != want || decimal.Equal(a, b) != (want == 0) {
			t.Fatalf("%s and %s compare as %d, want %d; equal: %v", x, y, got, want, decimal.Equal(a, b))
		}
		m, scale := decimal.Parse(a).Mantissa()
		is(t, x, p, decimal.Append(nil, m, scale))
		if m, frac, ok := decimal.Small(a); ok {
			is(t, x, p, decimal.AppendSmall(m, frac))
		}
		if n, ok := decimal.Integer(a); ok && p.Cmp(new(big.Rat).SetInt64(n)) != 0 {
			t.Fatalf("%s is read as %d", x, n)
		}
		if n, ok := decimal.Int64(a); ok != (p.IsInt() && p.Num().IsInt64()) || ok && p.Num().Int64() != n {
			t.Fatalf("%s is read as %d, %v", x, n, ok)
		}
		if d := decimal.Parse(a); d.IsInteger() != p.IsInt() {
			t.Fatalf("%s is an integer: %v", x, d.IsInteger())
		}
	})
}

func TestInt64(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want int64
		ok   bool
	}{
		{`0`, 0, true},
		{`-0`, 0, true},
		{`0.0e5`, 0, true},
		{`0e99999999999999999999`, 0, true},
		{`12`, 12, true},
		{`-12.0`, -12, true},
		{`1.2e1`, 12, true},
		{`1.2e+00000000000000000000001`, 12, true},
		{`120e-1`, 12, true},
		{`1e18`, 1e18, true},
		{`9007199254740993`, 9007199254740993, true},
		{`9223372036854775807`, math.MaxInt64, true},
		{`9223372036854775808`, 0, false},
		{`-9223372036854775808`, math.MinInt64, true},
		{`-9223372036854775809`, 0, false},
		{`9999999999999999999`, 0, false},
		{`92233720368547758.07e2`, math.MaxInt64, true},
		{`1e19`, 0, false},
		{`1e999999`, 0, false},
		{`1e-1`, 0, false},
		{`12.5`, 0, false},
	} {
		if got, ok := decimal.Int64([]byte(c.raw)); got != c.want || ok != c.ok {
			t.Errorf("%s is %d, %v", c.raw, got, ok)
		}
	}
}

// Both forms of a number are the number, and the shortest of their form.
func TestAppendDigits(t *testing.T) {
	for _, c := range []struct {
		digits          string
		exp             int64
		plain, exponent string
	}{
		{"12", 4, "1200", "1.2e3"},
		{"12", 2, "12", "1.2e1"},
		{"12", 1, "1.2", "1.2"},
		{"12", 0, "0.12", "1.2e-1"},
		{"12", -1, "0.012", "1.2e-2"},
		{"5", 1, "5", "5"},
		{"0", 1, "0", "0"},
	} {
		if got := string(decimal.AppendDigits(nil, false, []byte(c.digits), c.exp, true)); got != c.plain {
			t.Errorf("0.%s * 10^%d is %s, want %s", c.digits, c.exp, got, c.plain)
		}
		if got := string(decimal.AppendDigits([]byte("x"), true, []byte(c.digits), c.exp, false)); got != "x-"+c.exponent {
			t.Errorf("-0.%s * 10^%d is %s, want -%s", c.digits, c.exp, got, c.exponent)
		}
	}
}

func TestShift(t *testing.T) {
	for _, c := range []struct {
		m    int64
		n    int
		want int64
		ok   bool
	}{
		{-27, 2, -2700, true},
		{9, 18, 9e18, true},
		{10, 18, 0, false},
		{-9, 18, -9e18, true},
		{0, 40, 0, true},
		{1, 19, 0, false},
		{math.MaxInt64, 0, math.MaxInt64, true},
		{math.MaxInt64, 1, 0, false},
		{math.MinInt64, 1, 0, false},
	} {
		if got, ok := decimal.Shift(c.m, c.n); got != c.want || ok != c.ok {
			t.Errorf("%d * 10^%d is %d, %v", c.m, c.n, got, ok)
		}
	}
}

func isNumber(s string) bool {
	return len(s) < 60 && json.Valid([]byte(s)) && (s[0] == '-' || s[0] >= '0' && s[0] <= '9') && s[len(s)-1] > ' '
}

func is(t *testing.T, text string, want *big.Rat, got []byte) {
	t.Helper()
	if r, ok := new(big.Rat).SetString(string(got)); !json.Valid(got) || !ok || r.Cmp(want) != 0 {
		t.Fatalf("%s is written as %s", text, got)
	}
}

func TestNumber_IsReadAndComparedWithoutMemory(t *testing.T) {
	a, b := []byte("-123456789012345678901.50"), []byte("-1.234567890123456789015e20")
	if got := testing.AllocsPerRun(10, func() {
		if decimal.Compare(a, b) != 0 || !decimal.Equal(a, b) {
			t.Fatal("equal numbers differ")
		}
		_, _, _ = decimal.Small(a)
	}); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}
