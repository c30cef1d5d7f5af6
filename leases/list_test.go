package leases_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
)

// A list has each lease, however often they are written meanwhile.
func TestList_WhileLeasesAreWritten(t *testing.T) {
	t.Parallel()
	const count = 12
	s := natstest.Start(t)
	js, _ := connect(t, s)
	a := start(t, js, lasting("a"), names(count)...)
	a.waitCount(t, count)
	done := make(chan struct{})
	for i, name := range names(count) {
		if i%2 == 0 {
			continue
		}
		go func() {
			h := a.get(name)
			for {
				select {
				case <-done:
					return
				default:
					_ = h.Save(context.Background(), []byte(name))
				}
			}
		}()
	}
	defer close(done)
	for i := range 300 {
		all, err := leases.List(t.Context(), js, "")
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != count {
			t.Fatalf("list %d has %d leases, want %d", i, len(all), count)
		}
	}
}

// TestKnown has a process that works, one that is announced and never heard of again, and one that has left.
func TestKnown(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js, _ := connect(t, s)
	up := start(t, js, lasting("up"), names(1)...)
	up.waitCount(t, 1)
	up.m.SetLoading([]string{"y", "x"})
	if _, err := leases.Open(t.Context(), js, fast("silent")); err != nil {
		t.Fatal(err)
	}
	left := start(t, js, lasting("left"), names(1)...)
	left.stop()
	if err := <-left.done; err != nil {
		t.Fatal(err)
	}
	want := map[string]leases.ProcessState{"up": leases.ProcessUp, "silent": leases.ProcessSilent, "left": leases.ProcessLeft}
	poll.Until(t, func() error {
		all, err := leases.Known(t.Context(), js, "")
		if err != nil {
			t.Fatal(err)
		}
		got, loading := map[string]leases.ProcessState{}, 0
		for i := range all {
			got[all[i].Node] = all[i].State
			loading += len(all[i].Loading)
			if all[i].Seen.IsZero() || all[i].Silent < 0 {
				t.Errorf("%s was seen at %v, %v seconds ago", all[i].Node, all[i].Seen, all[i].Silent)
			}
		}
		if got["silent"] != leases.ProcessSilent && got["silent"] != leases.ProcessClosed {
			t.Errorf("who has not begun is %s", got["silent"])
		}
		return poll.Unless(maps.Equal(got, want) && loading == 2, fmt.Sprint("known are ", got, ", loading ", loading))
	})
	running, err := leases.Processes(t.Context(), js, "")
	if err != nil || slices.ContainsFunc(running, func(p leases.Process) bool { return p.State == leases.ProcessLeft }) {
		t.Errorf("running are %v, %v", running, err)
	}
}
