package query_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store/query"
)

// heavyItem has a long text and long arrays, of an item of 1.5 MB.
var heavyItem = []byte(`{"id":"1","n":1,"s":"` + strings.Repeat("a", 1_000_000) + `","u":"` + strings.Repeat("é", 50_000) + `x","e":[` +
	strings.Repeat(`1e400,2,`, 20_000) + `3],"o":[` + strings.Repeat(`{"a":1},`, 10_000) + `{}],"m":{` + properties(20_000) + `"z":1}}`)

func properties(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"p%d":1,`, i)
	}
	return b.String()
}

// heavy are conditions that take seconds to hours for heavyItem. They name what makes
// them heavy.
var heavy = map[string]string{
	"a regular expression":                    `REGEXMATCH(c.s, "` + strings.Repeat("a?", 1300) + `b")`,
	"one that is made for the item":           `REGEXMATCH(c.s, CONCAT("` + strings.Repeat("a?", 1300) + `", c.id, "b"))`,
	"one with a large class":                  `REGEXMATCH(c.s, "` + strings.Repeat(`(\\pL|a)?`, 200) + `b", "i")`,
	"many regular expressions":                strings.Repeat(`REGEXMATCH(c.s, CONCAT(c.id, "(a*)*b")) OR `, 2000) + "false",
	"LIKE":                                    `c.s LIKE "%` + strings.Repeat("a", 1000) + `_b"`,
	"LIKE with a set":                         `c.s LIKE "%[` + strings.Repeat("bc", 20_000) + `]b"`,
	"an array in an array":                    `ARRAY_CONTAINS_ANY(c.e, ` + strings.Repeat("c.n + 1000, ", 900) + `c.n + 7)`,
	"objects in an array":                     `ARRAY_CONTAINS(c.o, c.m)`,
	"a part of an object":                     strings.Repeat("ARRAY_CONTAINS([c.m, c.s], c.m, true) AND ", 20) + "true",
	"sums of far numbers":                     strings.Repeat("ARRAY_SUM(c.e) = 1 OR ", 200) + "false",
	"sets":                                    strings.Repeat("ARRAY_LENGTH(SETUNION(c.o, c.e)) = 0 OR ", 500) + "false",
	"characters that are cut":                 strings.Repeat(`LENGTH(TRIM(c.u, c.u)) = 1 OR `, 1000) + "false",
	"strings that are made":                   strings.Repeat(`CONTAINS(REPLICATE(c.s, 4), "b") OR `, 5000) + "false",
	"arguments that are many and large":       `CONCAT(` + strings.Repeat(`REPLICATE(c.s, 4), `, 900) + `"x") = "x"`,
	"objects that are compared":               strings.Repeat("c.m = {'a': c.m}.a AND ", 1000) + "false",
	"numbers with many digits":                strings.Repeat(strings.Repeat("1.5e300 * ", 100)+"c.n = 2 OR ", 500) + "false",
	"a subquery of a subquery":                `EXISTS(SELECT VALUE 1 FROM x IN c.e JOIN y IN c.e WHERE x = y + 0.5)`,
	"an order":                                `ARRAY_LENGTH(ARRAY(SELECT VALUE 1 FROM x IN c.e JOIN y IN c.e ORDER BY x, y)) = 0`,
	"many terms that read the end of an item": strings.Repeat("c.m.z = 2 OR ", 20_000) + "false",
}

// What takes too long ends at the end that it has, whatever it is that takes long. Each
// of these would run into the time limit of the test by itself.
func TestEvaluationEndsWithItsTime(t *testing.T) {
	for name, condition := range heavy {
		t.Run(name, func(t *testing.T) {
			e, err := query.ParseExprAs(condition, "c")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Holds(heavyItem, time.Now().Add(time.Millisecond)); !errors.Is(err, query.ErrTooMuch) {
				t.Errorf("as a condition: %v", err)
			}
			q, err := query.ParseQuery("SELECT VALUE c.id FROM c WHERE " + condition)
			if err != nil {
				t.Fatal(err)
			}
			gone, leave := context.WithCancel(t.Context())
			leave()
			run, err := q.Run(query.RunConfig{Done: gone.Done()})
			if err != nil {
				t.Fatal(err)
			}
			if err := run.Item(heavyItem, nil); !errors.Is(err, query.ErrTooMuch) {
				t.Errorf("as a query whose client has gone: %v", err)
			}
		})
	}
}

// Where there is no end, the work is counted: what is too much is undefined, and the
// same everywhere, because no clock decides.
func TestI3_WorkIsCounted(t *testing.T) {
	t.Parallel()
	for name, condition := range heavy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := query.ParseExpr("(" + condition + ") OR true")
			if err != nil {
				t.Fatal(err)
			}
			// Whether something counts its work shows as well at a part of the bound,
			// which is seconds of work for each. One goes up to the bound itself.
			eval := func(item []byte) query.Value { return e.EvalWithin(item, query.WorkMax/32) }
			if name == "an array in an array" {
				eval = e.Eval
			}
			if v := eval(heavyItem); v.Type() != query.Undefined {
				t.Errorf("it is %s", v.Text())
			}
		})
	}
}

// Groups become rows where all partitions come together, which has an end too.
func TestRowsOfGroupsEndWithTheirTime(t *testing.T) {
	q := mustParse(t, `SELECT VALUE REGEXMATCH(c.s, "`+strings.Repeat("a?", 1300)+`b") FROM c GROUP BY c.s`)
	run, err := q.Run(query.RunConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Item(heavyItem, nil); err != nil {
		t.Fatal(err)
	}
	_, err = q.Merge([]query.Part{run.Part()}, query.PageConfig{End: time.Now()})
	if !errors.Is(err, query.ErrTooMuch) {
		t.Error(err)
	}
}

func TestRegularExpressionsHaveASize(t *testing.T) {
	for name, c := range map[string]struct{ re, want string }{
		"a long one":                  {strings.Repeat("a", query.RegexpTextMax), ""},
		"one that is too long":        {strings.Repeat("a", query.RegexpTextMax+1), "4097 bytes, and 4096 are allowed"},
		"a short one that repeats":    {`(a{1000}){9}`, ""},
		"many that repeat":            {strings.Repeat(`(a{1000})`, 100), "instructions, and 10000 are allowed; shorten its repetitions"},
		"one beyond what RE2 takes":   {strings.Repeat(`(a{1000})`, 400) + strings.Repeat(`(\\pL{1000})`, 30), "instructions"},
		"one that is no expression":   {`(`, ""},
		"classes that are very large": {strings.Repeat(`\\pL`, 800), "instructions"},
	} {
		t.Run(name, func(t *testing.T) {
			condition := `REGEXMATCH(s, "` + c.re + `")`
			_, err := query.ParseExprAs(condition, "c")
			_, errQuery := query.ParseQuery(`SELECT * FROM c WHERE ` + strings.Replace(condition, "(s", "(c.s", 1))
			bound := mustParse(t, `SELECT * FROM c WHERE REGEXMATCH(c.s, @re)`)
			_, errBound := bound.Bind(map[string][]byte{"re": []byte(`"` + c.re + `"`)})
			for _, err := range []error{err, errQuery, errBound} {
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
		})
	}
	many := strings.Repeat(`REGEXMATCH(s, "`+strings.Repeat("a", 4000)+`") OR `, 5) + "false"
	if _, err := query.ParseExprAs(many, "c"); err == nil || !strings.Contains(err.Error(), "together") {
		t.Errorf("many regular expressions: %v", err)
	}
}

// A match that can be interrupted finds what one does that cannot.
func TestMatchesAreTheSameInPieces(t *testing.T) {
	long := strings.Repeat("ab ", 200_000)
	for _, c := range []struct {
		re, flags, text string
		want            bool
	}{
		{"foo.*bar", "", long + "foo" + long + "bar", true},
		{"foo.*bar", "", long + "fo" + long + "bar", false},
		{"^foo", "", long + "foo", false},
		{"^foo", "m", long + "\\nfoo", true},
		{`\\bfoo\\b`, "", long + "xfoo foo", true},
		{`\\bfoo\\b`, "", long + "xfoo foox", false},
		{"foo$", "", long + "foo", true},
		{"(^| )foo|foo", "", long + "-foo", true},
		{"É+X", "i", long + "ééx", true},
		{"[^ab ]", "", long + "\\ud83d\\ude00", true},
		{"c", "", long, false},
	} {
		e, err := query.ParseExpr(fmt.Sprintf(`REGEXMATCH(s, "%s%s", "%s")`, c.re, strings.Repeat("(x{10})?", 50), c.flags))
		if err != nil {
			t.Fatal(err)
		}
		holds, err := e.Holds([]byte(`{"s":"`+c.text+`"}`), time.Now().Add(time.Hour))
		if holds != c.want || err != nil {
			t.Errorf("%s with flags %q: %v, %v", c.re, c.flags, holds, err)
		}
	}
}

// What a planner asks of a long query does not take the square of its length.
func TestLongQueriesArePlanned(t *testing.T) {
	list := func(format, join string, n int) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteString(join)
			}
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"many parameters":        list("c.a = @p%d", " OR ", 30_000),
		"many paths":             list("c.a%d = 1", " AND ", 30_000),
		"many keys and terms":    "c.pk IN (" + list("%d", ",", 1000) + ") AND " + list("c.pk != %d", " AND ", 20_000),
		"many keys twice":        "c.pk IN (" + list("%d", ",", 1000) + ") AND " + list("c.pk = %d", " AND ", 20_000),
		"two terms of many each": "(" + list("c.a%d = 1", " AND ", 15_000) + ") OR (" + list("c.a%d = 1", " AND ", 15_000) + ")",
		"a large object":         "c.a = {" + list("a%d: 1", ",", 40_000) + "}",
	} {
		t.Run(name, func(t *testing.T) {
			q := mustParse(t, "SELECT * FROM c WHERE "+text)
			q.Params()
			q.Paths()
			q.Bounds()
			q.Tuples([]string{"pk"})
		})
	}
}
