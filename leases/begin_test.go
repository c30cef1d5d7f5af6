package leases_test

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/leases"
)

// A record is begun once, whoever comes late, and its first holder finds what it begins with.
func TestManager_BeginMakesARecordOnce(t *testing.T) {
	t.Parallel()
	js, _ := connect(t, natstest.Start(t))
	one, other := open(t, js, lasting("a")), open(t, js, lasting("b"))
	for n, m := range []*leases.Manager{one.m, other.m, one.m} {
		if err := m.Begin(t.Context(), "r", []byte{byte('0' + n)}); err != nil {
			t.Fatal(err)
		}
	}
	one.m.SetResources([]string{"r", "held"}, nil)
	found := make(chan string, 2)
	saved := make(chan struct{})
	one.run(t, func(ctx context.Context, h *leases.Held) error {
		if h.Resource() == "r" {
			found <- string(h.Checkpoint())
			if err := h.Save(ctx, []byte("later")); err != nil {
				return err
			}
			close(saved)
		}
		if h.Resource() == "held" {
			found <- "held"
		}
		<-ctx.Done()
		return nil
	})
	for range 2 {
		if is := <-found; is != "0" && is != "held" {
			t.Errorf("the first holder begins with %q", is)
		}
	}
	<-saved
	if err := other.m.Begin(t.Context(), "r", []byte("0")); err != nil {
		t.Fatal(err)
	}
	if err := other.m.Begin(t.Context(), "held", []byte("0")); !errors.Is(err, leases.ErrHeld) {
		t.Errorf("a lease is begun that is held: %v", err)
	}
	held, err := leases.List(t.Context(), js, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range held {
		if l.Resource == "r" && string(l.Checkpoint) != "later" {
			t.Errorf("what came late has set the lease back: %+v", l)
		}
	}
}
