package query_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/query"
)

// value returns what a query without FROM gives, "" for no row.
func value(t *testing.T, text string) string {
	t.Helper()
	rows := ask(t, mustParse(t, "SELECT VALUE "+text), nil)
	if len(rows) == 0 {
		return ""
	}
	return rows[0]
}

// Full text search finds whole words, whatever their case and what stands between them.
func TestFullText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`FullTextContains("The Red-Bicycle!", "red bicycle")`, `true`},
		{`FullTextContains("The Red-Bicycle!", "BICYCLE")`, `true`},
		{`FullTextContains("The Red-Bicycle!", "bicycle red")`, `false`},
		{`FullTextContains("The Red-Bicycle!", "cycle")`, `false`},
		{`FullTextContains("a red red bicycle", "red bicycle")`, `true`},
		{`FullTextContains("a red", "red bicycle")`, `false`},
		{`FullTextContains("ÜBER Straße 12", "über straße")`, `true`},
		{`FullTextContains("route 66b", "66")`, `false`},
		{`FullTextContains("anything", "")`, `false`},
		{`FullTextContains("", "a")`, `false`},
		{`FullTextContains(["red"], "red")`, ``},
		{`FullTextContains("red", 1)`, ``},
		{`FullTextContains(undefined, "red")`, ``},
		{`FullTextContainsAll("one two three", "three", "one")`, `true`},
		{`FullTextContainsAll("one two three", "three", "four")`, `false`},
		{`FullTextContainsAll("one two three", "three", null)`, ``},
		{`FullTextContainsAny("one two three", "four", "two three")`, `true`},
		{`FullTextContainsAny("one two three", "four", "five")`, `false`},
		{`FullTextContainsAny("one", undefined)`, ``},
	} {
		if got := value(t, c.text); got != c.want {
			t.Errorf("%s is %s, want %s", c.text, got, c.want)
		}
	}
}

