//go:build cgo

package duckdb_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// The ways to read a table, both with the query of docs/analytics.md, which sets the variable
// files: the newest version of its Delta log, and the version that _current.json names.
var ways = []struct{ name, version string }{
	{"the newest version", "9223372036854775807"},
	{"the version of a commit", "(SELECT versions.%[2]s FROM read_json('%[1]s/_current.json'))"},
}

// recipe returns the statements of docs/analytics.md for a table in dir, up to the one that
// sets the variable files; version takes the place of the one on the page.
func recipe(dir, table, version string) (string, error) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "analytics.md"))
	if err != nil {
		return "", err
	}
	_, block, found := strings.Cut(string(page), "SET VARIABLE folder = 'analytics/orders';\n")
	asOnPage := fmt.Sprintf("SET VARIABLE version = "+ways[1].version+";\n", "analytics", "orders")
	block, ok := strings.CutPrefix(block, asOnPage)
	block, _, ended := strings.Cut(block, "\nSELECT * FROM "+files+";\n")
	if !found || !ok || !ended {
		return "", fmt.Errorf("docs/analytics.md does not have the query any more: %t %t %t", found, ok, ended)
	}
	if strings.Contains(version, "%") {
		version = fmt.Sprintf(version, dir, table)
	}
	return fmt.Sprintf("SET VARIABLE folder = '%s/%s'; SET VARIABLE version = %s; %s", dir, table, version, block), nil
}

// files is what is read when the variable is set.
const files = "read_parquet(getvariable('files'), union_by_name = true)"

// each runs a query on a table in each way, and hands its rows, printed and sorted, to f.
func (b *bench) each(table, columns string, f func(b *bench, rows []string)) {
	b.Helper()
	for _, way := range ways {
		b.Run(way.name, func(t *testing.T) {
			t.Helper()
			at := *b
			at.T = t
			rows, err := at.read(way.version, table, columns)
			at.Must(err)
			f(&at, rows)
		})
	}
}

func (b *bench) read(version, table, columns string) ([]string, error) {
	if err := b.find(version, table); err != nil {
		return nil, err
	}
	return b.query(fmt.Sprintf("SELECT %s FROM %s", columns, files))
}

// find sets the variable files.
func (b *bench) find(version, table string) error {
	text, err := recipe(b.Dir, table, version)
	if err != nil {
		return err
	}
	if _, err := b.db.ExecContext(b.Context(), text); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
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
