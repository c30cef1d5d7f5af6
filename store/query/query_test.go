package query_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store/query"
)

// family are the items of the dialect's documentation, in a form of our own.
var family = []string{
	`{"id":"a","type":"family","name":"Andersen","registered":true,"parents":[{"first":"Thomas"},{"first":"Mary"}],"children":[{"first":"Henriette","grade":5,"pets":[{"name":"Fluffy"}]}],"address":{"state":"WA","city":"Seattle"}}`,
	`{"id":"w","type":"family","name":null,"registered":false,"children":[{"first":"Jesse","grade":1,"pets":[{"name":"Goofy"},{"name":"Shadow"}]},{"first":"Lisa","grade":8}],"address":{"state":"NY","city":"NY"},"big":9007199254740993}`,
	`{"id":"z","type":"other","score":"high","tags":["x","y","x"]}`,
}

// ask runs a query over items in one partition and page.
func ask(t testing.TB, q *query.Query, items []string) []string {
	t.Helper()
	return pages(t, q, [][]string{items}, query.RunConfig{}, 0)
}

// pages runs a query over items in several partitions, in pages of a number of rows,
// 0 for all, and runs of a configuration.
func pages(t testing.TB, q *query.Query, parts [][]string, cfg query.RunConfig, rowsPage int) []string {
	t.Helper()
	var rows []string
	var after []byte
	passed := int64(0)
	q = q.At(time.Unix(0, 0))
	for {
		found := make([]query.Part, len(parts))
		for i, items := range parts {
			cfg.After = after
			run, err := q.Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for n, item := range items {
				if err := run.Item([]byte(item), fmt.Appendf(nil, "%d/%04d", i, n)); err != nil {
					t.Fatal(err)
				}
			}
			found[i] = run.Part()
		}
		page, err := q.Merge(found, query.PageConfig{Passed: passed, Rows: rowsPage})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			rows = append(rows, string(row))
		}
		if page.After == nil {
			return rows
		}
		if bytes.Compare(page.After, after) <= 0 {
			t.Fatalf("a page goes on at %x, behind %x", page.After, after)
		}
		after, passed = slices.Clone(page.After), page.Passed
	}
}

func TestQuery(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`SELECT c.id FROM c`, `{"id":"a"} {"id":"w"} {"id":"z"}`},
		{`SELECT VALUE c.id FROM c WHERE c.address.state = 'NY'`, `"w"`},
		{`SELECT VALUE f.first FROM f IN c.children`, `"Henriette" "Jesse" "Lisa"`},
		{`SELECT VALUE p.name FROM c JOIN f IN c.children JOIN p IN f.pets WHERE p.name > "G"`, `"Goofy" "Shadow"`},
		{`SELECT VALUE COUNT(1) FROM c`, `3`},
		{`SELECT COUNT(1) AS n, c.type FROM c GROUP BY c.type`, `{"n":2,"type":"family"} {"n":1,"type":"other"}`},
		{`SELECT VALUE c.id FROM c ORDER BY c.id DESC`, `"z" "w" "a"`},
		{`SELECT VALUE c.id FROM c ORDER BY c.score, c.id DESC OFFSET 1 LIMIT 1`, `"a"`},
		{`SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags`, `"x" "y"`},
		{`SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = "y")`, `"z"`},
		{`SELECT VALUE ARRAY(SELECT VALUE f.grade FROM f IN c.children) FROM c`, `[5] [1,8] []`},
		{`SELECT VALUE c.big FROM c`, `9007199254740993`},
		{`SELECT VALUE SUM(f.grade) FROM f IN c.children`, `14`},
		{`SELECT 1, "x" AS y`, `{"$1":1,"y":"x"}`},
	} {
		q, err := query.ParseQuery(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := strings.Join(ask(t, q, family), " "); got != c.want {
			t.Errorf("%s gives\n%s, want\n%s", c.text, got, c.want)
		}
		again, err := query.ParseQuery(q.String())
		if err != nil || again.String() != q.String() {
			t.Errorf("%s printed as %s, which is read as %v (%v)", c.text, q, again, err)
		}
	}
}
