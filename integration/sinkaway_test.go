package integration_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/postgres"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
)

var sinkAway = flag.Duration("sinkaway", 4*time.Second, "how long PostgreSQL is away; a minute is a thorough run")

// wideOrders is a projection into a container that a huge array does not fit.
const wideOrders = `
apiVersion: millrace/v1
kind: Container
metadata: {name: wide}
spec: {partitionKey: [/orderId]}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: wide}
spec:
  source: {container: customer}
  project:
    sink: {container: {}}
    onExpire: delete
    tables:
      wide:
        where: type = "salesOrder"
        each: details
        key: [orderId, line]
        columns: {orderId: item.id, line: {expr: index, type: int64}, sku: sku}
`

// statusOf returns where the pipelines stand, by name.
func (w *town) statusOf() map[string]*status.Pipeline {
	w.t.Helper()
	monitor := status.NewMonitor(w.JetStream(), w.Registry(), status.MonitorConfig{})
	defer monitor.Close()
	st, err := monitor.Read(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	by := map[string]*status.Pipeline{}
	for i := range st.Pipelines {
		by[st.Pipelines[i].Name] = &st.Pipelines[i]
	}
	return by
}

// order writes an order of a customer, whose lines have some quantity.
func (w *town) order(customers *store.Container, n int, quantity string) {
	w.t.Helper()
	o := everyOrder{ID: fmt.Sprint("o", n), CustomerID: fmt.Sprint("u", n%everyCustomers), Type: "salesOrder", OrderDate: "2026"}
	o.Details = []everyLine{{SKU: "s", Price: "1.50", Quantity: []byte(quantity)}}
	if err := insist(w.t, func(ctx context.Context) error { return put(ctx, customers, o) }); err != nil {
		w.t.Fatal(err)
	}
}

// othersIdle waits until every pipeline but one has nothing left to do.
func (w *town) othersIdle(but string) {
	w.t.Helper()
	poll.Until(w.t, func() error {
		for name, p := range w.statusOf() {
			if name != but && (p.State != status.Idle || !p.Lag.None()) {
				return fmt.Errorf("%s is %s: %s", name, p.State, p.Reason)
			}
		}
		return nil
	})
}

// count counts the rows of a table.
func rowCount(t *testing.T, dsn, table string) (n int) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }() // it has only read
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize()).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSinkAway stops PostgreSQL for a while: the pipeline that writes to it waits,
// says why, and catches up, and the others do not notice. What cannot be a row is
// among the rejects, and holds up nothing.
func TestSinkAway(t *testing.T) {
	onlyLong(t)
	server := postgres.Start(t)
	dsn := server.Database(t)
	t.Setenv("MILLRACE_TEST_DSN", dsn)
	files := t.TempDir()
	w := newTown(t, 1, "sinks.roots="+files)
	w.apply(everyContainer + "---" + everyPipelineIn(files) + "---" + postgresPipeline + "---" + wideOrders)
	customers := open(t, w.Client(), "customer")
	for n := range 40 {
		w.order(customers, n, "2")
	}
	w.idle()

	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	away := time.Now()
	for n := range 40 {
		w.order(customers, 100+n, "3")
	}
	w.othersIdle("relational")
	t.Logf("the others were idle after %s", time.Since(away).Round(time.Millisecond))
	poll.Until(t, func() error {
		p := w.statusOf()["relational"]
		if p.State == status.Idle || p.Lag.None() || !strings.Contains(p.Reason, "tried again") || p.Sink.Error == "" || p.Sink.Since.IsZero() {
			return fmt.Errorf("it is %s, lag %+v, reason %q, sink %+v", p.State, p.Lag, p.Reason, p.Sink)
		}
		t.Logf("it is %s: %s; %+v", p.State, p.Reason, p.Sink)
		return nil
	})
	time.Sleep(time.Until(away.Add(*sinkAway))) //nolint:forbidigo // the time itself is the test
	if err := server.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	w.idle()
	t.Logf("it was idle %s after PostgreSQL was back", time.Since(back).Round(time.Millisecond))
	if n := rowCount(t, dsn, "orders"); n != 80 {
		t.Errorf("%d orders, want 80", n)
	}

	w.order(customers, 200, `"a dozen"`)
	w.order(customers, 201, "4")
	poll.Until(t, func() error {
		p := w.statusOf()["relational"]
		if n := rowCount(t, dsn, "lines"); n != 81 || p.Sink == nil || len(p.Sink.Rejected) == 0 {
			return fmt.Errorf("%d lines, want 81; sink %+v", n, p.Sink)
		}
		return nil
	})
	w.idle()
	w.equal("with a reject", "relational")
	w.hugeArray(customers)
}

// hugeArray writes an order of more lines than one commit takes, and one of the
// same partition behind it.
func (w *town) hugeArray(customers *store.Container) {
	w.t.Helper()
	body := []byte(`{"id":"huge","customerId":"u0","type":"salesOrder","orderDate":"2026","details":[{"sku":"s"}`)
	body = append(append(body, bytes.Repeat([]byte(`,{"sku":"s"}`), 6_000)...), "]}"...)
	if _, err := customers.Upsert(w.t.Context(), body); err != nil {
		w.t.Fatal(err)
	}
	w.order(customers, 8*100, "5") // of u0 too
	wide := open(w.t, w.Client(), "wide")
	poll.Until(w.t, func() error {
		key := keyOf(w.t, "o800")
		n, err := wide.Count(w.t.Context(), wide.PartitionFor(key), store.Scope{Key: key})
		if err != nil || n != 1 {
			return fmt.Errorf("the order behind the huge one has %d rows, %w; %+v", n, err, w.statusOf()["wide"])
		}
		return nil
	})
	poll.Until(w.t, func() error {
		for name, p := range w.statusOf() {
			if p.State != status.Idle || p.Lag.Commits > 0 {
				return fmt.Errorf("%s is %s with a lag of %+v: %s", name, p.State, p.Lag, p.Reason)
			}
		}
		return nil
	})
	n, err := wide.Count(w.t.Context(), wide.Partitions()[0], store.Scope{})
	rest := w.statusOf()["wide"]
	w.t.Logf("the container has %d rows, %v; %d parked, counts %+v, rejected %+v", n, err, rest.Parked, rest.Counts, rest.Sink)
	if n < 6_000 && rest.Parked == 0 && len(rest.Sink.Rejected) == 0 {
		w.t.Error(errors.New("the huge array is neither there, nor parked, nor rejected"))
	}
}
