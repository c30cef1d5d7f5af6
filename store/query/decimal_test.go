package query

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed/document/decimal"
)

func FuzzArithmetic(f *testing.F) {
	f.Add("27.12", "3")
	f.Add("-0.05", "1e3")
	f.Add("999999999999999999", "0.000000000000000001")
	f.Add("-123456789012345678", "1.5e-7")
	f.Add("0.0", "-0")
	f.Fuzz(func(t *testing.T, x, y string) {
		a, b := []byte(x), []byte(y)
		if !json.Valid(a) || !json.Valid(b) || len(a) > 60 || len(b) > 60 || strings.ContainsAny(x+y, " \t\r\n") {
			return
		}
		if valueOf(a).typ != Number || valueOf(b).typ != Number {
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
		if got := decimal.Compare(a, b); sign(got) != p.Cmp(q) {
			t.Fatalf("%s and %s compare as %d", x, y, got)
		}
		if isInteger(a) != (p.IsInt() && p.Sign() != 0) && p.Sign() != 0 {
			t.Fatalf("%s is an integer: %v", x, isInteger(a))
		}
		for op, want := range map[byte]*big.Rat{
			'+': new(big.Rat).Add(p, q), '-': new(big.Rat).Sub(p, q), '*': new(big.Rat).Mul(p, q),
		} {
			data, ok := arithmetic(op, a, b)
			if !ok {
				continue
			}
			got, valid := new(big.Rat).SetString(string(data))
			if !json.Valid(data) || !valid || got.Cmp(want) != 0 {
				t.Fatalf("%s %c %s is %s, want %s", x, op, y, data, want.RatString())
			}
		}
	})
}

func sign(n int) int { return min(max(n, -1), 1) }
