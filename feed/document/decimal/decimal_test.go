package decimal_test

import (
	"encoding/json"
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
	})
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
