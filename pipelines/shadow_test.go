package pipelines_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/postgres"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/pgsink"
)

const (
	doubleTotals  = "{customerId: customerId, orderId: id, total: {expr: total, type: double}}"
	decimalTotals = `{customerId: customerId, orderId: id, total: {expr: total, type: "decimal(12,2)"}}`
)

// reads reads what readers of the one table in a sink see.
func (n *node) reads(t testing.TB, sink project.Sink, totals string) []project.Row {
	t.Helper()
	rec := n.record(t, "order-rows")
	return n.readsOf(t, sink, project.Config{Generation: rec.Generation}, totals)
}

// readsOf reads the rows of one generation.
func (n *node) readsOf(t testing.TB, sink project.Sink, of project.Config, totals string) []project.Row {
	t.Helper()
	defer func() {
		if err := sink.Close(); err != nil {
			t.Error(err)
		}
	}()
	rec := n.record(t, "order-rows")
	typ, err := project.ParseType(totals)
	if err != nil {
		t.Fatal(err)
	}
	p, err := project.Compile(project.Config{
		Pipeline: rec.ID, Generation: of.Generation, Shadow: of.Shadow, Source: n.container(t, "customer"), Sink: sink,
		Tables: []project.Table{{Name: "orders", Where: `type = "order"`, Key: []string{"customerId", "orderId"}, Columns: []project.Column{
			{Name: "customerId", Expr: "customerId"}, {Name: "orderId", Expr: "id"}, {Name: "total", Expr: "total", Type: typ},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []project.Row
	for row, err := range sink.(project.Reader).Rows(t.Context(), p.Schema(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	return all
}

func (n *node) parquet(t testing.TB, dir, totals string) []project.Row {
	t.Helper()
	sink, err := parquetsink.New(parquetsink.NewDir(dir), parquetsink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return n.reads(t, sink, totals)
}

// awaitInForce waits until a pipeline's generation is in force.
func (n *node) awaitInForce(t testing.TB, name string, generation uint32) {
	t.Helper()
	poll.Until(t, func() error {
		if rec := n.record(t, name); rec.Generation != generation || !rec.InForce || rec.Shadow || rec.Former != nil {
			return fmt.Errorf("it is not in force: %+v", rec)
		}
		return nil
	})
	n.idle(t)
}

// TestShadowRowsTakeTheirPlace rebuilds a projection beside the rows that are
// there, and refills one whose files were removed.
func TestShadowRowsTakeTheirPlace(t *testing.T) {
	t.Parallel()
	n := newStore(t)
	n.customers(t, 3, 2)
	dir := t.TempDir()
	sink := "{parquet: {path: " + dir + ", commitInterval: 100ms}}"
	n.apply(t, rows(t, sink, doubleTotals))
	n.awaitInForce(t, "order-rows", 1)
	if got := n.parquet(t, dir, "double"); len(got) != 6 {
		t.Fatalf("%d rows at first", len(got))
	}

	n.apply(t, rows(t, sink, decimalTotals), registry.ApplyOptions{Backfill: true})
	n.put(t, "customer", order(0, 2))
	n.awaitInForce(t, "order-rows", 2)
	got := n.parquet(t, dir, "decimal(12,2)")
	if len(got) != 7 || got[0].Values[2].String() == "" {
		t.Fatalf("%d rows after the swap: %v", len(got), got)
	}

	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if err := os.RemoveAll(f); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.registry.Rewind(t.Context(), "default", "order-rows", registry.RewindTo{}, ""); err != nil {
		t.Fatal(err)
	}
	n.awaitInForce(t, "order-rows", 3)
	if got := n.parquet(t, dir, "decimal(12,2)"); len(got) != 7 {
		t.Errorf("%d rows after the rewind", len(got))
	}
	n.put(t, "customer", order(1, 2))
	n.idle(t)
	if got := n.parquet(t, dir, "decimal(12,2)"); len(got) != 8 {
		t.Errorf("%d rows after one more", len(got))
	}
}

// TestShadowTablesTakeTheirPlace does the same in PostgreSQL.
func TestShadowTablesTakeTheirPlace(t *testing.T) {
	t.Parallel()
	env := postgres.Env(t, postgres.Start(t).Database(t))
	n := newStore(t)
	n.customers(t, 3, 2)
	read := func(totals string) int {
		t.Helper()
		sink, err := pgsink.New(pgsink.Config{DSNEnv: env})
		if err != nil {
			t.Fatal(err)
		}
		return len(n.reads(t, sink, totals))
	}
	sink := "{postgres: {dsnEnv: " + env + "}}"
	n.apply(t, rows(t, sink, doubleTotals))
	n.awaitInForce(t, "order-rows", 1)
	if got := read("double"); got != 6 {
		t.Fatalf("%d rows at first", got)
	}
	n.apply(t, rows(t, sink, decimalTotals), registry.ApplyOptions{Backfill: true})
	n.put(t, "customer", order(0, 2))
	n.awaitInForce(t, "order-rows", 2)
	if got := read("decimal(12,2)"); got != 7 {
		t.Fatalf("%d rows after the swap", got)
	}
	place, err := registry.ParseRewindTo("1h", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := n.registry.Rewind(t.Context(), "default", "order-rows", place, ""); err != nil || rec.Shadow {
		t.Fatalf("%+v, %v", rec, err)
	}
	n.awaitInForce(t, "order-rows", 3)
	if got := read("decimal(12,2)"); got != 7 {
		t.Errorf("%d rows after they were set again in their place", got)
	}
}
