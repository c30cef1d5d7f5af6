// Package duckdb reads what the Parquet sink writes with another implementation
// of Parquet, DuckDB, and compares it with the rows that were written. It is a
// module of its own, because DuckDB is C++ and the product is free of cgo. Run it
// with
//
//	cd integration/duckdb && go test ./...
//
// Without a C compiler Go turns cgo off, and the tests are skipped and say so.
package duckdb
