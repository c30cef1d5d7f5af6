package query_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/query"
)

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
		{`"12"`, 0, false},
		{`true`, 0, false},
		{`null`, 0, false},
		{`[1]`, 0, false},
		{``, 0, false},
	} {
		if got, ok := query.ValueOf([]byte(c.raw)).Int64(); got != c.want || ok != c.ok {
			t.Errorf("%s is %d, %v", c.raw, got, ok)
		}
	}
}

func TestFloat64(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want float64
		ok   bool
	}{
		{`27.12`, 27.12, true},
		{`-1e3`, -1000, true},
		{`9007199254740993`, 9007199254740992, true},
		{`1e-999`, 0, true},
		{`1e999`, math.Inf(1), false},
		{`"1"`, 0, false},
		{``, 0, false},
	} {
		if got, ok := query.ValueOf([]byte(c.raw)).Float64(); got != c.want || ok != c.ok {
			t.Errorf("%s is %v, %v", c.raw, got, ok)
		}
	}
}

func TestDecimal(t *testing.T) {
	long := strings.Repeat("1234567890", 10)
	for _, c := range []struct {
		raw      string
		unscaled string
		scale    int
		ok       bool
	}{
		{`0`, `0`, 0, true},
		{`-0.00`, `0`, 0, true},
		{`0e7`, `0`, 0, true},
		{`1.50`, `15`, 1, true},
		{`-27.12`, `-2712`, 2, true},
		{`200`, `2`, -2, true},
		{`2e2`, `2`, -2, true},
		{`0.001e-3`, `1`, 6, true},
		{long + `.5`, long + `5`, 1, true},
		{`1e400`, `1`, -400, true},
		{`1e-999000`, `1`, 999000, true},
		{`1e999001`, ``, 0, false},
		{`1e99999999999999999999`, ``, 0, false},
		{strings.Repeat("1", query.DigitsMax), strings.Repeat("1", query.DigitsMax), 0, true},
		{strings.Repeat("1", query.DigitsMax+1), ``, 0, false},
		{`"1"`, ``, 0, false},
		{`{}`, ``, 0, false},
		{``, ``, 0, false},
	} {
		unscaled, scale, ok := query.ValueOf([]byte(c.raw)).Decimal()
		if ok != c.ok || ok && (unscaled.String() != c.unscaled || scale != c.scale) {
			t.Errorf("%s is %v with scale %d, %v", c.raw, unscaled, scale, ok)
		}
	}
}

func TestFixed(t *testing.T) {
	for _, c := range []struct {
		raw              string
		precision, scale int
		want             string // none: it does not fit
	}{
		{`1.5`, 10, 2, `150`},
		{`1.50`, 10, 1, `15`},
		{`1.5`, 10, 0, ``},
		{`-27.12`, 4, 2, `-2712`},
		{`-27.12`, 3, 2, ``},
		{`27.123`, 10, 2, ``},
		{`0`, 1, 0, `0`},
		{`0.00`, 2, 1, `0`},
		{`99999999.99`, 10, 2, `9999999999`},
		{`100000000`, 10, 2, ``},
		{`1e2`, 5, 2, `10000`},
		{`1e3`, 5, 2, ``},
		{`1e900000`, 38, 2, ``},
		{`1e-900000`, 38, 2, ``},
		{`1200`, 2, -2, `12`},
		{`1234`, 4, -2, ``},
		{`12345678901234567890123456789012345678`, 38, 0, `12345678901234567890123456789012345678`},
		{`"1"`, 10, 2, ``},
		{``, 10, 2, ``},
	} {
		got, ok := query.ValueOf([]byte(c.raw)).Fixed(c.precision, c.scale)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s as decimal(%d, %d) is %v, %v", c.raw, c.precision, c.scale, got, ok)
		}
	}
}

func TestAppendDecimal(t *testing.T) {
	for _, c := range []struct {
		unscaled string
		scale    int
		want     string
	}{
		{`0`, 0, `0`},
		{`0`, 5, `0`},
		{`0`, -5, `0`},
		{`8136`, 2, `81.36`},
		{`-150`, 2, `-1.5`},
		{`200`, 2, `2`},
		{`2`, -2, `200`},
		{`5`, 3, `0.005`},
		{`1`, -33, `1` + strings.Repeat("0", 33)},
		{`1`, -34, `1e34`},
		{`-125`, -34, `-1.25e36`},
		{`1`, 34, `0.` + strings.Repeat("0", 33) + `1`},
		{`12`, 36, `1.2e-35`},
		{strings.Repeat("7", 40), 0, strings.Repeat("7", 40)},
		{strings.Repeat("7", 40), 20, strings.Repeat("7", 20) + "." + strings.Repeat("7", 20)},
		{strings.Repeat("7", 40), 40, `0.` + strings.Repeat("7", 40)},
	} {
		m, _ := new(big.Int).SetString(c.unscaled, 10)
		got := query.AppendDecimal([]byte(`x`), m, c.scale)
		if string(got) != `x`+c.want {
			t.Errorf("%s with scale %d is %s, want %s", c.unscaled, c.scale, got[1:], c.want)
		}
	}
}

