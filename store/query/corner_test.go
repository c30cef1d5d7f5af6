package query_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store/query"
)

// The corner cases of the dialect, each with where it is said. D is the service's
// documentation of its query language, by page; R the REST protocol as its SDKs show
// it; M a choice of Millrace's where the sources say nothing or say two things.
func TestCorners(t *testing.T) {
	mixed := []string{
		`{"id":"1","v":2}`, `{"id":"2","v":"b"}`, `{"id":"3"}`, `{"id":"4","v":null}`, `{"id":"5","v":true}`,
		`{"id":"6","v":[1]}`, `{"id":"7","v":{"a":1}}`, `{"id":"8","v":false}`, `{"id":"9","v":-1.5}`, `{"id":"10","v":"a"}`,
	}
	numbers := []string{
		`{"id":"1","k":"a","n":9007199254740993}`, `{"id":"2","k":"a","n":1}`, `{"id":"3","n":0.1}`, `{"id":"4","k":null,"n":0.2}`, `{"id":"5","k":"b"}`,
	}
	for _, c := range []struct {
		name, source string
		items        []string
		text, want   string
	}{
		{"a missing property compares as undefined, so no row; other types are unequal", "D equality-comparison-operators; R", mixed, `SELECT VALUE c.id FROM c WHERE c.v != 5`, `"1" "2" "4" "5" "6" "7" "8" "9" "10"`},
		{"NOT undefined is undefined", "D logical-operators", mixed, `SELECT VALUE c.id FROM c WHERE NOT (c.v > 0)`, `"9"`},
		{"null is not undefined", "D working-with-json", mixed, `SELECT VALUE c.id FROM c WHERE c.v = null`, `"4"`},
		{"IS_DEFINED of null", "D is-defined", mixed, `SELECT VALUE COUNT(1) FROM c WHERE IS_DEFINED(c.v)`, `9`},
		{"missing properties are left out", "D working-with-json", mixed[1:3], `SELECT c.id, c.v FROM c`, `{"id":"2","v":"b"} {"id":"3"}`},
		{"VALUE of undefined gives no row", "D value", mixed[:3], `SELECT VALUE c.v FROM c`, `2 "b"`},
		{"an object without properties is a row", "D working-with-json", mixed[2:3], `SELECT c.v FROM c`, `{}`},
		{"undefined elements are left out", "D array-literals", mixed[:1], `SELECT VALUE [c.v, c.w, null] FROM c`, `[2,null]`},
		{"unnamed expressions are numbered", "D select", mixed[:1], `SELECT c.id, 1, c.v + 1, "x" AS s, UPPER("y") FROM c`, `{"id":"1","$1":1,"$2":3,"s":"x","$3":"Y"}`},
		{"an element of an array has no name", "M", []string{`{"a":[7]}`}, `SELECT c.a[0] FROM c`, `{"$1":7}`},
		{"no FROM gives one row", "D from", mixed, `SELECT 1 + 1 AS two`, `{"two":2}`},

		{"types in ORDER BY", "D order-by; R", mixed, `SELECT VALUE c.id FROM c ORDER BY c.v`, `"3" "4" "8" "5" "9" "1" "10" "2" "6" "7"`},
		{"types in descending ORDER BY", "D order-by; R", mixed, `SELECT VALUE c.id FROM c ORDER BY c.v DESC`, `"7" "6" "2" "10" "1" "9" "5" "8" "4" "3"`},
		{"items without the property are there, first", "D order-by; R says either", mixed[1:4], `SELECT VALUE c.id FROM c ORDER BY c.v`, `"3" "4" "2"`},

		{"COUNT over nothing", "D count", mixed, `SELECT VALUE COUNT(1) FROM c WHERE false`, `0`},
		{"COUNT leaves out undefined", "D count", mixed, `SELECT VALUE COUNT(c.v) FROM c`, `9`},
		{"SUM over nothing", "M: a sum of no numbers", mixed, `SELECT VALUE SUM(c.v) FROM c WHERE false`, `0`},
		{"AVG, MIN and MAX over nothing", "M: there is no such value", mixed, `SELECT AVG(c.v) AS a, MIN(c.v) AS i, MAX(c.v) AS x FROM c WHERE false`, `{}`},
		{"AVG over nothing as VALUE", "M", mixed, `SELECT VALUE AVG(c.v) FROM c WHERE false`, ``},
		{"SUM and AVG over a text", "D sum; D avg", mixed[:2], `SELECT SUM(c.v) AS s, AVG(c.v) AS a FROM c`, `{}`},
		{"SUM over null", "D sum", []string{mixed[0], mixed[3]}, `SELECT SUM(c.v) AS s FROM c`, `{}`},
		{"SUM leaves out undefined", "D sum", []string{mixed[0], mixed[2]}, `SELECT VALUE SUM(c.v) FROM c`, `2`},
		{"MIN and MAX of several types", "D min; D max", []string{mixed[0], mixed[1], mixed[4]}, `SELECT MIN(c.v) AS i, MAX(c.v) AS x FROM c`, `{"i":true,"x":"b"}`},
		{"MIN of an array", "D min", mixed[:6], `SELECT MIN(c.v) AS i FROM c`, `{}`},
		{"SUM beyond 2^53 is exact", "M", numbers, `SELECT VALUE SUM(c.n) FROM c WHERE c.n >= 1`, `9007199254740994`},
		{"SUM of decimals is exact", "M", numbers, `SELECT VALUE SUM(c.n) FROM c WHERE c.n < 1`, `0.3`},
		{"an integer beyond 2^53 is compared exactly", "M", numbers, `SELECT VALUE c.id FROM c WHERE c.n = 9007199254740992`, ``},

		{"undefined is a group", "D group-by", numbers, `SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k`, `{"n":1} {"k":null,"n":1} {"k":"a","n":2} {"k":"b","n":1}`},
		{"GROUP BY without aggregates", "D group-by", numbers, `SELECT VALUE c.k FROM c GROUP BY c.k`, `null "a" "b"`},
		{"what is below a key may be selected", "M", []string{`{"a":{"b":1}}`}, `SELECT c.a.b, COUNT(1) AS n FROM c GROUP BY c.a`, `{"b":1,"n":1}`},
		{"DISTINCT of undefined and null", "D select", numbers, `SELECT DISTINCT c.k FROM c`, `{"k":"a"} {"k":"b"} {"k":null} {}`},
		{"DISTINCT of equal numbers", "M", []string{`{"v":1.0}`, `{"v":1}`, `{"v":1e0}`}, `SELECT DISTINCT VALUE c.v FROM c`, `1`},
		{"GROUP BY of nothing gives no row", "D group-by", numbers, `SELECT c.k, COUNT(1) AS n FROM c WHERE false GROUP BY c.k`, ``},

		{"JOIN of an empty array gives no row", "D join", family, `SELECT VALUE c.id FROM c JOIN p IN c.parents`, `"a" "a"`},
		{"JOIN of a property that is no array", "D join", family, `SELECT VALUE t FROM c JOIN t IN c.name`, ``},
		{"JOIN of a missing property without IN", "D join", family, `SELECT VALUE c.id FROM c JOIN c.score`, `"z"`},
		{"FROM a path", "D from", family, `SELECT * FROM f.address.state`, `"WA" "NY"`},
		{
			"a subquery in FROM is one for each item", "D subquery", family, `SELECT VALUE t FROM c JOIN (SELECT VALUE t FROM t IN c.children WHERE t.grade > 4) t`,
			`{"first":"Henriette","grade":5,"pets":[{"name":"Fluffy"}]} {"first":"Lisa","grade":8}`,
		},
		{"a constant relation", "D subquery", family[:1], `SELECT VALUE m.n FROM c JOIN m IN (SELECT VALUE [{"g": 5, "n": "five"}, {"g": 6, "n": "six"}]) JOIN f IN c.children WHERE f.grade = m.g`, `"five"`},
		{"EXISTS of VALUE undefined", "D subquery", family[:1], `SELECT EXISTS(SELECT VALUE undefined) AS a, EXISTS(SELECT undefined) AS b FROM c`, `{"a":false,"b":true}`},
		{"a scalar subquery without rows is undefined", "D subquery", family[:1], `SELECT (SELECT VALUE 1 WHERE false) AS a FROM c`, `{}`},
		{"ARRAY of no rows", "D subquery", family[2:], `SELECT VALUE ARRAY(SELECT VALUE f FROM f IN c.children) FROM c`, `[]`},
		{"aggregates of a subquery", "D subquery", family, `SELECT VALUE (SELECT VALUE SUM(f.grade) FROM f IN c.children) FROM c`, `5 9 0`},

		{"GROUP BY of a subquery", "M", []string{`{"t":[1,2,1,3]}`}, `SELECT VALUE ARRAY(SELECT t, COUNT(1) AS n FROM t IN c.t GROUP BY t OFFSET 0 LIMIT 2) FROM c`, `[{"t":1,"n":2},{"t":2,"n":1}]`},
		{"DISTINCT in an order of what is selected", "M", mixed, `SELECT DISTINCT VALUE {"a": {"v": c.v}} FROM c WHERE IS_STRING(c.v) ORDER BY c.v DESC`, `{"a":{"v":"b"}} {"a":{"v":"a"}}`},
		{"DISTINCT of whole items", "D select", []string{`{"a":1,"b":2}`, `{"b":2.0,"a":1}`}, `SELECT DISTINCT * FROM c`, `{"a":1,"b":2}`},
		{"a container inside of FROM", "M", family, `SELECT VALUE s.x FROM (SELECT c.id AS x, c.type FROM c WHERE c.registered) AS s WHERE s.type = "family"`, `"a"`},
		{"what LINQ writes", "R", family, `SELECT VALUE root["id"] FROM root JOIN (SELECT VALUE EXISTS(SELECT VALUE p0 FROM root JOIN p0 IN root["children"] WHERE (p0["grade"] > 6))) AS v0 WHERE (v0 AND (root["type"] = "family")) ORDER BY root["id"] ASC`, `"w"`},
		{"a subquery sees the aliases around it", "D subquery", family, `SELECT VALUE ARRAY(SELECT VALUE {"of": c.id, "n": ARRAY(SELECT VALUE p.name FROM p IN f.pets)} FROM f IN c.children) FROM c WHERE c.id = "w"`, `[{"of":"w","n":["Goofy","Shadow"]},{"of":"w","n":[]}]`},
		{"an inner alias hides an outer one", "M", family[:1], `SELECT VALUE (SELECT VALUE MAX(c.grade) FROM c IN c.children) FROM c`, `5`},
		{"AVG of integers that divide is exact", "M", []string{`{"n":90071992547409930000001}`, `{"n":90071992547409930000003}`}, `SELECT VALUE AVG(c.n) FROM c`, `90071992547409930000002`},
		{"words as names behind a point", "M: the service wants brackets", []string{`{"order":1,"value":2,"in":3}`}, `SELECT c.order, c.value, c["in"] FROM c`, `{"order":1,"value":2,"in":3}`},
		{"TOP 0", "D select", mixed, `SELECT TOP 0 * FROM c`, ``},
		{"OFFSET beyond the end", "D offset-limit", mixed, `SELECT * FROM c OFFSET 100 LIMIT 5`, ``},
		{"OFFSET LIMIT of groups", "D offset-limit", numbers, `SELECT VALUE c.k FROM c GROUP BY c.k OFFSET 1 LIMIT 1`, `"a"`},
		{"a comment and both kinds of quotes", "R", mixed, "SELECT VALUE c.id -- the id\nFROM c WHERE c.v = 'a' OR c.v = \"b\"", `"2" "10"`},

		{
			"DateTimeBin", "D datetimebin", mixed[:1], `SELECT VALUE [DateTimeBin("2021-01-08T18:35:00.0000000", "dd"), DateTimeBin("2021-01-08T18:35:00.0000000", "hh", 5), ` +
				`DateTimeBin("2021-01-08T18:35:00.0000000", "dd", 7), DateTimeBin("2021-01-08T18:35:00.0000000", "dd", 7, "1601-01-01T00:00:00.0000000")]`,
			`["2021-01-08T00:00:00.0000000Z","2021-01-08T15:00:00.0000000Z","2021-01-07T00:00:00.0000000Z","2021-01-04T00:00:00.0000000Z"]`,
		},
		{"DateTimeDiff counts boundaries", "D datetimediff", mixed[:1], `SELECT VALUE [DateTimeDiff("day", "2020-01-01T01:02:03.1234527Z", "2020-01-03T01:02:03.1234567Z"), ` +
			`DateTimeDiff("year", "2018-12-31T23:59:59Z", "2019-01-01T00:00:00Z"), DateTimeDiff("mm", "2020-03-01", "2020-01-31"), DateTimeDiff("ns", "2020-01-01T00:00:00.0000001Z", "2020-01-01T00:00:01Z")]`, `[2,1,-2,999999900]`},
		{
			"DateTimeAdd", "D datetimeadd", mixed[:1], `SELECT VALUE [DateTimeAdd("mm", 1, "2020-01-31T01:02:03.0000000Z"), DateTimeAdd("yyyy", -1, "2020-02-29T00:00:00Z"), DateTimeAdd("ms", -1, "1970-01-01T00:00:00Z"), DateTimeAdd("x", 1, "1970-01-01")]`,
			`["2020-02-29T01:02:03.0000000Z","2019-02-28T00:00:00.0000000Z","1969-12-31T23:59:59.9990000Z"]`,
		},
		{
			"parts, ticks and timestamps", "D date-time-functions", mixed[:1], `SELECT VALUE [DateTimePart("mcs", "2020-01-02T03:04:05.6789123Z"), DateTimeToTicks("2020-01-02T03:04:05.6789123Z"), DateTimeToTimestamp("2020-07-09T23:20:13.4575530Z"), ` +
				`TicksToDateTime(15943368134575530), TimestampToDateTime(-1), DateTimeFromParts(2020, 9, 4, 0, 0, 0, 5), DateTimeFromParts(2020, 13, 4)]`,
			`[678912,15779342456789123,1594336813457,"2020-07-09T23:20:13.4575530Z","1969-12-31T23:59:59.9990000Z","2020-09-04T00:00:00.0000005Z"]`,
		},
		{"the time is one for the whole query", "M", mixed[:2], `SELECT VALUE [GetCurrentDateTime(), GetCurrentTimestamp(), GetCurrentTicksStatic()] FROM c`, `["1970-01-01T00:00:00.0000000Z",0,0] ["1970-01-01T00:00:00.0000000Z",0,0]`},
		{
			"functions of sets and objects", "D", mixed[:1], `SELECT VALUE [SetUnion([1, 2], [2.0, 3]), SetIntersect([1, 2], [2]), ObjectToArray({"a": 1}), Choose(2, "x", "y"), StringSplit("a,b", ","), StringJoin(["a", "b"], "-"), ARRAY_AVG([1, 2])]`,
			`[[1,2,3],[2],[{"k":"a","v":1}],"y",["a","b"],"a-b",1.5]`,
		},
		{
			"integers of 64 bits", "D intadd", mixed[:1], `SELECT VALUE [IntAdd(9007199254740993, 1), IntMul(-4611686018427387904, 2), IntDiv(7, 2), IntMod(-7, 2), IntBitNot(0), IntAdd(9223372036854775807, 1), IntMul(4611686018427387904, 2)]`,
			`[9007199254740994,-9223372036854775808,3,-1,-1]`,
		},
	} {
		q, err := query.ParseQuery(c.text)
		if err != nil {
			t.Errorf("%s: %s: %v", c.name, c.text, err)
			continue
		}
		if got := strings.Join(ask(t, q, c.items), " "); got != c.want {
			t.Errorf("%s (%s): %s gives\n%s, want\n%s", c.name, c.source, c.text, got, c.want)
		}
	}
}

