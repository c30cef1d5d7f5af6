//go:build !cgo

package duckdb_test

import "testing"

func TestDuckDB(t *testing.T) {
	t.Skip("DuckDB is C++: it needs cgo, and so a C compiler (install gcc, and run with CGO_ENABLED=1)")
}
