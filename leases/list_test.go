package leases_test

import (
	"context"
	"testing"

	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/leases"
)

// A list has each lease, however often they are written meanwhile.
func TestList_WhileLeasesAreWritten(t *testing.T) {
	t.Parallel()
	const count = 12
	s := natstest.Start(t)
	js, _ := connect(t, s)
	a := start(t, js, fast("a"), names(count)...)
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
