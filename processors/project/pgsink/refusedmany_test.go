package pgsink_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/processors/project"
)

// The server refuses all rows of a batch. To find out takes a dozen round trips for each, which are
// more than one transaction has time for: the batch is written all the same, and each of its rows is told of once.
func TestBatchOfRefusedRowsIsWritten(t *testing.T) {
	t.Parallel()
	const rows, refused = 120, "bad"
	dsn := newDatabase(t)
	p, through := newProxy(t, dsn)
	p.delay = time.Millisecond // 120 rows take 1.3s at the least
	setenv(t, through)
	s, schema := newSink(t), orders(t, 1)
	tm, beats := term(schema, 0, 1), 0
	tm.Heartbeat = func() { beats++ }
	w, _, err := s.Open(t.Context(), schema, tm)
	if err != nil {
		t.Fatal(err)
	}
	kept, rest := order("c/a", "a", "ann", 1), order("c/z", "z", "ann", 1)
	former := order("c/b007", "b007", "ann", 1)
	write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{kept, former}})
	s.SetStepsMax(300 * time.Millisecond)
	exec(t, dsn, `alter table orders add check (customer <> 'bad')`)

	b := project.Batch{After: at(1), UpTo: at(2), Drop: []project.Row{gone(kept)}, Put: []project.Row{rest}, Reject: []project.Reject{{Source: "c/r", Reason: "no"}}}
	for i := range rows {
		id := fmt.Sprintf("b%03d", i)
		b.Put = append(b.Put, order("c/"+id, id, refused, int64(i)))
	}
	written, err := w.Write(t.Context(), &b)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, r := range written.Refused {
		told[r.Source] = true
	}
	if len(told) != rows || len(written.Refused) != rows || written.Durable != at(2) || beats == 0 {
		t.Errorf("%d rows were refused, which are %d, up to %s, with %d signs of life; want %d up to %s", len(written.Refused), len(told), written.Durable, beats, rows, at(2))
	}
	wantRows(t, s, schema, rest)
	wantQuery(t, dsn, `select kind, count(*) from orders_rejects group by kind order by kind`, "(conflict,1)", fmt.Sprintf("(refused,%d)", rows))
	if got := write(t, w, b); !got.Skipped {
		t.Errorf("written again: %+v", got)
	}
}

// Most of the rows that wait for a key are refused when it is theirs. The reasons of those behind them are written once,
// when the key has its row, and not with each one that is refused.
func TestReasonsOfPendingRowsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	const refused, waiting = 20, 5
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	w := open(t, s, schema, 0, 1)
	holder := order("c/a", "k", "ann", 1)
	write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{holder}})
	b := project.Batch{After: at(1), UpTo: at(2)}
	for i := range refused {
		b.Put = append(b.Put, order(fmt.Sprintf("c/b%02d", i), "k", "bad", 1))
	}
	next := order("c/c", "k", "ann", 2)
	b.Put = append(b.Put, next)
	for i := range waiting {
		b.Put = append(b.Put, order(fmt.Sprintf("c/d%02d", i), "k", "ann", 3))
	}
	write(t, w, b)
	exec(t, dsn, `alter table orders add check (customer <> 'bad');
		create table updates (source text);
		create function note() returns trigger language plpgsql as $$ begin insert into updates values (new.source); return new; end $$;
		create trigger note after update on orders_rejects for each row execute function note()`)

	write(t, w, project.Batch{After: at(2), UpTo: at(3), Drop: []project.Row{gone(holder)}})
	wantRows(t, s, schema, next)
	wantQuery(t, dsn, `select kind, count(*), count(distinct reason) from orders_rejects group by kind order by kind`,
		fmt.Sprintf("(claim,%d,1)", waiting), fmt.Sprintf("(refused,%d,1)", refused))
	wantQuery(t, dsn, `select distinct reason from orders_rejects where kind = 'claim'`, `("key is held by c/c")`)
	wantQuery(t, dsn, `select count(*), count(distinct source) from updates`, fmt.Sprintf("(%d,%d)", waiting, waiting))
}
