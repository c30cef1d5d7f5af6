//go:build cgo

package duckdb_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	_ "github.com/duckdb/duckdb-go/v2" // the driver

	"github.com/millrace/millrace/integration/tables"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

// bench is a sink in a directory, and DuckDB beside it.
type bench struct {
	tables.Tables
	db *sql.DB
}

func newBench(t *testing.T, schema *project.Schema, cfg parquetsink.Config) *bench {
	t.Helper()
	b := &bench{Tables: tables.New(t, schema, cfg)}
	var err error
	b.db, err = sql.Open("duckdb", "")
	b.Must(err)
	b.db.SetMaxOpenConns(1) // variables are those of a connection
	t.Cleanup(func() { b.Must(b.db.Close()) })
	return b
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
			at.Must(err)
			f(&at, rows)
		})
	}
}

func (b *bench) read(prepare, from, table, columns string) ([]string, error) {
	if prepare != "" {
		if _, err := b.db.ExecContext(b.Context(), fmt.Sprintf(prepare, b.Dir, table)); err != nil {
			return nil, err
		}
	}
	if prepare == "" {
		from = fmt.Sprintf(from, b.Dir, table)
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
