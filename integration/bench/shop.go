//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

// The pipelines of the shop: those of the sample in configs/webstore, as far as
// the triggers that they are compared with go.
const (
	shopContainer = `
apiVersion: millrace/v1
kind: Container
metadata: {name: customer}
spec: {partitionKey: [/customerId], partitions: %d}
`
	shopCount = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: order-count}
spec:
  source: {container: customer, where: type = "salesOrder"}
  aggregate:
    into: customer
    match: {customerId: customerId}
    where: type = "customer"
    set: {salesOrderCount: {count: true}}
    consistency: %s
`
	shopLines = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: %s}
spec:
  source: {container: customer}
  project:
    sink: {%s}
    tables:
      orderItems:
        where: type = "salesOrder"
        each: details
        key: [orderId, line]
        columns:
          orderId: item.id
          line: {expr: index, type: int64}
          sku: sku
          name: name
          price: {expr: price, type: "decimal(12,2)"}
          quantity: {expr: quantity, type: int64}
`
	// shopOrders is one more table of the same pipeline.
	shopOrders = `      orders:
        where: type = "salesOrder"
        key: [id]
        columns: {id: id, customerId: customerId, orderDate: {expr: orderDate, type: timestamp}}
`
)

// The ways to keep a count.
const (
	transactional = "transactional"
	eventual      = "eventual"
)

// sinkDSN is the environment variable that tells the PostgreSQL sink where to
// write.
const sinkDSN = "MILLRACE_BENCH_DSN"

// parquetSink returns a sink of files in a directory that is not there yet, in
// which new rows are seen after a second.
func parquetSink(dir string) string {
	return fmt.Sprintf("parquet: {path: %q, commitInterval: 1s}", dir)
}

// postgresSink returns a sink of tables in a schema of the cluster that is
// compared with.
func (b *bench) postgresSink(schema string) (string, error) {
	if err := os.Setenv(sinkDSN, b.pg.dsn); err != nil {
		return "", fmt.Errorf("tell the sink of PostgreSQL: %w", err)
	}
	return fmt.Sprintf("postgres: {dsnEnv: %s, schema: %s}", sinkDSN, schema), nil
}

// shop is customers in a Millrace of their own, and the orders that they place.
type shop struct {
	*millrace
	b     *bench
	data  *dataset.Shop
	dir   string
	items *store.Container
	// ordinals of the orders that were placed.
	ordinals atomic.Int64
}

// openShop starts Millrace and stores the customers.
func (b *bench) openShop(ctx context.Context) (s *shop, err error) {
	s = &shop{b: b, data: dataset.NewShop(b.cfg.seed, b.cfg.customers)}
	if s.dir, err = b.scratch("shop"); err != nil {
		return nil, err
	}
	if s.millrace, err = openMillrace(ctx, filepath.Join(s.dir, "node")); err != nil {
		b.remove(s.dir)
		return nil, err
	}
	if err := s.fill(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *shop) fill(ctx context.Context) (err error) {
	if err := s.apply(ctx, fmt.Sprintf(shopContainer, s.b.cfg.partitions)); err != nil {
		return err
	}
	if s.items, err = s.client.Container(ctx, database, "customer"); err != nil {
		return err
	}
	return inParallel(ctx, s.data.Customers(), func(ctx context.Context, c int) error {
		_, err := s.items.Create(ctx, s.data.AppendCustomer(nil, c))
		return err
	})
}

// inParallel does n things, in the order of their numbers, by as many goroutines
// as there are loaders.
func inParallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range loaders {
		g.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		})
	}
	return g.Wait()
}

// declare applies pipelines and waits until they have nothing left to do.
func (s *shop) declare(ctx context.Context, yaml string) error {
	if err := s.apply(ctx, yaml); err != nil {
		return err
	}
	return s.awaitIdle(ctx)
}

// place stores a new order. A customer below 0 is drawn.
func (s *shop) place(ctx context.Context, customer int) error {
	ordinal := int(s.ordinals.Add(1)) - 1
	if customer < 0 {
		customer = s.data.Drawn(ordinal)
	}
	order := s.data.Order(customer, ordinal)
	_, err := s.items.Create(ctx, order.AppendJSON(nil))
	return err
}

// verify compares all copies with their sources. A figure of copies that are wrong
// would be worth nothing.
func (s *session) verify(ctx context.Context) (*verify.Report, error) {
	report, err := verify.New(s.js, s.registry, s.client, verify.Config{}).Verify(ctx)
	if err != nil {
		return nil, err
	}
	if report.Verdict != verify.VerdictEqual {
		return nil, fmt.Errorf("verify says %s: %+v", report.Verdict, report.Pipelines)
	}
	return report, nil
}

// close stops Millrace and removes the data.
func (s *shop) close() error {
	err := s.millrace.close()
	s.b.remove(s.dir)
	return err
}
