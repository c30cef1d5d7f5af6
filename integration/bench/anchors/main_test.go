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
			// Where a machine has other things to do no client may come to its turn in a short time.
			for window := 100 * time.Millisecond; ; window *= 4 {
				missed := countOrders(t, store, window)
				if missed == nil {
					return
				}
				if window > 5*time.Second {
					t.Fatalf("%+v: that was not measured in %s", *missed, window)
				}
			}
		})
	}
}

// countOrders measures a store for so long, and returns a result that has no figures; nil if all have.
func countOrders(t *testing.T, store string, window time.Duration) (missed *anchor.Result) {
	t.Helper()
	task := &anchor.Task{
		Store: store, Dir: t.TempDir(), Seed: 1, Customers: 50, Warmup: 10 * time.Millisecond, Window: window,
		Workloads: []anchor.Workload{{Name: "many", Clients: 8, Customer: -1}, {Name: "hot", Clients: 8}, {Name: "one", Clients: 1, Customer: -1}},
	}
	results := 0
	err := run(t.Context(), task, func(r anchor.Result) error {
		results++
		if r.PerSecond <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.CPU <= 0 {
			missed = &r
		}
		return nil
	})
	if skip, ok := errors.AsType[*anchor.SkippedError](err); ok {
		t.Skip(skip)
	}
	if err != nil {
		t.Fatal(err)
	}
	if results != len(task.Workloads) {
		t.Errorf("%d results, want one of each of %d workloads", results, len(task.Workloads))
	}
	return missed
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
