package query_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/store/query"
)

// What is selected is found among the keys of GROUP BY if it is the same expression, of whatever kind.
func TestGroupBy_FindsItsKeys(t *testing.T) {
	for _, c := range []struct{ key, selected, other string }{
		{`c.a`, `c.a.b[1]`, `c.b`},
		{`c.a.b`, `c.a.b`, `c.a`},
		{`c[c.a]`, `c[c.a]`, `c[c.b]`},
		{`c.a + 1 + 2`, `(c.a + 1 + 2) * 2`, `c.a + 1 + 2.0`},
		{`c.a - (c.b - 1)`, `c.a - (c.b - 1)`, `c.a - c.b - 1`},
		{`c.a = @p`, `c.a = @p`, `c.a = @q`},
		{`c.a = "1"`, `c.a = "1"`, `c.a = 1`},
		{`c.a = true`, `c.a = true`, `c.a = false`},
		{`-c.a`, `-c.a`, `~c.a`},
		{`NOT c.a`, `NOT c.a`, `NOT c.b`},
		{`c.a AND c.b AND c.c`, `c.a AND c.b AND c.c`, `c.a OR c.b OR c.c`},
		{`c.a IN (1, 2)`, `c.a IN (1, 2)`, `c.a IN (2, 1)`},
		{`c.a BETWEEN 1 AND 2`, `c.a BETWEEN 1 AND 2`, `c.a IN (1, 2)`},
		{`c.a LIKE "x"`, `c.a LIKE "x"`, `c.a LIKE "x" ESCAPE "!"`},
		{`c.a ? 1 : 2`, `c.a ? 1 : 2`, `c.a ? 2 : 1`},
		{`ABS(c.a)`, `[ABS(c.a), 1]`, `SIGN(c.a)`},
		{`[c.a, 1]`, `[c.a, 1]`, `[c.a]`},
		{`{"x": c.a}`, `{"x": c.a}`, `{"y": c.a}`},
		{`(SELECT VALUE c.a)`, `(SELECT VALUE c.a)`, `(SELECT VALUE c.a WHERE c.a)`},
		{`ARRAY(SELECT c.a AS x)`, `ARRAY(SELECT c.a AS x)`, `ARRAY(SELECT c.a AS y)`},
		{`(SELECT TOP 1 VALUE c.a)`, `(SELECT TOP 1 VALUE c.a)`, `(SELECT VALUE c.a OFFSET 0 LIMIT 1)`},
	} {
		group := ` FROM c GROUP BY c.z, ` + c.key + `, c.y + 1`
		for _, key := range []string{c.key, strings.Repeat("(", 20) + c.key + strings.Repeat(")", 20)} {
			if _, err := query.ParseQuery(`SELECT VALUE [` + c.selected + `, COUNT(1)] FROM c GROUP BY c.z, ` + key + `, c.y + 1`); err != nil {
				t.Errorf("%s is not found by the key %s: %v", c.selected, key, err)
			}
		}
		if _, err := query.ParseQuery(`SELECT VALUE [` + c.other + `, COUNT(1)]` + group); err == nil || !strings.Contains(err.Error(), "is neither in GROUP BY") {
			t.Errorf("%s is found by the key %s: %v", c.other, c.key, err)
		}
	}
}
