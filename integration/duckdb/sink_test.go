//go:build cgo

package duckdb_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	_ "github.com/duckdb/duckdb-go/v2" // the driver

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

// bench is a sink in a directory, and DuckDB beside it.
type bench struct {
	*testing.T
	dir    string
	sink   *parquetsink.Sink
	db     *sql.DB
	schema *project.Schema
	writer project.Writer
	lsn    feed.LSN
}

func newBench(t *testing.T, schema *project.Schema, change func(*parquetsink.Config)) *bench {
	t.Helper()
	b := &bench{T: t, dir: filepath.Join(t.TempDir(), "analytics"), schema: schema}
	cfg := parquetsink.Config{CommitInterval: time.Nanosecond, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	var err error
	b.sink, err = parquetsink.New(parquetsink.NewDir(b.dir), cfg)
	b.must(err)
	t.Cleanup(func() { b.must(b.sink.Close()) })
	b.db, err = sql.Open("duckdb", "")
	b.must(err)
	b.db.SetMaxOpenConns(1) // variables are those of a connection
	t.Cleanup(func() { b.must(b.db.Close()) })
	b.begin(schema)
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// begin opens the sink with a schema.
func (b *bench) begin(schema *project.Schema) {
	b.Helper()
	w, position, err := b.sink.Open(b.Context(), schema, project.Term{
		Producer: feed.Producer{Pipeline: schema.Pipeline, Generation: schema.Generation, Source: "source:c7k2x4ab/0"}, Epoch: 1,
	})
	b.must(err)
	b.schema, b.writer, b.lsn = schema, w, position.LSN
}

// commit writes a batch and makes it durable.
func (b *bench) commit(batch project.Batch) {
	b.Helper()
	batch.After, batch.UpTo = feed.Position{LSN: b.lsn}, feed.Position{LSN: b.lsn + 1}
	b.lsn++
	_, err := b.writer.Write(b.Context(), &batch)
	b.must(err)
	_, err = b.writer.Flush(b.Context())
	b.must(err)
}

// The ways to read the current state of a table, as the package's documentation
// tells them. %[1]s is the directory, %[2]s the table.
var ways = []struct{ name, prepare, from string }{
	{"the folder current", ``, `read_parquet('%[1]s/current/%[2]s/**/*.parquet', union_by_name = true)`},
	{
		"the list of a table", `SET VARIABLE files = (SELECT list('%[1]s/' || json) FROM read_json('%[1]s/%[2]s/_files.json'))`,
		`read_parquet(getvariable('files'), union_by_name = true)`,
	},
	{
		"the list of all tables", `SET VARIABLE files = (SELECT list_transform(tables.%[2]s, lambda f: '%[1]s/' || f) FROM read_json('%[1]s/_current.json'))`,
		`read_parquet(getvariable('files'), union_by_name = true)`,
	},
}

// each runs a query on a table in each way, and hands its rows, printed and
// sorted, to f. The table is $t in the query.
func (b *bench) each(table, columns string, f func(b *bench, rows []string)) {
	b.Helper()
	for _, way := range ways {
		b.Run(way.name, func(t *testing.T) {
			t.Helper()
			at := *b
			at.T = t
			rows, err := at.read(way.prepare, way.from, table, columns)
			at.must(err)
			f(&at, rows)
		})
	}
}

func (b *bench) read(prepare, from, table, columns string) ([]string, error) {
	if prepare != "" {
		if _, err := b.db.ExecContext(b.Context(), fmt.Sprintf(prepare, b.dir, table)); err != nil {
			return nil, err
		}
	}
	if prepare == "" {
		from = fmt.Sprintf(from, b.dir, table)
	}
	return b.query(fmt.Sprintf("SELECT %s FROM %s", columns, from))
}

// query prints the rows of a query, sorted.
func (b *bench) query(text string) ([]string, error) {
	rows, err := b.db.QueryContext(b.Context(), text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var all []string
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprintf("%q", values))
	}
	slices.Sort(all)
	return all, rows.Err()
}

// same compares what was read with what was written.
func (b *bench) same(got, want []string) {
	b.Helper()
	slices.Sort(want)
	if slices.Equal(got, want) {
		return
	}
	for _, row := range want {
		if !slices.Contains(got, row) {
			b.Errorf("missing: %s", row)
		}
	}
	for _, row := range got {
		if !slices.Contains(want, row) {
			b.Errorf("too much: %s", row)
		}
	}
	b.Errorf("%d rows, want %d", len(got), len(want))
}

func column(name, typ string) project.ColumnSchema {
	t, err := project.ParseType(typ)
	if err != nil {
		panic(err)
	}
	return project.ColumnSchema{Name: name, Type: t}
}
