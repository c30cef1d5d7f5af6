//go:build linux

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/bench/anchor"
	"github.com/millrace/millrace/integration/bench/measure"
)

// Each store that is installed here takes orders of many clients and of one, and has all of them at the end.
func TestStoresCountOrders(t *testing.T) {
	for _, store := range anchor.Stores() {
		t.Run(store, func(t *testing.T) {
			task := &anchor.Task{
				Store: store, Dir: t.TempDir(), Seed: 1, Customers: 50, Warmup: 10 * time.Millisecond, Window: 100 * time.Millisecond,
				Workloads: []anchor.Workload{{Name: "many", Clients: 8, Customer: -1}, {Name: "hot", Clients: 8}, {Name: "one", Clients: 1, Customer: -1}},
			}
			var names []string
			err := run(t.Context(), task, func(r anchor.Result) error {
				names = append(names, r.Workload)
				if r.PerSecond <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.CPU <= 0 {
					t.Errorf("%+v: that was not measured", r)
				}
				return nil
			})
			if skip, ok := errors.AsType[*anchor.SkippedError](err); ok {
				t.Skip(skip)
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(names) != len(task.Workloads) {
				t.Errorf("results of %q, want of %d workloads", names, len(task.Workloads))
			}
		})
	}
}

// unsynced is a store that says at once that an order is durable.
type unsynced struct{ file }

func (u *unsynced) client(context.Context) (place, error) {
	return func(_ context.Context, customer, _ string, _ []byte) error {
		u.orders++
		u.counts[customer]++
		return nil
	}, nil
}

func TestAStoreThatAnswersBeforeItSyncsIsNotMeasured(t *testing.T) {
	if _, counted, err := measure.FlushesOf(t.TempDir()); err != nil || !counted {
		t.Skip("flushes of the disk of temporary files are not counted", err)
	}
	task := &anchor.Task{
		Dir: t.TempDir(), Seed: 1, Customers: 50, Window: 100 * time.Millisecond, Workloads: []anchor.Workload{{Name: "one", Clients: 1}},
	}
	if err := measureStore(t.Context(), &unsynced{}, task, func(anchor.Result) error { return nil }); err == nil {
		t.Error("it was measured")
	}
}

// A store that has lost an order, or counted it twice, is not measured.
type miscounting struct{ file }

func (m *miscounting) totals(ctx context.Context) (orders, counted int64, err error) {
	orders, counted, err = m.file.totals(ctx)
	return orders, counted + 1, err
}

func TestAStoreThatMiscountsIsNotMeasured(t *testing.T) {
	task := &anchor.Task{
		Dir: t.TempDir(), Seed: 1, Customers: 50, Window: 10 * time.Millisecond, Workloads: []anchor.Workload{{Name: "many", Clients: 2, Customer: -1}},
	}
	if err := measureStore(t.Context(), &miscounting{}, task, func(anchor.Result) error { return nil }); err == nil {
		t.Error("it was measured")
	}
}

func TestAnUnknownStoreIsAnError(t *testing.T) {
	if err := run(t.Context(), &anchor.Task{Store: "nothing"}, nil); err == nil {
		t.Error("no error")
	}
}
