//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
)

const (
	// fullBackfill is the number of orders that the bars are about: a million rows.
	fullBackfill = 250_000
	parquetBar   = 150_000 // rows/s
	handBar      = 0.7     // times the rate of the program that is written by hand
	rowsOfOrder  = 1 + dataset.OrderLines
)

// The systems of the case of backfill, as rows name them.
const (
	rowsToParquet  = "Millrace into Parquet files"
	rowsToPostgres = "Millrace into PostgreSQL"
	rowsByBatch    = "by hand into PostgreSQL, a pgx.Batch of upserts"
	rowsByArrays   = "by hand into PostgreSQL, upserts of arrays"
)

// backfill is the case of a projection that is declared where all its orders are already.
func (b *bench) backfill(ctx context.Context) (err error) {
	rows := b.cfg.orders * rowsOfOrder
	t := b.table("backfill", "Backfill", fmt.Sprintf(
		"A projection with a table of orders and one of their lines is applied where %s orders are: %s rows. The time counts from apply until "+
			"all rows are committed; then they are verified, which is a column of its own. The program by hand upserts the same rows, %s in a "+
			"transaction, by one connection; it has them in memory, parses nothing, and keeps neither positions nor sources. Everybody writes "+
			"into new tables.", measure.Number(float64(b.cfg.orders)), measure.Number(float64(rows)), measure.Number(handRows)))
	s, err := b.openShop(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	b.say("  placing %s orders", measure.Number(float64(b.cfg.orders)))
	if err := inParallel(ctx, b.cfg.orders, func(ctx context.Context, _ int) error { return s.place(ctx, drawn) }); err != nil {
		return err
	}
	for round := range b.cfg.rounds {
		b.say("  round %d of %d", round+1, b.cfg.rounds)
		if err := s.backfillParquet(ctx, t, round); err != nil {
			return err
		}
		if b.pg == nil {
			continue
		}
		if err := s.backfillPostgres(ctx, t, round); err != nil {
			return err
		}
		for _, h := range hands {
			if err := s.backfillByHand(ctx, t, h); err != nil {
				return err
			}
		}
	}
	judged := b.cfg.orders >= fullBackfill
	t.Beside(rowsToPostgres, rowsByBatch, "rows/s", "times pgx.Batch")
	t.Beside(rowsToPostgres, rowsByArrays, "rows/s", "times arrays")
	t.AtLeast("rows into Parquet files", t.Series(rowsToParquet, "rows/s"), parquetBar, "rows/s", judged)
	t.AtLeast("rows into PostgreSQL, beside a pgx.Batch by hand", t.Ratio(rowsToPostgres, rowsByBatch, "rows/s"), handBar, "times", judged)
	return nil
}

func (s *shop) backfillParquet(ctx context.Context, t *measure.Table, round int) error {
	dir := filepath.Join(s.dir, fmt.Sprintf("parquet-%d", round))
	err := s.backfillInto(ctx, t, rowsToParquet, fmt.Sprintf("rows-parquet-%d", round), parquetSink(dir))
	s.b.remove(dir)
	return err
}

func (s *shop) backfillPostgres(ctx context.Context, t *measure.Table, round int) error {
	schema := fmt.Sprintf("rows_%d", round)
	sink, err := s.b.postgresSink(schema)
	if err != nil {
		return err
	}
	err = s.backfillInto(ctx, t, rowsToPostgres, fmt.Sprintf("rows-postgres-%d", round), sink)
	return errors.Join(err, s.b.dropSchema(ctx, schema))
}

// backfillInto measures a pipeline from its declaration until it has nothing left
// to do, and deletes it.
func (s *shop) backfillInto(ctx context.Context, t *measure.Table, system, name, sink string) error {
	if err := s.b.quiet(ctx); err != nil {
		return err
	}
	watch, start := s.b.watch(), time.Now()
	err := s.b.profiled(system, func() error { return s.declare(ctx, fmt.Sprintf(shopLines, name, sink)+shopOrders) })
	if err != nil {
		return err
	}
	r := s.addRows(t, system, time.Since(start), watch)
	report, err := s.verify(ctx)
	if err != nil {
		return err
	}
	rows := report.Pipelines[0].Copies
	if want := int64(s.b.cfg.orders * rowsOfOrder); rows != want {
		return fmt.Errorf("%s: %d rows, want %d", system, rows, want)
	}
	r.Add("verified rows/s", float64(rows)/report.Seconds)
	return s.registry.Delete(ctx, database, name)
}

// addRows puts what all rows took into a row.
func (s *shop) addRows(t *measure.Table, system string, took time.Duration, watch *measure.Watch) *measure.Row {
	rows := float64(s.b.cfg.orders * rowsOfOrder)
	r := t.Row(system)
	r.Add("rows/s", rows/took.Seconds())
	r.Add("s", took.Seconds())
	r.Add("CPU µs/row", float64(watch.Ours())/float64(time.Microsecond)/rows)
	t.Others = append(t.Others, watch.Others())
	s.b.say("  %s: %s rows/s, %.3f s", system, measure.Number(rows/took.Seconds()), took.Seconds())
	return r
}

// backfillByHand measures the program that is written by hand, into tables that it makes
// before the clock runs.
func (s *shop) backfillByHand(ctx context.Context, t *measure.Table, h hand) (err error) {
	conn, err := s.b.pg.connect(ctx, handIn)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	if _, err := conn.Exec(ctx, handSchema); err != nil {
		return fmt.Errorf("postgres: make tables: %w", err)
	}
	defer func() { err = errors.Join(err, s.b.dropSchema(ctx, handIn)) }()
	orders := s.ordersByHand()
	if err := s.b.quiet(ctx); err != nil {
		return err
	}
	watch, start := s.b.watch(), time.Now()
	if err := byHand(ctx, conn, h, orders); err != nil {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	s.addRows(t, h.name, time.Since(start), watch)
	return nil
}

// ordersByHand returns all orders.
func (s *shop) ordersByHand() []dataset.Order {
	orders := make([]dataset.Order, s.b.cfg.orders)
	for i := range orders {
		orders[i] = s.data.Order(s.data.Drawn(i), i)
	}
	return orders
}
