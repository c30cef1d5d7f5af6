package pgsink_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/pgsink"
	"github.com/millrace/millrace/store"
)

func TestRowsAreWrittenWithTheirPosition(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	w := open(t, s, schema, 0, 1)
	a, b := order(`c/["k"]/a`, "a", "ann", 1234), order(`c/["k"]/b`, "b", "bob", -5)
	got := write(t, w, project.Batch{UpTo: at(3), Put: []project.Row{b, a}})
	if got.Durable != at(3) || got.Skipped {
		t.Fatalf("written %+v", got)
	}
	wantQuery(t, dsn, `select id, customer, total, _source from orders order by id`,
		`(a,ann,12.34,"c/[""k""]/a")`, `(b,bob,-0.05,"c/[""k""]/b")`)
	wantQuery(t, dsn, `select producer, epoch, lsn, idx from millrace_positions`, `(source:c7k2x4ab/0,1,3,0)`)

	if got := write(t, w, project.Batch{UpTo: at(3), Drop: []project.Row{gone(a)}}); !got.Skipped {
		t.Fatalf("a batch that is recorded is written again: %+v", got)
	}
	if _, err := w.Write(t.Context(), &project.Batch{After: at(4), UpTo: at(5)}); !errors.Is(err, project.ErrPosition) {
		t.Fatalf("a batch that leaves a gap: %v", err)
	}
	a.Values[1] = project.Value{}
	write(t, w, project.Batch{After: at(2), UpTo: at(6), Put: []project.Row{a}, Drop: []project.Row{gone(b)}})
	wantRows(t, s, schema, a)
	if p, err := s.Positions(t.Context(), schema); err != nil || p["source:c7k2x4ab/0"] != at(6) {
		t.Fatalf("positions %v, %v", p, err)
	}
}

func TestI5_LateWorkerIsRefused(t *testing.T) {
	t.Parallel()
	newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	old := open(t, s, schema, 0, 1)
	a := order(`c/["k"]/a`, "a", "ann", 1)
	write(t, old, project.Batch{UpTo: at(1), Put: []project.Row{a}})

	other := newSink(t)
	young, p, err := other.Open(t.Context(), schema, term(schema, 0, 2))
	if err != nil || p != at(1) {
		t.Fatalf("at %v: %v", p, err)
	}
	late := order(a.Source, "a", "late", 2)
	if _, err := old.Write(t.Context(), &project.Batch{After: at(1), UpTo: at(2), Put: []project.Row{late}}); !errors.Is(err, processors.ErrFenced) {
		t.Fatalf("the late write: %v", err)
	}
	if _, err := old.Flush(t.Context()); !errors.Is(err, processors.ErrFenced) {
		t.Fatalf("the late flush: %v", err)
	}
	if _, _, err := s.Open(t.Context(), schema, term(schema, 0, 1)); !errors.Is(err, processors.ErrFenced) {
		t.Fatalf("the late open: %v", err)
	}
	wantRows(t, s, schema, a)
	write(t, young, project.Batch{After: at(1), UpTo: at(2), Drop: []project.Row{gone(a)}})
	wantRows(t, s, schema)
}