func TestClock(t *testing.T) {
	for text, want := range map[string]string{
		`SELECT VALUE GetCurrentDateTime() FROM c WHERE GetCurrentTimestamp() > 5`:                  `["1970-01-01T00:00:05.0000001Z"]`,
		`SELECT COUNT(1) AS n, GetCurrentTimestamp() AS at FROM c`:                                  `[{"n":1,"at":5000}]`,
		`SELECT c.a, MAX(c.a) < GetCurrentTicks() AS past FROM c GROUP BY c.a`:                      `[{"a":1,"past":true}]`,
		`SELECT VALUE (SELECT VALUE COUNT(1) FROM c.a AS a WHERE GetCurrentTimestamp() > 5) FROM c`: `[1]`,
	} {
		q := mustParse(t, text)
		if _, err := q.Run(query.RunConfig{}); err == nil {
			t.Errorf("%s runs without a clock", text)
		}
		q = q.At(time.Unix(5, 100))
		run, err := q.Run(query.RunConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Item([]byte(`{"a":1}`), nil); err != nil {
			t.Fatal(err)
		}
		page, err := q.Merge([]query.Part{run.Part()}, query.PageConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s", page.Rows); got != want {
			t.Errorf("%s gives %s, want %s", text, got, want)
		}
		if f := q.Filter(); f != nil && !f.True([]byte(`{"a":1}`)) {
			t.Errorf("%s: the condition %s by itself is not true", text, f)
		}
	}
}

// What is wrong or not supported is refused at its place.
func TestQueryErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		near string
		msg  string
	}{
		{``, ``, `want SELECT`},
		{`SELECT`, ``, `want an expression`},
		{`SELECT FROM c`, `FROM c`, `FROM is a word`},
		{`SELECT * FROM`, ``, `want the name of what to read`},
		{`SELECT id FROM c`, `id FROM c`, `c.id`},
		{`SELECT x`, `x`, `there is no x here`},
		{`SELECT *`, `*`, `*`},
		{`SELECT * FROM c JOIN t IN c.t`, `* FROM c JOIN t IN c.t`, `* is the one thing`},
		{`SELECT * FROM c WHERE id = 1`, `id = 1`, `c.id`},
		{`SELECT * FROM c WHERE c.a ==  1`, `=  1`, `want an expression`},
		{`SELECT * FROM c, d`, `, d`, `want JOIN`},
		{`SELECT * FROM c LIMIT 1`, `LIMIT 1`, `LIMIT is not supported here`},
		{`SELECT * FROM c OFFSET 1`, ``, `want LIMIT`},
		{`SELECT TOP -1 * FROM c`, `-1 * FROM c`, `want a number or a parameter`},
		{`SELECT TOP 1.5 * FROM c`, `1.5 * FROM c`, `takes an integer`},
		{`SELECT TOP 1 * FROM c OFFSET 0 LIMIT 1`, `OFFSET 0 LIMIT 1`, `not supported together with TOP`},
		{`SELECT * FROM c ORDER c.a`, `c.a`, `want BY`},
		{`SELECT * FROM c ORDER BY RANK c.a`, `RANK c.a`, `RANK is not supported`},
		{`SELECT c.a FROM c GROUP BY c.a HAVING c.a > 1`, `HAVING c.a > 1`, `HAVING is not supported`},
		{`SELECT c.a FROM c GROUP BY c.a ORDER BY c.a`, `ORDER BY c.a`, `not supported together with GROUP BY`},
		{`SELECT DISTINCT c.a FROM c GROUP BY c.a`, `GROUP BY c.a`, `not supported together with DISTINCT`},
		{`SELECT DISTINCT c.a FROM c ORDER BY c.b`, `ORDER BY c.b`, `takes what is selected`},
		{`SELECT c.b FROM c GROUP BY c.a`, `SELECT c.b FROM c GROUP …`, `c.b is neither in GROUP BY nor within an aggregate`},
		{`SELECT c.id, COUNT(1) FROM c`, `SELECT c.id, COUNT(1) FR…`, `c.id is neither`},
		{`SELECT COUNT(*) FROM c`, `*) FROM c`, `COUNT(1)`},
		{`SELECT SUM(MAX(c.a)) FROM c`, `MAX(c.a)) FROM c`, `within another aggregate`},
		{`SELECT * FROM c WHERE COUNT(1) > 1`, `COUNT(1) > 1`, `stands in a SELECT list only`},
		{`SELECT COUNT(1)`, `SELECT COUNT(1)`, `want FROM`},
		{`SELECT c.a, c.b.a FROM c`, `c.a, c.b.a FROM c`, `two properties "a"`},
		{`SELECT (SELECT VALUE t FROM t IN c.t) FROM c`, `(SELECT VALUE t FROM t I…`, `several rows`},
		{`SELECT * FROM c JOIN t IN c.t JOIN t IN c.u`, `t IN c.u`, `two t`},
		{`SELECT udf.(c.a) FROM c`, `(c.a) FROM c`, `want the name of a function behind udf.`},
		{`SELECT udf.f FROM c`, `FROM c`, `want ( behind udf.f`},
		{`SELECT ST_DISTANCE(c.a) FROM c`, `ST_DISTANCE(c.a) FROM c`, `ST_DISTANCE takes 2 arguments, not 1`},
		{`SELECT FullTextScore(c.a, "b") FROM c`, `FullTextScore(c.a, "b") …`, `items are not ranked by their text`},
		{`SELECT StartWith(c.a, "x") FROM c`, `StartWith(c.a, "x") FROM…`, `there is no function STARTWITH`},
		{`SELECT LOWER(c.a, c.b) FROM c`, `LOWER(c.a, c.b) FROM c`, `LOWER takes 1 argument, not 2`},
		{`SELECT * FROM c UNION SELECT * FROM c`, `UNION SELECT * FROM c`, `UNION is not supported`},
		{`SELECT * FROM c INNER JOIN t IN c.t`, `INNER JOIN t IN c.t`, `INNER is not supported`},
		{`SELECT * FROM (SELECT DISTINCT VALUE c.a FROM c) AS d`, `(SELECT DISTINCT VALUE c…`, `over the container is not supported`},
		{`SELECT * FROM c; DROP TABLE c`, `; DROP TABLE c`, `';' has no meaning`},
		{`DELETE FROM c`, `DELETE FROM c`, `want SELECT`},
		{"SELECT *\nFROM c\nWHERE c.a = 'x", `'x`, `the string does not end`},
		{`SELECT VALUE ` + strings.Repeat(`(SELECT VALUE `, 40) + `1` + strings.Repeat(`)`, 40), `SELECT VALUE (SELECT VAL…`, `SELECTs within each other`},
	} {
		_, err := query.ParseQuery(c.text)
		e, ok := errors.AsType[*query.SyntaxError](err)
		if !ok {
			t.Errorf("%s: %v is no SyntaxError", c.text, err)
			continue
		}
		if e.Near != c.near || !strings.Contains(e.Msg, c.msg) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}

