package accumulator_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
)

func ratOf(tb testing.TB, text string) *big.Rat {
	tb.Helper()
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		tb.Fatalf("%q is no number", text)
	}
	return r
}

func randomNumber(r *rand.Rand) string {
	sign := []string{"", "-"}[r.IntN(2)]
	switch r.IntN(6) {
	case 0:
		return fmt.Sprintf("%s%d.%02d", sign, r.IntN(100), r.IntN(100))
	case 1:
		return fmt.Sprintf("%s%d", sign, r.Uint64()>>r.IntN(64))
	case 2:
		return fmt.Sprintf("%s%d.%de%d", sign, r.IntN(10), r.Uint64(), r.IntN(600)-300)
	case 3:
		return fmt.Sprintf("%s%d%019d.%d", sign, 1+r.IntN(9), r.Uint64()>>1, r.Uint64()>>r.IntN(64))
	case 4:
		return fmt.Sprintf("%s%d.%s%d", sign, r.IntN(100), strings.Repeat("0", r.IntN(20)), r.IntN(1000))
	}
	return []string{"0", "-0", "0.00", "0e9", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e18", "5e-19"}[r.IntN(9)]
}

// TestDecimal_IsExact adds random numbers and takes them away in another order, and
// compares with fractions.
func TestDecimal_IsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 3))
	for range 100 {
		var sum accumulator.Decimal
		want := new(big.Rat)
		var added []accumulator.Decimal
		for range 1 + r.IntN(40) {
			text := randomNumber(r)
			d, ok := accumulator.ParseDecimal(text)
			if !ok {
				t.Fatalf("%s is left out", text)
			}
			if ratOf(t, d.String()).Cmp(ratOf(t, text)) != 0 {
				t.Fatalf("%s is read as %s", text, d)
			}
			sum, added = sum.Add(d), append(added, d)
			want.Add(want, ratOf(t, text))
			checkDecimal(t, sum, want)
			n := 1 + r.Int64N(1<<r.IntN(62))
			checkDecimal(t, sum.Quotient(n), roundedAvg(want, n))
		}
		r.Shuffle(len(added), func(i, j int) { added[i], added[j] = added[j], added[i] })
		for _, d := range added {
			sum = sum.Add(d.Neg())
		}
		if sum.String() != "0" {
			t.Fatalf("all taken away leaves %s", sum)
		}
		if data, _, err := sum.Encoded(); err != nil || len(data) != 1 {
			t.Fatalf("zero is encoded as %x, %v", data, err)
		}
	}
}

func checkDecimal(t *testing.T, got accumulator.Decimal, want *big.Rat) {
	t.Helper()
	text := got.String()
	if document.CheckValue([]byte(text)) != nil || ratOf(t, text).Cmp(want) != 0 {
		t.Fatalf("%s, want %s", text, want.RatString())
	}
	_, read, err := got.Encoded()
	if err != nil || read.String() != text {
		t.Fatalf("%s is read back as %s, %v", text, read, err)
	}
}

func TestDecimal_Text(t *testing.T) {
	for text, want := range map[string]string{
		"0":                                   "0",
		"-0.00":                               "0",
		"1.50":                                "1.5",
		"-27.10":                              "-27.1",
		"100":                                 "100",
		"1e33":                                "1" + strings.Repeat("0", 33),
		"1e34":                                "1e34",
		"-12e40":                              "-1.2e41",
		"1e-33":                               "0." + strings.Repeat("0", 32) + "1",
		"1e-34":                               "1e-34",
		"1234567890123456789012345678901234":  "1234567890123456789012345678901234",
		"12345678901234567890123456789012345": "1.2345678901234567890123456789012345e34",
		"5e-1":                                "0.5",
	} {
		d, ok := accumulator.ParseDecimal(text)
		if !ok || d.String() != want {
			t.Errorf("%s is written %s, want %s", text, d, want)
		}
	}
}

func TestDecimal_WhatIsLeftOut(t *testing.T) {
	nines := strings.Repeat("9", accumulator.DecimalDigitsMax)
	for text, want := range map[string]bool{
		"1e399": true, "1e400": false, "1e-400": true, "1e-401": false, "12e-401": false, "1e1000000": false, "0e1000000": true,
		nines: true, nines + "0": false, nines + "." + nines: true, nines + "." + nines + "1": false, nines + "." + nines + "0000": true,
		"0." + strings.Repeat("0", 399) + "1": true, "0." + strings.Repeat("0", 400) + "1": false, "0." + strings.Repeat("0", 1000): true,
		"1" + strings.Repeat("0", 900) + "1": false, "1.7976931348623157e308": true, "4.9406564584124654e-324": true,
	} {
		d, ok := accumulator.ParseDecimal(text)
		if ok != want {
			t.Errorf("%.20s (%d bytes): taken %v, want %v", text, len(text), ok, want)
		}
		if ok && ratOf(t, d.String()).Cmp(ratOf(t, text)) != 0 {
			t.Errorf("%.20s is read as %s", text, d)
		}
	}
}

func TestDecimal_RoundsHalfToEven(t *testing.T) {
	for _, c := range []struct {
		sum  string
		n    int64
		want string
	}{
		{"1", 3, "0.33333333333333333"},
		{"2", 3, "0.66666666666666667"},
		{"-2", 3, "-0.66666666666666667"},
		{"22.97", 3, "7.6566666666666667"},
		{"100000000000000005", 10, "10000000000000000"},
		{"100000000000000015", 10, "10000000000000002"},
		{"1000000000000000051", 100, "10000000000000001"},
		{"999999999999999999", 1, "1000000000000000000"},
		{"10", 4, "2.5"},
		{"1e300", 7, "1.4285714285714286e299"},
		{"1e-300", 7, "1.4285714285714286e-301"},
		{"1", 9223372036854775807, "1.0842021724855044e-19"},
		{"9223372036854775807", 9223372036854775807, "1"},
	} {
		d, _ := accumulator.ParseDecimal(c.sum)
		if got := d.Quotient(c.n).String(); got != c.want {
			t.Errorf("%s / %d is %s, want %s", c.sum, c.n, got, c.want)
		}
	}
}
