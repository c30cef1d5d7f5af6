//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/integration/bench/anchor"
	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/measure"
)

// drawn stands for a customer: each order is of one that is drawn.
const drawn = -1

// crowdOfClients is the number of clients that place orders at a time, except where one does.
const crowdOfClients = 64

// workload is a number of clients that place orders.
type workload struct {
	name     string
	clients  int
	customer int      // whose orders they are, or drawn
	bar      float64  // how many times the rate of the triggers is asked for
	ahead    []string // of the other stores, whose rates are asked for
}

// Bars of orders by many clients of many customers.
const (
	orderCPUBar = 50.0 // µs of an order, with its client
	orderP99Bar = 10.0 // ms
	eventualBar = 0.8  // of the rate of orders that are counted in their own commit
)

// ofEventual names Millrace where a worker counts behind the commit.
const ofEventual = "Millrace, counted behind the commit"

// workloads are those of the case of orders.
func (b *bench) workloads() []workload {
	everybody := fmt.Sprintf("over %s customers", measure.Number(float64(b.cfg.customers)))
	durable := []string{anchor.SQLiteGroup, anchor.RedisJSON, anchor.Tarantool}
	return []workload{
		{fmt.Sprintf("%d clients %s", crowdOfClients, everybody), crowdOfClients, drawn, 4, durable},
		{fmt.Sprintf("%d clients on one hot customer", crowdOfClients), crowdOfClients, 0, 30, durable},
		{"one client " + everybody, 1, drawn, 1.3, []string{anchor.SQLite}},
	}
}

// fullShop is the number of customers that the bars are about.
const fullShop = 20_000

// judgedShop says whether the shop is of the size that the bars are about.
func (c *config) judgedShop() bool { return c.customers >= fullShop }

// orders is the case of orders that are counted in the commit that stores them.
func (b *bench) orders(ctx context.Context) error {
	t := b.table("orders", "Orders and their count", "Clients place orders of 580 bytes, one a transaction, each after its last one was "+
		"acknowledged; every customer tells in salesOrderCount how many there are. Millrace counts in the commit of the order (consistency: "+
		"transactional), or a worker does behind it (consistency: eventual), PostgreSQL by a trigger in its transaction. The other stores do less: the file is appended to and synced, and counts are a map; SQLite has a trigger with "+
		"json_set, in process, one writer, synchronous=FULL; Redis a script, appendfsync always, which decodes and encodes the customer, or adds to a field beside it; Tarantool a stored function, wal_mode fsync. "+
		"Each system begins each round without orders. All counts are verified, and with one client the disk has to be flushed for each order.")
	all := b.workloads()
	others, err := b.openAnchors(ctx)
	if err != nil {
		return err
	}
	for round := range b.cfg.rounds {
		b.say("  round %d of %d", round+1, b.cfg.rounds)
		if err := b.ordersMillrace(ctx, t, ofMillrace, transactional, all); err != nil {
			return err
		}
		if err := b.ordersMillrace(ctx, t, ofEventual, eventual, all[:1]); err != nil {
			return err
		}
		if b.pg != nil {
			if err := b.ordersPostgres(ctx, t, all); err != nil {
				return err
			}
		}
		if err := others.orders(ctx, t, all); err != nil {
			return err
		}
	}
	b.judgeOrders(t, all)
	return nil
}

// judgeOrders adds the bars.
func (b *bench) judgeOrders(t *measure.Table, all []workload) {
	for _, w := range all {
		t.Beside(w.name+": "+ofMillrace, w.name+": "+ofTrigger, "orders/s", "times trigger")
		t.AtLeast(w.name+", beside the trigger", t.Ratio(w.name+": "+ofMillrace, w.name+": "+ofTrigger, "orders/s"), w.bar, "times", b.cfg.judgedShop())
		for _, store := range anchor.Stores() {
			t.Beside(w.name+": "+store, w.name+": "+ofMillrace, "orders/s", "times Millrace")
		}
		for _, store := range w.ahead {
			t.AtLeast(w.name+", beside "+store, t.Ratio(w.name+": "+ofMillrace, w.name+": "+store, "orders/s"), 1, "times", b.cfg.judgedShop())
		}
	}
	most := all[0].name + ": " + ofMillrace
	t.AtMost(all[0].name+", processors", t.Series(most, "CPU µs/order"), orderCPUBar, "µs", b.cfg.judgedShop())
	t.AtMost(all[0].name+", p99", t.Series(most, "p99 ms"), orderP99Bar, "ms", b.cfg.judgedShop())
	t.AtLeast(all[0].name+", counted behind the commit, beside in it", t.Ratio(all[0].name+": "+ofEventual, most, "orders/s"), eventualBar, "times", b.cfg.judgedShop())
}

// ofTrigger names PostgreSQL where its triggers do the work.
const ofTrigger = "PostgreSQL jsonb, triggers"

func (b *bench) ordersMillrace(ctx context.Context, t *measure.Table, system, consistency string, all []workload) error {
	s, err := b.openShop(ctx)
	if err != nil {
		return err
	}
	run := func() error {
		if err := s.declare(ctx, fmt.Sprintf(shopCount, consistency)); err != nil {
			return err
		}
		for _, w := range all {
			err := b.profiled("orders "+consistency+" "+w.name, func() error {
				return b.ordersBy(ctx, t, w.name+": "+system, w.clients, func(ctx context.Context, _, _ int) error {
					return s.place(ctx, w.customer)
				})
			})
			if err != nil {
				return err
			}
		}
		last := time.Now()
		if err := s.awaitIdle(ctx); err != nil {
			return err
		}
		b.say("  %s: all is counted %.3f s behind the last order", system, time.Since(last).Seconds())
		_, err := s.verify(ctx)
		return err
	}
	return errors.Join(run(), s.close())
}

func (b *bench) ordersPostgres(ctx context.Context, t *measure.Table, all []workload) error {
	tables, err := b.openShopTables(ctx, crowdOfClients, false)
	if err != nil {
		return err
	}
	run := func() error {
		for _, w := range all {
			err := b.ordersBy(ctx, t, w.name+": "+ofTrigger, w.clients, func(ctx context.Context, client, _ int) error {
				return tables.place(ctx, client, w.customer)
			})
			if err != nil {
				return err
			}
			if err := tables.settle(ctx); err != nil {
				return err
			}
		}
		return tables.verify(ctx)
	}
	return errors.Join(run(), tables.close(ctx))
}

// ordersBy measures the clients of one system.
func (b *bench) ordersBy(ctx context.Context, t *measure.Table, name string, clients int, place func(context.Context, int, int) error) error {
	if err := b.quiet(ctx); err != nil {
		return err
	}
	d, err := b.drive(ctx, crowd.Crowd{Writers: clients, Write: place}, b.cfg.warmup, b.cfg.writeTime)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r := t.Row(name)
	r.Add("orders/s", d.PerSecond)
	d.AddLatencies(r, "order")
	t.Others = append(t.Others, d.Others)
	b.say("  %s: %s orders/s, p50 %.3f ms, p99 %.3f ms, CPU %.1f µs", name, measure.Number(d.PerSecond),
		measure.Milliseconds(d.Latencies.Quantile(0.5)), measure.Milliseconds(d.Latencies.Quantile(0.99)), d.CPU.Seconds()*1e6)
	return nil
}
