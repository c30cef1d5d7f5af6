//go:build linux

// Command anchors measures other stores at the bench's case of orders: a client stores an order of about 580 bytes of JSON, and the
// count of its customer goes up by one in the same transaction, which is on disk before the client is answered. It says what
// can be reached on a machine by programs that do less than Millrace, or the same in another way. The bench builds it and runs it; by
// hand, it takes a task (package anchor) as JSON on standard input.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace/integration/bench/anchor"
	"github.com/millrace/millrace/integration/bench/crowd"
	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
)

// place stores an order and counts it. It returns when both are durable.
type place func(ctx context.Context, customer, order string, item []byte) error

// anchored is a store that orders are placed in.
type anchored interface {
	// open starts it in an empty directory, with all customers.
	open(ctx context.Context, dir string, shop *dataset.Shop) error
	// client returns what one client does; it is not called by two goroutines at a time.
	client(ctx context.Context) (place, error)
	// totals counts the orders, and adds up the counts that the customers have.
	totals(ctx context.Context) (orders, counted int64, err error)
	close() error
}

// groupMax is the most orders that SQLite puts into one transaction. There are never so many clients.
const groupMax = 256

// openStore makes the store with a name.
func openStore(name string) (anchored, error) {
	switch name {
	case anchor.File:
		return &file{}, nil
	case anchor.FileByCaller:
		return &fileByCaller{}, nil
	case anchor.SQLite:
		return &sqlite{group: 1}, nil
	case anchor.SQLiteGroup:
		return &sqlite{group: groupMax}, nil
	case anchor.Redis:
		return &redisServer{}, nil
	case anchor.RedisJSON:
		return &redisServer{json: true}, nil
	case anchor.Tarantool:
		return &tarantool{}, nil
	case anchor.TarantoolShared:
		return &tarantool{shared: true}, nil
	}
	return nil, fmt.Errorf("no store is called %q", name)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := anchor.Main(os.Stdin, os.Stdout, os.Stderr, func(task *anchor.Task, report func(anchor.Result) error) error {
		return run(ctx, task, report)
	})
	stop()
	os.Exit(status)
}

// run does a task.
func run(ctx context.Context, task *anchor.Task, report func(anchor.Result) error) error {
	s, err := openStore(task.Store)
	if err != nil {
		return err
	}
	return measureStore(ctx, s, task, report)
}

// measureStore measures the workloads of a task one after the other, and then looks whether the store has what it acknowledged.
func measureStore(ctx context.Context, s anchored, task *anchor.Task, report func(anchor.Result) error) (err error) {
	shop := dataset.NewShop(task.Seed, task.Customers)
	defer func() {
		if e := s.close(); err == nil {
			err = e
		}
	}()
	if err := s.open(ctx, task.Dir, shop); err != nil {
		return err
	}
	var placed atomic.Int64
	for _, w := range task.Workloads {
		r, err := workload(ctx, s, shop, task, w, &placed)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		if err := report(r); err != nil {
			return err
		}
	}
	orders, counted, err := s.totals(ctx)
	if err != nil {
		return err
	}
	if n := placed.Load(); orders != n || counted != n {
		return fmt.Errorf("%d orders were acknowledged, %d are there, and the customers count %d", n, orders, counted)
	}
	return nil
}

// settled is how long the machine is left alone between two workloads.
const settled = time.Second

// workload measures one.
func workload(ctx context.Context, s anchored, shop *dataset.Shop, task *anchor.Task, w anchor.Workload, placed *atomic.Int64) (anchor.Result, error) {
	clients := make([]place, w.Clients)
	for i := range clients {
		var err error
		if clients[i], err = s.client(ctx); err != nil {
			return anchor.Result{}, err
		}
	}
	select {
	case <-time.After(settled):
	case <-ctx.Done():
		return anchor.Result{}, context.Cause(ctx)
	}
	before, _, err := measure.FlushesOf(task.Dir)
	if err != nil {
		return anchor.Result{}, err
	}
	first := placed.Load()
	m, err := crowd.Drive(ctx, crowd.Crowd{Writers: w.Clients, Write: func(ctx context.Context, client, _ int) error {
		ordinal := int(placed.Add(1)) - 1
		customer := w.Customer
		if customer < 0 {
			customer = shop.Drawn(ordinal)
		}
		order := shop.Order(customer, ordinal)
		return clients[client](ctx, order.CustomerID, order.ID, order.AppendJSON(nil))
	}}, task.Warmup, task.Window)
	if err != nil {
		return anchor.Result{}, err
	}
	after, counted, err := measure.FlushesOf(task.Dir)
	if err != nil {
		return anchor.Result{}, err
	}
	r := anchor.Result{
		Workload: w.Name, PerSecond: m.PerSecond, P50: m.Latencies.Quantile(0.5), P99: m.Latencies.Quantile(0.99),
		CPU: m.CPU, Others: m.Others, Flushes: -1,
	}
	if counted {
		r.Flushes = float64(after-before) / float64(max(placed.Load()-first, 1))
		// One client has one order on its way, so each needs a flush of its own, unless the store answers before it syncs.
		if w.Clients == 1 && r.Flushes < 1 {
			return anchor.Result{}, fmt.Errorf("it answered before what it answered was on disk: the disk was flushed %.2f times an order", r.Flushes)
		}
	}
	return r, nil
}

// lookUp finds a program, or says what to install.
func lookUp(store, program, install string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", &anchor.SkippedError{Store: store, Reason: program + " is not installed; apt-get install " + install}
	}
	return path, nil
}