func TestClaims(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	w, v := open(t, s, schema, 0, 1), open(t, s, schema, 1, 1)
	first, second, third := order("c/[1]/x", "k", "first", 1), order("c/[3]/x", "k", "second", 2), order("c/[2]/x", "k", "third", 3)
	write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{first}})
	if got := write(t, v, project.Batch{UpTo: at(1), Put: []project.Row{second, third}}); got.Pending != 2 {
		t.Fatalf("written %+v", got)
	}
	wantRows(t, s, schema, first)
	wantQuery(t, dsn, `select kind, source, reason, key, "row" from orders_rejects order by source`,
		`(claim,c/[2]/x,"key is held by c/[1]/x","[""k""]","{""id"":""k"",""customer"":""third"",""total"":0.03}")`,
		`(claim,c/[3]/x,"key is held by c/[1]/x","[""k""]","{""id"":""k"",""customer"":""second"",""total"":0.02}")`)

	third.Values[1] = project.TextOf("third again")
	write(t, v, project.Batch{After: at(1), UpTo: at(2), Put: []project.Row{third}})
	// The smallest source is next, also before one of the batch that frees the key.
	fourth := order("c/[0]/x", "k", "fourth", 4)
	if got := write(t, w, project.Batch{After: at(1), UpTo: at(2), Put: []project.Row{fourth}, Drop: []project.Row{gone(first)}}); got.Pending != 1 {
		t.Fatalf("written %+v", got)
	}
	wantRows(t, s, schema, third)
	wantQuery(t, dsn, `select source, reason from orders_rejects order by source`,
		`(c/[0]/x,"key is held by c/[2]/x")`, `(c/[3]/x,"key is held by c/[2]/x")`)

	write(t, w, project.Batch{After: at(2), UpTo: at(3), Drop: []project.Row{gone(fourth)}}) // withdrawn
	write(t, v, project.Batch{After: at(2), UpTo: at(3), Drop: []project.Row{gone(third)}})
	wantRows(t, s, schema, second)
	if left := rejectsOf(t, s, schema, 0); len(left) > 0 {
		t.Fatalf("left among the rejects: %+v", left)
	}
	write(t, v, project.Batch{After: at(3), UpTo: at(4), Drop: []project.Row{gone(second)}})
	wantRows(t, s, schema)
}

// A row that the server refuses, by a constraint of somebody else's, is set aside;
// all others of the batch are written.
func TestRefusedRowIsIsolated(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	w := open(t, s, schema, 0, 1)
	var rows []project.Row
	for i := range 20 {
		id := string(rune('a' + i))
		rows = append(rows, order(`c/["k"]/`+id, id, "ann", int64(i)))
	}
	write(t, w, project.Batch{UpTo: at(1), Put: rows})
	exec(t, dsn, `alter table orders add check (customer <> 'bad')`)
	bad := order(rows[7].Source, "h", "bad", 7)
	rival := order(`c/["z"]/h`, "h", "rival", 70)
	next := []project.Row{rival, bad}
	for i := 8; i < 20; i++ {
		next = append(next, order(rows[i].Source, string(rune('a'+i)), "new", 1))
	}
	got := write(t, w, project.Batch{After: at(1), UpTo: at(2), Put: next})
	if len(got.Refused) != 1 || got.Refused[0].Source != bad.Source || !strings.Contains(got.Refused[0].Reason, "23514") {
		t.Fatalf("written %+v", got)
	}
	// What the row was before does not stay: its key is free for the rival.
	want := append(append([]project.Row{}, rows[:7]...), rival)
	wantRows(t, s, schema, append(want, next[2:]...)...)
	wantQuery(t, dsn, `select kind, source, element from orders_rejects`, `(refused,"c/[""k""]/h","")`)

	write(t, w, project.Batch{After: at(2), UpTo: at(3), Drop: []project.Row{gone(rival)}})
	write(t, w, project.Batch{After: at(3), UpTo: at(4), Put: []project.Row{rows[7]}})
	wantRows(t, s, schema, append(append([]project.Row{}, rows[:8]...), next[2:]...)...)
	if left := rejectsOf(t, s, schema, 0); len(left) > 0 {
		t.Fatalf("left among the rejects: %+v", left)
	}
}

// A constraint that is checked at the commit does not tell which row it was.
func TestRefusedAtCommitIsIsolated(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	w := open(t, s, schema, 0, 1)
	exec(t, dsn, `create table customers (name text primary key); insert into customers values ('ann');
		alter table orders add foreign key (customer) references customers deferrable initially deferred`)
	good, bad := order(`c/["k"]/a`, "a", "ann", 1), order(`c/["k"]/b`, "b", "bob", 2)
	if got := write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{good, bad}}); len(got.Refused) != 1 {
		t.Fatalf("written %+v", got)
	}
	wantRows(t, s, schema, good)
}

