package pgsink_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/pgsink"
	"github.com/millrace/millrace/store"
)

func TestTablesAreMadeFromTheDeclaration(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	table := &schema.Tables[0]
	for _, typ := range []string{"", "int64", "double", "bool", "timestamp", "date", "json"} {
		table.Columns = append(table.Columns, column(t, "the "+typ, typ))
	}
	table.Index = [][]int{{1}, {1, 2}}
	open(t, s, schema, 0, 1)
	wantQuery(t, dsn, `select column_name, data_type, numeric_precision, numeric_scale, is_nullable from information_schema.columns
		where table_name = 'orders' order by ordinal_position`,
		`(id,text,,,NO)`, `(customer,text,,,YES)`, `(total,numeric,12,2,YES)`, `("the ",text,,,YES)`, `("the int64",bigint,64,0,YES)`,
		`("the double","double precision",53,,YES)`, `("the bool",boolean,,,YES)`, `("the timestamp","timestamp with time zone",,,YES)`,
		`("the date",date,,,YES)`, `("the json",jsonb,,,YES)`, `(_source,text,,,NO)`, `(_element,text,,,NO)`)
	indexes := `select indexname, indexdef from pg_indexes where tablename = 'orders' order by 1`
	wantQuery(t, dsn, indexes,
		`(orders_customer_idx,"CREATE INDEX orders_customer_idx ON public.orders USING btree (customer)")`,
		`(orders_customer_total_idx,"CREATE INDEX orders_customer_total_idx ON public.orders USING btree (customer, total)")`,
		`(orders_pkey,"CREATE UNIQUE INDEX orders_pkey ON public.orders USING btree (id)")`)

	// Indexes come and go with the declaration.
	table.Index = [][]int{{1, 2}, {2}}
	open(t, s, schema, 0, 2)
	wantQuery(t, dsn, `select indexname from pg_indexes where tablename = 'orders' order by 1`,
		"(orders_customer_total_idx)", "(orders_pkey)", "(orders_total_idx)")
}

func TestWhatCannotBeChangedInPlaceIsRefused(t *testing.T) {
	t.Parallel()
	newDatabase(t)
	s := newSink(t)
	former := orders(t, 1)
	former.Tables = append(former.Tables, project.TableSchema{Name: "other", Key: []int{0}, Columns: []project.ColumnSchema{column(t, "id", "")}})
	w := open(t, s, former, 0, 1)
	write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{order("s", "a", "ann", 1)}})

	now := orders(t, 2)
	now.Tables[0].Columns[2] = column(t, "total", "int64")
	now.Tables[0].Columns[1] = column(t, "client", "string")
	now.Tables[0].Key = []int{0, 1}
	_, _, err := s.Open(t.Context(), now, term(now, 0, 1))
	var refused *pgsink.SchemaError
	if !errors.As(err, &refused) || len(refused.Problems) != 4 {
		t.Fatalf("got %v", err)
	}
	// Nothing has changed, and the former generation goes on.
	write(t, w, project.Batch{After: at(1), UpTo: at(2), Put: []project.Row{order("s", "b", "bob", 2)}})
	if got := rowsOf(t, s, former, 0); len(got) != 2 {
		t.Fatalf("got %v", got)
	}
}

func TestNamesThatPostgreSQLDoesNotTakeAreMapped(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s := newSink(t)
	long := strings.Repeat("table", 25)
	schema := &project.Schema{Pipeline: "p", Generation: 1}
	columns := []project.ColumnSchema{
		column(t, "id", ""), column(t, "xmin", ""), column(t, strings.Repeat("c", 128), ""), column(t, strings.Repeat("c", 127), ""), column(t, `"; --`, ""),
	}
	for _, name := range []string{long + "1", long + "2", "a", "a_rejects", "millrace_positions", `"`, "Ünicöde"} {
		schema.Tables = append(schema.Tables, project.TableSchema{Name: name, Key: []int{0, 4}, Columns: columns, Index: [][]int{{2, 3}}})
	}
	w := open(t, s, schema, 0, 1)
	var rows []project.Row
	for table := range schema.Tables {
		values := []project.Value{project.TextOf("k"), project.TextOf(fmt.Sprint(table)), project.TextOf("c"), {}, project.TextOf("quoted")}
		key := []project.Value{values[0], values[4]}
		rows = append(rows,
			project.Row{Table: table, Key: key, Values: values, Source: fmt.Sprint("s", table)},
			project.Row{Table: table, Key: key, Values: values, Source: "waits"})
	}
	if got := write(t, w, project.Batch{UpTo: at(1), Put: rows}); got.Pending != len(schema.Tables) {
		t.Fatalf("written %+v", got)
	}
	check := func(s *pgsink.Sink) {
		t.Helper()
		for table := range schema.Tables {
			got := rowsOf(t, s, schema, table)
			if len(got) != 1 || !project.EqualRows(&got[0], &rows[2*table]) {
				t.Errorf("table %s holds %v", schema.Tables[table].Name, got)
			}
			if rejects := rejectsOf(t, s, schema, table); len(rejects) != 1 || rejects[0].Source != "waits" {
				t.Errorf("table %s rejects %v", schema.Tables[table].Name, rejects)
			}
		}
	}
	check(s)
	wantQuery(t, dsn, `select name, relation, rejects from millrace_tables where name in ('a', 'a_rejects', 'Ünicöde') order by name collate "C"`,
		"(a,a,a_e88df4ab_rejects)", "(a_rejects,a_rejects,a_rejects_rejects)", "(Ünicöde,Ünicöde,Ünicöde_rejects)")
	before := query(t, dsn, `select * from millrace_tables order by name`)
	// The next process finds the same names, also when columns are added.
	next := newSink(t)
	open(t, next, schema, 0, 2)
	check(next)
	if after := query(t, dsn, `select * from millrace_tables order by name`); !slices.Equal(before, after) {
		t.Errorf("the mapping has changed:\n%s\n%s", before, after)
	}
}

func TestTablesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	exec(t, dsn, `create table orders (mine text); insert into orders values ('x')`)
	_, _, err := s.Open(t.Context(), schema, term(schema, 0, 1))
	var refused *pgsink.SchemaError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v", err)
	}
	wantQuery(t, dsn, "select * from orders", "(x)")

	other := newSinkOf(t, pgsink.Config{DSNEnv: dsnEnv(t), Schema: "of its own"})
	open(t, other, schema, 0, 1)
	rival := orders(t, 1)
	rival.Pipeline = "rival"
	if _, _, err = other.Open(t.Context(), rival, term(rival, 0, 1)); !errors.As(err, &refused) || !strings.Contains(err.Error(), "pipeline shop has") {
		t.Fatalf("got %v", err)
	}
	// The pipeline was deleted, and made again: it is another one.
	next := `drop table "of its own"."orders"`
	if !strings.Contains(err.Error(), next) {
		t.Fatalf("%v does not say: %s", err, next)
	}
	exec(t, dsn, next)
	w := open(t, other, rival, 0, 1)
	write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{order("s", "a", "mine", 1)}})
	wantQuery(t, dsn, `select count(*) from "of its own".orders`, "(1)")
}

func TestSwapKeepsGrantsAndRefusesToBreakViews(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	open(t, s, schema, 0, 1)
	exec(t, dsn, `do $$ begin create role "an analyst"; exception when duplicate_object then end $$;
		grant select on orders to "an analyst" with grant option; grant select, insert on orders_rejects to public;
		create view v as select id from orders`)
	shadow := orders(t, 2)
	shadow.Shadow = true
	w := open(t, s, shadow, 0, 1)
	row := order("s", "a", "new", 1)
	write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{row}})
	err := s.Swap(t.Context(), shadow)
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "view v depends on table orders") {
		t.Fatalf("got %v", err)
	}
	exec(t, dsn, "drop view v")
	if err := s.Swap(t.Context(), shadow); err != nil {
		t.Fatal(err)
	}
	wantQuery(t, dsn, `select relname, relacl from pg_class where relname in ('orders', 'orders_rejects') order by 1`,
		`(orders,"{millrace=arwdDxt/millrace,""\\""an analyst\\""=r*/millrace""}")`, `(orders_rejects,"{millrace=arwdDxt/millrace,=ar/millrace}")`)
	wantQuery(t, dsn, `select relname from pg_class where relname like '%\_g2%' and relkind = 'r'`)
	wantRows(t, s, shadow, row)
	// A generation before it is refused, as is its schema for readers.
	if _, _, err := s.Open(t.Context(), schema, term(schema, 0, 9)); !errors.Is(err, processors.ErrFenced) {
		t.Fatalf("the former generation opens: %v", err)
	}
	wantRows(t, s, schema)
	exec(t, dsn, `drop owned by "an analyst"; drop role "an analyst"`)
}

