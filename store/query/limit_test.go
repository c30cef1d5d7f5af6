package query_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/store/query"
)

// wide is an item whose array has many elements.
var wide = []byte(`{"id":"1","t":[` + strings.Repeat("1,", 2000) + `1]}`)

// JOINs and subqueries that try too many rows of an item end the query, not the
// process.
func TestTooMuch(t *testing.T) {
	for _, text := range []string{
		`SELECT VALUE COUNT(1) FROM c JOIN a IN c.t JOIN b IN c.t`,
		`SELECT VALUE ARRAY(SELECT VALUE c.t FROM a IN c.t) FROM c`,
	} {
		run, err := mustParse(t, text).Run(query.RunConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Item(wide, nil); !errors.Is(err, query.ErrTooMuch) {
			t.Errorf("%s: %v", text, err)
		}
	}
	run, err := mustParse(t, `SELECT VALUE COUNT(1) FROM c JOIN a IN c.t`).Run(query.RunConfig{End: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Item(wide, nil); !errors.Is(err, query.ErrTooMuch) {
		t.Errorf("behind its end: %v", err)
	}
	many := mustParse(t, `SELECT c.t AS a0`+fields(2000)+` FROM c`)
	if run, err = many.Run(query.RunConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := run.Item(wide, nil); !errors.Is(err, query.ErrTooMuch) {
		t.Errorf("a row that is too long: %v", err)
	}
	e, err := query.ParseExpr(`NOT EXISTS(SELECT VALUE 1 FROM a IN t JOIN b IN t WHERE b = 2)`)
	if err != nil {
		t.Fatal(err)
	}
	if v := e.Eval(wide); v.Type() != query.Undefined || e.True(wide) {
		t.Errorf("an expression that tries too much is %s", v.Text())
	}
}

// An item ends the query when it takes too long, whatever it is that does.
func TestTooLate(t *testing.T) {
	item := []byte(`{"id":"1","s":"` + strings.Repeat("a", 3000) + `"}`)
	many := func(term, join string) string { return term + strings.Repeat(join+term, 200) }
	for _, condition := range []string{
		`s LIKE "%` + strings.Repeat("a", 100) + `_b"`,
		many(`x = 0`, " OR "),
		`IS_DEFINED(id) AND ` + many(`id = "1"`, " AND "),
		`ARRAY_LENGTH([` + many(`x`, ", ") + `]) = 0`,
	} {
		e, err := query.ParseExpr(condition)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Holds(item, time.Now()); !errors.Is(err, query.ErrTooMuch) {
			t.Errorf("%.40s: %v", condition, err)
		}
		if holds, err := e.Holds(item, time.Now().Add(time.Hour)); holds != e.True(item) || err != nil {
			t.Errorf("%.40s: %v, %v; want %v", condition, holds, err, e.True(item))
		}
		run, err := mustParse(t, `SELECT VALUE c.id FROM c JOIN (SELECT VALUE c.s) AS s JOIN (SELECT VALUE c.id) AS id JOIN (SELECT VALUE c) AS x WHERE `+
			condition).Run(query.RunConfig{End: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Item(item, nil); !errors.Is(err, query.ErrTooMuch) {
			t.Errorf("%.40s in a query: %v", condition, err)
		}
	}
	run, err := mustParse(t, `SELECT * FROM c WHERE c.s LIKE "%`+strings.Repeat("a", 100)+`_b"`).Run(query.RunConfig{End: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if !run.Passes(item) || !errors.Is(run.Item(item, nil), query.ErrTooMuch) {
		t.Error("a condition that takes too long excludes the item")
	}
}

// fields are further fields of a SELECT list.
func fields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ", c.t AS a%d", i+1)
	}
	return b.String()
}

// A run holds no more than the rows of a page.
func TestMemory(t *testing.T) {
	for _, text := range []string{
		`SELECT * FROM c ORDER BY c.n`, `SELECT DISTINCT c.n FROM c`, `SELECT c.n, MAX(c.s) AS s FROM c GROUP BY c.n`, `SELECT * FROM c`,
	} {
		q := mustParse(t, text)
		const rowsMost, bytesMost = 10, 4096
		for _, cfg := range []query.RunConfig{{Rows: rowsMost}, {Bytes: bytesMost}} {
			run, err := q.Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2000 {
				item := fmt.Appendf(nil, `{"n":%d,"s":"%s"}`, (i*7919)%2000, strings.Repeat("x", i%100))
				if err := run.Item(item, fmt.Appendf(nil, "%04d", i)); err != nil {
					t.Fatal(err)
				}
			}
			part := run.Part()
			size := 0
			for _, r := range part.Rows {
				size += len(r.Key) + len(r.Body)
			}
			if !part.More || len(part.Rows) == 0 || cfg.Rows > 0 && len(part.Rows) != rowsMost || cfg.Bytes > 0 && size > bytesMost {
				t.Errorf("%s by %+v holds %d rows of %d bytes", text, cfg, len(part.Rows), size)
			}
		}
	}
}

func TestPlace(t *testing.T) {
	q := mustParse(t, `SELECT * FROM c ORDER BY c.a, c.b DESC`)
	run, err := q.Run(query.RunConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Item([]byte(`{"a":-12.50,"b":"x\u0000y"}`), []byte("r\x00")); err != nil {
		t.Fatal(err)
	}
	key := run.Part().Rows[0].Key
	values, rank, number, err := q.Place(key)
	if got := fmt.Sprintf("%s %q %d %v", values, rank, number, err); got != `[-12.5 "x\u0000y"] "r\x00" 1 <nil>` {
		t.Error(got)
	}
	for i := range key {
		if _, _, _, err := q.Place(key[:i]); !errors.Is(err, query.ErrKey) {
			t.Errorf("%x is a key: %v", key[:i], err)
		}
	}
}
