package query

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed/document"
)

// querySeeds are texts of every clause.
var querySeeds = []string{
	`SELECT * FROM c`, `select top 5 value c.a from root c where c.a > 1 -- all`, `SELECT DISTINCT c.a, c["b c"] AS d, 1 FROM c ORDER BY c.a DESC, c.b ASC OFFSET 1 LIMIT @n`,
	`SELECT t.id, f FROM c JOIN t IN c.tags JOIN f IN t.f WHERE t.id = 'x' AND EXISTS(SELECT VALUE 1 FROM x IN t.x)`,
	`SELECT c.a, COUNT(1) AS n, AVG(c.b + 1) m FROM c GROUP BY c.a, c.d`, `SELECT VALUE {"n": SUM(c.a), x: [MIN(c.a), MAX(c.b)]} FROM c`,
	`SELECT VALUE (SELECT VALUE COUNT(1) FROM t IN c.tags WHERE t.x = c.y) FROM c`, `SELECT ARRAY(SELECT DISTINCT VALUE t FROM t IN c.tags ORDER BY t.x OFFSET 0 LIMIT 2) AS a FROM c`,
	`SELECT * FROM (SELECT VALUE c.x FROM c) AS s`, `SELECT VALUE m.x FROM c JOIN m IN (SELECT VALUE [{"x": 1}, {"x": 2}])`, `SELECT 1`, `SELECT VALUE GetCurrentTimestamp()`,
	`SELECT * FROM t IN c.tags`, `SELECT c FROM c.a[0] c`, `SELECT VALUE c FROM c IN c.c`, `SELECT udf.f(c) FROM c`, `SELECT * FROM c HAVING`, `SELECT (SELECT VALUE t FROM t IN c.t)`,
	`SELECT c.a FROM c GROUP BY c.a`, `SELECT c.x.y, (SELECT VALUE MAX(t) FROM t IN c.x.t) AS m FROM c GROUP BY c.x`, `SELECT VALUE c FROM c JOIN (SELECT t.a, c.b FROM t IN c.t) JOIN c.o AS o`,
	`SELECT c.from AS from, c.order["by"] FROM c WHERE c.value = {"a": [undefined]}`, `SELECT VALUE COUNT(c) FROM c WHERE (c.a ? EXISTS(SELECT c) : false)`,
	`SELECT VALUE AVG(c.n) FROM c ORDER BY c.n`, `SELECT VALUE d.x FROM (SELECT DISTINCT VALUE c FROM c) AS d`, `SELECT FIRST(SELECT VALUE t FROM t IN c.t), LAST(SELECT c.t), ALL(SELECT VALUE true) FROM c`,
	`SELECT * FROM c WHERE RAND() < 0.5 AND c.n BETWEEN -Infinity AND NaN ORDER BY RAND()`, `SELECT * FROM c WHERE _TRY_ARRAY_CONTAINS(c.t, FullTextContainsAny(c.a, "b", @c))`,
	`SELECT DOCUMENTID(c) FROM c ORDER BY VectorDistance(c.t, [1, -2], false, {"distanceFunction": "euclidean"}), VectorDistance(c.t, @v) ASC`,
}

func FuzzParseQuery(f *testing.F) {
	for _, s := range querySeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ParseQuery(text)
		if err != nil {
			checkPosition(t, text, err)
			return
		}
		printed := q.String()
		again, err := ParseQuery(printed)
		if err != nil {
			t.Fatalf("%q printed as %q: %v", text, printed, err)
		}
		if !reflect.DeepEqual(q.text, again.text) || q.container != again.container {
			t.Fatalf("%q printed as %q, which is read as %q", text, printed, again)
		}
		params := make(map[string][]byte)
		for i, name := range q.Params() {
			params[name] = [][]byte{[]byte(`1`), []byte(`"a"`), []byte(`{"b":[1]}`)}[i%3]
		}
		bound, err := q.Bind(params)
		if err != nil {
			return
		}
		bound.Bounds()
		bound.Tuples([]string{"a"}, []string{"b"})
		bound.Paths()
		bound.Order()
		runFuzzItems(t, bound.At(time.Unix(5, 0)))
	})
}

// runFuzzItems runs a query in one page, then row by row, which must be the same.
func runFuzzItems(t *testing.T, q *Query) {
	t.Helper()
	whole, ok := fuzzPage(t, q, nil, 0, RowsMax)
	if !ok || whole.After != nil {
		return
	}
	var rows [][]byte
	page := &Page{}
	for range 2 * (len(whole.Rows) + int(min(whole.Passed, 100)) + 1) {
		if page, ok = fuzzPage(t, q, page.After, page.Passed, 1); !ok {
			return
		}
		rows = append(rows, page.Rows...)
		if page.After == nil {
			break
		}
		if _, _, _, err := q.Place(page.After); err != nil {
			t.Fatalf("%s: %x: %v", q, page.After, err)
		}
	}
	if whole.Passed < 100 && !slices.EqualFunc(rows, whole.Rows, bytes.Equal) {
		t.Fatalf("%s gives %q, row by row %q", q, whole.Rows, rows)
	}
	for _, row := range rows {
		if parsed(row).typ == Undefined {
			t.Fatalf("%s gives %q, which is no JSON", q, row)
		}
	}
}

