package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
)

const (
	snapshotWriters = 64
	snapshotReaders = 4
	snapshotOrders  = 960 // so that one page holds them, and the customer
)

// snapshots reads one customer's logical partition again and again, a page at a
// time, until stop is closed, and compares the count in each with its orders.
func snapshots(w *town, customer *store.Container, id string, stop <-chan struct{}) (pages int64) {
	key := keyOf(w.t, id)
	for {
		select {
		case <-stop:
			return pages
		default:
		}
		page, err := customer.Scan(w.t.Context(), customer.PartitionFor(key), store.Scan{Scope: store.Scope{Key: key}, ItemsMax: 1000})
		if err != nil {
			continue // its owner is away
		}
		pages++
		orders, said := 0, "no customer"
		for i := range page.Items {
			var it everyCustomer
			if err := json.Unmarshal(page.Items[i].Body, &it); err != nil {
				w.t.Error(err)
			}
			if it.Type == "customer" {
				said = it.SalesOrderCount.String()
			} else {
				orders++
			}
		}
		if said != fmt.Sprint(orders) || page.Cursor != nil {
			w.t.Errorf("at %s the customer says %s orders, and there are %d", page.LSN, said, orders)
			return pages
		}
	}
}

// TestTransactional_EveryReaderSeesTheCount lets 64 clients make and delete orders
// of one customer, who says in every single snapshot how many there are: while all
// is well, while the worker crashes, and while the store does.
func TestTransactional_EveryReaderSeesTheCount(t *testing.T) {
	files := t.TempDir()
	w := newTown(t, 1, "sinks.roots="+files)
	w.apply(everyContainer + "---" + everyPipelineIn(files))
	customer := open(t, w.Client(), "customer")
	poll.Until(t, func() error { return poll.Reason(notInForce(w, customer, "customer-totals")) })
	for _, c := range []struct {
		name  string
		upset func()
	}{
		{"undisturbed", func() {}},
		{"worker crash", w.workers[0].crash},
		{"store crash", w.store.crash},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := "of " + c.name
			if err := put(t.Context(), customer, everyCustomer{ID: id, CustomerID: id, Type: "customer", Region: "r"}); err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			var reading, writing sync.WaitGroup
			var pages, written atomic.Int64
			for range snapshotReaders {
				reading.Go(func() { pages.Add(snapshots(w, customer, id, stop)) })
			}
			for writer := range snapshotWriters {
				writing.Go(func() { snapshotWriter(w, customer, id, writer, &written) })
			}
			poll.Until(t, func() error {
				if n := written.Load(); n < snapshotOrders/3 {
					return errors.New(fmt.Sprint(n, " writes"))
				}
				return nil
			})
			c.upset()
			writing.Wait()
			close(stop)
			reading.Wait()
			t.Logf("%d snapshots between %d writes", pages.Load(), written.Load())
			if pages.Load() == 0 {
				t.Error("no snapshot was looked at")
			}
		})
	}
	w.settle("customer", "region")
	w.equal("at last", "customer-totals")
}

// snapshotWriter makes orders of one customer and deletes every third again.
func snapshotWriter(w *town, customer *store.Container, id string, writer int, written *atomic.Int64) {
	for n := range snapshotOrders / snapshotWriters {
		o := everyOrder{ID: fmt.Sprint("o", writer, "-", n), CustomerID: id, Type: "salesOrder", OrderDate: "2026"}
		err := insist(w.t, func(ctx context.Context) error { return put(ctx, customer, o) })
		if err == nil && n%3 == 0 {
			err = insist(w.t, func(ctx context.Context) error { return gone(customer.Delete(ctx, keyOf(w.t, id), o.ID)) })
			written.Add(1)
		}
		if err != nil {
			w.t.Error(err)
			return
		}
		written.Add(1)
	}
}

// notInForce tells where a transactional aggregate is not in force yet; "" if it is
// everywhere.
func notInForce(w *town, c *store.Container, pipeline string) string {
	rec, err := w.Registry().Get(w.t.Context(), "default", pipeline)
	if err != nil {
		return err.Error()
	}
	for _, p := range c.Partitions() {
		status, err := c.Status(w.t.Context(), p)
		if err != nil {
			return err.Error()
		}
		in := false
		for _, r := range status.Rules {
			in = in || r.Pipeline == rec.ID && r.Active && r.Folds && r.Published && r.Swept
		}
		if !in {
			return fmt.Sprintf("%s has the rules %+v", p, status.Rules)
		}
	}
	monitor := status.NewMonitor(w.JetStream(), w.Registry(), status.MonitorConfig{})
	defer monitor.Close()
	st, err := monitor.Read(w.t.Context())
	if err != nil {
		return err.Error()
	}
	for i := range st.Pipelines {
		if p := &st.Pipelines[i]; p.Name == pipeline && p.State != status.Idle {
			return fmt.Sprintf("%s is %s", p.Name, p.State)
		}
	}
	return ""
}
