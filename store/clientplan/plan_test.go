package clientplan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/clientplan"
	"github.com/millrace/millrace/store/query"
)

func plan(t testing.TB, text string, params map[string][]byte) (clientplan.Info, []string, bool) {
	t.Helper()
	q, err := query.ParseStrict(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	bound, err := q.Bind(params)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return clientplan.Of(q, bound)
}

// The rewritten texts have the service's forms, on which the SDKs rely.
func TestOf_RewrittenQuery(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`SELECT * FROM c ORDER BY c.n`:                                   `SELECT ORDERRID(c) AS _rid, [{"item": c.n}] AS orderByItems, c AS payload FROM c WHERE ({documentdb-formattableorderbyquery-filter}) ORDER BY c.n, DOCUMENTID(c)`,
		`select top @k r.id from root r where r.a=@a order by r.n desc`:  `SELECT TOP 7 ORDERRID(r) AS _rid, [{"item": r.n}] AS orderByItems, {"id": r.id} AS payload FROM root AS r WHERE (r.a = @a) AND ({documentdb-formattableorderbyquery-filter}) ORDER BY r.n DESC, DOCUMENTID(r) DESC`,
		`SELECT VALUE c.x FROM c ORDER BY c.n OFFSET 2 LIMIT 3`:          `SELECT ORDERRID(c) AS _rid, [{"item": c.n}] AS orderByItems, c.x AS payload FROM c WHERE IS_DEFINED(c.x) AND ({documentdb-formattableorderbyquery-filter}) ORDER BY c.n, DOCUMENTID(c) OFFSET 0 LIMIT 5`,
		`SELECT VALUE [c.x] FROM c ORDER BY c.n`:                         `SELECT ORDERRID(c) AS _rid, [{"item": c.n}] AS orderByItems, [c.x] AS payload FROM c WHERE ({documentdb-formattableorderbyquery-filter}) ORDER BY c.n, DOCUMENTID(c)`,
		`SELECT * FROM c.tags ORDER BY tags.n`:                           `SELECT [{"item": tags.n}] AS orderByItems, tags AS payload FROM c.tags WHERE ({documentdb-formattableorderbyquery-filter}) ORDER BY tags.n`,
		`SELECT DISTINCT TOP 2 c.g FROM c ORDER BY c.g`:                  `SELECT ORDERRID(c) AS _rid, [{"item": c.g}] AS orderByItems, {"g": c.g} AS payload FROM c WHERE ({documentdb-formattableorderbyquery-filter}) ORDER BY c.g, DOCUMENTID(c)`,
		`SELECT DISTINCT TOP 2 c.g, 1 AS one FROM c`:                     `SELECT DISTINCT TOP 2 c.g, 1 AS one FROM c`,
		`SELECT c["a b"] FROM c OFFSET 1 LIMIT @k`:                       `SELECT c["a b"] FROM c OFFSET 0 LIMIT 8`,
		`SELECT VALUE COUNT(1) FROM c WHERE c.n > 1`:                     `SELECT VALUE [{"item": COUNT(1)}] FROM c WHERE c.n > 1`,
		`SELECT VALUE AVG(c.n) FROM c`:                                   `SELECT VALUE [{"item": {"sum": SUM(c.n), "count": COUNT(c.n)}}] FROM c`,
		`SELECT TOP 1 VALUE MAX(c.n) FROM c ORDER BY c.n`:                `SELECT VALUE [{"item": MAX(c.n), "item2": {"max": MAX(c.n), "count": COUNT(c.n)}}] FROM c`,
		`SELECT COUNT(1), SUM(c.n) AS s FROM c`:                          `SELECT {"$1": {"item": COUNT(1)}, "s": {"item": SUM(c.n)}} AS payload FROM c`,
		`SELECT c.g, COUNT(1) AS n FROM c JOIN t IN c.tags GROUP BY c.g`: `SELECT [{"item": c.g}] AS groupByItems, {"g": c.g, "n": {"item": COUNT(1)}} AS payload FROM c JOIN t IN c.tags GROUP BY c.g`,
		`SELECT VALUE MIN(c.n) FROM c GROUP BY c.g, c.h`:                 `SELECT [{"item": c.g}, {"item": c.h}] AS groupByItems, [{"item": MIN(c.n), "item2": {"min": MIN(c.n), "count": COUNT(c.n)}}] AS payload FROM c GROUP BY c.g, c.h`,
	} {
		info, _, ok := plan(t, text, map[string][]byte{"k": []byte("7"), "a": []byte("1")})
		if !ok || info.RewrittenQuery != want {
			t.Errorf("%s\n got %s\nwant %s", text, info.RewrittenQuery, want)
		}
		// A range reads it, with a condition where the braces are.
		if _, err := query.ParseQuery(strings.ReplaceAll(info.RewrittenQuery, "{documentdb-formattableorderbyquery-filter}", "true")); err != nil {
			t.Errorf("%s: %v", info.RewrittenQuery, err)
		}
	}
}