func fuzzPage(t *testing.T, q *Query, after []byte, passed int64, rows int) (*Page, bool) {
	t.Helper()
	run, err := q.Run(RunConfig{After: after, Rows: rows, Functions: firstOf{}})
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	for i, item := range fuzzItems {
		if !strings.HasSuffix(item, "}") {
			continue // items are valid JSON
		}
		if run.Item([]byte(item), []byte{byte(i)}) != nil {
			return nil, false
		}
	}
	page, err := q.Merge([]Part{run.Part()}, PageConfig{Passed: passed})
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return page, true
}

// FuzzPartial reads foreign partial groups and keys: what is read is written in the
// same way, and merging does not panic.
func FuzzPartial(f *testing.F) {
	q, err := ParseQuery(`SELECT c.a, COUNT(1) AS n, SUM(c.b) AS s, AVG(c.b) AS v, MIN(c.b) AS l, MAX(c.b) AS h FROM c GROUP BY c.a, c.d`)
	if err != nil {
		f.Fatal(err)
	}
	ordered, err := ParseQuery(`SELECT * FROM c ORDER BY c.a, c.b DESC`)
	if err != nil {
		f.Fatal(err)
	}
	for _, items := range [][]string{{`{}`}, {`{"a":"x","b":1.5}`, `{"a":"x","b":9007199254740993}`}, {`{"b":"y","d":[1]}`}, {`{"b":1e300}`, `{"b":-1e300}`}} {
		run, _ := q.Run(RunConfig{})
		sort, _ := ordered.Run(RunConfig{})
		for i, item := range items {
			if run.Item([]byte(item), nil) != nil || sort.Item([]byte(item), []byte{0, byte(i)}) != nil {
				f.Fatal(item)
			}
		}
		f.Add(run.Part().Rows[0].Body)
		f.Add(sort.Part().Rows[0].Key)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if values, rank, number, err := ordered.Place(raw); err == nil {
			key := appendSortKey(nil, valueOf(values[0]), false)
			key = appendSortKey(key, valueOf(values[1]), true)
			key = append(appendEscaped(key, rank), byte(number>>24), byte(number>>16), byte(number>>8), byte(number))
			if again, _, _, err := ordered.Place(key); err != nil || len(again) != 2 {
				t.Fatalf("%x is read, but written as %x", raw, key)
			}
		}
		g, err := q.plan.group.read(raw)
		if err != nil {
			return
		}
		again, err := q.plan.group.read(q.plan.group.append(nil, g))
		if err != nil || !reflect.DeepEqual(q.plan.group.append(nil, g), q.plan.group.append(nil, again)) {
			t.Fatalf("%x is read, but written as %x", raw, q.plan.group.append(nil, g))
		}
		row := Row{Key: []byte("k"), Body: raw}
		page, err := q.Merge([]Part{{Rows: []Row{row}}, {Rows: []Row{row}}}, PageConfig{})
		if err != nil || len(page.Rows) != 1 || parsed(page.Rows[0]).typ != Object {
			t.Fatalf("%x merged: %v", raw, err)
		}
	})
}

// The order of sort keys is that of values, and keys are read as what was written.
func FuzzSortKey(f *testing.F) {
	for _, s := range []string{`0`, `-1`, `1`, `1.5`, `-0.001`, `1e300`, `-1e-300`, `10`, `9007199254740993`, `""`, `"a"`, `"a\u0000b"`, `null`, `true`, `[1,{"b":1,"a":2.0}]`} {
		f.Add(s, `12`)
		f.Add(`"a"`, s)
		f.Add(`1.50`, s)
	}
	f.Fuzz(func(t *testing.T, x, y string) {
		a, b := parsed([]byte(x)), parsed([]byte(y))
		for text, v := range map[string]Value{x: a, y: b} {
			// What stands in no item has no key to be read: exponents beyond 2^40 are not told apart.
			if v.typ != Undefined && document.CheckValue(bytes.TrimSpace([]byte(text))) != nil {
				return
			}
		}
		want := Compare(a, b)
		for _, desc := range []bool{false, true} {
			k, l := appendSortKey(nil, a, desc), appendSortKey(nil, b, desc)
			got := bytes.Compare(k, l)
			if desc {
				got = -got
			}
			if (a.typ < Array || a.typ != b.typ) && (got < 0) != (want < 0) || (got == 0) != (want == 0) {
				t.Fatalf("%s and %s compare as %d, their keys %x and %x as %d", x, y, want, k, l, got)
			}
			v, rest, ok := readSortKey(append(slices.Clone(k), 7), desc)
			if !ok || len(rest) != 1 || !same(v, a) && a.typ != Undefined {
				t.Fatalf("%s has the key %x, which is read as %s", x, k, v.Raw())
			}
		}
	})
}

// firstOf has each function return its first argument.
type firstOf struct{}

func (firstOf) Call(_ string, args [][]byte) ([]byte, error) {
	if len(args) == 0 {
		return nil, nil
	}
	return args[0], nil
}
