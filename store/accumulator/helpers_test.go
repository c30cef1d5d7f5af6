package accumulator_test

import (
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/accumulator"
	"github.com/millrace/millrace/store/query"
)

var (
	update = flag.Bool("update", false, "write golden files anew")
	seed   = flag.Uint64("seed", 1, "of the random model")
)

// totals counts orders and lines in orders for their customer.
var totals = accumulator.Spec{
	SourceWhere: `type = "order"`,
	Match:       []accumulator.Pair{{Target: "customer", Source: "customer"}},
	TargetWhere: `type = "customer"`,
	Set: []accumulator.Field{
		{Path: "avgPaid", Func: accumulator.Avg, Expr: "paid"},
		{Path: "best", Func: accumulator.Max, Expr: "price", Each: "lines", Where: "NOT (index > 1)"},
		{Path: "first", Func: accumulator.Min, Expr: "at"},
		{Path: "last", Func: accumulator.Max, Expr: "at"},
		{Path: "lines", Func: accumulator.Count, Each: "lines"},
		{Path: "orders", Func: accumulator.Count},
		{Path: "paid", Func: accumulator.Count, Where: "paid > 0"},
		{Path: "recent", Func: accumulator.Latest, N: 3, By: "at", Fields: []string{"id", "at", "to.city"}},
		{Path: "spent", Func: accumulator.Sum, Expr: "price * quantity", Each: "lines"},
	},
}

// sales counts lines in orders for their sku.
var sales = accumulator.Spec{
	SourceWhere: `type = "order"`,
	Each:        "lines",
	Match:       []accumulator.Pair{{Target: "a", Source: "sku"}, {Target: "b", Source: "item.to.city"}},
	Set: []accumulator.Field{
		{Path: "cheapest", Func: accumulator.Min, Expr: "price"},
		{Path: "count", Func: accumulator.Count},
		{Path: "latest", Func: accumulator.Latest, N: 2, By: "parent.at", Fields: []string{"quantity", "item.customer", "index"}},
		{Path: "options", Func: accumulator.Max, Expr: "CONCAT(element, ToString(parentIndex))", Each: "options"},
		{Path: "sum", Func: accumulator.Sum, Expr: "quantity", Where: "price >= 1"},
	},
}

func mustCompile(tb testing.TB, s accumulator.Spec) *accumulator.Rule {
	tb.Helper()
	r, err := accumulator.Compile(s)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func mustKey(tb testing.TB, components ...any) feed.PartitionKey {
	tb.Helper()
	k, err := feed.NewPartitionKey(components...)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

func mustGroup(tb testing.TB, values ...string) accumulator.Group {
	tb.Helper()
	raw := make([][]byte, len(values))
	for i, v := range values {
		raw[i] = []byte(v)
	}
	g, ok := accumulator.GroupOf(raw...)
	if !ok {
		tb.Fatalf("%v is no group", values)
	}
	return g
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// texts are the values of a state by their paths; absent ones are left out.
func texts(s *accumulator.State) map[string]string {
	out := map[string]string{}
	for _, v := range s.Values() {
		if v.Value != nil {
			out[v.Path.String()] = string(v.Value)
		}
	}
	return out
}

// dump are all records, printed.
func dump(tb testing.TB, m *accumulator.Memory) map[string]string {
	tb.Helper()
	out := map[string]string{}
	for r, err := range m.Range(nil) {
		must(tb, err)
		out[hex.EncodeToString(r.Key)] = fmt.Sprintf("%q", r.Value)
	}
	return out
}

// scalars that mean something to the order of values, or to the text of numbers.
var scalars = []string{
	"null", "false", "true", `""`, `"a"`, `"ab"`, `"\u0000"`, `"a\u0000b"`, `"Zoë"`, `"\ud83d\ude00"`, `"\\\"\/"`, `"2024-01-01"`,
	"0", "-0", "0.0", "1", "1.0", "1.00", "10", "1e1", "-1", "-10", "9007199254740992", "9007199254740993", "-9007199254740993",
	"0.1", "0.10", "1e-7", "0.0000001", "123456789012345678901234567890.5", "1E+400", "-1e400", "1e-400", "2.5e-3", "99", "100", "101",
	"12345678901234567890123456789012345678901234567890",
}

func randomScalar(r *rand.Rand) string {
	if r.IntN(3) > 0 {
		return scalars[r.IntN(len(scalars))]
	}
	sign := []string{"", "-"}[r.IntN(2)]
	switch r.IntN(3) {
	case 0:
		return fmt.Sprintf("%s%d.%02d", sign, r.IntN(1000), r.IntN(100))
	case 1:
		return fmt.Sprintf("%s%d", sign, r.Uint64()>>r.IntN(64))
	}
	return fmt.Sprintf("%s%de%d", sign, 1+r.IntN(9999), r.IntN(41)-20)
}

func checkJSON(tb testing.TB, s string) []byte {
	tb.Helper()
	if err := document.CheckValue([]byte(s)); err != nil {
		tb.Fatalf("%s: %v", s, err)
	}
	return []byte(s)
}

// golden compares text with a file of testdata and returns the file's, which later
// readers must go on reading.
func golden(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s differs from what was written before (-want +got):\n%s", name, diff)
	}
	return string(want)
}

func mustHex(tb testing.TB, text string) []byte {
	tb.Helper()
	data, err := hex.DecodeString(text)
	must(tb, err)
	return data
}

// itself is an expression that comes to what its item holds.
var itself, _ = query.ParseExpr("v")

// valueOf returns raw JSON as a value.
func valueOf(raw []byte) query.Value {
	return itself.Eval(slices.Concat([]byte(`{"v":`), raw, []byte{'}'}))
}
