package query_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/query"
)

var (
	seedFlag    = flag.Uint64("seed", 1, "seed of the random queries")
	queriesFlag = flag.Int("queries", 400, "number of random queries")
)

// TestRandom holds random queries against the naive evaluator, whole, over several
// partitions and in pages.
func TestRandom(t *testing.T) {
	for i := range *queriesFlag {
		seed := *seedFlag + uint64(i)
		g := gen{rand.New(rand.NewPCG(seed, 0))}
		n := g.query()
		q, err := query.ParseQuery(n.text())
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, n.text(), err)
		}
		var items []string
		var envs []env
		for id := range g.IntN(20) {
			items = append(items, g.item(id))
			envs = append(envs, env{"c": decode(items[id])})
		}
		if !q.Distinct() && q.Kind() != query.Grouped && n.top < 0 && n.limit < 0 {
			checkBounds(t, seed, q, items)
		}
		whole := ask(t, q, items)
		checkRows(t, seed, n, n.run(envs), whole)
		var parts [][]string
		for rest, k := items, 1+g.IntN(4); k > 0; k-- {
			size := len(rest)
			if k > 1 {
				size = g.IntN(len(rest) + 1)
			}
			parts, rest = append(parts, rest[:size]), rest[size:]
		}
		cfg, rowsPage := query.RunConfig{Rows: 1 + g.IntN(5), Bytes: pick(g, 0, 1+g.IntN(600))}, 1+g.IntN(5)
		if got := pages(t, q, parts, cfg, rowsPage); !slices.Equal(got, whole) {
			t.Fatalf("seed %d: %s over %d partitions by %+v in pages of %d gives\n%v, in one\n%v\nof\n%s", seed, n.text(), len(parts),
				cfg, rowsPage, got, whole, strings.Join(items, "\n"))
		}
		if got := pausedPages(t, g, n, q, items); !slices.Equal(got, whole) {
			t.Fatalf("seed %d: %s in the order of an index and with pauses gives\n%v, else\n%v\nof\n%s", seed, n.text(), got, whole,
				strings.Join(items, "\n"))
		}
		again, err := query.ParseQuery(q.String())
		if err != nil || again.String() != q.String() {
			t.Fatalf("seed %d: %s printed as %s, which is read as %v (%v)", seed, n.text(), q, again, err)
		}
		if got := ask(t, again, items); !slices.Equal(got, whole) {
			t.Fatalf("seed %d: %s printed as %s gives\n%v, not\n%v", seed, n.text(), q, got, whole)
		}
	}
}

// checkRows compares rows: in order where the language says one, else as a bag; and
// where a window cuts what has no order, their number and that they are there.
func checkRows(t *testing.T, seed uint64, n *nQuery, all []any, got []string) {
	t.Helper()
	want := n.window(all)
	rows := func(list []any) []string {
		var out []string
		for _, v := range list {
			out = append(out, canon(v))
		}
		return out
	}
	var have []string
	for _, raw := range got {
		have = append(have, canon(decode(raw)))
	}
	expected, ok := rows(want), false
	switch {
	case !n.distinct && len(n.group) == 0:
		ok = slices.Equal(expected, have)
	case n.top < 0 && n.limit < 0:
		slices.Sort(expected)
		slices.Sort(have)
		ok = slices.Equal(expected, have)
	default:
		left := rows(all)
		ok = len(have) == len(expected)
		for _, row := range have {
			i := slices.Index(left, row)
			if i < 0 {
				ok = false
				break
			}
			left = slices.Delete(left, i, i+1)
		}
	}
	if !ok {
		t.Fatalf("seed %d: %s gives\n%s, want\n%s", seed, n.text(), strings.Join(have, "\n"), strings.Join(expected, "\n"))
	}
}

// checkBounds reports whether the items that give rows are within the bounds, pass the
// filter, and have the values that are known.
func checkBounds(t *testing.T, seed uint64, q *query.Query, items []string) {
	t.Helper()
	paths := [][]string{{"a"}, {"o", "x"}}
	tuples, known := q.Tuples(paths...)
	for _, item := range items {
		if len(ask(t, q, []string{item})) == 0 {
			continue
		}
		if f := q.Filter(); f != nil && !f.True([]byte(item)) {
			t.Fatalf("seed %d: %s gives rows of %s, of which %s is not true", seed, q, item, f)
		}
		e := env{"c": decode(item)}
		for _, b := range q.Bounds() {
			if !within(b, at("c", b.Path...).eval(e)) {
				t.Fatalf("seed %d: %s gives rows of %s, which is not within %+v", seed, q, item, b)
			}
		}
		if known && !slices.ContainsFunc(tuples, func(values [][]byte) bool {
			return canon(at("c", paths[0]...).eval(e)) == canon(decode(string(values[0]))) &&
				canon(at("c", paths[1]...).eval(e)) == canon(decode(string(values[1])))
		}) {
			t.Fatalf("seed %d: %s gives rows of %s, whose values are none of %s", seed, q, item, tuples)
		}
	}
}

// within reports whether a value is within a bound.
func within(b query.Bound, v any) bool {
	if b.Each {
		list, ok := v.([]any)
		path, element := b.Element, b
		element.Each = false
		return ok && slices.ContainsFunc(list, func(v any) bool { return within(element, at("e", path...).eval(env{"e": v})) })
	}
	if v == (undefined{}) {
		return false
	}
	if b.Values != nil && !slices.ContainsFunc(b.Values, func(raw []byte) bool { return canon(decode(string(raw))) == canon(v) }) {
		return false
	}
	ops := [2]string{">=", "<="}
	if b.LowOpen {
		ops[0] = ">"
	}
	if b.HighOpen {
		ops[1] = "<"
	}
	for i, raw := range [][]byte{b.Low, b.High} {
		if raw != nil && compareOp(ops[i], v, decode(string(raw))) != true {
			return false
		}
	}
	s, _ := v.(string)
	return strings.HasPrefix(s, b.Prefix)
}

// pausedPages runs a query over items in its own order, as an index has them, in
// pages that end behind any item, where the query can be run so.
func pausedPages(t *testing.T, g gen, n *nQuery, q *query.Query, items []string) []string {
	t.Helper()
	var ranks []int
	for i := range items {
		ranks = append(ranks, i)
	}
	for _, o := range n.order {
		if !strings.Contains(o.by.text, "c.") {
			return ask(t, q, items)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int {
		for _, o := range n.order {
			x, y := o.by.eval(env{"c": decode(items[a])}), o.by.eval(env{"c": decode(items[b])})
			if c := compareAny(x, y); c != 0 {
				if o.desc {
					return -c
				}
				return c
			}
		}
		return 0
	})
	var rows []string
	var page query.Page
	for {
		run, err := q.Run(query.RunConfig{Ordered: true, After: page.After, Rows: 1 + g.IntN(4)})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range ranks {
			if err := run.Item([]byte(items[i]), fmt.Appendf(nil, "0/%04d", i)); err != nil {
				t.Fatal(err)
			}
			if run.Full() || g.IntN(6) == 0 && run.Pause() {
				break
			}
		}
		next, err := q.Merge([]query.Part{run.Part()}, query.PageConfig{Passed: page.Passed})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range next.Rows {
			rows = append(rows, string(row))
		}
		if next.After == nil {
			return rows
		}
		if bytes.Compare(next.After, page.After) < 0 {
			t.Fatalf("a page goes on at %x, before %x", next.After, page.After)
		}
		page.After, page.Passed = next.After, next.Passed
	}
}
