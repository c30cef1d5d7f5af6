package integration_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// TestI5_ACascadesBackfillGoesOnElsewhere takes the lease of a cascade's backfill away when a
// page is about to be in the target and not in the checkpoint: from a process that is
// killed when it is there, and from one that hangs before it and wakes up late. The next
// term reads that page again and none before it, repairs no item a second time, and
// the page that comes late is refused.
func TestI5_ACascadesBackfillGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	const page, products = 1000, 2500 // three pages
	for _, killed := range []bool{true, false} {
		t.Run(fmt.Sprintf("killed=%t", killed), func(t *testing.T) {
			t.Parallel()
			w := newCascadeWorld(t)
			meta, product := w.webstore()
			cfg := categoryNames(meta, product)
			var g errgroup.Group
			g.SetLimit(64)
			for i := range products {
				g.Go(func() error {
					return put(t.Context(), product, productItem{ID: fmt.Sprintf("p%04d", i), CategoryID: "1", CategoryName: "Old"})
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			checks := w.start([]cascade.Config{cfg}, processors.RoleTarget)
			w.Quiet(checks)
			checks.Stop()
			w.category(meta, "1", "New") // nobody fans it out
			partition := partitionOf(t, product, "1")

			goOn := make(chan struct{})
			cfg.Backfill = processors.BackfillRequest{Number: 1, Where: func([]byte) bool { <-goOn; return true }}
			first := w.start([]cascade.Config{cfg}, processors.RoleTarget)
			var requests, looked atomic.Int64
			here := repairedBy(first.Tap)
			there, let := first.Tap.Hold(func(r *store.Request) bool { return r.Repair != nil && requests.Add(1) == 2 })
			close(goOn)
			<-there
			resource := first.Leases[slices.IndexFunc(first.Leases, func(l *storetest.Lease) bool { return l.Resource.Partition == partition })].Resource
			checkpoint := func() *processors.Checkpoint {
				cp, err := processors.DecodeCheckpoint(w.Checkpoints()[resource])
				if err != nil {
					t.Fatal(err)
				}
				return cp
			}
			poll.Until(t, func() error {
				cp := checkpoint()
				return poll.Unless(cp.Backfill != nil && cp.Backfill.Scanned == page && !cp.Backfill.Done, fmt.Sprintf("the checkpoint is %+v", cp))
			})
			if killed {
				for _, l := range first.Leases {
					l.Die() // no checkpoint tells of the page
				}
				let()
				poll.Until(t, func() error { return poll.Unless(here.Load() >= 2*page, fmt.Sprintf("%d items repaired", here.Load())) })
				first.Crash()
			}

			goOn = make(chan struct{})
			cfg.Backfill.Where = func([]byte) bool { <-goOn; looked.Add(1); return true }
			second := w.start([]cascade.Config{cfg}, processors.RoleTarget)
			elsewhere := repairedBy(second.Tap)
			close(goOn)
			w.Quiet(second)
			if !killed { // it wakes up
				let()
				poll.Until(t, func() error { return poll.Unless(len(first.Failures()) > 0, "the late term goes on") })
				err := first.Failures()[0]
				if behind, ok := errors.AsType[*leases.EpochBehindError](err); !errors.Is(err, processors.ErrFenced) || !ok || behind.Seen != second.Leases[0].Epoch() {
					t.Errorf("the late term ended with %v, want ErrFenced", err)
				}
			}
			if n := looked.Load(); n != products-page {
				t.Errorf("the next term has looked at %d items, want the page that no checkpoint tells of and those behind it", n)
			}
			if n := here.Load() + elsewhere.Load(); n != products {
				t.Errorf("%d and %d items were repaired, want each of %d once", here.Load(), elsewhere.Load(), products)
			}
			var cp *processors.Checkpoint // the last one is written a moment after there is nothing left to do
			poll.Until(t, func() error {
				cp = checkpoint()
				return poll.Unless(cp.Backfill != nil && cp.Backfill.Done && len(cp.Jobs) == 0, fmt.Sprintf("when it is done the checkpoint is %+v", cp))
			})
			if f := cp.Backfill; f.Scanned != products || f.Total != products {
				t.Errorf("%d of %d items were scanned, want %d", f.Scanned, f.Total, products)
			} else if n := page + elsewhere.Load(); f.Changed != n {
				t.Errorf("%d items are told as changed, want %d: those that checkpoints know of", f.Changed, n)
			}
			for i := range products {
				if got := w.product(product, "1", fmt.Sprintf("p%04d", i)).CategoryName; got != "New" {
					t.Fatalf("item %d has %q", i, got)
				}
			}
		})
	}
}

// repairedBy counts the items that the repairs of a worker change.
func repairedBy(tap *storetest.Tap) *atomic.Int64 {
	n := new(atomic.Int64)
	tap.OnResponse(func(r *store.Request, resp *store.Response) {
		if r.Repair == nil || resp.Repair == nil {
			return
		}
		for _, status := range resp.Repair.Statuses {
			if status == store.StatusOK {
				n.Add(1)
			}
		}
	})
	return n
}
