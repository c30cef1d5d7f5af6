package query_test

import (
	"runtime"
	"strings"
	"testing"

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
