package project_test

import (
	"testing"

	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
	"github.com/millrace/millrace/store"
)

// Mend brings an item's rows to what it is, whatever the sink has of it.
func TestMend(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	source := n.container(t, "customer", 2, "/customerId")
	cfg := analytics(t)
	sink := sinktest.NewMemory(sinktest.NewDisk(), true)
	cfg.Source, cfg.Sink = source, sink
	p := compile(t, cfg)
	producer := p.Resource(partition).Producer()
	producer.Source = "repair"
	w, at, err := sink.Open(t.Context(), p.Schema(), project.Term{Producer: producer, Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	item := func(skus ...string) store.Item {
		return store.Item{Key: key(t, "c1"), ID: "o1", Body: []byte(orderItem("o1", day, skus...))}
	}
	mend := func(had ...store.Item) {
		t.Helper()
		was := project.ItemToRepair{ItemRef: ref(t, "c1", "o1")}
		for _, i := range had {
			was.Rows, _ = p.RowsOf(i.Key, i.ID, i.Body)
		}
		if at, err = p.Repair(t.Context(), w, at, []project.ItemToRepair{was}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := source.Create(t.Context(), item("a", "b").Body); err != nil {
		t.Fatal(err)
	}
	if missing := sinktest.Differences(t.Context(), p, []store.Item{item("a", "b")}); len(missing) != 3 {
		t.Fatalf("an empty sink differs by %q, want 3 rows", missing)
	}
	mend()
	sinktest.Equal(t, p, []store.Item{item("a", "b")})
	// The item is another one now, and nobody has told the sink.
	if _, err := source.Replace(t.Context(), "o1", item("z").Body); err != nil {
		t.Fatal(err)
	}
	if stale := sinktest.Differences(t.Context(), p, []store.Item{item("z")}); len(stale) != 2 {
		t.Fatalf("the sink differs by %q, want a wrong row and one too many", stale)
	}
	mend(item("a", "b"))
	if sinktest.Equal(t, p, []store.Item{item("z")}); at.LSN != 2 {
		t.Errorf("after a second repair at %s", at)
	}
	if err := source.Delete(t.Context(), key(t, "c1"), "o1"); err != nil {
		t.Fatal(err)
	}
	mend(item("z"))
	sinktest.Equal(t, p, nil)
}
