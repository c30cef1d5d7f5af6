package processors

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/feed"
)

// TestBackfiller_RestsForOthers: a backfill rests after a page if the feed has brought what others wrote
// meanwhile, as long as its share asks for, and never for what it has written itself.
func TestBackfiller_RestsForOthers(t *testing.T) {
	const pages, took = 3, 40 * time.Millisecond
	resource := Resource{Pipeline: "names", Generation: 2, Role: "check"}
	by := func(p feed.Producer) *feed.Effect { return &feed.Effect{Producer: p} }
	older := resource
	older.Generation = 1
	for name, c := range map[string]struct {
		parts []Part // what the feed brings during a page
		rests bool
	}{
		"nothing comes":                     {nil, false},
		"its own repairs":                   {[]Part{{Commit: &feed.Commit{}, Transaction: &feed.Transaction{Effect: by(resource.Producer())}}}, false},
		"items that were there":             {[]Part{{Commit: &feed.Commit{Walk: &feed.Walk{}}, Transaction: &feed.Transaction{}}}, false},
		"a client's write":                  {[]Part{{Commit: &feed.Commit{}, Transaction: &feed.Transaction{}}}, true},
		"a generation before":               {[]Part{{Commit: &feed.Commit{}, Transaction: &feed.Transaction{Effect: by(older.Producer())}}}, true},
		"a page of the pipeline's fan-outs": {[]Part{{Commit: &feed.Commit{}, Transaction: &feed.Transaction{Effect: by(feed.Producer{Pipeline: "names", Generation: 2, Source: "c/0"})}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				term := &Term{
					Resource: resource, Logger: slog.New(slog.DiscardHandler),
					backfillShare: 0.25, changed: make(chan struct{}, 1), heartbeat: func() {},
				}
				left := pages
				f := NewBackfiller(BackfillRequest{Number: 1}, nil, func(_ context.Context, next *Backfill) error {
					time.Sleep(took)
					term.noteOthers(&Batch{Parts: c.parts})
					left--
					next.Done = left == 0
					return nil
				})
				f.Open(term, &Backfill{Number: 1, Total: 1})
				began := time.Now()
				if err := f.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				want := pages * took
				if c.rests {
					want += (pages - 1) * 3 * took // behind the last there is nothing to rest for
				}
				if is := time.Since(began); is != want {
					t.Errorf("%d pages of %s took %s, want %s", pages, took, is, want)
				}
			})
		})
	}
}
