package parquetsink_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

// lines is a schema like that of the order lines of the WebStore.
func lines() *project.Schema {
	column := func(name, typ string) project.ColumnSchema {
		t, err := project.ParseType(typ)
		if err != nil {
			panic(err)
		}
		return project.ColumnSchema{Name: name, Type: t}
	}
	return &project.Schema{Pipeline: "analytics", Generation: 1, Tables: []project.TableSchema{{
		Name: "orderItems", Key: []int{0, 1}, PartitionBy: -1,
		Columns: []project.ColumnSchema{
			column("orderId", "string"), column("line", "int64"), column("sku", "string"), column("price", "decimal(12,2)"), column("quantity", "int64"),
		},
	}}}
}

// orderLines returns the rows of some orders, four of each.
func orderLines(first, orders int) []project.Row {
	rows := make([]project.Row, 0, 4*orders)
	for o := first; o < first+orders; o++ {
		id := fmt.Sprintf("%08X-%04X-4321-ABCD-%012X", uint32(o)*2654435761, o%777, uint64(o)*11400714819323198485>>16)
		customer := fmt.Sprintf("%08X-%04X-4321-ABCD-%012X", uint32(o/3)*2654435761, o/3%777, uint64(o/3)*11400714819323198485>>16)
		source := "customer/[\"" + customer + "\"]/" + id
		for l := range int64(4) {
			values := []project.Value{
				project.TextOf(id), project.IntOf(l), project.TextOf(fmt.Sprint("SKU-", (int64(o)*7919+l)%300)),
				project.SmallDecimalOf(int64(o)*7919%100000, 2), project.IntOf(l%7 + 1),
			}
			rows = append(rows, project.Row{Key: values[:2:2], Values: values, Source: source, Element: fmt.Sprint(l)})
		}
	}
	return rows
}

// BenchmarkBackfill writes order lines that are not there yet, as a backfill does,
// until they are committed.
func BenchmarkBackfill(b *testing.B) {
	for _, c := range []struct{ rows, partitions int }{{121_000, 1}, {121_000, 4}, {1_000_000, 4}} {
		b.Run(fmt.Sprintf("rows=%d/partitions=%d", c.rows, c.partitions), func(b *testing.B) {
			b.ReportAllocs()
			const batch = 1000
			batches := make([][]project.Row, c.rows/batch)
			for i := range batches {
				batches[i] = orderLines(i*batch/4, batch/4)
			}
			for b.Loop() {
				b.StopTimer()
				s := open(b, parquetsink.NewDir(b.TempDir()), quick())
				writers := make([]project.Writer, c.partitions)
				for i := range writers {
					writers[i] = begin(b, s, lines(), i)
				}
				b.StartTimer()
				var wg sync.WaitGroup
				for i, w := range writers {
					wg.Go(func() {
						after := feed.Position{}
						for n := i; n < len(batches); n += c.partitions {
							upTo := feed.Position{LSN: after.LSN + 1}
							write(b, w, &project.Batch{After: after, UpTo: upTo, Put: batches[n]})
							after = upTo
						}
						if _, err := w.Flush(b.Context()); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64(b.N*c.rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkUpdates commits changes of rows all over a table that is there.
func BenchmarkUpdates(b *testing.B) {
	for _, c := range []struct{ table, rows int }{{100_000, 100}, {100_000, 10_000}, {1_000_000, 10_000}} {
		b.Run(fmt.Sprintf("table=%d/rows=%d", c.table, c.rows), func(b *testing.B) {
			b.ReportAllocs()
			s := open(b, parquetsink.NewDir(b.TempDir()), quick())
			w := begin(b, s, lines(), 0)
			all := orderLines(0, c.table/4)
			write(b, w, &project.Batch{UpTo: feed.Position{LSN: 1}, Put: all})
			flush(b, w)
			lsn := feed.LSN(1)
			for b.Loop() {
				changed := make([]project.Row, 0, c.rows)
				for i := range c.rows {
					r := all[(i*7919+int(lsn)*31)%len(all)]
					r.Values = append([]project.Value{}, r.Values...)
					r.Values[4] = project.IntOf(int64(lsn))
					changed = append(changed, r)
				}
				write(b, w, &project.Batch{After: feed.Position{LSN: lsn}, UpTo: feed.Position{LSN: lsn + 1}, Put: changed})
				flush(b, w)
				lsn++
			}
			b.ReportMetric(float64(b.N*c.rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func begin(t testing.TB, s *parquetsink.Sink, schema *project.Schema, partition int) project.Writer {
	t.Helper()
	w, _, err := s.Open(t.Context(), schema, project.Term{
		Producer: feed.Producer{Pipeline: schema.Pipeline, Generation: schema.Generation, Source: fmt.Sprintf("source:c7k2x4ab/%d", partition)},
		Epoch:    1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func write(t testing.TB, w project.Writer, batch *project.Batch) {
	t.Helper()
	if written, err := w.Write(t.Context(), batch); err != nil || written.Skipped {
		t.Errorf("write: %+v, %v", written, err)
	}
}

func flush(t testing.TB, w project.Writer) {
	t.Helper()
	if _, err := w.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}
