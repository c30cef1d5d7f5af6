package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// unread is a FanOut that cannot read some changes, as those whose undo does not fit.
type unread struct {
	*cascade.FanOut
	cannot *atomic.Bool
}

func (u *unread) Process(ctx context.Context, b *processors.Batch) error {
	for range b.Changes() {
		if u.cannot.Load() {
			return processors.Reject(errors.New("its undo does not fit"))
		}
	}
	return u.FanOut.Process(ctx, b)
}

// A change that cannot be read is given up before it is a fan-out. A retry brings what the source
// is now to its copies, also where other fan-outs behind it are finished and forgotten.
func TestI6_ARetryOfAChangeThatWasNoFanOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *cascadeWorld, meta *store.Container)
		want   string // the name in the copy
	}{
		"a rename": {func(w *cascadeWorld, meta *store.Container) { w.tag(meta, "T", "B") }, "B"},
		"a deletion": {func(w *cascadeWorld, meta *store.Container) {
			if err := meta.Delete(w.t.Context(), keyOf(w.t, "tag"), "T"); err != nil {
				w.t.Error(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCascadeWorld(t)
			meta, product := w.webstore()
			w.tag(meta, "T", "A")
			w.put(product, productItem{ID: "P", CategoryID: "1", Tags: []tagItem{{"T", "A"}, {"U", "A"}}})
			cfg := tagNames(meta, product)
			w.start([]cascade.Config{cfg}).Stop() // for the tombstones
			k := w.Worker()
			own := cfg
			own.Source, own.Target = k.Own(meta), k.Own(product)
			cas, err := cascade.Compile(own)
			if err != nil {
				t.Fatal(err)
			}
			var cannot atomic.Bool
			for _, p := range meta.Partitions() {
				k.Run(processors.Task{
					Resource:  processors.Resource{Pipeline: cfg.Pipeline, Generation: cfg.Generation, Role: processors.RoleSource, Partition: p},
					Processor: &unread{cas.FanOut(p).(*cascade.FanOut), &cannot},
				})
			}
			w.Quiet(k)
			cannot.Store(true)
			c.change(w, meta)
			parked := func(n int) {
				t.Helper()
				poll.Until(t, func() error {
					got := 0
					for _, a := range k.Host.Activities() {
						got += len(a.Checkpoint.Parked)
					}
					return poll.Unless(got == n, fmt.Sprintf("%d changes are parked, not %d", got, n))
				})
			}
			parked(1)
			cannot.Store(false)
			w.tag(meta, "U", "B")
			poll.Until(t, func() error {
				return poll.Unless(w.product(product, "1", "P").tagName("U") == "B", "the fan-out behind it is not finished")
			})
			deadLetters, err := w.DeadLetters.List(t.Context(), cfg.Pipeline, 10)
			if err != nil || len(deadLetters) != 1 {
				t.Fatalf("dead letters: %+v, %v", deadLetters, err)
			}
			if err := w.DeadLetters.Retry(t.Context(), cfg.Pipeline, deadLetters[0].ID); err != nil {
				t.Fatal(err)
			}
			parked(0)
			w.Quiet(k)
			if got := w.product(product, "1", "P").tagName("T"); got != c.want {
				t.Errorf("the copy is %q, want %q", got, c.want)
			}
		})
	}
}

// tagName is the name of a tag, empty if the product does not have it.
func (p productItem) tagName(id string) string {
	for _, tag := range p.Tags {
		if tag.ID == id {
			return tag.Name
		}
	}
	return ""
}

var _ processors.Retrier = (*unread)(nil)
