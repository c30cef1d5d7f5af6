package pgsink_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/postgres"
	"github.com/millrace/millrace/processors/project"
)

// orderLine is what a program written for this one table holds.
type orderLine struct {
	order     string
	line      int64
	sku, name string
	price     int64 // cents
	quantity  int64
	at        time.Time
	source    string
}

func makeLines(n int) []orderLine {
	r := rand.New(rand.NewPCG(1, 2))
	uuid := func() string {
		return fmt.Sprintf("%08X-%04X-%04X-%04X-%012X", r.Uint32(), r.Uint32()&0xffff, r.Uint32()&0xffff, r.Uint32()&0xffff, r.Uint64()&0xffffffffffff)
	}
	lines := make([]orderLine, 0, n)
	for len(lines) < n {
		id, customer := uuid(), uuid()
		for i := range int64(4) {
			lines = append(lines, orderLine{
				id, i, "BK-R93R-62", "Road-150 Red, 62", r.Int64N(400_000), 1 + r.Int64N(9),
				time.UnixMicro(1_600_000_000_000_000 + r.Int64N(1e17)), `customer/["` + customer + `"]/` + id,
			})
		}
	}
	return lines[:n]
}

func linesSchema(t testing.TB) *project.Schema {
	t.Helper()
	return &project.Schema{Pipeline: "bench", Generation: 1, Tables: []project.TableSchema{{
		Name: "lines", Key: []int{0, 1}, PartitionBy: -1,
		Columns: []project.ColumnSchema{
			column(t, "order_id", "string"), column(t, "line", "int64"), column(t, "sku", "string"), column(t, "name", "string"),
			column(t, "price", "decimal(12,2)"), column(t, "quantity", "int64"), column(t, "at", "timestamp"),
		},
	}}}
}

func lineRow(l *orderLine) project.Row {
	values := []project.Value{
		project.TextOf(l.order), project.IntOf(l.line), project.TextOf(l.sku), project.TextOf(l.name),
		project.SmallDecimalOf(l.price, 2), project.IntOf(l.quantity), project.TimeOf(l.at),
	}
	return project.Row{Key: values[:2:2], Values: values, Source: l.source, Element: fmt.Sprint(l.line)}
}

const (
	handColumns = "order_id, line, sku, name, price, quantity, at"
	handUpdate  = " on conflict (order_id, line) do update set sku = excluded.sku, name = excluded.name, price = excluded.price, quantity = excluded.quantity, at = excluded.at"
)

// hand is a batch upsert as one writes it by hand with pgx. Its table has no
// columns but the data.
type hand struct {
	name  string
	table string
	write func(ctx context.Context, tx pgx.Tx, table string, lines []orderLine) error
}

// The ways that are known for it.
var hands = []hand{
	{"a pgx.Batch of upserts", "hand_batch", func(ctx context.Context, tx pgx.Tx, table string, lines []orderLine) error {
		b := &pgx.Batch{}
		for i := range lines {
			l := &lines[i]
			b.Queue("insert into "+table+" ("+handColumns+") values ($1, $2, $3, $4, $5::bigint / 100.0, $6, $7)"+handUpdate,
				l.order, l.line, l.sku, l.name, l.price, l.quantity, l.at)
		}
		return tx.SendBatch(ctx, b).Close()
	}},
	{"COPY into a temporary table", "hand_copy", func(ctx context.Context, tx pgx.Tx, table string, lines []orderLine) error {
		if _, err := tx.Exec(ctx, "create temp table if not exists staged (order_id text, line bigint, sku text, name text, cents bigint, quantity bigint, "+
			"at timestamptz) on commit delete rows"); err != nil {
			return err
		}
		rows := pgx.CopyFromSlice(len(lines), func(i int) ([]any, error) {
			l := &lines[i]
			return []any{l.order, l.line, l.sku, l.name, l.price, l.quantity, l.at}, nil
		})
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"staged"}, []string{"order_id", "line", "sku", "name", "cents", "quantity", "at"}, rows); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into "+table+" ("+handColumns+") select order_id, line, sku, name, cents / 100.0, quantity, at from staged"+handUpdate)
		return err
	}},
	{"arrays and unnest", "hand_unnest", func(ctx context.Context, tx pgx.Tx, table string, lines []orderLine) error {
		n := len(lines)
		orders, numbers, skus, names := make([]string, n), make([]int64, n), make([]string, n), make([]string, n)
		cents, quantities, times := make([]int64, n), make([]int64, n), make([]time.Time, n)
		for i := range lines {
			l := &lines[i]
			orders[i], numbers[i], skus[i], names[i], cents[i], quantities[i], times[i] = l.order, l.line, l.sku, l.name, l.price, l.quantity, l.at
		}
		_, err := tx.Exec(ctx, "insert into "+table+" ("+handColumns+") select o, l, s, n, c / 100.0, q, a from "+
			"unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::timestamptz[]) as u(o, l, s, n, c, q, a)"+handUpdate,
			orders, numbers, skus, names, cents, quantities, times)
		return err
	}},
}

