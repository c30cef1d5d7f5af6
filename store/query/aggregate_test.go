package query_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/query"
)

// A sum that has too many digits to be exact, and is too large for a double, is undefined, as that of
// ARRAY_SUM is. That is no fault of the query.
func TestAggregates_SumBeyondNumbersIsUndefined(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`SELECT SUM(c.x) AS s, COUNT(1) AS n FROM c`, `{"n":2}`},
		{`SELECT AVG(c.x) AS s FROM c`, `{}`},
		{`SELECT ARRAY_SUM([1e600, 1]) AS s, MAX(c.x) AS m FROM c`, `{"m":1e600}`},
		{`SELECT (SELECT VALUE SUM(x) FROM x IN (SELECT VALUE [1e600, 1])) AS s, MIN(c.x) AS m FROM c`, `{"m":1}`},
	} {
		for _, parts := range [][][]string{{{`{"x":1e600}`, `{"x":1}`}}, {{`{"x":1}`, `{"x":1e600}`}}, {{`{"x":1e600}`}, {`{"x":1}`}}} {
			if diff := cmp.Diff([]string{c.want}, pages(t, mustParse(t, c.text), parts, query.RunConfig{}, 0)); diff != "" {
				t.Errorf("%s over %s: %s", c.text, parts, diff)
			}
		}
	}
}

// numbers returns the first n numbers, as the elements of an array.
func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",%d", i)
	}
	return b.String()[1:]
}

// What a subquery holds for its groups is counted: the values of MIN and MAX, and the rows.
func TestGroupsOfASubqueryAreCounted(t *testing.T) {
	from := func(groups int) string { return ` FROM t IN (SELECT VALUE [` + numbers(groups) + `]) GROUP BY t)` }
	large := strings.Repeat("x", 100_000)
	for _, c := range []struct{ name, head string }{
		{"greatest values", `SELECT VALUE EXISTS(SELECT VALUE MAX("` + large + `")`},
		{"rows", `SELECT VALUE EXISTS(SELECT "` + large + `" AS x, COUNT(1) AS n`},
		{"an array", `SELECT VALUE ARRAY(SELECT VALUE MAX("` + large + `")`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := mustParse(t, c.head+from(3000)).Run(query.RunConfig{}); !errors.Is(err, query.ErrTooMuch) {
				t.Errorf("300 MB: %v", err)
			}
			room := query.NewRoom(4 << 20)
			share := room.Share()
			if _, err := mustParse(t, c.head+from(50)).Run(query.RunConfig{Share: share}); !errors.Is(err, query.ErrTooLarge) {
				t.Errorf("5 MB in a room of 4 MiB: %v", err)
			}
			share.Free()
			share = room.Share()
			if _, err := mustParse(t, c.head+from(10)).Run(query.RunConfig{Share: share}); err != nil {
				t.Errorf("1 MB in a room of 4 MiB: %v", err)
			}
			if taken := room.Taken(); taken < 1_000_000 {
				t.Errorf("%d bytes are taken for 1 MB", taken)
			}
			share.Free()
		})
	}
}

// A subquery that has ended holds nothing any more, so the next one has room.
func TestGroupsOfASubqueryAreGivenBack(t *testing.T) {
	q := mustParse(t, `SELECT VALUE COUNT(1) FROM c JOIN a IN c.t WHERE EXISTS(SELECT MAX("`+strings.Repeat("x", 10_000)+`") AS m FROM b IN c.t GROUP BY b)`)
	run, err := q.Run(query.RunConfig{Share: query.NewRoom(8 << 20).Share()})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Item([]byte(`{"t":[`+numbers(100)+`]}`), nil); err != nil {
		t.Errorf("100 times 2 MB in a room of 8 MiB: %v", err)
	}
}
