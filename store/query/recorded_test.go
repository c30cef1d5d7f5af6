package query_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/store/query"
)

// recorded calls f with every line of a file of recordings of the service, which lie
// beside the project and are no part of it.
func recorded(t *testing.T, name string, f func(line []byte)) {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	// They lie beside the project, or beside a folder of working copies of it.
	var file *os.File
	for file == nil {
		above := filepath.Dir(dir)
		if above == dir {
			t.Skip("the recordings of the .NET SDK's tests are not here")
		}
		dir = above
		if file, err = os.Open(filepath.Join(dir, "shared", "data", "cosmos-sql", name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
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

// scope are recorded texts with a reason.
type scope struct {
	texts  *regexp.Regexp
	reason string
}

// outOfScope are the recorded texts that the service takes and this package does not.
var outOfScope = []scope{
	{regexp.MustCompile(`ORDER BY RANK`), "a rank follows from the words of all items, which only an index of words knows"},
	{regexp.MustCompile(`\bMAKE(LIST|SET)\(`), "no page of the service describes them, and their lists have no bound"},
}

// What the service refused is refused by ParseStrict, and what it took and is in scope is read by it.
func TestStrictAsRecorded(t *testing.T) {
	refused := 0
	recorded(t, "texts.ndjson", func(line []byte) {
		var r struct {
			Baseline, SQL string
			Refused       bool
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		_, err := query.ParseStrict(r.SQL)
		switch out := slices.ContainsFunc(outOfScope, func(s scope) bool { return s.texts.MatchString(r.SQL) }); {
		case r.Refused && err == nil:
			t.Errorf("%s: %s is taken, which the service refuses", r.Baseline, r.SQL)
		case r.Refused:
			refused++
		case err != nil && !out:
			t.Errorf("%s: %s is refused, which the service takes: %v", r.Baseline, r.SQL, err)
		}
	})
	t.Logf("%d texts that the service refuses are refused", refused)
}

// Every text that the service takes is read and evaluated, but for those of outOfScope; every other
// one that is refused is refused with the place. outOfScope is neither longer nor shorter than need be.
func TestTextsAsRecorded(t *testing.T) {
	taken, left := 0, make([]int, len(outOfScope))
	recorded(t, "texts.ndjson", func(line []byte) {
		var r struct {
			Baseline, SQL string
			Refused       bool
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		out := slices.IndexFunc(outOfScope, func(s scope) bool { return s.texts.MatchString(r.SQL) })
		q, err := query.ParseQuery(r.SQL)
		switch syntax, ok := errors.AsType[*query.SyntaxError](err); {
		case err != nil && (!ok || syntax.Offset > len(r.SQL)):
			t.Errorf("%s: %s: %v", r.Baseline, r.SQL, err)
		case err != nil && !r.Refused && out < 0:
			t.Errorf("%s: %s is refused, which the service takes: %v", r.Baseline, r.SQL, err)
		case err != nil && !r.Refused:
			left[out]++
		case err == nil && out >= 0:
			t.Errorf("%s: %s is taken, although %s", r.Baseline, r.SQL, outOfScope[out].reason)
		case err == nil && !r.Refused:
			taken++
		}
		if err != nil || len(q.Params()) > 0 {
			return
		}
		run, err := q.At(time.Now()).Run(query.RunConfig{Functions: &fakeFunctions{}})
		if err == nil {
			err = run.Item([]byte(`{"id":"1","NumericField":1,"StringField":"a","ArrayField":[1,2],"Children":[{"Pets":[]}]}`), nil)
		}
		if err != nil {
			t.Errorf("%s: %s: %v", r.Baseline, r.SQL, err)
		}
	})
	for i, n := range left {
		if n == 0 {
			t.Errorf("no recorded text is out of scope because %s", outOfScope[i].reason)
		}
	}
	t.Logf("%d of the texts that the service takes are taken; out of scope are %d", taken, left)
}
