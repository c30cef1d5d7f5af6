package queryplan_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/queryplan"
)

// counts says how many there are of everything.
type counts struct {
	items   int
	entries map[uint32]int
}

func (c counts) CountItems(_ []engine.Span, most int) (int, error) { return min(c.items, most), nil }

func (c counts) CountEntries(index uint32, _ []engine.Span, most int) (int, error) {
	return min(c.entries[index], most), nil
}

func key(t *testing.T, components ...any) feed.PartitionKey {
	t.Helper()
	k, err := feed.NewPartitionKey(components...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// table has a partition key of two levels and indexes of every kind.
func table() *queryplan.Table {
	return &queryplan.Table{
		Paths: [][]string{{"region"}, {"shop", "id"}}, Keys: store.KeyOfValues,
		Indexes: []queryplan.Index{
			{Number: 1, Path: "/type", Ordered: true},
			{Number: 2, Path: "/price", Ordered: true},
			{Number: 3, Path: "/tags/*/id"},
			{Number: 4, Path: "/old"},
			{Number: 5, Path: "/a/b", Ordered: true},
		},
	}
}

func TestChoose(t *testing.T) {
	const many = 1 << 20
	for name, c := range map[string]struct {
		text   string
		change func(*queryplan.Table)
		counts counts
		want   string
	}{
		"an id that is the key": {
			text: `SELECT * FROM c WHERE c.id = "x"`, change: func(p *queryplan.Table) { p.Paths = [][]string{{"id"}} }, want: "point read of one item",
		},
		"all items":              {text: `SELECT * FROM c`, want: "scan of all items"},
		"advice for a condition": {text: `SELECT * FROM c WHERE c.name = "x"`, want: "scan of all items: no index serves the query; an index on /name would"},
		"advice for an order": {
			text: `SELECT * FROM c ORDER BY c.name`,
			want: "scan of all items: no index serves the query; each page reads them all and keeps the first rows in order; an index on /name would have the order",
		},
		"one item": {text: `SELECT * FROM c WHERE c.region = "eu" AND c.shop.id = 7 AND c.id = "x"`, want: "point read of one item"},
		"items of an IN": {
			text: `SELECT * FROM c WHERE c.id IN ("x", "y", "x", 3)`, change: func(p *queryplan.Table) { p.Key = key(t, "eu", 7) }, want: "point read of 2 items",
		},
		"a logical partition of the condition": {text: `SELECT * FROM c WHERE c.shop.id = 7 AND c.region = "eu"`, want: `logical partition ["eu",7]`},
		"logical partitions":                   {text: `SELECT * FROM c WHERE c.shop.id IN (7, 8) AND c.region = "eu"`, want: "2 logical partitions"},
		"a logical partition of the request":   {text: `SELECT * FROM c`, change: func(p *queryplan.Table) { p.Key = key(t, "eu", 7) }, want: `logical partition ["eu",7]`},
		"the beginning of keys": {
			text: `SELECT * FROM c WHERE c.type = "x"`, change: func(p *queryplan.Table) { p.Key = key(t, "eu") }, counts: counts{items: many},
			want: `index /type = "x" in scan of the logical partitions that begin with ["eu"]`,
		},
		"a small logical partition without its index": {
			text: `SELECT * FROM c WHERE c.type = "x"`, change: func(p *queryplan.Table) { p.Key = key(t, "eu", 7) }, counts: counts{items: 20}, want: `logical partition ["eu",7]`,
		},
		"a large one with it": {
			text: `SELECT * FROM c WHERE c.type = "x"`, change: func(p *queryplan.Table) { p.Key = key(t, "eu", 7) }, counts: counts{items: many},
			want: `index /type = "x" in logical partition ["eu",7]`,
		},
		"a value":                 {text: `SELECT * FROM c WHERE c.type = "x" AND c.name = 3`, want: `index /type = "x"`},
		"values":                  {text: `SELECT * FROM c WHERE c.type IN ("x", "y", "x")`, want: `index /type, 2 values`},
		"values of an OR":         {text: `SELECT * FROM c WHERE c.type = "x" OR c.type = "y"`, want: `index /type, 2 values`},
		"an array as a value":     {text: `SELECT * FROM c WHERE c.a.b = [1, 2]`, want: `index /a/b = [1,2]`},
		"none where it has none":  {text: `SELECT * FROM c WHERE c.old = [1]`, want: "scan of all items: no index serves the query; an index on /old would"},
		"a range":                 {text: `SELECT * FROM c WHERE c.price > 3 AND c.price < 5`, want: "index /price, a range"},
		"a range of booleans":     {text: `SELECT * FROM c WHERE c.price > true AND c.price < false`, want: "nothing: the condition on /price excludes every item"},
		"a prefix":                {text: `SELECT * FROM c WHERE STARTSWITH(c.type, "ab")`, want: "index /type, a range"},
		"values of two types":     {text: `SELECT * FROM c WHERE c.price = 1 AND c.price = "1"`, want: "nothing: the condition on /price excludes every item"},
		"an element":              {text: `SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, {"id": "t"}, true)`, want: `index /tags/*/id = "t"`},
		"an element of a JOIN":    {text: `SELECT t FROM c JOIN t IN c.tags WHERE t.id = "t"`, want: `index /tags/*/id = "t"`},
		"the value with fewer":    {text: `SELECT * FROM c WHERE c.type = "x" AND c.price = 3`, counts: counts{entries: map[uint32]int{1: many, 2: 7}}, want: "index /price = 3"},
		"a value before a range":  {text: `SELECT * FROM c WHERE c.type = "x" AND c.price > 3`, counts: counts{entries: map[uint32]int{1: many, 2: many}}, want: `index /type = "x"`},
		"no range in item order":  {text: `SELECT * FROM c WHERE c.price > 3`, change: func(p *queryplan.Table) { p.InOrder = true }, want: "scan of all items: no index serves the query; an index on /price would"},
		"a range that is told":    {text: `SELECT * FROM c WHERE c.type = "x" AND c.price > 3`, change: func(p *queryplan.Table) { p.Via = "/price" }, want: "index /price, a range"},
		"an order":                {text: `SELECT TOP 10 * FROM c ORDER BY c.price DESC`, want: "index /price, descending: it has the order of ORDER BY"},
		"an order with condition": {text: `SELECT * FROM c WHERE c.name = 1 ORDER BY c.price DESC`, want: "index /price, descending: it has the order of ORDER BY; the condition is tested on the way"},
		"an order with its range": {text: `SELECT * FROM c WHERE c.price > 3 ORDER BY c.price`, want: "index /price, ascending: it has the order of ORDER BY and the range of the condition"},
		"an order from undefined": {
			text: `SELECT * FROM c ORDER BY c.price`,
			want: "index /price, ascending: it has the order of ORDER BY; items without the value come first and are found by a scan",
		},
		"few items before an order": {
			text: `SELECT * FROM c WHERE c.type = "x" ORDER BY c.price`, counts: counts{entries: map[uint32]int{1: 9}}, want: `index /type = "x": its few items are sorted`,
		},
		"an order before many items": {
			text: `SELECT * FROM c WHERE c.type = "x" ORDER BY c.price DESC`, counts: counts{entries: map[uint32]int{1: many}},
			want: "index /price, descending: it has the order of ORDER BY; the condition is tested on the way",
		},
		"no order of two": {
			text: `SELECT * FROM c WHERE c.type = "x" ORDER BY c.price, c.id`, want: `index /type = "x": each page reads them all and keeps the first rows in order`,
		},
		"no order of an index without arrays": {
			text: `SELECT * FROM c ORDER BY c.old`,
			want: "scan of all items: no index serves the query; each page reads them all and keeps the first rows in order; an index on /old would have the order",
		},
		"no order of an index on elements": {
			text: `SELECT * FROM c ORDER BY c.sizes["0"]`,
			change: func(p *queryplan.Table) {
				p.Indexes = append(p.Indexes, queryplan.Index{Number: 9, Path: "/sizes/0", Ordered: true})
			},
			want: "scan of all items: no index serves the query; each page reads them all and keeps the first rows in order",
		},
		"no order for DISTINCT": {
			text: `SELECT DISTINCT c.price FROM c WHERE c.type = "x" ORDER BY c.price`, want: `index /type = "x": each page reads them all and keeps the rows that it needs`,
		},
		"aggregates": {text: `SELECT COUNT(1) FROM c WHERE c.type = "x"`, want: `index /type = "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := query.ParseQuery(c.text)
			if err != nil {
				t.Fatal(err)
			}
			from := table()
			if c.change != nil {
				c.change(from)
			}
			a, ok, err := queryplan.Choose(q, from, c.counts)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if diff := cmp.Diff(c.want, a.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.text, diff)
			}
		})
	}
}

func TestAnIndexThatIsGoneIsSaid(t *testing.T) {
	q, err := query.ParseQuery(`SELECT * FROM c WHERE c.price > 3`)
	if err != nil {
		t.Fatal(err)
	}
	from := table()
	from.Indexes, from.Via = from.Indexes[:1], "/price"
	if a, ok, err := queryplan.Choose(q, from, counts{}); ok || err != nil {
		t.Errorf("%v, %v, %v", a, ok, err)
	}
}

// TestSpansMissNothing holds the stretches of an index against the condition itself,
// over values of every type at the edges of the conditions.
func TestSpansMissNothing(t *testing.T) {
	long := `"m` + strings.Repeat("x", 600) + `"`
	values := []string{
		"null", "false", "true", "-1e300", "-5", "-4.5", "0", "3", "3.0", "3.1", "4", "9007199254740993", "1e300",
		`""`, `"a"`, `"ab"`, `"ab\u0000"`, `"abc"`, `"ac"`, `"m"`, `"n"`, long, `[]`, `[3]`, `{}`, `{"a":1}`,
	}
	for _, condition := range []string{
		`c.price = 3`, `c.price IN (3, "a", null)`, `c.price > 3`, `c.price >= 3`, `c.price < 3`, `c.price <= 3`, `c.price BETWEEN -4.5 AND 3`,
		`c.price > "ab"`, `c.price >= "ab"`, `c.price < "ab"`, `c.price <= "ab"`, `c.price < "n"`, `c.price > "m"`, `STARTSWITH(c.price, "ab")`,
		`STARTSWITH(c.price, "m")`, `c.price LIKE "a%c"`, `c.price >= false`, `c.price < true`, `c.price <= null`, `c.price > 1 AND c.price < 4`,
		`c.price IN (3, "a", null, 4) AND c.price IN ("a", "ab", 4, 3)`, `c.price IN (5, 4, 3) AND c.price >= 3 AND c.price < 4`,
		`c.price = [3]`, `c.price = {}`, `c.price > 3 AND c.price IN (3, 4, 5)`, `c.price > "z"`, `c.price = true OR c.price = 4`,
		`c.price >= ` + long, `c.price <= ` + long, `c.price = ` + long,
	} {
		q, err := query.ParseQuery(`SELECT * FROM c WHERE ` + condition)
		if err != nil {
			t.Fatal(err)
		}
		a, _, err := queryplan.Choose(q, table(), counts{})
		if err != nil {
			t.Fatal(err)
		}
		if a.Kind == queryplan.Items {
			t.Errorf("%s: %s", condition, a)
		}
		for _, v := range values {
			if !q.Filter().True([]byte(`{"price":` + v + `}`)) {
				continue
			}
			form := engine.AppendIndexValue(nil, []byte(v))
			switch v[0] {
			case '[':
				form = []byte{0x10}
			case '{':
				form = []byte{0x11}
			}
			found := false
			for _, s := range a.Spans {
				found = found || s.Contains(append(form, "item"...))
			}
			if !found {
				t.Errorf("%s: %.20s is selected and in none of the stretches of %s", condition, v, a)
			}
		}
	}
}

// A long list of values must not take longer for each of them.
func BenchmarkChoose_LongIn(b *testing.B) {
	for _, n := range []int{100, 16_000} {
		b.Run(fmt.Sprintf("values=%d", n), func(b *testing.B) {
			list := make([]string, n)
			for i := range list {
				list[i] = strconv.Itoa((i * 7919) % n)
			}
			in := " IN (" + strings.Join(list, ",") + ")"
			q, err := query.ParseQuery("SELECT * FROM c WHERE c.price" + in + " AND c.price" + in)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if a, _, err := queryplan.Choose(q, table(), counts{}); err != nil || len(a.Spans) != n {
					b.Fatal(a, err)
				}
			}
		})
	}
}
