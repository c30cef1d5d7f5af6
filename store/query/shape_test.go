package query_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/query"
)

func mustParse(t testing.TB, text string) *query.Query {
	t.Helper()
	q, err := query.ParseQuery(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return q
}

// boundText writes a bound in one line.
func boundText(b query.Bound) string {
	out := strings.Join(b.Path, ".")
	if b.Each {
		out += "[]"
		if len(b.Element) > 0 {
			out += "." + strings.Join(b.Element, ".")
		}
	}
	if b.Values != nil {
		out += fmt.Sprintf(" in %s", b.Values)
	}
	signs := map[bool]string{true: "", false: "="}
	if b.Low != nil {
		out += " >" + signs[b.LowOpen] + " " + string(b.Low)
	}
	if b.High != nil {
		out += " <" + signs[b.HighOpen] + " " + string(b.High)
	}
	if b.Prefix != "" {
		out += " begins " + b.Prefix
	}
	return out
}

func TestBounds(t *testing.T) {
	for _, c := range []struct{ where, want string }{
		{`c.a = 1`, `a in [1]`},
		{`"x" = c.a.b`, `a.b in ["x"]`},
		{`c["a b"]["in"] = null`, `a b.in in [null]`},
		{`c.a IN (1, "x")`, `a in [1 "x"]`},
		{`c.a = 1 OR c.a = 2 OR c.a IN (3)`, `a in [1 2 3]`},
		{`c.a = 1 OR c.b = 2`, ``},
		{`(c.id = "1" AND c.pk = "a") OR (c.id = "2" AND c.pk = "b")`, `id in ["1" "2"]; pk in ["a" "b"]`},
		{`c.a > 1 AND 5 >= c.a`, `a > 1; a <= 5`},
		{`c.a BETWEEN 1 AND 2`, `a >= 1 <= 2`},
		{`STARTSWITH(c.a, "ab")`, `a >= "ab" begins ab`},
		{`STARTSWITH(c.a, "ab", true)`, ``},
		{`c.a LIKE "ab%c"`, `a >= "ab" begins ab`},
		{`c.a LIKE "ab"`, `a in ["ab"]`},
		{`IS_DEFINED(c.a)`, `a`},
		{`c.a != 1`, `a`},
		{`NOT IS_DEFINED(c.a)`, ``},
		{`c.active AND NOT c.gone`, `active in [true]; gone in [false]`},
		{`ARRAY_CONTAINS(c.tags, {"id": "x", "n": {"m": 1}}, true)`, `tags[].id in ["x"]; tags[].n.m in [1]`},
		{`ARRAY_CONTAINS(c.tags, "x")`, `tags[] in ["x"]`},
		{`ARRAY_CONTAINS(["a", "b"], c.id)`, `id in ["a" "b"]`},
		{`ARRAY_CONTAINS_ANY(c.tags, "a", "b")`, `tags[] in ["a" "b"]`},
		{`EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.id = "x" AND c.a = 1)`, `tags[].id in ["x"]; a in [1]`},
		{`EXISTS(SELECT VALUE t FROM c.o AS o JOIN t IN o.tags WHERE t = "x")`, `o.tags[] in ["x"]`},
		{`EXISTS(SELECT VALUE COUNT(1) FROM t IN c.tags WHERE t = "x")`, ``},
		{`c.a[0] = 1 AND c.b = c.a AND c.b + 1 = 2`, ``},
		{`c.a = @p`, ``},
		{`NOT (c.a = 1)`, ``},
	} {
		var got []string
		for _, b := range mustParse(t, `SELECT * FROM c WHERE `+c.where).Bounds() {
			got = append(got, boundText(b))
		}
		if diff := cmp.Diff(c.want, strings.Join(got, "; ")); diff != "" {
			t.Errorf("%s: %s", c.where, diff)
		}
	}
	for _, c := range []struct{ text, want string }{
		{`SELECT c.id FROM c JOIN t IN c.tags WHERE t.id = "x"`, `tags[].id in ["x"]`},
		{`SELECT VALUE t FROM t IN c.tags WHERE t = 1`, `tags[] in [1]`},
		{`SELECT VALUE a FROM c.address AS a WHERE a.city = "x"`, `address.city in ["x"]`},
		{`SELECT VALUE p FROM c JOIN f IN c.f JOIN p IN f.p WHERE p.x = 1`, ``},
	} {
		var got []string
		for _, b := range mustParse(t, c.text).Bounds() {
			got = append(got, boundText(b))
		}
		if diff := cmp.Diff(c.want, strings.Join(got, "; ")); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
}

func TestTuples(t *testing.T) {
	for _, c := range []struct{ where, want string }{
		{`c.pk = "a" AND c.id IN ("1", "2")`, `[["a" "1"] ["a" "2"]] true`},
		{`(c.id = "1" AND c.pk = "a") OR (c.id = "2" AND c.pk = "b")`, `[["a" "1"] ["b" "2"]] true`},
		{`c.id = "1"`, `[] false`},
		{`c.pk = "a" AND c.id = "1" AND c.x > 2`, `[["a" "1"]] true`},
		{`c.pk = "a" AND (c.id = "1" OR c.x = 2)`, `[] false`},
		{`c.pk = undefined AND c.id = "1"`, `[] true`},
	} {
		tuples, ok := mustParse(t, `SELECT * FROM c WHERE `+c.where).Tuples([]string{"pk"}, []string{"id"})
		if got := fmt.Sprintf("%s %v", tuples, ok); got != c.want {
			t.Errorf("%s: %s, want %s", c.where, got, c.want)
		}
	}
}

func TestShape(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`SELECT * FROM c`, `stream, reads [[]]`},
		{`SELECT c.id FROM c WHERE c.a.b > 1`, `stream, reads [[id] [a b]], filter a.b > 1`},
		{
			`SELECT VALUE t.x FROM c JOIN t IN c.tags WHERE c.a = 1 AND t.x = c.b AND EXISTS(SELECT VALUE u FROM u IN c.us)`,
			`stream, reads [[tags] [a] [b] [us]], filter a = 1 AND EXISTS(SELECT VALUE u FROM u IN us)`,
		},
		{`SELECT TOP 3 c.id FROM c ORDER BY c.a.b DESC, LENGTH(c.x)`, `sorted, reads [[id] [a b] [x]], order [{[a b] true} {[] false}], need 3`},
		{`SELECT DISTINCT c.a FROM c OFFSET 2 LIMIT 5`, `sorted, distinct, reads [[a]], need 7`},
		{`SELECT VALUE COUNT(1) FROM c`, `grouped, reads []`},
		{`SELECT a.city, MAX(a.x) AS m FROM c.address a GROUP BY a.city`, `grouped, reads [[address]]`},
		{`SELECT VALUE a FROM c JOIN a IN c.x ORDER BY a.y`, `sorted, reads [[x]], order [{[] false}]`},
		{`SELECT VALUE a.y FROM c.x AS a ORDER BY a.y`, `sorted, reads [[x]], order [{[x y] false}]`},
		{`SELECT 1`, `stream, reads []`},
	} {
		q := mustParse(t, c.text)
		got := q.Kind().String()
		if q.Distinct() {
			got += ", distinct"
		}
		got += fmt.Sprintf(", reads %v", q.Paths())
		if f := q.Filter(); f != nil {
			got += ", filter " + f.String()
		}
		if o := q.Order(); o != nil {
			got += fmt.Sprintf(", order %v", o)
		}
		if _, limit := q.Window(); limit < 1<<40 {
			got += fmt.Sprintf(", need %d", q.Need(0))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
	q := mustParse(t, `SELECT c.id FROM c WHERE c._ts > 5`)
	if !q.Reads("_ts") || q.Reads("_etag") || !mustParse(t, `SELECT * FROM c`).Reads("_etag") {
		t.Error("Reads does not say what is read")
	}
}

func TestBindQuery(t *testing.T) {
	q := mustParse(t, `SELECT TOP @n c[@p], @p AS name FROM c WHERE c.id IN (@a, @b) AND EXISTS(SELECT VALUE t FROM t IN c.t WHERE t = @a)`)
	if diff := cmp.Diff([]string{"n", "p", "a", "b"}, q.Params()); diff != "" {
		t.Error(diff)
	}
	params := map[string][]byte{"n": []byte("2"), "p": []byte(`"x"`), "a": []byte(`"1"`), "b": []byte("null"), "else": []byte("1")}
	bound, err := q.Bind(params)
	if err != nil {
		t.Fatal(err)
	}
	want := `SELECT TOP 2 c.x, "x" AS name FROM c WHERE c.id IN ("1", null) AND EXISTS(SELECT VALUE t FROM t IN c.t WHERE t = "1")`
	if got := bound.String(); got != want {
		t.Errorf("bound to %s", got)
	}
	if _, err := q.Run(query.RunConfig{}); err == nil {
		t.Error("ran without values of parameters")
	}
	for name, raw := range map[string]string{"n": `-1`, "p": `"name"`, "a": `{`, "b": ``} {
		wrong := maps.Clone(params)
		wrong[name] = []byte(raw)
		if _, err := q.Bind(wrong); err == nil {
			t.Errorf("bound @%s to %q", name, raw)
		}
	}
	if _, err := q.Bind(nil); err == nil {
		t.Error("bound without values")
	}
}

func TestBound_String(t *testing.T) {
	for _, c := range []struct{ where, want string }{
		{`c.price > 3 AND c.price <= 9`, "/price > 3; /price <= 9"},
		{`c.price BETWEEN 3 AND 9`, "/price >= 3 and <= 9"},
		{`c.a.b = "x"`, `/a/b = "x"`},
		{`c.n IN (1, 2, 3, 4, 5, 6, 7)`, "/n is one of 1, 2, 3, 4, 5, and 2 more"},
		{`STARTSWITH(c.name, "Mo")`, `/name begins with "Mo"`},
		{`ARRAY_CONTAINS(c.tags, {"id": "t"}, true)`, `/tags/*/id = "t"`},
		{`IS_DEFINED(c.x)`, "/x is there"},
		{`c.x = undefined`, "/x is none of any value"},
	} {
		var said []string
		for _, b := range mustParse(t, `SELECT * FROM c WHERE `+c.where).Bounds() {
			said = append(said, b.String())
		}
		if got := strings.Join(said, "; "); got != c.want {
			t.Errorf("%s: %s, want %s", c.where, got, c.want)
		}
	}
}

func TestClauses(t *testing.T) {
	for _, c := range []struct {
		text string
		want query.Clauses
	}{
		{`SELECT * FROM c`, query.Clauses{}},
		{`SELECT c.id FROM c JOIN t IN c.tags WHERE t.id="x" and c.n>1 ORDER BY c.n desc, c.id`, query.Clauses{Where: `t.id = "x" AND c.n > 1`, OrderBy: "c.n DESC, c.id"}},
		{`SELECT c.g, COUNT(1) AS n FROM c GROUP BY c.g`, query.Clauses{GroupBy: "c.g"}},
	} {
		if diff := cmp.Diff(c.want, mustParse(t, c.text).Clauses()); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
}
