// Package tables writes tables of Parquet files for tests that read them with a program
// of somebody else: delta-rs in integration/delta, DuckDB in integration/duckdb.
package tables

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

// Tables is a sink in a directory, and the one writer of it.
type Tables struct {
	*testing.T
	Dir    string
	Sink   *parquetsink.Sink
	Writer project.Writer
	LSN    feed.LSN // of the last commit
}

// New opens a sink with a schema. Every Commit is one of the sink's.
func New(t *testing.T, schema *project.Schema, cfg parquetsink.Config) Tables {
	t.Helper()
	b := Tables{T: t, Dir: filepath.Join(t.TempDir(), "analytics")}
	cfg.CommitInterval, cfg.Logger = time.Nanosecond, slog.New(slog.DiscardHandler)
	var err error
	b.Sink, err = parquetsink.New(parquetsink.NewDir(b.Dir), cfg)
	b.Must(err)
	t.Cleanup(func() { b.Must(b.Sink.Close()) })
	b.Begin(schema)
	return b
}

// Must fails the test if err is one.
func (b *Tables) Must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// Begin opens the sink again, with another schema.
func (b *Tables) Begin(schema *project.Schema) {
	b.Helper()
	w, position, err := b.Sink.Open(b.Context(), schema, project.Term{
		Producer: feed.Producer{Pipeline: schema.Pipeline, Generation: schema.Generation, Source: "source:c7k2x4ab/0"}, Epoch: 1,
	})
	b.Must(err)
	b.Writer, b.LSN = w, position.LSN
}

// Commit writes a batch and makes it durable.
func (b *Tables) Commit(batch project.Batch) {
	b.Helper()
	batch.After, batch.UpTo = feed.Position{LSN: b.LSN}, feed.Position{LSN: b.LSN + 1}
	b.LSN++
	_, err := b.Writer.Write(b.Context(), &batch)
	b.Must(err)
	_, err = b.Writer.Flush(b.Context())
	b.Must(err)
}

// CommitRandom commits n batches that put, replace and drop random orders of a Shop. After
// every seventh commit, and the last, it calls check with the orders that are there.
func (b *Tables) CommitRandom(n int, check func(orders map[string]project.Row)) {
	b.Helper()
	rnd := rand.New(rand.NewPCG(1, 7))
	state := map[string]project.Row{}
	for commit := range n {
		var batch project.Batch
		touched := map[string]bool{}
		for range 60 {
			id := fmt.Sprintf("o%04d", rnd.IntN(600))
			if touched[id] {
				continue
			}
			touched[id] = true
			r := Order("customer/[\"c\"]/"+id, id, fmt.Sprint("c", rnd.IntN(9)), rnd.Int64N(100000))
			if rnd.IntN(4) == 0 {
				batch.Drop = append(batch.Drop, project.Row{Key: r.Key, Source: r.Source})
				delete(state, id)
			} else {
				batch.Put = append(batch.Put, r)
				state[id] = r
			}
		}
		b.Commit(batch)
		if commit%7 == 0 || commit == n-1 {
			check(state)
		}
	}
}

// Same compares the rows that were read with those that were written, in any order.
func (b *Tables) Same(got, want []string) {
	b.Helper()
	slices.Sort(got)
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

// Column is a column of a type.
func Column(name, typ string) project.ColumnSchema {
	t, err := project.ParseType(typ)
	if err != nil {
		panic(err)
	}
	return project.ColumnSchema{Name: name, Type: t}
}

// Shop is a schema of orders and their lines.
func Shop(generation uint32) *project.Schema {
	return &project.Schema{Pipeline: "analytics", Generation: generation, Tables: []project.TableSchema{
		{Name: "orders", Key: []int{0}, PartitionBy: -1, Columns: []project.ColumnSchema{Column("id", "string"), Column("customer", "string"), Column("total", "decimal(12,2)")}},
		{Name: "lines", Key: []int{0, 1}, PartitionBy: -1, Columns: []project.ColumnSchema{Column("orderId", "string"), Column("line", "int64"), Column("price", "decimal(12,2)")}},
	}}
}

// Order is a row of orders.
func Order(source, id, customer string, cents int64) project.Row {
	values := []project.Value{project.TextOf(id), project.TextOf(customer), project.SmallDecimalOf(cents, 2)}
	return project.Row{Key: values[:1:1], Values: values, Source: source}
}