func TestRaw(t *testing.T) {
	for _, raw := range []string{`null`, `true`, `false`, `1.50`, `-1e3`, `"a\"b"`, `"é"`, `[1, 2]`, `{"a": [] }`, ``} {
		v := query.ValueOf([]byte(" " + raw + "\n"))
		if got := string(v.Raw()); got != raw {
			t.Errorf("%s is %s", raw, got)
		}
		if (v.Raw() == nil) != (v.Type() == query.Undefined) {
			t.Errorf("%q: Raw is nil: %v", raw, v.Raw() == nil)
		}
	}
	if v := query.ValueOf(nil); v.Type() != query.Undefined {
		t.Errorf("nil is %v", v.Type())
	}
}

// FuzzConvert holds the conversions against rationals.
func FuzzConvert(f *testing.F) {
	for _, s := range []string{`0`, `-0.0`, `27.12`, `1.20e3`, `9223372036854775807`, `-9223372036854775808`, `1e-7`, `123456789012345678901234567890.5`, `"1"`, `1e400`} {
		f.Add([]byte(s), 12, 2)
	}
	f.Fuzz(func(t *testing.T, raw []byte, precision, scale int) {
		if !json.Valid(raw) || len(raw) > 60 {
			return
		}
		v := query.ValueOf(raw)
		precision, scale = min(max(precision, 1), 60), min(max(scale, -60), 60)
		n, isInt := v.Int64()
		unscaled, digits, isDecimal := v.Decimal()
		fixed, isFixed := v.Fixed(precision, scale)
		if v.Type() != query.Number {
			if _, isFloat := v.Float64(); isInt || isDecimal || isFixed || isFloat {
				t.Fatalf("%s is a number", raw)
			}
			return
		}
		if !isDecimal || digits > 400 || digits < -400 {
			return // a rational would take long
		}
		want, ok := new(big.Rat).SetString(strings.TrimSpace(string(raw)))
		if !ok { // a zero with an exponent that is beyond rationals
			want = new(big.Rat)
		}
		if got := rational(unscaled, digits); got.Cmp(want) != 0 {
			t.Fatalf("%s is %v with scale %d", raw, unscaled, digits)
		}
		if isInt != (want.IsInt() && want.Num().IsInt64()) || isInt && want.Num().Int64() != n {
			t.Fatalf("%s is %d, %v", raw, n, isInt)
		}
		multiple := new(big.Rat).Mul(want, rational(big.NewInt(1), -scale))
		if fits := multiple.IsInt() && len(new(big.Int).Abs(multiple.Num()).String()) <= precision; isFixed != fits || isFixed && fixed.Cmp(multiple.Num()) != 0 {
			t.Fatalf("%s as decimal(%d, %d) is %v, %v", raw, precision, scale, fixed, isFixed)
		}
		printed := query.AppendDecimal(nil, unscaled, digits)
		if again, ok := new(big.Rat).SetString(string(printed)); !ok || !json.Valid(printed) || again.Cmp(want) != 0 {
			t.Fatalf("%s is written as %s", raw, printed)
		}
	})
}

// rational returns unscaled divided by ten to the power scale.
func rational(unscaled *big.Int, scale int) *big.Rat {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(scale, -scale))), nil)
	r := new(big.Rat).SetInt(unscaled)
	if scale < 0 {
		return r.Mul(r, new(big.Rat).SetInt(power))
	}
	return r.Quo(r, new(big.Rat).SetInt(power))
}

func ExampleValue_Decimal() {
	e, err := query.ParseExpr(`price * 3`)
	if err != nil {
		panic(err)
	}
	v := e.Eval([]byte(`{"price": 27.10}`))
	unscaled, scale, _ := v.Decimal()
	fmt.Println(unscaled, scale, string(query.AppendDecimal(nil, unscaled, scale)))
	cents, _ := v.Fixed(10, 2)
	fmt.Println(cents)
	_, ok := v.Int64()
	fmt.Println(ok)
	// Output:
	// 813 1 81.3
	// 8130
	// false
}