// A row that others refer to cannot go; the others do.
func TestRowThatCannotGo(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	w := open(t, s, schema, 0, 1)
	a, b := order(`c/["k"]/a`, "a", "ann", 1), order(`c/["k"]/b`, "b", "bob", 2)
	write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{a, b}})
	exec(t, dsn, `create table notes (id text references orders); insert into notes values ('a')`)
	write(t, w, project.Batch{After: at(1), UpTo: at(2), Drop: []project.Row{gone(a), gone(b)}})
	wantRows(t, s, schema, a)
	refused := `select kind, source, key from orders_rejects`
	wantQuery(t, dsn, refused, `(refused,"c/[""k""]/a","[""a""]")`)

	// As long as it stays the reject says so, whatever else the item makes of its place.
	c := order(a.Source, "c", "ann", 1)
	write(t, w, project.Batch{After: at(2), UpTo: at(3), Put: []project.Row{c}})
	write(t, w, project.Batch{After: at(3), UpTo: at(4), Put: []project.Row{c}})
	wantRows(t, s, schema, a, c)
	wantQuery(t, dsn, refused, `(refused,"c/[""k""]/a","[""a""]")`)
	exec(t, dsn, `drop table notes`)
	write(t, w, project.Batch{After: at(4), UpTo: at(5), Drop: []project.Row{gone(a)}})
	wantRows(t, s, schema, c)
	wantQuery(t, dsn, refused)
}

// What PostgreSQL refused of an element is over when the element is taken, at another place of
// its list too.
func TestRefusedElementMoves(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	w := open(t, s, schema, 0, 1)
	exec(t, dsn, `alter table orders add check (total < 10)`)
	a, c := order("s", "a", "ann", 1), order("s", "c", "ann", 5000)
	a.Element, c.Element = "0", "1"
	write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{a, c}})
	wantQuery(t, dsn, `select kind, element from orders_rejects`, `(refused,1)`)
	exec(t, dsn, `alter table orders drop constraint orders_total_check`)
	c.Element = "0"
	write(t, w, project.Batch{After: at(1), UpTo: at(2), Put: []project.Row{c}, Drop: []project.Row{gone(a)}})
	wantRows(t, s, schema, c)
	wantQuery(t, dsn, `select kind, element from orders_rejects`)
}

func TestWritesNothingOfABatchThatFails(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	w := open(t, s, schema, 0, 1)
	exec(t, dsn, `revoke all on millrace_positions from public; alter table millrace_positions add check (lsn < 2)`)
	a := order(`c/["k"]/a`, "a", "ann", 1)
	_, err := w.Write(t.Context(), &project.Batch{UpTo: at(2), Put: []project.Row{a}})
	if !errors.Is(err, store.ErrUnavailable) || processors.FailureOf(t.Context(), err) != processors.Unavailable {
		t.Fatalf("got %v", err)
	}
	wantRows(t, s, schema)
	write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{a}})
	wantRows(t, s, schema, a)
}

func TestLimits(t *testing.T) {
	s, err := pgsink.New(pgsink.Config{DSNEnv: dsnEnv(t)})
	if err != nil {
		t.Fatal(err)
	}
	schema := orders(t, 1)
	schema.Tables[0].Columns = append(schema.Tables[0].Columns, column(t, "doc", "json"))
	schema.Tables[0].Index = [][]int{{1}}
	row := func(id, customer, doc string) *project.Row {
		r := order("s", id, customer, 1)
		r.Values = append(r.Values, project.JSONOf(doc))
		return &r
	}
	long := strings.Repeat("x", 2700)
	for _, c := range []struct {
		name, column string
		row          *project.Row
	}{
		{"an ordinary row", "", row("a", "ann", `{"a":["x\\u0000",-1.5e300,""]}`)},
		{"U+0000 in text", "customer", row("a", "a\x00", `1`)},
		{"U+0000 in JSON", "doc", row("a", "ann", `{"a":"\u0000"}`)},
		{"U+0000 in a name in JSON", "doc", row("a", "ann", `{"\"\u0000":1}`)},
		{"a long key", "id", row(long, "ann", `1`)},
		{"a long indexed value", "customer", row("a", long, `1`)},
		{"a long value in no index", "", row("a", "ann", `"`+long+`"`)},
		{"a huge number", "doc", row("a", "ann", `[1e131072]`)},
		{"a number just as large as it may be", "", row("a", "ann", `[1e131071]`)},
		{"a tiny number", "doc", row("a", "ann", `-1.5E-16383`)},
		{"a number just as small as it may be", "", row("a", "ann", `-1E-16383`)},
	} {
		if column, reason := s.CannotHold(schema, c.row); column != c.column || (reason == "") != (column == "") {
			t.Errorf("%s: column %q, %q; want column %q", c.name, column, reason, c.column)
		}
	}
}
