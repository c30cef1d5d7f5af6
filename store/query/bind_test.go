package query_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/query"
)

// What parameters stand for together is bounded: one that is written often is counted each time.
func TestBind_OccurrencesAreBounded(t *testing.T) {
	text := func(size int) []byte { return []byte(`"\u00e9` + strings.Repeat("a", size-8) + `"`) }
	many := func(n int) string { return strings.Repeat("@a,", n-1) + "@a" }
	for _, c := range []struct {
		name, text string
		size       int
		want       string
	}{
		{"as large as may be, once", `SELECT VALUE @a`, query.ParamsBytesMax, ""},
		{"one that is larger", `SELECT VALUE @a`, query.ParamsBytesMax + 1, "more than 8388608 bytes"},
		{"a large list in each of three conditions", `SELECT * FROM c WHERE ARRAY_CONTAINS(@a, c.x) OR ARRAY_CONTAINS(@a, c.y) OR ARRAY_CONTAINS(@a, c.z)`, 1 << 20, ""},
		{"very many small ones", `SELECT VALUE [` + many(100_000) + `]`, 20, ""},
		{"very many in an array", `SELECT VALUE [` + many(100_000) + `]`, 100, "@a has 100"},
		{"as names", `SELECT VALUE [c[@a], c[@a], c[@a]] FROM c`, 3 << 20, "more than 8388608 bytes"},
		{"as texts to compare with", `SELECT * FROM c WHERE c.x = @a OR c.y = @a OR c.z = @a`, 3 << 20, "more than 8388608 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := mustParse(t, c.text).Bind(map[string][]byte{"a": text(c.size)})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	e, err := query.ParseExpr(`x = @a OR y = @a OR z = @a`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Bind(map[string][]byte{"a": text(3 << 20)}); err == nil {
		t.Error("an expression was bound to three values of 3 MiB")
	}
}

// A text with an escape is decoded once, however often its parameter is written.
func TestBind_ReadsAValueOnce(t *testing.T) {
	q := mustParse(t, `SELECT VALUE LENGTH(@a)`+strings.Repeat(` + LENGTH(@a)`, 199))
	params := map[string][]byte{"a": []byte(`"\u00e9` + strings.Repeat("a", 32<<10) + `"`)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := q.Bind(params); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("%d bytes were allocated for 200 uses of a text of 32 KiB", took)
	}
}

// A value of a parameter is nested no deeper than an item may be: work on a deeper one grows with the square
// of its depth.
func TestBind_ValuesAreAsDeepAsItems(t *testing.T) {
	nested := func(levels int) []byte {
		return []byte(strings.Repeat(`[`, levels) + `"[{\"["` + strings.Repeat(`]`, levels))
	}
	e, err := query.ParseExpr(`x = @a`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		value []byte
		want  string
	}{
		{"as deep as may be", nested(document.DepthMax), ""},
		{"one level deeper", nested(document.DepthMax + 1), "is nested 129 deep, more than 128"},
		{"deep in objects", []byte(strings.Repeat(`{"a":[`, 65) + strings.Repeat(`]}`, 65)), "is nested 130 deep, more than 128"},
		{"long and flat", []byte(`[` + strings.Repeat(`[],{},`, 1000) + `0]`), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			params := map[string][]byte{"a": c.value}
			_, ofQuery := mustParse(t, `SELECT VALUE @a`).Bind(params)
			_, ofExpr := e.Bind(params)
			for _, err := range []error{ofQuery, ofExpr} {
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
		})
	}
}

// A long list that holds an array or object of a parameter is compared within the budget of the query: to compile
// it into a set would write each of them anew, and nothing bounds that.
func TestBind_ListsOfValuesAreNotCompiledIntoSets(t *testing.T) {
	for list, want := range map[string]bool{
		`@a, @a, @a, @a, @a, @a, @a, @a`:        false,
		`[@a], 2, 3, 4, 5, 6, 7, 8`:             false,
		`{"x": [@a]}, 2, 3, 4, 5, 6, 7, 8`:      false,
		`@n, @n, @n, @n, @n, @n, @n, @n`:        true,
		`[1], {"x": [2]}, 3, 4, 5, 6, 7, 8`:     true,
		`[@n], {"x": @n}, 3, 4, 5, 6, 7, "8"`:   true,
		`@n, @n, @n, @n, @n, @n, @n, c.y`:       false,
		`@n, @n, @n`:                            false,
		`"1", "2", "3", "4", "5", "6", "7", @n`: true,
	} {
		e, err := query.ParseExpr(`c.x IN (` + list + `)`)
		if err != nil {
			t.Fatal(err)
		}
		e, err = e.Bind(map[string][]byte{"a": []byte(`[1, {"b": 2}]`), "n": []byte(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.InSet(); got != want {
			t.Errorf("IN (%s) is compiled into a set: %v, want %v", list, got, want)
		}
	}
	e, err := query.ParseExpr(`c.x IN (1, 2, 3, 4, 5, 6, 7, @a)`)
	if err != nil {
		t.Fatal(err)
	}
	if e, err = e.Bind(map[string][]byte{"a": []byte(`[1, {"c": 3, "b": 2}]`)}); err != nil {
		t.Fatal(err)
	}
	for item, want := range map[string]string{
		`{"x":[1.0,{"b":2,"c":3}]}`: "true", `{"x":[1]}`: "false", `{"x":4}`: "true", `{"x":"4"}`: "false", `{}`: "",
	} {
		if got := e.Eval([]byte(item)).Text(); got != want {
			t.Errorf("%s of %s is %q, want %q", e, item, got, want)
		}
	}
}
