package leases_test

import (
	"context"
	"slices"
	"testing"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/leases"
)

// What somebody else adds to a checkpoint stays in it, and its holder goes on holding: its next checkpoint is written, and so
// is its release.
func TestManager_AmendLeavesTheHolder(t *testing.T) {
	t.Parallel()
	js, _ := connect(t, natstest.Start(t))
	one, other := open(t, js, lasting("a")), open(t, js, lasting("b"))
	add := func(m *leases.Manager, resource, what string) {
		t.Helper()
		if err := m.Amend(t.Context(), resource, func(is []byte) []byte {
			if what == "" {
				return nil
			}
			return append(slices.Clone(is), what...)
		}); err != nil {
			t.Fatal(err)
		}
	}
	lease := func() leases.Lease {
		t.Helper()
		held, err := leases.List(t.Context(), js, "")
		if err != nil || len(held) > 1 {
			t.Fatal(held, err)
		}
		if len(held) == 0 {
			return leases.Lease{}
		}
		return held[0]
	}
	add(other.m, "r", "x")
	if l := lease(); l.Resource != "" {
		t.Errorf("a record was made: %+v", l)
	}
	one.m.SetResources([]string{"r"}, nil)
	saved, on := make(chan struct{}), make(chan struct{})
	one.run(t, func(ctx context.Context, h *leases.Held) error {
		for _, checkpoint := range []string{"first", "second"} {
			if err := h.Save(ctx, []byte(checkpoint)); err != nil {
				return err
			}
			saved <- struct{}{}
			<-on
		}
		<-ctx.Done()
		return ctx.Err()
	})
	<-saved
	before := lease()
	add(other.m, "r", "")
	if now := lease(); now.Revision != before.Revision {
		t.Errorf("nothing was added, and the record is another: %+v", now)
	}
	add(other.m, "r", " and late")
	if now := lease(); string(now.Checkpoint) != "first and late" || now.Owner != before.Owner || now.Epoch != before.Epoch {
		t.Errorf("%+v, and before it was amended %+v", now, before)
	}
	on <- struct{}{}
	<-saved
	if now := lease(); string(now.Checkpoint) != "second" || now.Epoch != before.Epoch {
		t.Errorf("the holder's next checkpoint: %+v", now)
	}
	add(other.m, "r", " and late")
	on <- struct{}{}
	one.stop()
	if err := <-one.done; err != nil {
		t.Fatal(err)
	}
	add(other.m, "r", " and later")
	if now := lease(); string(now.Checkpoint) != "second and late and later" || now.Owner != "" || now.Epoch != before.Epoch {
		t.Errorf("when it is released: %+v", now)
	}
}
