package owner

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// halves is the plan of a split of the one partition of a world in its middle.
func halves() *store.PlannedSplit {
	even := feed.EvenRanges(2)
	return &store.PlannedSplit{ID: "s", Children: []store.PartitionInfo{
		{Number: 1, Range: even[0], Log: feed.NewLogID()}, {Number: 2, Range: even[1], Log: feed.NewLogID()},
	}}
}

// The split commit is on its way when who splits is told to end. The partition answers nobody until it is known what became
// of the commit: whoever finds it in the log serves the children without waiting.
func TestSplit_StaysClosedWhileItsCommitMayBeInTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 1})
	n := w.start(t.TempDir())
	split, err := n.prepareSplit(t.Context(), halves())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	n.log.fault(func(_ context.Context, appendIt func() (feed.LSN, error)) (feed.LSN, error) {
		cancel()
		select {
		case err := <-result:
			t.Errorf("it ended while the commit was on its way: %v", err)
			result <- err
		case <-time.After(100 * time.Millisecond):
		}
		if n.closedFor.Load() == nil {
			t.Error("the partition answers while the commit is on its way")
		}
		return appendIt()
	})
	go func() { result <- n.endWith(ctx, split, nil) }()
	if err := <-result; err != nil {
		t.Error(err)
	}
	if n.closedFor.Load() == nil {
		t.Error("the partition answers behind its split commit")
	}
	if err := n.ended(); err == nil || !opensAnew(err) {
		t.Errorf("the term ended with %v", err)
	}
}

// An append that certainly did not happen leaves the partition as it was.
func TestSplit_OpensAgainWhereItsCommitWasNotAppended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 1})
	n := w.start(t.TempDir())
	split, err := n.prepareSplit(t.Context(), halves())
	if err != nil {
		t.Fatal(err)
	}
	n.log.fault(func(context.Context, func() (feed.LSN, error)) (feed.LSN, error) { return 0, feed.ErrStorage })
	if err := n.endWith(t.Context(), split, nil); err == nil || n.closedFor.Load() != nil {
		t.Errorf("%v, and the partition answers nothing: %v", err, n.closedFor.Load())
	}
}

// What is decided of a split counts when it is in the log: a cancel, or a preparation, that was refused there has not happened.
func TestSplit_WhatIsNotAppendedHasNotHappened(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 1})
	n := w.start(t.TempDir())
	plan := halves()
	refuse := func(context.Context, func() (feed.LSN, error)) (feed.LSN, error) { return 0, feed.ErrUnavailable }
	n.log.fault(refuse)
	if _, err := n.prepareSplit(t.Context(), plan); !errors.Is(err, errNotAppended) || n.splitting() != nil {
		t.Fatalf("a preparation that was refused: %v; prepared is %+v", err, n.splitting())
	}
	split, err := n.prepareSplit(t.Context(), plan)
	if err != nil || n.splitting() == nil || n.splitting().ID != split.ID {
		t.Fatalf("prepared is %+v: %v", n.splitting(), err)
	}
	abandon := func() error {
		return n.settle(t.Context(), func(d *decider) {
			if err := d.abandon("s", "it was cancelled"); err != nil {
				t.Error(err)
			}
		})
	}
	n.log.fault(refuse)
	if err := abandon(); !errors.Is(err, errNotAppended) || n.gaveUp("s") || n.splitting() == nil {
		t.Fatalf("a cancel that was refused: %v; given up is %t", err, n.gaveUp("s"))
	}
	if again, err := n.prepareSplit(t.Context(), plan); err != nil || again.First != split.First {
		t.Fatalf("prepared again: %+v, %v", again, err)
	}
	if err := abandon(); err != nil || !n.gaveUp("s") || n.splitting() != nil {
		t.Fatalf("a cancel: %v; given up is %t", err, n.gaveUp("s"))
	}
	if is := n.status().Status.AbandonedSplit; is == nil || *is != (store.AbandonedSplit{ID: "s", Why: "it was cancelled"}) {
		t.Errorf("the status tells of %+v", is)
	}
	if _, err := n.prepareSplit(t.Context(), plan); !errors.Is(err, errStopped) {
		t.Errorf("a split that was given up is prepared: %v", err)
	}
}
