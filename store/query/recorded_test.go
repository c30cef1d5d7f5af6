package query_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/store/query"
)

// recorded calls f with every line of a file of recordings of the service, which lie
// beside the project and are no part of it.
func recorded(t *testing.T, name string, f func(line []byte)) {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "..", "shared", "data", "cosmos-sql", name))
	if err != nil {
		t.Skip("the recordings of the .NET SDK's tests are not here:", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		f(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// Queries give as many rows as the service gave to the .NET SDK's own tests. Among them
// are c.x != null and c.x != "a", which is true of values of other types.
func TestRowsAsRecorded(t *testing.T) {
	recorded(t, "rows.ndjson", func(line []byte) {
		var r struct {
			Baseline, SQL string
			Documents     []json.RawMessage
			Rows          int
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		q, err := query.ParseQuery(r.SQL)
		if err != nil {
			t.Errorf("%s: %s: %v", r.Baseline, r.SQL, err)
			return
		}
		run, err := q.Run(query.RunConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for i, body := range r.Documents {
			if err := run.Item(body, fmt.Appendf(nil, "%06d", i)); err != nil {
				t.Fatal(err)
			}
		}
		page, err := q.Merge([]query.Part{run.Part()}, query.PageConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Rows) != r.Rows {
			t.Errorf("%s: %s gives %d rows, the service gave %d", r.Baseline, r.SQL, len(page.Rows), r.Rows)
		}
	})
}

// Every text is read, or refused with the place of what is not supported; and what is
// read is evaluated.
func TestTextsAsRecorded(t *testing.T) {
	recorded(t, "texts.ndjson", func(line []byte) {
		var r struct{ Baseline, SQL string }
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		q, err := query.ParseQuery(r.SQL)
		if err != nil {
			if syntax, ok := errors.AsType[*query.SyntaxError](err); !ok || syntax.Offset > len(r.SQL) {
				t.Errorf("%s: %s: %v", r.Baseline, r.SQL, err)
			}
			return
		}
		if len(q.Params()) > 0 {
			return
		}
		run, err := q.At(time.Now()).Run(query.RunConfig{})
		if err == nil {
			err = run.Item([]byte(`{"id":"1","NumericField":1,"StringField":"a","ArrayField":[1,2],"Children":[{"Pets":[]}]}`), nil)
		}
		if err != nil {
			t.Errorf("%s: %s: %v", r.Baseline, r.SQL, err)
		}
	})
}