// Expressions have subqueries too. Aliases must not have the names of roots; words of
// clauses are names outside of them.
func TestExpr_Subqueries(t *testing.T) {
	const item = `{"id":"1","from":5,"tags":[{"id":"x","n":1},{"id":"y","n":2}],"limit":2}`
	for _, c := range []struct{ text, want string }{
		{`EXISTS(SELECT VALUE t FROM t IN tags WHERE t.id = "y" AND item.limit = t.n)`, `true`},
		{`ARRAY(SELECT VALUE t.id FROM t IN c.tags ORDER BY t.n DESC)`, `["y","x"]`},
		{`(SELECT VALUE SUM(t.n) FROM t IN tags) + from`, `8`},
		{`from + limit`, `7`},
		{`ARRAY(SELECT VALUE c.from FROM t IN tags)`, `[5,5]`},
		{`(SELECT VALUE id)`, `1`},
	} {
		e, err := query.ParseExpr(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := e.Eval([]byte(item)).Text(); got != c.want {
			t.Errorf("%s is %s, want %s", c.text, got, c.want)
		}
		if got := e.True([]byte(item)); got != (c.want == "true") {
			t.Errorf("%s is true: %v", c.text, got)
		}
		again, err := query.ParseExpr(e.String())
		if err != nil || again.Eval([]byte(item)).Text() != c.want {
			t.Errorf("%s printed as %s, which is read as %v (%v)", c.text, e, again, err)
		}
	}
	for _, text := range []string{
		`EXISTS(SELECT VALUE c FROM c IN tags)`, `EXISTS(SELECT VALUE 1 FROM tags AS item)`, `COUNT(1) > 2`, `EXISTS(tags)`, `ARRAY(tags)`,
		`(SELECT VALUE t FROM t IN tags)`, `GetCurrentTimestamp() > 5`,
	} {
		if e, err := query.ParseExpr(text); err == nil {
			t.Errorf("%s was read as %s", text, e)
		}
	}
}