func TestOf_WhatTheClientDoes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`SELECT TOP 10 VALUE COUNT(c.id) FROM c`:                  `{"aggregates":["Count"],"hasSelectValue":true,"top":10} Top Aggregate`,
		`SELECT * FROM c ORDER BY c._ts OFFSET 5 LIMIT 10`:        `{"limit":10,"offset":5,"orderBy":["Ascending"],"orderByExpressions":["c._ts"]} OffsetAndLimit OrderBy`,
		`SELECT DISTINCT VALUE c.id FROM c ORDER BY c.id`:         `{"distinctType":"Ordered","hasSelectValue":true,"orderBy":["Ascending"],"orderByExpressions":["c.id"]} Distinct OrderBy`,
		`SELECT DISTINCT c.b, c.a FROM c ORDER BY c.a, c.b, c.d`:  `{"distinctType":"Ordered","orderBy":["Ascending","Ascending","Ascending"],"orderByExpressions":["c.a","c.b","c.d"]} Distinct OrderBy MultipleOrderBy`,
		`SELECT DISTINCT c.b FROM c ORDER BY c.a, c.b DESC`:       `{"distinctType":"Unordered","orderBy":["Ascending","Descending"],"orderByExpressions":["c.a","c.b"]} Distinct OrderBy MultipleOrderBy`,
		`SELECT DISTINCT c.a, c.b FROM c ORDER BY c.a`:            `{"distinctType":"Unordered","orderBy":["Ascending"],"orderByExpressions":["c.a"]} Distinct OrderBy`,
		`SELECT DISTINCT * FROM c ORDER BY c.a`:                   `{"distinctType":"Unordered","orderBy":["Ascending"],"orderByExpressions":["c.a"]} Distinct OrderBy`,
		`SELECT DISTINCT VALUE COUNT(1) FROM c`:                   `{"aggregates":["Count"],"hasSelectValue":true} Aggregate`,
		`SELECT COUNT(1), AVG(c.n) AS mean, 1 AS one FROM c`:      `{"groupByAliasToAggregateType":{"$1":"Count","mean":"Average","one":null},"groupByAliases":["$1","mean","one"]} Aggregate CompositeAggregate MultipleAggregates NonValueAggregate`,
		`SELECT c.g, MAX(c.n) AS most FROM c GROUP BY c.g`:        `{"groupByAliasToAggregateType":{"g":null,"most":"Max"},"groupByAliases":["g","most"],"groupByExpressions":["c.g"]} GroupBy Aggregate`,
		`SELECT VALUE SUM(c.n) FROM c GROUP BY c.g`:               `{"aggregates":["Sum"],"groupByExpressions":["c.g"],"hasSelectValue":true} GroupBy Aggregate`,
		`SELECT TOP 1 * FROM c ORDER BY VectorDistance(c.v, [1])`: `none`,
		`SELECT 1 AS one`: `none`,
	} {
		info, features, ok := plan(t, text, nil)
		got := "none"
		if ok {
			info.RewrittenQuery = ""
			got = strings.Join(append([]string{differs(t, info)}, features...), " ")
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// differs returns, as JSON, what a plan has otherwise than that of a query that has nothing to merge.
func differs(t testing.TB, info clientplan.Info) string {
	t.Helper()
	members := func(info clientplan.Info) map[string]any {
		raw, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]any{}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := members(info)
	for name, value := range members(clientplan.Whole()) {
		if cmp.Equal(m[name], value) {
			delete(m, name)
		}
	}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Of each recorded text that the service takes a range reads what its plan asks.
func TestOf_RecordedTexts(t *testing.T) {
	t.Parallel()
	planned := 0
	for line := range bytes.Lines(recordedTexts(t)) {
		var r struct{ SQL string }
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		q, err := query.ParseStrict(r.SQL)
		if err != nil {
			continue
		}
		params := map[string][]byte{}
		for _, name := range q.Params() {
			params[name] = []byte("1")
		}
		bound, err := q.Bind(params)
		if err != nil { // one that is no number
			continue
		}
		info, _, ok := clientplan.Of(q, bound)
		if !ok {
			continue
		}
		planned++
		if _, err := query.ParseQuery(strings.ReplaceAll(info.RewrittenQuery, "{documentdb-formattableorderbyquery-filter}", "true")); err != nil {
			t.Errorf("%s is asked as %s: %v", r.SQL, info.RewrittenQuery, err)
		}
	}
	if planned < 500 {
		t.Errorf("of the recorded texts only %d have a plan", planned)
	}
}

// recordedTexts returns the recordings of the service, which lie beside the project and are no part of it.
func recordedTexts(t *testing.T) []byte {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "shared", "data", "cosmos-sql", "texts.ndjson"))
		if err == nil {
			return data
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	t.Skip("the recordings of the .NET SDK's tests are not here")
	return nil
}
