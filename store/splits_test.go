package store_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store"
)

// Who completes a split late makes the log of a child that was split too, and forgotten, since: no log is left without a name.
func TestCatalog_ALateMakerOfAForgottenChildLeavesNoLog(t *testing.T) {
	t.Parallel()
	js := natstest.Start(t).JS
	c, err := store.OpenCatalog(t.Context(), js, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	quarter := feed.EvenRanges(4)
	first := splitInCatalog(t, c, info, 0, quarter[2].Min)
	splitInCatalog(t, c, info, first.Children[1].Number, quarter[3].Min)
	late := first.Children[1]
	child := feed.Partition{Container: info.ID, Number: late.Number}
	log, err := c.MakeChildLog(t.Context(), &info, late, 100)
	if err != nil {
		t.Fatalf("the record names it, as one that was split: %v", err)
	}
	log.Close()
	if err := c.ForgetFormer(t.Context(), "default", "things", late.Number); err != nil {
		t.Fatal(err)
	}
	if _, err = c.MakeChildLog(t.Context(), &info, late, 100); !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("the log of a partition that was forgotten is made: %v", err)
	}
	if _, err := feed.OpenLog(t.Context(), js, child, feed.LogConfig{}); !errors.Is(err, feed.ErrNoLog) {
		t.Errorf("it is there: %v", err)
	}
	if err := c.Sound(t.Context()); err != nil {
		t.Errorf("the catalog: %v", err)
	}
}

// splitInCatalog records the split of a partition, from its plan to its end.
func splitInCatalog(t *testing.T, c *store.Catalog, info store.ContainerInfo, number uint32, at feed.EPK) *store.PlannedSplit {
	t.Helper()
	plan, err := c.PlanSplit(t.Context(), info.Database, info.Name, number, at, false)
	if err != nil {
		t.Fatal(err)
	}
	former := store.FormerPartition{PartitionInfo: store.PartitionInfo{Number: number}, First: 100}
	for _, child := range plan.Children {
		former.Children = append(former.Children, child.Number)
	}
	if _, err := c.EndSplit(t.Context(), info.Database, info.Name, plan.ID, former); err != nil {
		t.Fatal(err)
	}
	return plan
}
