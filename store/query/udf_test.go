package query_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/query"
)

// fakeFunctions has echo, which returns its arguments as an array, even, and fails; any other returns undefined.
type fakeFunctions struct{ calls int }

var errFake = errors.New("it failed")

func (f *fakeFunctions) Call(name string, args [][]byte) ([]byte, error) {
	f.calls++
	switch name {
	case "echo":
		for i := range args {
			if args[i] == nil {
				args[i] = []byte(`"undefined"`)
			}
		}
		return []byte("[" + string(bytes.Join(args, []byte(","))) + "]"), nil
	case "even":
		return []byte([]string{"true", "false"}[(args[0][0]-'0')%2]), nil
	}
	if name == "fails" {
		return nil, errFake
	}
	return nil, nil
}

// udfRows runs a query over a few items.
func udfRows(t *testing.T, text string, functions query.Functions) ([]string, error) {
	t.Helper()
	q, err := query.ParseQuery(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	// What it prints is the same query.
	if again, err := query.ParseQuery(q.String()); err != nil || again.String() != q.String() {
		t.Errorf("%s prints %s: %v", text, q, err)
	}
	run, err := q.Run(query.RunConfig{Functions: functions})
	if err != nil {
		return nil, err
	}
	for i, item := range []string{`{"id":"a","n":1}`, `{"id":"b","n":2,"s":"x"}`, `{"id":"c","n":4,"s":null}`} {
		if err := run.Item([]byte(item), []byte{byte(i)}); err != nil {
			return nil, err
		}
	}
	page, err := q.Merge([]query.Part{run.Part()}, query.PageConfig{})
	if err != nil {
		return nil, err
	}
	rows := []string{}
	for _, row := range page.Rows {
		rows = append(rows, string(row))
	}
	return rows, nil
}

func TestUDF(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`SELECT VALUE udf.echo(c.n, c.s, "t") FROM c`:                            {`[1,"undefined","t"]`, `[2,"x","t"]`, `[4,null,"t"]`},
		`SELECT c.id, udf.undefined() AS u FROM c WHERE c.n = 1`:                 {`{"id":"a"}`},
		`SELECT VALUE c.id FROM c WHERE udf.even(c.n)`:                           {`"b"`, `"c"`},
		`SELECT VALUE c.id FROM c WHERE NOT UDF.even(c.n)`:                       {`"a"`},
		`SELECT VALUE SUM(udf.echo(c.n)[0]) FROM c`:                              {`7`},
		`SELECT udf.even(c.n) AS e, COUNT(1) AS k FROM c GROUP BY udf.even(c.n)`: {`{"e":false,"k":1}`, `{"e":true,"k":2}`},
		`SELECT VALUE udf.echo(udf.echo(c.n)) FROM c WHERE c.n = 2`:              {`[[2]]`},
		`SELECT DISTINCT VALUE udf.even(c.n) FROM c`:                             {`false`, `true`},
	} {
		got, err := udfRows(t, text, &fakeFunctions{})
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
	if _, err := udfRows(t, `SELECT VALUE udf.fails(c.n) FROM c`, &fakeFunctions{}); !errors.Is(err, errFake) {
		t.Error(err)
	}
	if _, err := udfRows(t, `SELECT VALUE udf.echo(COUNT(1)) FROM c`, &fakeFunctions{}); err == nil || !strings.Contains(err.Error(), "within aggregates") {
		t.Error(err)
	}
	if _, err := udfRows(t, `SELECT VALUE udf.echo(c.n) FROM c`, nil); err == nil || !strings.Contains(err.Error(), "through the gateway") {
		t.Error(err)
	}
	functions := &fakeFunctions{}
	if _, err := udfRows(t, `SELECT VALUE c.id FROM c WHERE c.n > 1 AND udf.even(c.n)`, functions); err != nil || functions.calls != 2 {
		t.Errorf("%v: %d calls for two items that pass", err, functions.calls)
	}
	q, err := query.ParseQuery(`SELECT udf.a(udf.b(c.x)) FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.t WHERE udf.c(t)) ORDER BY c.a`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, q.Functions(), cmp.Transformer("sort", func(s []string) map[string]bool {
		m := map[string]bool{}
		for _, n := range s {
			m[n] = true
		}
		return m
	})); diff != "" {
		t.Error(diff)
	}
	if _, err := query.ParseExpr(`udf.f(c.n)`); err == nil {
		t.Error("an expression of a log calls a function of JavaScript")
	}
}