// BenchmarkUpsert writes the same rows by the sink and by hand, in turns, batch by
// batch, and reports rows/s of each and the sink's share of the best.
func BenchmarkUpsert(b *testing.B) {
	server := postgres.Start(b, "fsync = on", "shared_buffers = 1GB", "max_wal_size = 8GB", "checkpoint_timeout = 30min", "autovacuum = off")
	lines := makeLines(40_000)
	for _, size := range []int{1000, 4000} {
		for _, again := range []bool{false, true} {
			name := fmt.Sprintf("rows=%d/op=insert", size)
			if again {
				name = fmt.Sprintf("rows=%d/op=update", size)
			}
			b.Run(name, func(b *testing.B) { benchmarkUpsert(b, server.Database(b), lines, size, again) })
		}
	}
}

func benchmarkUpsert(b *testing.B, dsn string, lines []orderLine, size int, again bool) {
	b.Helper()
	setenv(b, dsn)
	sink, schema := newSink(b), linesSchema(b)
	w := open(b, sink, schema, 0, 1)
	conn := connect(b, dsn)
	rows := make([]project.Row, len(lines))
	for i := range lines {
		rows[i] = lineRow(&lines[i])
	}
	for _, h := range hands {
		exec(b, dsn, "create table "+h.table+" (order_id text, line bigint, sku text, name text, price numeric(12,2), quantity bigint, at timestamptz, "+
			"primary key (order_id, line))")
	}
	var position feed.Position
	took := make([]time.Duration, len(hands)+1)
	round := func(from int) {
		to := min(from+size, len(lines))
		for i, h := range hands {
			start := time.Now()
			if err := pgx.BeginFunc(b.Context(), conn, func(tx pgx.Tx) error { return h.write(b.Context(), tx, h.table, lines[from:to]) }); err != nil {
				b.Fatalf("%s: %v", h.name, err)
			}
			took[i] += time.Since(start)
		}
		next := feed.Position{LSN: position.LSN + 1}
		start := time.Now()
		if _, err := w.Write(b.Context(), &project.Batch{After: position, UpTo: next, Put: rows[from:to]}); err != nil {
			b.Fatal(err)
		}
		took[len(hands)] += time.Since(start)
		position = next
	}
	all := func() {
		for from := 0; from < len(lines); from += size {
			round(from)
		}
	}
	clear := func() {
		tables := []string{"lines"}
		for _, h := range hands {
			tables = append(tables, h.table)
		}
		exec(b, dsn, "truncate "+strings.Join(tables, ", "))
	}
	if again {
		all()
	}
	clearTimes := func() { took = make([]time.Duration, len(hands)+1) }
	clearTimes()
	written := 0
	for b.Loop() {
		b.StopTimer()
		if again {
			exec(b, dsn, "vacuum")
		} else {
			clear()
		}
		b.StartTimer()
		all()
		written += len(lines)
	}
	best := took[0]
	for i, h := range hands {
		b.ReportMetric(float64(written)/took[i].Seconds(), strings.ReplaceAll(h.table, "hand_", "")+"_rows/s")
		best = min(best, took[i])
	}
	b.ReportMetric(float64(written)/took[len(hands)].Seconds(), "sink_rows/s")
	b.ReportMetric(best.Seconds()/took[len(hands)].Seconds(), "sink/best")
}

// BenchmarkSmall writes batches of one row, whose cost is that of a transaction.
func BenchmarkSmall(b *testing.B) {
	server := postgres.Start(b, "fsync = on")
	setenv(b, server.Database(b))
	sink, schema := newSink(b), linesSchema(b)
	w := open(b, sink, schema, 0, 1)
	lines := makeLines(1000)
	var position feed.Position
	for b.Loop() {
		next := feed.Position{LSN: position.LSN + 1}
		row := lineRow(&lines[int(next.LSN)%len(lines)])
		if _, err := w.Write(b.Context(), &project.Batch{After: position, UpTo: next, Put: []project.Row{row}}); err != nil {
			b.Fatal(err)
		}
		position = next
	}
}

// BenchmarkRead reads rows as verify does.
func BenchmarkRead(b *testing.B) {
	newDatabase(b)
	sink, schema := newSink(b), linesSchema(b)
	w := open(b, sink, schema, 0, 1)
	var batch project.Batch
	for _, l := range makeLines(50_000) {
		batch.Put = append(batch.Put, lineRow(&l))
	}
	batch.UpTo = at(1)
	write(b, w, batch)
	read := 0
	for b.Loop() {
		for _, err := range sink.Rows(b.Context(), schema, 0) {
			if err != nil {
				b.Fatal(err)
			}
			read++
		}
	}
	b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "rows/s")
}
