package pipelines_test

import (
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/processors"
)

// TestI7_AReaderAmongItemsHasFoldedNoCommit: where a pipeline that begins with items is among them, the item of
// any change may still come. A verification that took the commit of the items for folded would find
// groups to differ, and a repair would count twice what comes after it.
func TestI7_AReaderAmongItemsHasFoldedNoCommit(t *testing.T) {
	t.Parallel()
	m := newMart(t)
	m.fill(t, 3, 5)
	rec, err := m.registry.Pause(t.Context(), "default", "days")
	if err != nil {
		t.Fatal(err)
	}
	m.released(t, rec.ID)
	if _, by := m.verify(t, verify.Config{Timeout: -1}); by["days"].Verdict != verify.VerdictEqual {
		t.Fatalf("all was folded: %+v", by["days"])
	}
	at, _, err := registry.ReadCheckpoints(t.Context(), m.js, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.container(t, "sale").Partitions() {
		r := processors.Resource{Pipeline: rec.ID, Generation: rec.Generation, Role: processors.RoleSource, Partition: p}
		m.skip(t, r, feed.WalkPosition(at[r.String()].Position.LSN, 1))
	}
	if _, by := m.verify(t, verify.Config{Timeout: -1}); by["days"].Verdict != verify.VerdictBehind {
		t.Errorf("the readers are among items: %+v", by["days"])
	}
}
