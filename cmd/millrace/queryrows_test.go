package main

import (
	"io"
	"strings"
	"testing"

	"github.com/millrace/millrace/store"
)

// TestQueryRows_TellsOfLaterRowsWithoutCells: the columns are those of the first page, and a
// value has none of them.
func TestQueryRows_TellsOfLaterRowsWithoutCells(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{
		"table": "ID  N\na   1\n\nb   2\n\n",
		"csv":   "id,n\na,1\n,\nb,2\n,\n",
	} {
		var out, errs strings.Builder
		w := newRowWriter(&out, form)
		for _, page := range [][][]byte{
			{[]byte(`{"id":"a","n":1}`)},
			{[]byte(`7`), []byte(`{"id":"b","n":2,"more":3}`), []byte(`"text"`)},
		} {
			if err := w.writePage(page); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != want {
			t.Errorf("%s: it is\n%swant\n%s", form, got, want)
		}
		a := &app{streams: streams{out: io.Discard, err: &errs}}
		if err := a.printCost(w, 4, &store.QueryMetrics{}, false); err != nil {
			t.Fatal(err)
		}
		for _, tells := range []string{"no objects have no columns: 2 later rows are empty; -o ndjson", "no column was made for: more"} {
			if !strings.Contains(errs.String(), tells) {
				t.Errorf("%s: it tells %q, want %q", form, errs.String(), tells)
			}
		}
	}
}