// A search of a long text for a long phrase ends with its time.
func TestFullText_EndsInTime(t *testing.T) {
	q := mustParse(t, `SELECT VALUE FullTextContains(c.text, c.phrase) FROM c`)
	run, err := q.Run(query.RunConfig{End: time.Now().Add(-time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	item := fmt.Sprintf(`{"text":%q,"phrase":%q}`, strings.Repeat("a ", 200_000), strings.Repeat("a ", 100_000)+"b")
	if err := run.Item([]byte(item), nil); err == nil {
		t.Error("a search of 10^10 steps was not ended")
	}
}

func TestVectorDistance(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`VectorDistance([1, 0], [0, 2])`, `0`},
		{`VectorDistance([1, 2], [2, 4], false)`, `1`},
		{`VectorDistance([1, 2], [-1, -2], true)`, `-1`},
		{`VectorDistance([3, 4], [1, 2], false, {"distanceFunction": "dotProduct"})`, `11`},
		{`VectorDistance([3, 4], [0, 0], false, {"distanceFunction": "Euclidean", "dataType": "float32"})`, `5`},
		{`VectorDistance([3, 4], [0, 0])`, ``},
		{`VectorDistance([], [])`, ``},
		{`VectorDistance([1, 2], [1])`, ``},
		{`VectorDistance([1, "2"], [1, 2])`, ``},
		{`VectorDistance("1", [1])`, ``},
		{`VectorDistance([1, 2], undefined)`, ``},
	} {
		if got := value(t, c.text); got != c.want {
			t.Errorf("%s is %s, want %s", c.text, got, c.want)
		}
	}
	for text, want := range map[string]string{
		`SELECT VALUE VectorDistance([1], [1], false, {"distanceFunction": "hamming"})`:           `not "hamming"`,
		`SELECT VALUE VectorDistance([1], [1], false, {"distanceFunction": 5})`:                   `not 5`,
		`SELECT VALUE VectorDistance([1], [1], false, "cosine")`:                                  `takes an object of options`,
		`SELECT VALUE VectorDistance(c.v, [1], false, {"distanceFunction": c.f}) FROM c`:          `written in the query`,
		`SELECT VALUE VectorDistance(c.v, [1], false, {"distanceFunction": @f}) FROM c`:           `written in the query`,
		`SELECT VALUE VectorDistance(c.v) FROM c`:                                                 `takes 2 to 4 arguments, not 1`,
		`SELECT VALUE c FROM c ORDER BY VectorDistance(c.v, [1], true, {"distanceFunction":"x"})`: `not "x"`,
	} {
		if _, err := query.ParseQuery(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	q := mustParse(t, `SELECT VALUE VectorDistance(c.v, @v, false, @o) FROM c`)
	if _, err := q.Bind(map[string][]byte{"v": []byte(`[1]`), "o": []byte(`{"distanceFunction":"x"}`)}); err == nil {
		t.Error("options of a parameter with a distance function that is not known were taken")
	}
}

// The nearest vectors come first where no direction is written, whatever the function, and items
// without one come last. So they do in the form that the query is printed in.
func TestVectorDistance_Order(t *testing.T) {
	items := []string{`{"id":"none"}`, `{"id":"far","v":[-1,0.5]}`, `{"id":"near","v":[1,0.1]}`, `{"id":"long","v":[9,9]}`, `{"id":"other","v":[1]}`}
	for by, want := range map[string]string{
		`VectorDistance(c.v, [1, 0])`:                                              `"near" "long" "far" "none" "other"`,
		`VectorDistance(c.v, [1, 0]) DESC`:                                         `"near" "long" "far" "none" "other"`,
		`VectorDistance(c.v, [1, 0]) ASC`:                                          `"none" "other" "far" "long" "near"`,
		`VectorDistance(c.v, @v)`:                                                  `"near" "long" "far" "none" "other"`,
		`VectorDistance(c.v, [1, 0], true, {"distanceFunction": "euclidean"})`:     `"near" "far" "long" "none" "other"`,
		`VectorDistance(c.v, [1, 0], true, @euclidean)`:                            `"near" "far" "long" "none" "other"`,
		`VectorDistance([1, 0], c.v, true, {"distanceFunction": "dotproduct"})`:    `"long" "near" "far" "none" "other"`,
		`VectorDistance(c.v, [1, 0], true, {"distanceFunction": "euclidean"}) ASC`: `"none" "other" "near" "far" "long"`,
	} {
		q := mustParse(t, `SELECT VALUE c.id FROM c ORDER BY `+by)
		for _, q := range []*query.Query{q, mustParse(t, q.String())} {
			q, err := q.Bind(map[string][]byte{"v": []byte(`[1,0]`), "euclidean": []byte(`{"distanceFunction":"euclidean"}`)})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(ask(t, q, items), " "); got != want {
				t.Errorf("%s: %s, want %s", q, got, want)
			}
		}
	}
}

// DOCUMENTID reads a _rid as the service does: the example is that of its documentation.
func TestDocumentID(t *testing.T) {
	items := []string{`{"id":"a","_rid":"36ZyAPW+uN8NAAAAAAAAAA=="}`, `{"id":"b"}`, `{"id":"c","_rid":"36ZyAA=="}`, `{"id":"d","_rid":5}`, `{"id":"e","_rid":"AAAAAAAAAAD--------8AAA=="}`}
	for text, want := range map[string]string{
		`SELECT VALUE DOCUMENTID(p) FROM product p`:               `13`,
		`SELECT VALUE DOCUMENTID(p.id) FROM product p`:            ``,
		`SELECT VALUE p.id FROM p WHERE DOCUMENTID(p) < 15`:       `"a"`,
		`SELECT VALUE p.id FROM p WHERE NOT (DOCUMENTID(p) < 15)`: ``,
		`SELECT VALUE ORDERRID(p) FROM p`:                         `"36ZyAPW+uN8AAAAAAAAAAA=="`,
	} {
		if got := strings.Join(ask(t, mustParse(t, text), items), " "); got != want {
			t.Errorf("%s gives %s, want %s", text, got, want)
		}
	}
}

// drawn are the rows of a query over items with ids, asked so many rows at a time, at a time.
func drawn(t *testing.T, text string, at time.Time, items, rows int) (all []string) {
	t.Helper()
	q := mustParse(t, text).At(at)
	page := &query.Page{}
	for first := true; first || page.After != nil; first = false {
		run, err := q.Run(query.RunConfig{After: page.After, Rows: rows})
		if err != nil {
			t.Fatal(err)
		}
		for i := range items {
			if err := run.Item(fmt.Appendf(nil, `{"id":"%d","t":[1,2]}`, i), fmt.Appendf(nil, "rank %06d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if page, err = q.Merge([]query.Part{run.Part()}, query.PageConfig{Passed: page.Passed, Rows: rows}); err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			all = append(all, string(row))
		}
	}
	return all
}

// RAND has another value for each item, row of an item, place in the text and time of the query,
// and the same however the query is cut into pages.
func TestRand(t *testing.T) {
	now, items := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 1000
	for _, text := range []string{
		`SELECT VALUE RAND() FROM c`,
		`SELECT VALUE RAND() FROM c JOIN t IN c.t`,
		`SELECT VALUE RAND() FROM c ORDER BY RAND()`,
		`SELECT VALUE r FROM c JOIN r IN (SELECT VALUE [RAND(), RAND()])`,
		`SELECT VALUE RAND() FROM c GROUP BY c.id`,
		`SELECT VALUE (SELECT VALUE RAND()) FROM c WHERE RAND() < 2`,
	} {
		rows := drawn(t, text, now, items, query.RowsMax)
		if other := drawn(t, text, now, items, 97); !slices.Equal(rows, other) {
			t.Errorf("%s gives other rows in pages", text)
		}
		if slices.Equal(rows, drawn(t, text, now.Add(time.Microsecond), items, query.RowsMax)) {
			t.Errorf("%s gives the same at another time", text)
		}
		known, below := map[string]bool{}, 0
		for _, row := range rows {
			f, err := strconv.ParseFloat(row, 64)
			if err != nil || f < 0 || f >= 1 || known[row] {
				t.Fatalf("%s gives %s, known: %t", text, row, known[row])
			}
			if known[row] = true; f < 0.5 {
				below++
			}
		}
		if half := len(rows) / 2; below < half*8/10 || below > half*12/10 {
			t.Errorf("%s: %d of %d numbers are below a half", text, below, len(rows))
		}
	}
	// A condition keeps about its share, and the same items on each page.
	share := drawn(t, `SELECT VALUE c.id FROM c WHERE RAND() < 0.2`, now, items, query.RowsMax)
	if len(share) < 140 || len(share) > 260 || !slices.Equal(share, drawn(t, `SELECT VALUE c.id FROM c WHERE RAND() < 0.2`, now, items, 7)) {
		t.Errorf("%d of %d items passed RAND() < 0.2, or others in pages", len(share), items)
	}
	if q := mustParse(t, `SELECT VALUE c.id FROM c WHERE RAND() < 0.2`).At(now); q.Filter() != nil {
		t.Errorf("%s is a filter of items", q.Filter())
	}
	order := drawn(t, `SELECT VALUE c.id FROM c ORDER BY RAND()`, now, items, query.RowsMax)
	if slices.IsSorted(order) || len(order) != items {
		t.Errorf("ORDER BY RAND() does not mix %d items", len(order))
	}
	if _, err := mustParse(t, `SELECT VALUE RAND()`).Run(query.RunConfig{}); err == nil {
		t.Error("a query with RAND ran without a time")
	}
}

// ALL, FIRST and LAST are values of subqueries.
func TestSubqueries_AllFirstLast(t *testing.T) {
	items := []string{`{"id":"a","t":[3,1,2]}`, `{"id":"b","t":[]}`, `{"id":"c"}`, `{"id":"d","t":["x",null]}`}
	for text, want := range map[string]string{
		`SELECT VALUE [c.id, ALL(SELECT VALUE t > 0 FROM t IN c.t)] FROM c`:                   `["a",true] ["b",true] ["c",true] ["d",true]`,
		`SELECT VALUE [c.id, ALL(SELECT VALUE t = 3 FROM t IN c.t)] FROM c`:                   `["a",false] ["b",true] ["c",true] ["d",false]`,
		`SELECT VALUE [c.id, ALL(SELECT VALUE t FROM t IN c.t)] FROM c`:                       `["a",false] ["b",true] ["c",true] ["d",false]`,
		`SELECT VALUE [c.id, FIRST(SELECT VALUE t FROM t IN c.t)] FROM c`:                     `["a",3] ["b"] ["c"] ["d","x"]`,
		`SELECT VALUE [c.id, LAST(SELECT VALUE t FROM t IN c.t)] FROM c`:                      `["a",2] ["b"] ["c"] ["d",null]`,
		`SELECT VALUE [c.id, LAST(SELECT VALUE t FROM t IN c.t ORDER BY t)] FROM c`:           `["a",3] ["b"] ["c"] ["d","x"]`,
		`SELECT VALUE c.id FROM c WHERE FIRST(SELECT VALUE t FROM t IN c.t) = 3`:              `"a"`,
		`SELECT VALUE first.id FROM first WHERE first.FIRST = 1`:                              ``,
		`SELECT VALUE last.id FROM all JOIN first IN all.t JOIN last IN (SELECT VALUE [all])`: `"a" "a" "a" "d" "d"`,
	} {
		q := mustParse(t, text)
		for _, q := range []*query.Query{q, mustParse(t, q.String())} {
			if got := strings.Join(ask(t, q, items), " "); got != want {
				t.Errorf("%s gives %s, want %s", q, got, want)
			}
		}
	}
	for _, text := range []string{`ALL(SELECT VALUE t FROM t IN c.t)`, `FIRST(SELECT VALUE t FROM t IN c.t)`, `FullTextContains(c.a, "b")`, `RAND() < 1`, `DOCUMENTID(c) > 1`} {
		if e, err := query.ParseExpr(text); err == nil {
			t.Errorf("an expression, which a log may hold, has %s", e)
		}
	}
}

// Infinity and NaN can be compared with numbers, and are no values.
func TestNotFinite(t *testing.T) {
	items := []string{`{"id":"0"}`, `{"id":"1","n":1e400}`, `{"id":"2","n":-7}`, `{"id":"3","n":"x"}`, `{"id":"4","n":null}`}
	for where, want := range map[string]string{
		`c.n < Infinity`: `1 2`, `c.n > -Infinity`: `1 2`, `c.n >= Infinity`: ``, `c.n = Infinity`: ``, `c.n != Infinity`: `1 2 3 4`,
		`c.n < NaN`: ``, `c.n >= NaN`: ``, `c.n = NaN`: ``, `c.n != NaN`: `1 2 3 4`, `NaN = NaN`: ``, `NaN != NaN`: `0 1 2 3 4`,
		`Infinity > -Infinity`: `0 1 2 3 4`, `Infinity = Infinity`: `0 1 2 3 4`, `-Infinity >= Infinity`: ``,
		`c.n BETWEEN 0 AND Infinity`: `1`, `c.n BETWEEN -Infinity AND 0`: `2`, `c.n BETWEEN NaN AND 1`: ``,
		`IS_DEFINED(Infinity)`: ``, `NOT (c.n < Infinity)`: ``, `c.n + Infinity > 0`: ``, `-(-Infinity) > c.n`: `1 2`,
	} {
		q := mustParse(t, `SELECT VALUE c.id FROM c WHERE `+where)
		for _, q := range []*query.Query{q, mustParse(t, q.String())} {
			if got := strings.ReplaceAll(strings.Join(ask(t, q, items), " "), `"`, ""); got != want {
				t.Errorf("%s gives %s, want %s", q, got, want)
			}
		}
	}
	if got := ask(t, mustParse(t, `SELECT VALUE NaN.id FROM NaN JOIN Infinity IN NaN.t WHERE Infinity = 1`), []string{`{"id":"a","t":[1]}`}); !slices.Equal(got, []string{`"a"`}) {
		t.Errorf("an alias that is named NaN reads %q", got)
	}
}

// An aggregate may stand beside ORDER BY, which has no effect on one row.
func TestAggregate_OrderBy(t *testing.T) {
	items := []string{`{"n":1,"t":[1,2]}`, `{"n":3,"t":[5]}`}
	for text, want := range map[string]string{
		`SELECT VALUE AVG(c.n) FROM c ORDER BY c.n`:                                          `2`,
		`SELECT COUNT(1) AS n, SUM(t) AS s FROM c JOIN t IN c.t ORDER BY c.n DESC, t`:        `{"n":3,"s":8}`,
		`SELECT VALUE ARRAY(SELECT VALUE MAX(t) FROM t IN c.t ORDER BY t) FROM c`:            `[2] [5]`,
		`SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c FROM c WHERE c.n > 1) AS other`: `1`,
		`SELECT VALUE d.n FROM (SELECT DISTINCT * FROM c) AS d ORDER BY d.n DESC`:            `3 1`,
	} {
		q := mustParse(t, text)
		if got := strings.Join(ask(t, q, items), " "); got != want {
			t.Errorf("%s gives %s, want %s", text, got, want)
		}
		if strings.Contains(text, "AVG") && (q.Kind() != query.Grouped || q.Order() != nil) {
			t.Errorf("%s is %s, in the order %v", text, q.Kind(), q.Order())
		}
		if diff := cmp.Diff(ask(t, mustParse(t, q.String()), items), ask(t, q, items)); diff != "" {
			t.Errorf("%s as %s: %s", text, q, diff)
		}
	}
}

// _TRY_ARRAY_CONTAINS is ARRAY_CONTAINS, whose bounds it has.
func TestTryArrayContains(t *testing.T) {
	q := mustParse(t, `SELECT * FROM c WHERE _TRY_ARRAY_CONTAINS([1, 2, 3], c.a)`)
	if got := ask(t, q, []string{`{"a":2}`, `{"a":4}`, `{}`}); !slices.Equal(got, []string{`{"a":2}`}) || len(q.Bounds()) != 1 {
		t.Errorf("%q, bounds %v", got, q.Bounds())
	}
}

// A row of VectorDistance costs no memory for each number of the vector.
func BenchmarkVectorDistance(b *testing.B) {
	const numbers = 1536
	vector := "[" + strings.Repeat("0.0123456789,", numbers-1) + "1]"
	q, err := query.ParseQuery("SELECT TOP 10 VALUE c.id FROM c ORDER BY VectorDistance(c.v, " + vector + ")")
	if err != nil {
		b.Fatal(err)
	}
	item, rank := []byte(`{"id":"1","v":`+vector+`}`), bytes.Repeat([]byte{1}, 16)
	b.SetBytes(int64(len(item)))
	b.ReportAllocs()
	for b.Loop() {
		run, err := q.Run(query.RunConfig{Rows: 10})
		if err != nil {
			b.Fatal(err)
		}
		if err := run.Item(item, rank); err != nil {
			b.Fatal(err)
		}
	}
}

// A distance function that a container's policy has is that of calls which name none.
func TestWithDistances(t *testing.T) {
	of := map[string]string{"/v": "euclidean", "/a~1b/w": "dotproduct"}
	const euclidean, dot = `{"distanceFunction": "euclidean"}`, `{"distanceFunction": "dotproduct"}`
	for _, c := range []struct{ text, want string }{
		{`VectorDistance(c.v, [1])`, `VectorDistance(c.v, [1], false, ` + euclidean + `)`},
		{`VectorDistance([1], c["a/b"].w, true)`, `VectorDistance([1], c["a/b"].w, true, ` + dot + `)`},
		{`VectorDistance(c.other, c.v)`, `VectorDistance(c.other, c.v, false, ` + euclidean + `)`},
		{`VectorDistance(c.v, [1], false, {})`, `VectorDistance(c.v, [1], false, ` + euclidean + `)`},
		{`VectorDistance(c.v, [1], false, {"dataType": "float32"})`, `VectorDistance(c.v, [1], false, {"dataType": "float32", "distanceFunction": "euclidean"})`},
		{`VectorDistance(c.v, [1], false, {"distanceFunction": "cosine"})`, `VectorDistance(c.v, [1], false, {"distanceFunction": "cosine"})`},
		{`VectorDistance(c.other, [1])`, `VectorDistance(c.other, [1])`},
		{`VectorDistance(c.v.v, [1])`, `VectorDistance(c.v.v, [1])`},
	} {
		for _, text := range []string{"SELECT VALUE %s FROM c", "SELECT * FROM c WHERE %s > 0", "SELECT TOP 2 c.id FROM c ORDER BY %s", "SELECT VALUE (SELECT VALUE %s) FROM c"} {
			got := mustParse(t, fmt.Sprintf(text, c.text)).WithDistances(of)
			want := mustParse(t, fmt.Sprintf(text, c.want)).String()
			if again := mustParse(t, got.String()).String(); again != want {
				t.Errorf("%s\nwant %s", again, want)
			}
		}
	}
}
