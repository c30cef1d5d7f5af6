//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"

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
	customer int     // whose orders they are, or drawn
	bar      float64 // how many times the rate of the triggers is asked for
}

// workloads are those of the case of orders.
func (b *bench) workloads() []workload {
	everybody := fmt.Sprintf("over %s customers", measure.Number(float64(b.cfg.customers)))
	return []workload{
		{fmt.Sprintf("%d clients %s", crowdOfClients, everybody), crowdOfClients, drawn, 3.5},
		{fmt.Sprintf("%d clients on one hot customer", crowdOfClients), crowdOfClients, 0, 20},
		{"one client " + everybody, 1, drawn, 1.2},
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
		"transactional), PostgreSQL by a trigger in its transaction. Each system begins each round without orders. All counts are verified.")
	all := b.workloads()
	for round := range b.cfg.rounds {
		b.say("  round %d of %d", round+1, b.cfg.rounds)
		if err := b.ordersMillrace(ctx, t, all); err != nil {
			return err
		}
		if b.pg == nil {
			continue
		}
		if err := b.ordersPostgres(ctx, t, all); err != nil {
			return err
		}
	}
	for _, w := range all {
		t.Beside(w.name+": "+ofMillrace, w.name+": "+ofTrigger, "orders/s", "times trigger")
		t.AtLeast(w.name+", beside the trigger", t.Ratio(w.name+": "+ofMillrace, w.name+": "+ofTrigger, "orders/s"), w.bar, "times", b.cfg.judgedShop())
	}
	return nil
}

// ofTrigger names PostgreSQL where its triggers do the work.
const ofTrigger = "PostgreSQL jsonb, triggers"

func (b *bench) ordersMillrace(ctx context.Context, t *measure.Table, all []workload) error {
	s, err := b.openShop(ctx)
	if err != nil {
		return err
	}
	run := func() error {
		if err := s.declare(ctx, fmt.Sprintf(shopCount, transactional)); err != nil {
			return err
		}
		for _, w := range all {
			err := b.profiled("orders "+w.name, func() error {
				return b.ordersBy(ctx, t, w.name+": "+ofMillrace, w.clients, func(ctx context.Context, _, _ int) error {
					return s.place(ctx, w.customer)
				})
			})
			if err != nil {
				return err
			}
		}
		if err := s.awaitIdle(ctx); err != nil {
			return err
		}
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
	d, err := b.drive(ctx, crowd{clients, place}, b.cfg.warmup, b.cfg.writeTime)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r := t.Row(name)
	r.Add("orders/s", d.perSecond)
	d.addLatencies(r, "order")
	t.Others = append(t.Others, d.others)
	b.say("  %s: %s orders/s, p50 %.3f ms, p99 %.3f ms, CPU %.1f µs", name, measure.Number(d.perSecond),
		measure.Milliseconds(d.latencies.Quantile(0.5)), measure.Milliseconds(d.latencies.Quantile(0.99)), d.cpu.Seconds()*1e6)
	return nil
}