func TestShadowThatIsGivenUpIsRemoved(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, first := newSink(t), orders(t, 1)
	w := open(t, s, first, 0, 1)
	row := order("s", "a", "ann", 1)
	write(t, w, project.Batch{UpTo: at(1), Put: []project.Row{row}})
	second, third := orders(t, 2), orders(t, 3)
	second.Shadow, third.Shadow = true, true
	given := open(t, s, second, 0, 1)
	open(t, s, third, 0, 1)
	_, err := given.Write(t.Context(), &project.Batch{UpTo: at(1), Put: []project.Row{row}})
	if !errors.Is(err, processors.ErrFenced) {
		t.Fatalf("the shadow that was given up is written: %v", err)
	}
	wantQuery(t, dsn, `select relname from pg_class where relname like 'orders%' and relkind = 'r' order by 1`,
		"(orders)", "(orders_g3)", "(orders_g3_rejects)", "(orders_rejects)")
	wantRows(t, s, first, row)
	if err := s.Swap(t.Context(), second); !errors.Is(err, project.ErrGivenUp) {
		t.Fatalf("a shadow that was given up is swapped in: %v", err)
	}
	// One that is not there yet may come.
	fourth := orders(t, 4)
	fourth.Shadow = true
	if err := s.Swap(t.Context(), fourth); err == nil || errors.Is(err, project.ErrGivenUp) {
		t.Fatalf("a shadow that nobody has opened is swapped in: %v", err)
	}
}

// A sink that was emptied by hand says so by its position.
func TestEmptiedByHand(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]string{
		"a table is dropped": "drop table orders", "its rejects are dropped": "drop table orders_rejects",
		"the sink's own tables too": `drop schema public cascade; create schema public`,
	} {
		t.Run(name, func(t *testing.T) {
			dsn := newDatabase(t)
			s, schema := newSink(t), orders(t, 1)
			w := open(t, s, schema, 0, 1)
			row := order("s", "a", "ann", 1)
			write(t, w, project.Batch{UpTo: at(5), Put: []project.Row{row}})
			exec(t, dsn, harm)
			_, err := w.Write(t.Context(), &project.Batch{After: at(5), UpTo: at(6), Put: []project.Row{row}})
			if failure := processors.FailureOf(t.Context(), err); err == nil || failure != processors.Unavailable {
				t.Fatalf("got %v", err)
			}
			w, p, err := s.Open(t.Context(), schema, term(schema, 0, 2))
			if err != nil || !p.IsZero() {
				t.Fatalf("opened at %s: %v", p, err)
			}
			if _, err := w.Write(t.Context(), &project.Batch{After: at(5), UpTo: at(6)}); !errors.Is(err, project.ErrPosition) {
				t.Fatalf("got %v", err)
			}
			write(t, w, project.Batch{UpTo: at(6), Put: []project.Row{row}})
			wantRows(t, s, schema, row)
		})
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	open(t, s, schema, 0, 1)
	exec(t, dsn, "update millrace_format set version = 2")
	if _, _, err := s.Open(t.Context(), schema, term(schema, 0, 2)); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Fatalf("got %v", err)
	}
}

// TestI5_ALateOpenAltersNothing opens a term that was succeeded, with a declaration of before.
func TestI5_ALateOpenAltersNothing(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	former, now := orders(t, 1), orders(t, 1)
	now.Tables[0].Index = [][]int{{1}}
	open(t, newSink(t), now, 0, 2)
	late := newSink(t) // of another process
	_, _, err := late.Open(t.Context(), former, term(former, 0, 1))
	if fenced, ok := errors.AsType[*processors.FencedError](err); !ok || fenced.Seen != 2 {
		t.Errorf("the late term is opened: %v, want that epoch 2 fences it", err)
	}
	wantQuery(t, dsn, `select indexname from pg_indexes where tablename = 'orders' order by 1`, "(orders_customer_idx)", "(orders_pkey)")
	more := orders(t, 1)
	more.Tables[0].Columns = append(more.Tables[0].Columns, column(t, "note", "string"))
	more.Tables[0].Index = now.Tables[0].Index
	if _, _, err := late.Open(t.Context(), more, term(more, 0, 1)); !errors.Is(err, processors.ErrFenced) {
		t.Errorf("the late term is opened with a column more: %v", err)
	}
	wantQuery(t, dsn, `select indexname from pg_indexes where tablename = 'orders' order by 1`, "(orders_customer_idx)", "(orders_pkey)")
	wantQuery(t, dsn, `select column_name from information_schema.columns where table_name = 'orders' and column_name = 'note'`)
	// Another partition's term, and a later one of this, alter it.
	open(t, late, former, 1, 1)
	wantQuery(t, dsn, `select indexname from pg_indexes where tablename = 'orders' order by 1`, "(orders_pkey)")
	open(t, late, now, 0, 3)
	wantQuery(t, dsn, `select indexname from pg_indexes where tablename = 'orders' order by 1`, "(orders_customer_idx)", "(orders_pkey)")
}
