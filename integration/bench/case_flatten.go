//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/measure"
)

// The sinks, as rows name them.
const (
	toParquet  = "Millrace, lines in Parquet files"
	toPostgres = "Millrace, lines in PostgreSQL"
)

// flattenOver multiplies the time for which clients are measured: the wait for the last
// rows at the end belongs to the figure, and must be a small part of it.
const flattenOver = 2

// How many times the rate of the triggers each sink must reach.
const (
	flattenParquetBar  = 3.0
	flattenPostgresBar = 2.5
)

// flatten is the case of orders that are counted and flattened.
func (b *bench) flatten(ctx context.Context) error {
	t := b.table("flatten", "Orders, their count and their lines, flat", fmt.Sprintf(
		"%d clients place orders as above, and each of the three lines of an order becomes a row as well. PostgreSQL does both by triggers, in "+
			"the transaction of the order. Millrace counts in the commit of the order and writes the rows behind it; so its rate counts all "+
			"orders from the first until the last row is committed in the sink (orders/s with rows), not only until the clients were answered. "+
			"All counts and all rows are verified.", crowdOfClients))
	systems := []struct {
		name string
		bar  float64
		sink func(s *shop) (string, error)
	}{
		{toParquet, flattenParquetBar, func(s *shop) (string, error) { return parquetSink(filepath.Join(s.dir, "lines")), nil }},
		{toPostgres, flattenPostgresBar, func(*shop) (string, error) { return b.postgresSink("flat_lines") }},
	}
	for round := range b.cfg.rounds {
		b.say("  round %d of %d", round+1, b.cfg.rounds)
		for _, system := range systems {
			if system.name == toPostgres && b.pg == nil {
				continue
			}
			if err := b.flattenMillrace(ctx, t, system.name, system.sink); err != nil {
				return err
			}
		}
		if b.pg == nil {
			continue
		}
		if err := b.flattenTriggers(ctx, t); err != nil {
			return err
		}
	}
	for _, system := range systems {
		t.Beside(system.name, ofTrigger, withRows, "times triggers")
		t.AtLeast(system.name+", beside the triggers", t.Ratio(system.name, ofTrigger, withRows), system.bar, "times", b.cfg.judgedShop())
	}
	return nil
}

// withRows is the column of the rate that is judged.
const withRows = "orders/s with rows"

func (b *bench) flattenMillrace(ctx context.Context, t *measure.Table, name string, sink func(*shop) (string, error)) error {
	s, err := b.openShop(ctx)
	if err != nil {
		return err
	}
	run := func() error {
		to, err := sink(s)
		if err != nil {
			return err
		}
		if err := s.declare(ctx, fmt.Sprintf(shopCount, transactional)+"---"+fmt.Sprintf(shopLines, "order-lines", to)); err != nil {
			return err
		}
		return b.profiled("flatten "+name, func() error {
			return b.flattened(ctx, t, name, s.ordinals.Load,
				func(ctx context.Context, _, _ int) error { return s.place(ctx, drawn) }, s.awaitIdle)
		})
	}
	err = run()
	if err == nil {
		_, err = s.verify(ctx)
	}
	err = errors.Join(err, s.close())
	if name == toPostgres {
		err = errors.Join(err, b.dropSchema(ctx, "flat_lines"))
	}
	return err
}

// dropSchema removes the tables that a sink has made.
func (b *bench) dropSchema(ctx context.Context, schema string) error {
	ctx = context.WithoutCancel(ctx)
	conn, err := b.pg.connect(ctx, "")
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	if _, err := conn.Exec(ctx, "drop schema if exists "+schema+" cascade; checkpoint"); err != nil {
		return fmt.Errorf("postgres: drop %s: %w", schema, err)
	}
	return nil
}

func (b *bench) flattenTriggers(ctx context.Context, t *measure.Table) error {
	tables, err := b.openShopTables(ctx, crowdOfClients, true)
	if err != nil {
		return err
	}
	err = b.flattened(ctx, t, ofTrigger, tables.ordinals.Load,
		func(ctx context.Context, client, _ int) error { return tables.place(ctx, client, drawn) },
		func(context.Context) error { return nil }) // the order's transaction made the rows
	if err == nil {
		err = tables.verify(ctx)
	}
	return errors.Join(err, tables.close(ctx))
}

// flattened measures the clients of one system, and the time until the rows of all their
// orders are there. placed counts the orders; place does one, and settled waits for the last
// row.
func (b *bench) flattened(ctx context.Context, t *measure.Table, name string, placed func() int64,
	place func(context.Context, int, int) error, settled func(context.Context) error,
) error {
	if err := b.quiet(ctx); err != nil {
		return err
	}
	watch, start := b.watch(), time.Now()
	d, err := b.drive(ctx, crowd.Crowd{Writers: crowdOfClients, Write: place}, b.cfg.warmup, flattenOver*b.cfg.writeTime)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	answered := time.Now()
	if err := settled(ctx); err != nil {
		return err
	}
	// All orders count here, those of the warm-up too: their rows are part of the wait.
	orders := float64(placed())
	d.CPU = time.Duration(float64(watch.Ours()) / orders)
	r := t.Row(name)
	r.Add("orders/s", d.PerSecond)
	r.Add(withRows, orders/time.Since(start).Seconds())
	r.Add("rows after the last order s", time.Since(answered).Seconds())
	d.AddLatencies(r, "order")
	t.Others = append(t.Others, d.Others)
	b.say("  %s: %s orders/s, %s with rows, p99 %.3f ms", name, measure.Number(d.PerSecond),
		measure.Number(orders/time.Since(start).Seconds()), measure.Milliseconds(d.Latencies.Quantile(0.99)))
	return nil
}
