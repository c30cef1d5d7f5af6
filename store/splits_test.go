package store_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

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

// A maker that was late and was killed leaves the empty log of a child whose split was given up. That is no damage, and it is
// removed; one that holds anything is damage.
func TestCatalog_WhatASplitThatWasGivenUpLeaves(t *testing.T) {
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
	plan, err := c.PlanSplit(t.Context(), "default", "things", 0, feed.EvenRanges(2)[1].Min, false)
	if err != nil {
		t.Fatal(err)
	}
	child := feed.Partition{Container: info.ID, Number: plan.Children[0].Number}
	log, err := c.MakeChildLog(t.Context(), &info, plan.Children[0], 100)
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	stream, err := feed.StreamOf(t.Context(), js, child)
	if err != nil {
		t.Fatal(err)
	}
	late := stream.CachedInfo().Config
	if err := c.AbandonSplit(t.Context(), "default", "things", plan.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), late); err != nil { // the request of who was late
		t.Fatal(err)
	}
	exam, err := store.Examine(t.Context(), js)
	if err != nil || exam.Err() != nil || len(exam.Left) != 1 || exam.Left[0] != child {
		t.Fatalf("found: %+v, %v, %v", exam, exam.Err(), err)
	}
	there, err := feed.StreamsOf(t.Context(), js, child)
	if err != nil {
		t.Fatal(err)
	}
	removed, err := c.RemoveLeft(t.Context(), map[feed.Partition][]*jetstream.StreamInfo{child: there})
	if err != nil || len(removed) != 1 {
		t.Errorf("removed %v, %v", removed, err)
	}
	if _, err := js.CreateStream(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), late.Subjects[0], []byte("x")); err != nil {
		t.Fatal(err)
	}
	if exam, err := store.Examine(t.Context(), js); err != nil || exam.Err() == nil {
		t.Errorf("a log without a name that holds something is no damage: %+v, %v", exam, err)
	}
}

// Of many who plan to split one partition at the same moment, by hand or by its size, at whatever boundary, one does: the
// others are told which split is under way, and leave nothing.
func TestCatalog_OneOfManyPlansASplit(t *testing.T) {
	t.Parallel()
	js := natstest.Start(t).JS
	c, err := store.OpenCatalog(t.Context(), js, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	const many = 8
	plans, errs := make([]*store.PlannedSplit, many), make([]error, many)
	var all sync.WaitGroup
	for i, r := range feed.EvenRanges(many + 1)[1:] {
		other, err := store.OpenCatalog(t.Context(), js, store.CatalogConfig{}) // as another node has it
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() { plans[i], errs[i] = other.PlanSplit(t.Context(), "default", "things", 0, r.Min, false) })
	}
	all.Wait()
	info, err := c.Get(t.Context(), "default", "things")
	if err != nil || len(info.Splits) != 1 || info.NextPartition != 3 {
		t.Fatalf("planned is %+v, the next number %d, %v", info.Splits, info.NextPartition, err)
	}
	planned := 0
	for i, err := range errs {
		switch {
		case err == nil:
			planned++
			if diff := cmp.Diff(info.Splits[0], *plans[i]); diff != "" {
				t.Errorf("told to who planned it (-catalog +told):\n%s", diff)
			}
		case !errors.Is(err, store.ErrConflict) || !strings.Contains(err.Error(), info.Splits[0].ID):
			t.Errorf("another one: %v", err)
		}
	}
	if planned != 1 {
		t.Errorf("%d have planned it", planned)
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
