package pgsink_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/postgres"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/pgsink"
)

// server is that of all tests which do not harm it.
var server = sync.OnceValues(func() (*postgres.Server, error) {
	return postgres.Open(context.Background(), postgres.Config{})
})

var started atomic.Bool

func TestMain(m *testing.M) {
	code := m.Run()
	if started.Load() {
		if s, err := server(); err == nil {
			if err := s.Close(); err != nil {
				_, _ = fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// shared returns the server of all tests which do not harm it.
func shared(t testing.TB) *postgres.Server {
	t.Helper()
	started.Store(true)
	s, err := server()
	if errors.Is(err, postgres.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dsnEnv names the variable with the connection string of a test. Its cases, which
// run one after the other, have the same.
func dsnEnv(t testing.TB) string {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	return "MILLRACE_TEST_DSN_" + name
}

// newDatabase makes a database and names it in dsnEnv.
func newDatabase(t testing.TB) string {
	t.Helper()
	dsn := shared(t).Database(t)
	setenv(t, dsn)
	return dsn
}

func setenv(t testing.TB, dsn string) {
	t.Helper()
	if err := os.Setenv(dsnEnv(t), dsn); err != nil { //nolint:usetesting // a testing.TB of a case within the case whose variable it is
		t.Fatal(err)
	}
}

func newSink(t testing.TB) *pgsink.Sink {
	t.Helper()
	return newSinkOf(t, pgsink.Config{DSNEnv: dsnEnv(t)})
}

func newSinkOf(t testing.TB, cfg pgsink.Config) *pgsink.Sink {
	t.Helper()
	s, err := pgsink.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// exec runs statements by a connection of their own.
func exec(t testing.TB, dsn, sql string) {
	t.Helper()
	c := connect(t, dsn)
	defer func() { _ = c.Close(context.Background()) }()
	if _, err := c.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// query returns the rows that a statement returns, each as text.
func query(t testing.TB, dsn, sql string) []string {
	t.Helper()
	c := connect(t, dsn)
	defer func() { _ = c.Close(context.Background()) }()
	rows, err := c.Query(t.Context(), "select x::text from ("+sql+") x")
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

func wantQuery(t testing.TB, dsn, sql string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, query(t, dsn, sql), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", sql, diff)
	}
}

func column(t testing.TB, name, typ string) project.ColumnSchema {
	t.Helper()
	parsed, err := project.ParseType(typ)
	if err != nil {
		t.Fatal(err)
	}
	return project.ColumnSchema{Name: name, Type: parsed}
}

// orders is a schema of one table: id, customer, total.
func orders(t testing.TB, generation uint32) *project.Schema {
	t.Helper()
	return &project.Schema{
		Pipeline: "shop", Generation: generation,
		Tables: []project.TableSchema{{
			Name: "orders", Key: []int{0}, PartitionBy: -1,
			Columns: []project.ColumnSchema{column(t, "id", "string"), column(t, "customer", "string"), column(t, "total", "decimal(12,2)")},
		}},
	}
}

func order(source, id, customer string, cents int64) project.Row {
	values := []project.Value{project.TextOf(id), project.TextOf(customer), project.SmallDecimalOf(cents, 2)}
	return project.Row{Key: values[:1:1], Values: values, Source: source}
}

func gone(r project.Row) project.Row {
	return project.Row{Table: r.Table, Key: r.Key, Source: r.Source, Element: r.Element}
}

func term(s *project.Schema, partition int, epoch uint64) project.Term {
	return project.Term{
		Producer: feed.Producer{Pipeline: s.Pipeline, Generation: s.Generation, Source: fmt.Sprintf("source:c7k2x4ab/%d", partition)},
		Epoch:    epoch,
	}
}

func at(lsn uint64) feed.Position { return feed.Position{LSN: feed.LSN(lsn)} }

func open(t testing.TB, s *pgsink.Sink, schema *project.Schema, partition int, epoch uint64) project.Writer {
	t.Helper()
	w, _, err := s.Open(t.Context(), schema, term(schema, partition, epoch))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func write(t testing.TB, w project.Writer, b project.Batch) project.Written {
	t.Helper()
	written, err := w.Write(t.Context(), &b)
	if err != nil {
		t.Fatal(err)
	}
	return written
}

// rowsOf reads a table, ordered by key and source.
func rowsOf(t testing.TB, s *pgsink.Sink, schema *project.Schema, table int) []project.Row {
	t.Helper()
	var all []project.Row
	for r, err := range s.Rows(t.Context(), schema, table) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b project.Row) int { return cmpStrings(rowName(&a), rowName(&b)) })
	return all
}

func rowName(r *project.Row) string { return fmt.Sprint(r.Key, r.Source) }

func cmpStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func rejectsOf(t testing.TB, s *pgsink.Sink, schema *project.Schema, table int) []project.Reject {
	t.Helper()
	var all []project.Reject
	for r, err := range s.Rejects(t.Context(), schema, table) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b project.Reject) int { return cmpStrings(a.Source+a.Element, b.Source+b.Element) })
	return all
}

// show writes rows shortly.
func show(rows []project.Row) []string {
	var out []string
	for i := range rows {
		out = append(out, fmt.Sprint(rows[i].Values, " ", rows[i].Source, rows[i].Element))
	}
	return out
}

func wantRows(t testing.TB, s *pgsink.Sink, schema *project.Schema, want ...project.Row) {
	t.Helper()
	if diff := cmp.Diff(show(want), show(rowsOf(t, s, schema, 0))); diff != "" {
		t.Fatalf("rows (-want +got):\n%s", diff)
	}
}

// backends returns the processes of the server that serve sinks in a database.
func backends(ctx context.Context, t testing.TB, dsn string) []int {
	t.Helper()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer func() { _ = c.Close(ctx) }()
	rows, err := c.Query(ctx, "select pid from pg_stat_activity where application_name = 'millrace' and datname = current_database()")
	if err != nil {
		t.Error(err)
		return nil
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Error(err)
	}
	return pids
}
